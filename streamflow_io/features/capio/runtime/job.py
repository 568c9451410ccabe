"""A job that CAPIO has a part in."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import time
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple, Protocol

from msgspec.structs import replace

from streamflow_io.graph.capio_cl.configuration import application_name
from streamflow_io.processes import descendants
from streamflow_io.runtime.embedded import EmbeddedRuntime
from streamflow_io.runtime.node_commands import AttemptLostError, NodeRuntimeError
from streamflow_io.runtime.node_runtime import NodeJob, Waiting
from streamflow_io.runtime.protocol import CarriedEvent, Event, ExitEvent, JobSpec, OpenedEvent

from .installation import CapioError, Guarded
from .reports import Reading, Reports, parse_reports, reading_obstacle, reports_obstacle
from .server import CapioServer, Collected, client_command
from .supported import COMMIT_CLOSES, HeldOutputs

# A program that hangs under CAPIO uses no processor; one that only waits for something else loses no more than a start.
# With two looks, and the time that they take, it is seen in 20 seconds.
_IDLE_SECONDS = 14.0
_LOOK_SECONDS = 2.0
_COLLECT_SECONDS = 24 * 3600.0
# When the process that feeds a program fails, or is killed, the program is killed, too, while it still waits: it must
# not have an end of file. $0 is a file for its number. Messages of the shell itself are dropped, because the errors of
# a job may go where its standard output goes.
_FEED = """
exec 9>&2 2> /dev/null
{ %(feeding)s 2>&9 9>&- || { until read pid < "$0"; do :; done; kill -KILL "$pid"; }; } |
{ shift %(count)d; exec /bin/sh -c 'echo $$ > "$0"; exec "$@"' "$0" "$@" 2>&9 9>&-; }
"""


class UnfitProgramError(CapioError):
    """With CAPIO a program did not do what it does without."""


class CapioUser(Protocol):
    """Decides which jobs still use CAPIO in a run."""

    def give_up(self, reason: str) -> None:
        """Do not use CAPIO again in this run; one warning says why."""

    def give_up_step(self, step: str, reason: str) -> None:
        """Do not use CAPIO again for the jobs of a step; one warning says why."""

    def probe(self, server: CapioServer, application: str) -> None:
        """Ask a server soon whether it still answers; if not, the server is ended, and its jobs were in vain."""


class CapioJob(NodeJob):
    """A job that writes into CAPIO, reads from it, or both.

    Its last event comes when all of its files that CAPIO holds are in its output directory. If CAPIO fails, the job is
    ended, and was in vain.

    Guarantee: when the job has succeeded, each file that it has written has the bytes and the mode that its program
    gave it. Each file that it has read was read as its writer wrote it, byte by byte.

    :param user: is told of failures
    :param directory: in CAPIO, where its command is started, if it writes there
    :param outputs: the files that it writes there
    """

    def __init__(
        self,
        runtime: EmbeddedRuntime,
        user: CapioUser,
        identifier: str,
        server: CapioServer,
        step: str,
        directory: Path | None,
        outputs: HeldOutputs | None,
        waiting: Waiting | None,
    ) -> None:
        super().__init__(runtime, identifier, waiting)
        self._capio = user
        self._server = server
        self._step = step
        self._application = application_name(step)
        self._directory = directory
        self._outputs = outputs or HeldOutputs({}, ())
        self._watches: list[asyncio.Task[None]] = []
        self._seen: dict[PurePosixPath, None] = {}
        self._checking: asyncio.Task[None] | None = None
        self._telling: asyncio.Task[None] | None = None
        self._failure: str | None = None
        self._root = ""
        self._readings = Readings(identifier, self._reports, super().receive)

    @property
    def _reports(self) -> Path:
        return Path(self.directory, "capio-reports")

    def held(self, port: str, path: str) -> PurePosixPath | None:
        if self._directory is None or port not in self._outputs.streamed:
            return None
        return PurePosixPath(self._directory, path)

    def sees(self, path: PurePosixPath) -> bool:
        # The command of the caller reads the file there: no other runtime is to be asked for it.
        if path.is_relative_to(self._server.directory):
            self._seen[path] = None
            return True
        return False

    def fed(self, path: str) -> list[str]:
        if PurePosixPath(path) not in self._seen:
            return super().fed(path)
        # A program of ours reads it: what opens it would have to hand it on, which CAPIO cannot.
        feeding = client_command("feed", path)
        words = " ".join(f'"${number}"' for number in range(1, len(feeding) + 1))
        script = _FEED % {"feeding": words, "count": len(feeding)}
        return ["/bin/sh", "-c", script, str(Path(self.directory, "fed")), *feeding]

    async def wrap(self, spec: JobSpec) -> list[str]:
        watched = tuple(output for output in spec.outputs if output.port not in self._outputs.streamed)
        words = await super().wrap(replace(spec, outputs=watched))
        self._root = next((output.root for output in spec.outputs if output not in watched), "")
        watches = [self._watch_server(), self._watch_activity()]
        if self._seen:
            watches.append(self._readings.follow(self._server.directory))
        watches += [self._announce(port, name) for port, name in self._outputs.streamed.items()]
        self._watches = [asyncio.create_task(self._until_it_fails(watch)) for watch in watches]
        if self._directory is not None:
            words += ["/bin/sh", "-c", 'cd "$0" && exec "$@"', str(self._directory)]
        beside = await asyncio.to_thread(Path(self._root).resolve) if self._root else None
        guarded = Guarded(self._reports, self._directory, beside, tuple(self._seen))
        return [*words, *self._server.application(self._application, guarded)]

    async def collected(self) -> None:
        with contextlib.suppress(NodeRuntimeError):
            await asyncio.shield(self.exit)

    def blame(self, failure: str) -> None:
        # The program of the step may do what CAPIO does not know.
        self._capio.give_up_step(self._step, failure)
        raise AttemptLostError("CAPIO", failure)

    async def cancel(self) -> None:
        self._end_watches()
        if self._checking is not None:
            self._checking.cancel()
        await super().cancel()
        await asyncio.gather(*self._watches, return_exceptions=True)

    def receive(self, event: Event) -> None:
        if isinstance(event, ExitEvent):
            self._telling = asyncio.create_task(self._tell_end(event))
        else:
            super().receive(event)

    async def _tell_end(self, event: ExitEvent) -> None:
        """Tell of the end, when what CAPIO holds is in the output directory."""
        try:
            if not event.success:
                # A server may wait for ever for a process that was killed.
                self._capio.probe(self._server, self._application)
            if self._failure is None:
                self._checking = asyncio.create_task(self._check(event.success))
                await self._checking
        except asyncio.CancelledError:
            event = replace(event, success=False, reason="cancelled")
        except UnfitProgramError as error:
            self._failure = str(error)
            self._capio.give_up_step(self._step, self._failure)
        except Exception as error:  # Whatever it is: others wait for the end.
            self._give_up(str(error))
        self._end_watches()
        if self._failure is None:
            super().receive(event)
        else:
            self.lose(AttemptLostError("CAPIO", self._failure))

    async def _check(self, has_succeeded: bool) -> None:
        """Look at what its programs did, compare what they have read, and collect and compare what they have written.

        :raises UnfitProgramError: if something is not as it would be without CAPIO
        :raises CapioError: if CAPIO fails
        """
        reports = parse_reports(await asyncio.to_thread(_text, self._reports))
        if not has_succeeded:
            if reports.unfit is not None:
                raise UnfitProgramError(reports_obstacle(reports, ()))
            return
        names = [str(path.relative_to(self._server.directory)) for path in self._seen]
        if (why := reports_obstacle(reports, names)) is not None:
            raise UnfitProgramError(why)
        # A file that is read is final when all its writers have succeeded. If one has not, this job starts again, too.
        if reports.read and self.waiting is not None and not await self.waiting():
            return
        for reading in reports.read:
            await self._compare_reading(reading)
        if self._directory is not None:
            await self._collect(self._directory, reports)
        for reading in reports.read:
            super().receive(self._readings.ended(reading, self._server.directory))

    async def _compare_reading(self, reading: Reading) -> None:
        written = self._server.collected.get(reading.path)
        if written is None:
            raise UnfitProgramError(f"a program has read {reading.path}, and its right content is not known")
        content = written.content
        if 0 < reading.content.count < content.count:
            content = await asyncio.to_thread(self._server.guard.content, written.copy, reading.content.count)
        if (why := reading_obstacle(reading, written.content.count, content.digest)) is not None:
            raise UnfitProgramError(why)

    async def _collect(self, directory: Path, reports: Reports) -> None:
        """The job has succeeded: let its readers see the end of its files, and copy these into the file system."""
        pairs = [path for name in self._outputs.files for path in (str(directory / name), f"{self._root}/{name}")]
        await self._server.client(
            "collect", str(COMMIT_CLOSES), *pairs, application=self._application, seconds=_COLLECT_SECONDS
        )
        await asyncio.to_thread(self._compare_written, pairs, reports)

    def _compare_written(self, pairs: Sequence[str], reports: Reports) -> None:
        contents = reports.contents
        for source, target in zip(pairs[::2], pairs[1::2], strict=True):
            path, copy = os.path.relpath(source, self._server.directory), Path(target)
            content = contents.get(path)
            # What does not load libraries has written past CAPIO, into what is a directory for the kernel, too.
            is_beside = os.path.isfile(source)
            if content is None:
                if is_beside and not copy.exists():
                    shutil.copy2(source, copy)
            elif is_beside:
                raise UnfitProgramError(f"{path} was written with CAPIO's library, and without")
            elif not copy.exists() or self._server.guard.content(copy) != content:
                raise UnfitProgramError(f"CAPIO has not kept {path} as it was written")
            else:
                copy.chmod(reports.modes[path])
                self._server.collected[path] = Collected(copy, content)

    async def _until_it_fails(self, watch: Awaitable[None]) -> None:
        """End the job when a watch fails: the job is of no use then."""
        try:
            await watch
        except NodeRuntimeError as error:
            self._give_up(str(error))
            await super().cancel()

    async def _announce(self, port: str, name: str) -> None:
        assert self._directory is not None
        await self._server.client("wait", str(self._directory / name), application=self._application, seconds=None)
        path = f"{self._root}/{name}"
        super().receive(OpenedEvent(job=self.identifier, time=time.time(), port=port, path=path))

    async def _watch_server(self) -> None:
        await self._server.wait_for_end()
        raise CapioError(self._server.why_ended())

    async def _watch_activity(self) -> None:
        if self.waiting is not None:
            await self.waiting()  # Until then it may rightly wait for others.
        await wait_until_idle(lambda: self.pid, _IDLE_SECONDS, _LOOK_SECONDS)
        raise CapioError(
            f"a job of {self._step} has used no processor for {_IDLE_SECONDS:.0f} s, as if its program hung under CAPIO"
        )

    def _end_watches(self) -> None:
        for watch in self._watches:
            watch.cancel()

    def _give_up(self, reason: str) -> None:
        self._failure = reason
        self._capio.give_up(reason)


def _text(path: Path) -> str:
    """ "" if nothing was reported."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""


