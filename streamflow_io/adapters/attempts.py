"""The running jobs that other jobs read from: their attempts, and how each attempt ended.

A gang is retried as one. A consumer reads from one attempt of each of its producers. If that attempt fails, the
consumer starts again with the next one. This module knows nothing of StreamFlow.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Set
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, cast

from msgspec import Struct, field

if TYPE_CHECKING:
    from streamflow.core.workflow import Token

    from streamflow_io.runtime.node_runtime import NodeJob
    from streamflow_io.runtime.protocol import CommittedEvent, StreamPart


# Return the final token of a file or directory, by output port and path.
Collect = Callable[[str, str], "Awaitable[Token]"]
Replacement = Callable[[str, str], "Token | None"]


def _none(port: str, path: str) -> None:
    return None


# A future holds much less memory than an event, and the attempts of streams are kept until the run ends.
def _new_moment() -> asyncio.Future[None]:
    return asyncio.get_running_loop().create_future()


def _reach(moment: asyncio.Future[None]) -> None:
    if not moment.done():
        moment.set_result(None)


class ProducerFailedError(Exception):
    """A job that other jobs read from has failed for good, or is not in this run."""


class ProducerMovesError(Exception):
    """A job that other jobs read from gives up its place, and waits for another one.

    A job that waits for it gives up its own place, too: the other job may need what this one holds there.
    """


class Attempt(Struct, eq=False):
    """One run of a job.

    :ivar output_directory: the directory that the attempt writes to, at its location
    :ivar node_job: the attempt as the node runtime at its location has it; None: the attempt runs without a node
        runtime
    :ivar succeeded: whether the job, and every job that it streams from, has succeeded
    :ivar gave_way: the attempt was ended to free its node for a producer that waited in the queue
    :ivar committed: (port, path relative to the output directory) of each commit before the job ended; path None: the
        output as a whole
    :ivar parts: what the attempt has read of streams that it left before their end, and before their commit
    :ivar largest: the most bytes that the file of a stream may have, by the identity of the stream's token
    :ivar windows: the outputs whose bytes are discarded when their readers have them
    :ivar lost: is done when a reader needs the file of a window once more
    :ivar readers: by the name of a job that reads a window: whether the job needs no more of it
    :ivar collect: returns the final token of an output; None: no job reads this attempt
    :ivar replacement: returns the token of the file that an output is now, by port and former path; None: no change
    """

    output_directory: PurePosixPath
    node_job: NodeJob | None = None
    gave_way: bool = False
    succeeded: asyncio.Future[bool] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    committed: Set[tuple[str, str | None]] = frozenset()
    parts: list[StreamPart] = field(default_factory=list)
    largest: Mapping[int, int] = field(default_factory=dict)
    windows: Set[str] = frozenset()
    lost: asyncio.Future[None] = field(default_factory=_new_moment)
    readers: dict[str, asyncio.Event] = field(default_factory=dict)
    collect: Collect | None = None
    replacement: Replacement = _none
    # By port and path. Thousands may wait, and a commit wakes only the readers of its file.
    _waiting: dict[tuple[str, str], asyncio.Event] = field(default_factory=dict)
    _has_started: asyncio.Future[None] = field(default_factory=_new_moment)
    # Nothing is left of the attempt but its readers.
    _waits_for_readers: asyncio.Future[None] = field(default_factory=_new_moment)

    def start(self) -> None:
        """Mark that the command runs; before, the attempt may wait in the queue of a queue manager."""
        _reach(self._has_started)

    @property
    def has_started(self) -> bool:
        return self._has_started.done()

    async def started(self) -> None:
        """Wait until the command runs, or the attempt has ended."""
        await asyncio.wait((self._has_started,))

    def settle(self, port: str, path: str | None = None) -> None:
        """Wake the readers that wait for a file, which is committed; without a path, for any file of the output."""
        self._wake(*(waited for waited in self._waiting if waited[0] == port) if path is None else [(port, path)])

    @property
    def has_failed(self) -> bool:
        return self.succeeded.done() and not self.succeeded.result()

    def end(self, succeeded: bool) -> None:
        if not self.succeeded.done():
            self.succeeded.set_result(succeeded)
            _reach(self._has_started)
            self._wake(*self._waiting)

    async def settled(self, port: str, path: str) -> bool:
        """Wait until a file or directory is final: committed by its rule, or the job has succeeded.

        :return: whether the file is final; false: the attempt failed before
        """
        while not (self._has_committed(port, path) or self.succeeded.done()):
            await self._waiting.setdefault((port, path), asyncio.Event()).wait()
        return self._has_committed(port, path) or self.succeeded.result()

    @property
    def discarded(self) -> Mapping[str, CommittedEvent]:
        """By output: the commit of a file that is not there as a whole any more."""
        return {} if self.node_job is None else self.node_job.discarded

    def lose(self) -> None:
        """Let the attempt fail, because a reader of a window needs the file once more."""
        _reach(self.lost)
        for reader in self.readers.values():
            reader.set()

    async def has_been_read(self) -> bool:
        """Wait until no reader of a window can need the file once more.

        :return: false: a reader does
        """
        _reach(self._waits_for_readers)
        for reader in list(self.readers.values()):
            await reader.wait()
        return not self.lost.done()

    async def has_succeeded(self, reader: str) -> bool:
        """Wait until it is known whether a job can get a file of this attempt.

        :param reader: the name of the job. If the job reads a window, the attempt may wait for this very job
        :return: false: the attempt has failed, or has no whole file for the job
        """
        waits = [self._waits_for_readers] if reader in self.readers else []
        moments = cast("set[asyncio.Future[object]]", {self.succeeded, *waits})
        await asyncio.wait(moments, return_when=asyncio.FIRST_COMPLETED)
        return self.succeeded.done() and self.succeeded.result()

    def _has_committed(self, port: str, path: str) -> bool:
        return (port, path) in self.committed or (port, None) in self.committed

    def _wake(self, *waited: tuple[str, str]) -> None:
        for what in waited:
            if (event := self._waiting.pop(what, None)) is not None:
                event.set()


class StreamingJob:
    """A job whose outputs are delivered before it ends, or that reads such an output.

    :param replacement: see :class:`Attempt`
    """

    def __init__(self, name: str, collect: Collect, replacement: Replacement = _none) -> None:
        self.name = name
        self._collect = collect
        self._replacement = replacement
        self._attempts: list[Attempt] = []
        self._closed = False
        self._moves = False
        # Is done at the next change; None: no other job waits for a change.
        self._change: asyncio.Future[None] | None = None

    @property
    def attempts(self) -> int:
        """How often the job was started."""
        return len(self._attempts)

    @property
    def latest(self) -> Attempt:
        """The last attempt; to be asked only after the first :meth:`begin`."""
        return self._attempts[-1]

    @property
    def is_running(self) -> bool:
        return not self._closed

    def begin(self, output_directory: PurePosixPath, node_job: NodeJob | None = None) -> Attempt:
        """Register a new attempt; the one before has ended."""
        attempt = Attempt(output_directory, node_job)
        attempt.collect, attempt.replacement = self._collect, self._replacement
        self._attempts.append(attempt)
        self._moves = False
        self._tell_change()
        return attempt

    def move(self) -> None:
        """Note that the job has no place until its next attempt."""
        self._moves = True
        self._tell_change()

    def close(self) -> None:
        """Let the job have no more attempts; those that are open have failed."""
        self._closed = True
        for attempt in self._attempts:
            attempt.end(False)
        self._tell_change()

    async def closed(self) -> None:
        """Wait until the job has no more attempts."""
        while not self._closed:
            await self._changed()

    async def attempt(self, *, from_place: bool = False) -> Attempt:
        """Wait for the attempt to read from, and return it: the latest that has not failed.

        :param from_place: the job that waits has a place
        :raises ProducerFailedError: if there will be no such attempt
        :raises ProducerMovesError: if the job that waits has to give up its place first
        """
        while True:
            if self._attempts:
                latest = self._attempts[-1]
                if not latest.succeeded.done() or latest.succeeded.result():
                    return latest
            if self._closed:
                raise ProducerFailedError(self.name)
            if from_place and self._moves:
                raise ProducerMovesError
            await self._changed()

    async def _changed(self) -> None:
        """Wait for a new attempt, or for the end of the job."""
        if self._change is None:
            self._change = _new_moment()
        await asyncio.wait((self._change,))

    def _tell_change(self) -> None:
        if self._change is not None:
            _reach(self._change)
            self._change = None

    async def final(self, port: str, path: str, *, from_place: bool = False) -> Token:
        """Return the token of a file or directory when it is final; waits through as many attempts as that takes.

        :param from_place: see :meth:`attempt`
        :raises ProducerFailedError: if the file never will be final
        :raises ProducerMovesError: see :meth:`attempt`
        """
        while not await (await self.attempt(from_place=from_place)).settled(port, path):
            pass
        return await self._collect(port, path)


class StreamingJobs:
    """All streaming jobs of a run, by name."""

    def __init__(self) -> None:
        self._jobs: dict[str, StreamingJob] = {}

    def open(self, name: str, collect: Collect, replacement: Replacement = _none) -> StreamingJob:
        """Register a new job, in place of one of the same name from a former run of the step."""
        job = self._jobs[name] = StreamingJob(name, collect, replacement)
        return job

    def close(self, job: StreamingJob, *, may_be_read: bool) -> None:
        """Let a job have no more attempts.

        :param may_be_read: whether other jobs have, or may get, a stream of the job; if not, the job is forgotten
        """
        job.close()
        if not may_be_read and self._jobs.get(job.name) is job:
            del self._jobs[job.name]

    async def vacant(self, name: str) -> None:
        """Wait until no job of a name runs.

        StreamFlow runs a job twice where it gathers a list once too often.
        """
        while (before := self._jobs.get(name)) is not None and before.is_running:
            await before.closed()

    def get(self, name: str) -> StreamingJob:
        """Return the job of this name.

        :raises ProducerFailedError: if this run has no such job
        """
        if (job := self._jobs.get(name)) is None:
            raise ProducerFailedError(name)
        return job

    def is_running(self, name: str) -> bool:
        job = self._jobs.get(name)
        return job is not None and job.is_running


class ReadWindows:
    """The attempts of other jobs that discard what one job has read of them."""

    def __init__(self, reader: str) -> None:
        self._reader = reader
        self._attempts: set[Attempt] = set()

    def __bool__(self) -> bool:
        """Whether the job reads a window."""
        return bool(self._attempts)

    def begin(self, attempts: Iterable[Attempt]) -> None:
        """Note the attempts whose windows an attempt of the job reads."""
        for attempt in attempts:
            attempt.readers[self._reader] = asyncio.Event()
            self._attempts.add(attempt)

    async def read_again(self) -> None:
        """Let the jobs start again whose windows the job has begun to read: a window cannot be read a second time."""
        for attempt in self._attempts:
            attempt.lose()
        for attempt in self._attempts:
            await asyncio.shield(attempt.succeeded)
        self._attempts.clear()

    def end(self) -> None:
        """Say that the job needs no more of its windows."""
        for attempt in self._attempts:
            attempt.readers[self._reader].set()
