"""The embedded node runtime: one `sfio-node serve` per driver, one `sfio-node exec` per job."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from pydantic import ValidationError

from .protocol import EVENT, Event, ExitEvent, JobSpec, StartedEvent

logger = logging.getLogger("streamflow")

_START_SECONDS = 10.0
_STOP_SECONDS = 15.0
_LINE_LIMIT = 2**20
_ENDED = "sfio-node serve has ended"


class NodeRuntimeError(Exception):
    """The node runtime cannot be used; says why."""


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


class NodeJob:
    """A job under `sfio-node exec`, as the driver sees it.

    :ivar directory: its directory in the run directory
    :ivar exit: its last event, when it has come
    """

    def __init__(self, runtime: EmbeddedRuntime, identifier: str, directory: Path) -> None:
        self.identifier = identifier
        self.directory = directory
        self.exit: asyncio.Future[ExitEvent] = asyncio.get_running_loop().create_future()
        self._runtime = runtime
        self._launched = False
        self._pid: int | None = None
        self._events: asyncio.Queue[Event | NodeRuntimeError] = asyncio.Queue()

    @property
    def events_path(self) -> Path:
        return self.directory / "events.jsonl"

    @property
    def pid(self) -> int | None:
        """The process of its `sfio-node exec`, when it runs."""
        return self._pid

    def wrap(self, spec: JobSpec) -> list[str]:
        """Write `job.json` and give the words to put before the command that shall run as this job."""
        self._launched = True
        text = spec.model_dump_json(by_alias=True, exclude_none=True)
        (self.directory / "job.json").write_text(text, encoding="utf-8")
        return [str(self._runtime.binary), "exec", "--job", str(self.directory), "--"]

    async def events(self) -> AsyncIterator[Event]:
        """The events of the job, in order; ends after the exit event. For one reader.

        :raises NodeRuntimeError: if the node runtime ends before the job
        """
        while True:
            event = await self._events.get()
            if isinstance(event, NodeRuntimeError):
                raise event
            yield event
            if isinstance(event, ExitEvent):
                return

    def has_started(self) -> bool:
        """Whether the wrapper of the job has come to run.

        :raises NodeRuntimeError: if the node runtime has ended, and what tells is gone
        """
        if not self.directory.exists():
            raise NodeRuntimeError(_ENDED)
        return self.events_path.exists()

    def abandon(self) -> None:
        """Its command has ended without the wrapper, or will never be started."""
        self._launched = False

    async def cancel(self) -> None:
        """End the job's process tree; returns when it has ended. Does nothing for a job that does not run."""
        if self.exit.done() or not self._launched:
            return
        try:
            # Found by a wrapper that is about to start, too.
            (self.directory / "cancel").touch()
        except OSError:
            # No space, or the run directory is gone.
            self._terminate()
        with contextlib.suppress(asyncio.TimeoutError, NodeRuntimeError):
            await asyncio.wait_for(asyncio.shield(self.exit), _STOP_SECONDS)

    def _terminate(self) -> None:
        if self._pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGTERM)

    def receive(self, event: Event) -> None:
        if isinstance(event, StartedEvent):
            self._pid = event.pid
        self._events.put_nowait(event)
        if isinstance(event, ExitEvent) and not self.exit.done():
            self.exit.set_result(event)

    def lose(self, reason: str) -> None:
        error = NodeRuntimeError(reason)
        self._events.put_nowait(error)
        if not self.exit.done():
            self.exit.set_exception(error)
            self.exit.exception()  # It may be that nobody waits for it.


class EmbeddedRuntime:
    """The node runtime of this driver on its own node.

    The run directory and every process of every job end with the driver, however it ends: `sfio-node serve` sees its
    standard input close.
    """

    def __init__(self, binary: Path, directory: Path, process: asyncio.subprocess.Process) -> None:
        self.binary = binary
        self.directory = directory
        self._process = process
        self._jobs: dict[str, NodeJob] = {}
        self._count = 0
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
        try:
            with tempfile.TemporaryDirectory(prefix="streamflow-io-") as directory:
                os.mkfifo(os.path.join(directory, "fifo"))
        except OSError as error:
            raise NodeRuntimeError(f"no FIFO can be made in {tempfile.gettempdir()}: {error}") from None

    @classmethod
    async def start(cls, parent: Path | None = None) -> EmbeddedRuntime:
        """Start `sfio-node serve`.

        :param parent: where the run directory is made; the default is the directory for temporary files
        :raises NodeRuntimeError: if it cannot be started
        """
        binary = find_sfio_node()
        _watch_children_by_pidfd()
        name = f"streamflow-io-{os.getpid()}-{os.urandom(4).hex()}"
        directory = Path(parent or tempfile.gettempdir()).resolve() / name
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
        return cls(binary, directory, process)

    def create_job(self, name: str) -> NodeJob:
        """Make the directory of a new job.

        :param name: for people who read it; need not be unique
        :raises NodeRuntimeError: if the runtime has ended
        """
        if self._process.returncode is not None:
            raise NodeRuntimeError(_ENDED)
        self._count += 1
        readable = re.sub(r"[^A-Za-z0-9.]+", "-", name).strip("-.")[:80]
        identifier = f"{self._count:06d}-{readable}"
        directory = self.directory / "jobs" / identifier
        directory.mkdir(mode=0o700)
        job = self._jobs[identifier] = NodeJob(self, identifier, directory)
        return job

    async def close(self) -> None:
        """End all jobs and the runtime; nothing is left. May be called twice."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), _STOP_SECONDS)
        except asyncio.TimeoutError:
            logger.warning(f"sfio-node serve (process {self._process.pid}) does not end: killing it")
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
        await asyncio.gather(self._readers, return_exceptions=True)
        shutil.rmtree(self.directory, ignore_errors=True)

    async def _read(self) -> None:
        assert self._process.stdout is not None
        with contextlib.suppress(asyncio.CancelledError):
            async for line in self._process.stdout:
                try:
                    event = EVENT.validate_json(line)
                except ValidationError as error:
                    logger.error(f"sfio-node says what is not understood: {line!r}: {error}")
                    continue
                if (job := self._jobs.get(event.job)) is not None:
                    job.receive(event)
                    if isinstance(event, ExitEvent):
                        del self._jobs[event.job]
        # What is left will not be told how it ends.
        for job in self._jobs.values():
            job.lose(_ENDED)
        self._jobs.clear()

    async def _log(self) -> None:
        assert self._process.stderr is not None
        async for line in self._process.stderr:
            logger.warning(f"sfio-node: {line.decode(errors='replace').rstrip()}")


def _watch_children_by_pidfd() -> None:
    """Wait for processes as Python does from 3.12 on; before, it starts a thread for each, which is slower."""
    if sys.version_info < (3, 12):
        with contextlib.suppress(OSError):  # Linux before 5.3
            os.close(os.pidfd_open(os.getpid()))
            watcher = asyncio.PidfdChildWatcher()
            watcher.attach_loop(asyncio.get_running_loop())
            asyncio.set_child_watcher(watcher)