_READ_SECONDS = 0.2
# The guard adds whole lines.
_READS = ("opens ", "read ")


class Readings:
    """Follows the reports of a job.

    :param reports: the file with them, which may not be there yet
    :param tell: is told of each file that is opened
    """

    def __init__(self, job: str, reports: Path, tell: Callable[[CarriedEvent], None]) -> None:
        self._job = job
        self._reports = reports
        self._tell = tell
        self._offset = 0
        # By path, when it was opened, and closed, as often as it was.
        self._opened: defaultdict[str, deque[float]] = defaultdict(deque)
        self._closed: defaultdict[str, deque[float]] = defaultdict(deque)

    async def follow(self, directory: Path) -> None:
        """Look again and again, until this is cancelled.

        :param directory: `CAPIO_DIR`, below which the paths of reports are
        """
        while True:
            for path in await asyncio.to_thread(self._look):
                opened = self._opened[path][-1]
                self._tell(CarriedEvent(job=self._job, time=opened, path=str(directory / path), first=opened))
            await asyncio.sleep(_READ_SECONDS)

    def ended(self, reading: Reading, directory: Path) -> CarriedEvent:
        """The event of a reading that was compared, once for each."""
        now = time.time()
        first, last = (times[reading.path] for times in (self._opened, self._closed))
        return CarriedEvent(
            job=self._job,
            time=now,
            path=str(directory / reading.path),
            bytes=reading.content.count,
            first=first.popleft() if first else now,
            last=last.popleft() if last else now,
        )

    def _look(self) -> list[str]:
        """Read what was added, and return what was opened."""
        try:
            with self._reports.open("rb") as file:
                file.seek(self._offset)
                added = file.read()
        except FileNotFoundError:
            return []
        lines = added[: added.rfind(b"\n") + 1]
        self._offset += len(lines)
        now, found = time.time(), []
        for line in lines.decode(errors="replace").splitlines():
            if line.startswith(_READS):
                path = line.split(" ", 1 if line.startswith("opens ") else 4)[-1]
                (self._opened if line.startswith("opens ") else self._closed)[path].append(now)
                found += [path] if line.startswith("opens ") else []
        return found


