"""The embedded node runtime: one `sfio-node serve` per driver, one `sfio-node exec` per job."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path, PurePath

import aiofiles.os

from streamflow_io.files import stranger
from streamflow_io.processes import kill_process, start_process

from .binary import DIRECTORY, other_build
from .conversation import ProcessConversation, follow, ready
from .locations import Place
from .node_commands import NodeRuntimeError, unsafe_workdir
from .node_runtime import ENDED, Made, NodeJob, NodeRuntime
from .protocol import FoundFile
from .session_job import LocalSessionJob
from .wire import identity_of

_START_SECONDS = 10.0


def find_sfio_node() -> Path:
    """Find the `sfio-node` binary: `SFIO_NODE` in the environment, beside the Python interpreter, or on the PATH.

    :raises NodeRuntimeError: if no binary is found
    """
    if (name := os.environ.get("SFIO_NODE")) is not None:
        candidates = [name]
    else:
        candidates = [str(Path(sys.executable).with_name("sfio-node")), shutil.which("sfio-node") or ""]
    for candidate in candidates:
        if candidate and os.access(candidate, os.X_OK):
            return Path(candidate).absolute()
    raise NodeRuntimeError(
        "sfio-node is not installed: reinstall streamflow-io from a wheel, or on a machine with cargo, or set "
        "SFIO_NODE to the program"
    )


class EmbeddedRuntime(NodeRuntime):
    """The node runtime of this driver on its own node.

    The run directory and every process of every job end with the driver, however it ends: `sfio-node serve` sees its
    standard input close.
    """

    directory: Path
    is_here = True

    def __init__(self, binary: Path, directory: Path, conversation: ProcessConversation) -> None:
        super().__init__("the driver's node", str(binary), directory)
        self._conversation = conversation
        self._following = asyncio.create_task(self._follow())

    @staticmethod
    def check_this_node() -> None:
        """Check that the node runtime can work here, without leaving anything behind.

        :raises NodeRuntimeError: if it cannot, with the reason
        """
        binary = find_sfio_node()
        try:
            words = [str(binary), "--version"]
            said = subprocess.run(words, check=True, capture_output=True, timeout=_START_SECONDS).stdout
        except (OSError, subprocess.SubprocessError) as error:
            raise NodeRuntimeError(f"{binary} cannot be run: {error}") from None
        if (why := other_build(said.decode(errors="replace"))) is not None:
            raise NodeRuntimeError(f"{binary} cannot be used: {why}")
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

    @staticmethod
    async def start_beside(workdir: str) -> EmbeddedRuntime:
        """Start `serve` with its run directory in a work directory that containers see: their jobs can read there.

        If other users could replace files there, or the directory cannot be written, the start is the usual one.
        """
        try:
            parent = await asyncio.to_thread(_own_directory, Path(workdir))
        except OSError:
            return await EmbeddedRuntime.start()
        runtime = EmbeddedRuntime(*await serve(parent, "--readable"))
        runtime.place = Place()
        return runtime

    def create_session(self, name: str) -> LocalSessionJob:
        """Create a read session.

        :param name: for people; need not be unique
        :raises NodeRuntimeError: if the runtime has ended
        """
        return self._add(name, partial(LocalSessionJob, self))

    def _add(self, name: str, make: Callable[[str], Made]) -> Made:
        if self._conversation.has_ended:
            raise NodeRuntimeError(ENDED)
        job = super()._add(name, make)
        try:
            # Without a thread: to change threads takes longer than this call, and every job waits for it.
            os.mkdir(job.directory, 0o700 if self.place is None else 0o711)
        except OSError as error:
            del self._jobs[job.identifier]
            raise self._not_made("the directory of a job cannot be made", error) from error
        return job

    async def check_workdir(self, workdir: str) -> None:
        def look() -> str | None:
            directory = Path(workdir)
            directory.mkdir(parents=True, exist_ok=True)
            return stranger(directory, trusts_groups=True)

        try:
            why = await asyncio.to_thread(look)
        except OSError as error:
            raise NodeRuntimeError(f"the work directory {workdir} cannot be looked at: {error.strerror}") from error
        if why is not None:
            raise unsafe_workdir(workdir, why)

    async def write_spec(self, job: NodeJob, text: str) -> None:
        # Without a thread, as its directory is made.
        try:
            _write(job.directory / "job.json", os.O_EXCL, text)
        except OSError as error:
            raise self._not_made("job.json cannot be written", error) from error

    def _not_made(self, what: str, error: OSError) -> NodeRuntimeError:
        """Return an error that says what to do if the disk is full, or that `sfio-node serve` has ended."""
        if isinstance(error, FileNotFoundError):
            return NodeRuntimeError(ENDED)
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            return NodeRuntimeError(f"{what}: {error}")
        other = "TMPDIR" if self.place is None else "workdir"
        to_do = f"Remove files from its file system, or set another `{other}`"
        return NodeRuntimeError(f"{what}: {error.strerror}: {self.directory}. {to_do}")

    async def has_events(self, job: NodeJob) -> bool:
        if not await aiofiles.os.path.exists(job.directory):
            raise NodeRuntimeError(ENDED)
        return await aiofiles.os.path.exists(job.events_path)

    async def request_cancel(self, job: NodeJob) -> None:
        try:
            # A wrapper that is about to start finds this file, too.
            async with aiofiles.open(job.directory / "cancel", "w"):
                pass
        except OSError:
            # The disk is full, or the run directory is gone.
            if job.pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(job.pid, signal.SIGTERM)

    async def write_limits(self, job: NodeJob, text: str) -> None:
        # Without a thread: this takes less time than to change threads.
        new = job.directory / "limit.new"
        try:
            _write(new, os.O_TRUNC, text)
            os.replace(new, job.directory / "limit")
        except OSError as error:
            raise self._not_made("limit cannot be written", error) from error

    async def find(self, path: PurePath | str) -> FoundFile:
        # Without a process: each declared split asks for it.
        def look() -> FoundFile:
            return FoundFile(path=os.path.realpath(path), identity=identity_of(os.stat(path)))

        try:
            return await asyncio.to_thread(look)
        except OSError as error:
            raise NodeRuntimeError(f"{path}: {error.strerror}") from error

    async def run(self, words: list[str], seconds: float) -> tuple[str, int]:
        output = asyncio.subprocess.PIPE
        try:
            process = await start_process(words, asyncio.subprocess.DEVNULL, output, asyncio.subprocess.STDOUT)
        except OSError as error:
            raise NodeRuntimeError(f"{words[0]} cannot be run: {error}") from None
        try:
            said, _ = await asyncio.wait_for(process.communicate(), seconds)
        except asyncio.TimeoutError:
            raise NodeRuntimeError(f"{words[0]} does not end within {seconds:.0f} s") from None
        finally:
            if process.returncode is None:
                await kill_process(process)
        assert process.returncode is not None
        return said.decode(errors="replace").strip(), process.returncode

    async def _follow(self) -> None:
        await follow(self._conversation, self, "sfio-node", ENDED)
        # A `serve` that succeeds has removed the directory. What is there afterwards belongs to another user.
        if not await self._conversation.succeeds():
            await self.clear()

    async def close(self) -> None:
        await self._conversation.close(self.stop_seconds)
        await asyncio.gather(self._following, return_exceptions=True)
        await asyncio.to_thread(shutil.rmtree, self.directory, ignore_errors=True)


async def serve(parent: Path | None = None, *options: str) -> tuple[Path, Path, ProcessConversation]:
    """Start `sfio-node serve`.

    :param parent: where the run directory is made; None: the directory for temporary files
    :return: the binary, the run directory, the process
    :raises NodeRuntimeError: if it cannot be started
    """
    binary = find_sfio_node()
    name = f"streamflow-io-{os.getpid()}-{os.urandom(16).hex()}"
    directory = (await asyncio.to_thread(Path(parent or tempfile.gettempdir()).resolve)) / name
    try:
        conversation = await ProcessConversation.start([str(binary), "serve", "--directory", str(directory), *options])
    except OSError as error:
        raise NodeRuntimeError(f"{binary} serve does not start: {error}") from None
    try:
        await ready(conversation, f"{binary} serve", _START_SECONDS)
    except BaseException:
        await asyncio.shield(conversation.close(0))
        raise
    return binary, directory, conversation


def _own_directory(workdir: Path) -> Path:
    """Make and return the plugin's own directory in a work directory, as in containers.

    :raises OSError: if it cannot be made, or other users could replace files there
    """
    workdir.mkdir(parents=True, exist_ok=True)
    directory = workdir.resolve() / f"{DIRECTORY}-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        directory.mkdir(mode=0o711)
    if (why := stranger(directory)) is not None:
        raise PermissionError(why)
    return directory


def _write(path: PurePath, flag: int, text: str) -> None:
    """Write a file for its owner alone.

    :param flag: of open(2), for a file that exists already
    """
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | flag, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
