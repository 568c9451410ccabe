"""The embedded node runtime: one `sfio-node serve` per driver, one `sfio-node exec` per job."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path, PurePath

import aiofiles.os

from streamflow_io.files import stranger

from .node_runtime import ENDED, NodeJob, NodeRuntime, NodeRuntimeError

logger = logging.getLogger("streamflow")

_START_SECONDS = 10.0
_LINE_LIMIT = 2**20


def find_sfio_node() -> Path:
    """Find the `sfio-node` binary: `SFIO_NODE` in the environment, beside the Python interpreter, or on the PATH.

    :raises NodeRuntimeError: if there is none
    """
    if (name := os.environ.get("SFIO_NODE")) is not None:
        candidates = [name]
    else:
        candidates = [str(Path(sys.executable).with_name("sfio-node")), shutil.which("sfio-node") or ""]
    for candidate in candidates:
        if candidate and os.access(candidate, os.X_OK):
            return Path(candidate).absolute()
    raise NodeRuntimeError(
        "sfio-node is not installed: reinstall streamflow-io from a wheel, or where cargo is present, "
        "or name it in SFIO_NODE"
    )


class EmbeddedRuntime(NodeRuntime):
    """The node runtime of this driver on its own node.

    The run directory and every process of every job end with the driver, however it ends: `sfio-node serve` sees its
    standard input close.
    """

    directory: Path

    def __init__(self, binary: Path, directory: Path, process: asyncio.subprocess.Process) -> None:
        super().__init__("the driver's node", str(binary), directory)
        self._process = process
        self._readers = asyncio.gather(self._read(), self._log())

    @staticmethod
    def check() -> None:
        """Look whether the node runtime can work here, without leaving anything behind.

        :raises NodeRuntimeError: if it cannot, with the reason
        """
        binary = find_sfio_node()
        try:
            subprocess.run([binary, "--version"], check=True, capture_output=True, timeout=_START_SECONDS)
        except (OSError, subprocess.SubprocessError) as error:
            raise NodeRuntimeError(f"{binary} cannot be run: {error}") from None
        temporary = tempfile.gettempdir()
        if (why := stranger(Path(temporary))) is not None:
            raise NodeRuntimeError(f"the directory for temporary files, {temporary}, is not safe: {why}: set TMPDIR")
        try:
            with tempfile.TemporaryDirectory(prefix="streamflow-io-") as directory:
                os.mkfifo(os.path.join(directory, "fifo"))
        except OSError as error:
            raise NodeRuntimeError(f"no FIFO can be made in {tempfile.gettempdir()}: {error}") from None

    @staticmethod
    async def start(parent: Path | None = None) -> EmbeddedRuntime:
        """Start `sfio-node serve`; see :func:`serve`."""
        return EmbeddedRuntime(*await serve(parent))

    def _add(self, name: str, make: Callable[[str], NodeJob]) -> NodeJob:
        if self._process.returncode is not None:
            raise NodeRuntimeError(ENDED)
        job = super()._add(name, make)
        # In place: to change threads takes longer than this one call, and every job waits for it.
        os.mkdir(job.directory, 0o700)
        return job

    async def write_spec(self, job: NodeJob, text: str) -> None:
        # In one go: aiofiles changes threads for each of its operations, and every job waits for this.
        await asyncio.to_thread(_write_new, job.directory / "job.json", text)

    async def has_events(self, job: NodeJob) -> bool:
        if not await aiofiles.os.path.exists(job.directory):
            raise NodeRuntimeError(ENDED)
        return await aiofiles.os.path.exists(job.events_path)

    async def request_cancel(self, job: NodeJob) -> None:
        try:
            # Found by a wrapper that is about to start, too.
            async with aiofiles.open(job.directory / "cancel", "w"):
                pass
        except OSError:
            # No space, or the run directory is gone.
            if job.pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(job.pid, signal.SIGTERM)

    async def run(self, words: list[str], seconds: float) -> tuple[str, int]:
        output = asyncio.subprocess.PIPE
        try:
            process = await asyncio.create_subprocess_exec(
                *words, stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=asyncio.subprocess.STDOUT
            )
        except OSError as error:
            raise NodeRuntimeError(f"{words[0]} cannot be run: {error}") from None
        try:
            said, _ = await asyncio.wait_for(process.communicate(), seconds)
        except asyncio.TimeoutError:
            raise NodeRuntimeError(f"{words[0]} does not end within {seconds:.0f} s") from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert process.returncode is not None
        return said.decode(errors="replace").strip(), process.returncode

    async def close(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), self.stop_seconds)
        except asyncio.TimeoutError:
            logger.warning(f"sfio-node serve (process {self._process.pid}) does not end: killing it")
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
        await asyncio.gather(self._readers, return_exceptions=True)
        await asyncio.to_thread(shutil.rmtree, self.directory, ignore_errors=True)

    async def _read(self) -> None:
        assert self._process.stdout is not None
        reason = ENDED
        try:
            async for line in self._process.stdout:
                self.receive(line)
        except asyncio.CancelledError:
            pass
        except ValueError as error:
            reason = f"sfio-node serve says a line that is too long: {error}"
        # What is left will not be told how it ends.
        self.lose(reason)

    async def _log(self) -> None:
        assert self._process.stderr is not None
        async for line in self._process.stderr:
            logger.warning(f"sfio-node: {line.decode(errors='replace').rstrip()}")


async def serve(parent: Path | None = None) -> tuple[Path, Path, asyncio.subprocess.Process]:
    """Start `sfio-node serve`.

    :param parent: where the run directory is made; the default is the directory for temporary files
    :return: the binary, the run directory, the process
    :raises NodeRuntimeError: if it cannot be started
    """
    binary = find_sfio_node()
    _watch_children_by_pidfd()
    name = f"streamflow-io-{os.getpid()}-{os.urandom(4).hex()}"
    directory = (await asyncio.to_thread(Path(parent or tempfile.gettempdir()).resolve)) / name
    process = await asyncio.create_subprocess_exec(
        str(binary), "serve", "--directory", str(directory),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        start_new_session=True, limit=_LINE_LIMIT,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        line = await asyncio.wait_for(process.stdout.readline(), _START_SECONDS)
    except asyncio.TimeoutError:
        line = b""
    if b'"ready"' not in line:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        message = (await process.stderr.read()).decode(errors="replace").strip()
        raise NodeRuntimeError(f"{binary} serve does not start: {message or 'it says nothing'}")
    return binary, directory, process


def _write_new(path: PurePath, text: str) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)


def _watch_children_by_pidfd() -> None:
    """Wait for processes as Python does from 3.12 on; before, it starts a thread for each, which is slower."""
    if sys.version_info < (3, 12):
        with contextlib.suppress(OSError):  # Linux before 5.3
            os.close(os.pidfd_open(os.getpid()))
            watcher = asyncio.PidfdChildWatcher()
            watcher.attach_loop(asyncio.get_running_loop())
            asyncio.set_child_watcher(watcher)