# Threads of a language's runtime wake up now and then, and may write a line, also when its program waits for ever.
# The limits are shares of one processor, and bytes per second. A program that waits for a slow disk reads more.
_IDLE_SHARE = 0.01
_IDLE_BYTES = 32 * 1024
_TICKS = os.sysconf("SC_CLK_TCK")


class Activity(NamedTuple):
    """The work of processes since they began.

    :ivar ticks: their processor time, in ticks of the kernel
    :ivar transferred: bytes that they have read and written
    """

    processes: frozenset[int]
    ticks: int
    transferred: int


async def wait_until_idle(pid: Callable[[], int | None], seconds: float, interval: float) -> None:
    """Return when the processes below one have done nothing for a while; where there are none, never.

    Sees it no later than two intervals after that while.

    :param pid: gives the process, None as long as there is none
    :param interval: seconds from one look to the next
    """
    last: Activity | None = None
    idle = 0.0
    while idle < seconds:
        await asyncio.sleep(interval)
        root = pid()
        now = None if root is None else await asyncio.to_thread(activity_below, root)
        idle = idle + interval if last is not None and now is not None and is_idle(last, now, interval) else 0.0
        last = now


def is_idle(before: Activity, now: Activity, seconds: float) -> bool:
    """Whether processes have done nothing in some seconds."""
    return (
        now.processes == before.processes != frozenset()
        and now.ticks - before.ticks <= max(1, round(_IDLE_SHARE * _TICKS * seconds))
        and now.transferred - before.transferred <= _IDLE_BYTES * seconds
    )


def activity_below(root: int) -> Activity:
    """The work of the processes below one."""
    found = descendants(root)
    ticks = sum(int(each) for fields in found.values() for each in fields[11:15])
    return Activity(frozenset(found), ticks, sum(map(_transferred, found)))


def _transferred(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    except OSError:
        return 0  # The process has ended, or is another user's.
    return sum(int(line.split()[1]) for line in lines if line.startswith(("rchar:", "wchar:")))
