"""CAPIO's server, started and supervised as a job of the embedded runtime, and CAPIO's library.

One server per run. It lives under `sfio-node exec`, as all jobs do, and so ends with the driver, however that ends.
Its shared memory is removed by the shell around it, and by :meth:`CapioServer.close`. If all of these were killed, the
next run removes it (:func:`remove_leftovers`).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import aiofiles.os
from msgspec import Struct

from streamflow_io.graph.capio_cl.configuration import Configuration
from streamflow_io.graph.capio_cl.language import write_capio_cl
from streamflow_io.runtime.embedded import EmbeddedRuntime
from streamflow_io.runtime.node_commands import NodeRuntimeError
from streamflow_io.runtime.node_runtime import NodeJob
from streamflow_io.runtime.protocol import CommandSpec, JobSpec

from .installation import SERVER, CapioError, Guard, Guarded, Installation, UnfitPathError
from .reports import Content
from .supported import job_directory

logger = logging.getLogger("streamflow")

_STARTED = "successfully started"
_START_SECONDS = 15.0
_CLIENT_SECONDS = 20.0
_PROBE_SECONDS = 5.0
_SHARED_MEMORY = Path("/dev/shm")
_PREFIX = "sfio"
_NAME = re.compile(rf"{_PREFIX}-(\d+)-([0-9a-f]{{4}})[0-9a-f]{{4}}")
# What a program with open files has there while it becomes another one is named after its thread only.
_SNAPSHOT = re.compile(r"capio_snapshot_(?:path_)?(\d+)")
# A request to the server has room for 256 characters, and is not checked.
_LONGEST_PATH = 200
_CLIENT = Path(__file__).with_name("client.py")
# Without it CAPIO-CL listens to the network for commits on other nodes.
_MONITORS = "[monitor]\nfilesystem.enabled = false\nmcast.enabled = false\n"
# What the shell around the server says of a signal.
_SIGNALLED = 128
# Ends the server when it is to end itself, and leaves nothing of it. When the driver is gone there is half a second.
_SUPERVISOR = """
name=$1; shift
clean() { rm -f /dev/shm/*"$name"*; }
"$@" & server=$!
trap 'ended=1' TERM INT HUP
wait $server; code=$?
[ -z "$ended" ] || kill -TERM $server 2>/dev/null
for turn in 1 2 3; do kill -0 $server 2>/dev/null || break; sleep 0.1; done
kill -KILL $server 2>/dev/null
clean; sleep 0.05; clean
exit $code
"""


def server_name() -> str:
    """A new name for the server of a run: by it one knows whether the run is over."""
    return f"{_PREFIX}-{os.getpid()}-{_namespace()}{os.urandom(2).hex()}"


def _namespace() -> str:
    """The namespace of process numbers: containers may share the memory, and number their processes by themselves."""
    return f"{os.stat('/proc/self/ns/pid').st_ino & 0xFFFF:04x}"


def remove_leftovers() -> None:
    """Remove from shared memory what is left of runs that were killed with all that was to clean up after them.

    A server whose names are removed ends, with exit code 1. So names of another namespace of processes stay: it is not
    known here whether their run is over.
    """
    for entry in _SHARED_MEMORY.glob(f"*{_PREFIX}-*"):
        match = _NAME.search(entry.name)
        if match is not None and match[2] == _namespace() and not Path("/proc", match[1]).exists():
            _unlink(entry)
    _remove_snapshots()


def _remove_snapshots() -> None:
    """Remove snapshots of this user's programs that were killed during an `exec`. No program needs such a snapshot."""
    for entry in _SHARED_MEMORY.glob("capio_snapshot_*"):
        match = _SNAPSHOT.match(entry.name)
        with contextlib.suppress(OSError):
            if match and entry.stat().st_uid == os.getuid() and not Path("/proc", match[1]).exists():
                entry.unlink()


# Gives the configuration for a workflow name and a `CAPIO_DIR`.
Configure = Callable[[str, str], Configuration]


class _EndedError(CapioError):
    """The server has ended before it was ready."""


class Collected(Struct, frozen=True):
    """A file of CAPIO's as it was written, and has been copied into the file system."""

    copy: Path
    content: Content


class CapioServer:
    """A running `capio_server`.

    :ivar name: of its workflow: what it has in shared memory is named so
    :ivar directory: `CAPIO_DIR`
    :ivar collected: what jobs have written that have succeeded, by the path relative to `CAPIO_DIR`
    """

    def __init__(
        self, installation: Installation, runtime: EmbeddedRuntime, name: str, job: NodeJob, guard: Guard
    ) -> None:
        self.installation = installation
        self.guard = guard
        self.collected: dict[str, Collected] = {}
        self.name = name
        self.directory = Path(job.directory) / "d"
        self._runtime = runtime
        self._job = job
        self._log = Path(job.directory) / "capio.log"
        self._number = 0

    @classmethod
    async def start(cls, installation: Installation, runtime: EmbeddedRuntime, configure: Configure) -> CapioServer:
        """Start a server, and wait until it says that it is ready. One that ends before that is started once more.

        :raises CapioError: if the server does not start in time; with the end of its output
        """
        try:
            return await cls._start(installation, runtime, configure)
        except _EndedError as error:
            logger.info(f"{error}. It is started once more")
            return await cls._start(installation, runtime, configure)

    @classmethod
    async def _start(cls, installation: Installation, runtime: EmbeddedRuntime, configure: Configure) -> CapioServer:
        name = server_name()
        job = await runtime.create_job("capio")
        server = cls(installation, runtime, name, job, await asyncio.to_thread(Guard.build, Path(job.directory)))
        await aiofiles.os.mkdir(server.directory)
        configuration, monitors = (Path(job.directory) / name for name in ("capio-cl.json", "capio-cl.toml"))
        document = write_capio_cl(configure(name, str(server.directory)), "1.1")
        document["configuration"] = str(monitors)
        async with aiofiles.open(monitors, "w", encoding="utf-8") as file:
            await file.write(_MONITORS)
        async with aiofiles.open(configuration, "w", encoding="utf-8") as file:
            await file.write(json.dumps(document, indent=1))
        command = ["/bin/sh", "-c", _SUPERVISOR, "capio", name, str(installation.server), "-c", str(configuration)]
        log = str(server._log)
        spec = JobSpec(name="capio_server", command=CommandSpec(stdout=log, stderr=log))
        await _spawn(job, spec, command, {**os.environ, **server._environment()}, Path(job.directory))
        try:
            await server._wait_until_ready()
        except BaseException:
            await asyncio.shield(server.close())
            raise
        return server

    @property
    def has_ended(self) -> bool:
        return self._job.exit.done()

    def why_ended(self) -> str:
        """One sentence: how it ended, with the last that it said."""
        return f"{SERVER} has ended{_how(self._job)}: {self._last_words()}"

    async def wait_for_end(self) -> None:
        """Return when the server has ended, which it does not by itself."""
        await _exit_of(self._job)

    def application(self, name: str, guarded: Guarded | None = None) -> list[str]:
        """The words to put before a command, so that it runs as an application with CAPIO's library.

        The library is loaded into the command itself, and what it starts, but into nothing before it.

        :param guarded: the rights of the command. None: the command is ours, and needs no guard
        """
        environment, libraries = self._environment(), self.installation.preloaded
        if guarded is not None:
            environment |= self.guard.environment(guarded)
            libraries = (self.guard.library, *libraries)
        words = [f"{key}={value}" for key, value in environment.items()]
        return ["/usr/bin/env", *words, f"CAPIO_APP_NAME={name}", f"LD_PRELOAD={':'.join(map(str, libraries))}"]

    async def new_directory(self, application: str) -> Path:
        """Make a directory for one attempt of a job.

        :raises UnfitPathError: if CAPIO cannot take its path
        :raises CapioError: if it cannot be made
        """
        self._number += 1
        directory = self.directory / job_directory(application, self._number)
        if len(str(directory)) > _LONGEST_PATH or any(character.isspace() for character in str(directory)):
            raise UnfitPathError(
                f"CAPIO takes paths of {_LONGEST_PATH} characters at most, without spaces: {directory}"
            )
        await self.client("make", str(directory), application=application)
        # For the kernel, as the directory that the command is started in.
        await aiofiles.os.makedirs(directory, exist_ok=True)
        return directory

    async def client(self, *arguments: str, application: str, seconds: float | None = _CLIENT_SECONDS) -> None:
        """Do something that needs CAPIO's library: see :mod:`.client`.

        When it is cancelled, the process is ended.

        :raises CapioError: if it fails, or takes longer
        """
        job = await self._runtime.create_job(f"capio-{arguments[0]}")
        said = str(job.directory / "said")
        spec = JobSpec(name=arguments[0], command=CommandSpec(stdout=said, stderr=said))
        command = [*self.application(application), *client_command(*arguments)]
        await _spawn(job, spec, command, os.environ, self._runtime.directory)
        try:
            await self._end_of(job, arguments[0], seconds)
        finally:
            await asyncio.shield(job.cancel())

    async def probe(self, application: str) -> None:
        """Ask the server for something, in a few seconds.

        :raises CapioError: if it does not answer
        """
        self._number += 1
        directory = self.directory / job_directory(application, self._number)
        await self.client("make", str(directory), application=application, seconds=_PROBE_SECONDS)

    async def end(self) -> None:
        """End the server; what waits for it sees that."""
        await self._job.cancel()

    async def _end_of(self, job: NodeJob, what: str, seconds: float | None) -> None:
        waiting = {asyncio.ensure_future(_exit_of(self._job)), asyncio.ensure_future(_exit_of(job))}
        try:
            await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for future in waiting:
                future.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
        if not job.exit.done():
            raise CapioError(self.why_ended() if self.has_ended else f"CAPIO does not answer ({what})")
        if not (event := job.exit.result()).success:
            if event.signal == signal.SIGALRM:
                raise CapioError(f"CAPIO does not answer ({what})")
            text = (await asyncio.to_thread(_read, Path(job.directory, "said"))).strip()
            raise CapioError(f"with CAPIO's library, `{what}` has ended{_how(job)}: {text[-500:] or 'it says nothing'}")

    async def close(self) -> None:
        """End the server; nothing of it is left in shared memory, nor its directory. May be called twice."""
        await self._job.cancel()
        await asyncio.to_thread(self._remove)

    def _remove(self) -> None:
        for entry in _SHARED_MEMORY.glob(f"*{self.name}*"):
            _unlink(entry)
        _remove_snapshots()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _environment(self) -> dict[str, str]:
        return {"CAPIO_DIR": str(self.directory), "CAPIO_WORKFLOW_NAME": self.name}

    async def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while _STARTED not in await asyncio.to_thread(_read, self._log):
            if self.has_ended:
                raise _EndedError(self.why_ended())
            if time.monotonic() > deadline:
                raise CapioError(
                    f"{self.installation.server} does not start in {_START_SECONDS:.0f} s: {self._last_words()}"
                )
            await asyncio.sleep(0.02)

    def _last_words(self) -> str:
        lines = [re.sub(r"\x1b\[[0-9;]*m", "", line).strip() for line in _read(self._log).splitlines()]
        return " / ".join([line for line in lines if line][-3:])[-500:] or "it says nothing"


def client_command(*arguments: str) -> list[str]:
    """The words of a command that does something with CAPIO's library: see :mod:`.client`."""
    return [sys.executable, "-I", "-S", str(_CLIENT), *arguments]


def _how(job: NodeJob) -> str:
    """By which signal, or with which exit code, a job has ended; with "" if that is not known."""
    if not job.exit.done() or job.exit.exception() is not None:
        return ""
    event = job.exit.result()
    number = event.signal if event.code is None else event.code - _SIGNALLED
    if number is not None and number > 0:
        with contextlib.suppress(ValueError):
            return f" by {signal.Signals(number).name}"
    return "" if event.code is None else f" with exit code {event.code}"


async def _exit_of(job: NodeJob) -> None:
    with contextlib.suppress(NodeRuntimeError):
        await asyncio.shield(job.exit)


async def _spawn(
    job: NodeJob, spec: JobSpec, command: Sequence[str], environment: Mapping[str, str], directory: Path
) -> None:
    await asyncio.create_subprocess_exec(
        *await job.wrap(spec),
        *command,
        cwd=directory,
        env=dict(environment),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _unlink(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)
