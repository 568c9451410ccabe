"""Adapter: the chunks of read sessions as I/O tasks of the run's admission. Decides nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from streamflow.core.deployment import Target

from streamflow_io.admission.demand import READ_SESSIONS, Demand, Grant, Placement, Request
from streamflow_io.admission.observations import Observation
from streamflow_io.hints.config import StorageConfig
from streamflow_io.learned.limits import RememberedLimits
from streamflow_io.learned.sizes import size_class_of
from streamflow_io.sessions.chunks import asked_bytes
from streamflow_io.sessions.readers import Readers, fixed_readers, learned_readers, reader_tool, readers_of

# Of a chunk, to learn of the time that it took.
_FROM_STORAGE = 0.5


class ReaderAdmission(Protocol):
    """What admits chunks."""

    def submit_reader(self, request: Request, granted: Callable[[Grant], None]) -> None: ...
    def end_reader(self, job: str, observation: Observation | None) -> None: ...


class LocatingAdmission(ReaderAdmission, Protocol):
    """What also has to know where they are read."""

    async def locate(self, target: Target, node: str | None = None) -> str: ...
    def share(self, storage: StorageConfig | None) -> None: ...


@dataclass(frozen=True)
class Admitted:
    """How a chunk was admitted.

    :ivar waited: seconds, until it was
    :ivar readers: how many chunks of its session were read then, with this one
    :ivar constraint: its storageBW, MB/s
    """

    waited: float
    readers: int
    constraint: float | None


@dataclass
class _Task:
    """
    :ivar admitted: none: it waits
    :ivar granted: when, in seconds since the epoch
    """

    job: str
    submitted: float
    admitted: Admitted | None = None
    granted: float = 0.0


class ReaderTasks:
    """The chunks of one session, from when they are submitted until they have arrived, or nobody needs them.

    :ivar readers: how many may be read at the same time

    :param session: its number in the run
    :param demand: what each chunk needs
    """

    def __init__(self, session: int, readers: Readers, demand: Demand, admission: ReaderAdmission) -> None:
        self.readers = readers
        self._session = session
        self._demand = demand
        self._admission = admission
        self._tasks: dict[int, _Task] = {}

    def submit(self, chunk: int, granted: Callable[[int], None]) -> None:
        """A chunk waits for its turn; later, if it gets one, `granted` is called with it."""

        def told(grant: Grant) -> None:
            readers = 1 + sum(other.admitted is not None for other in self._tasks.values())
            task.granted = time.time()
            task.admitted = Admitted(task.granted - task.submitted, readers, grant.constraint)
            granted(chunk)

        task = self._tasks[chunk] = _Task(f"{self._demand.step}/{self._session}.{chunk}", time.time())
        self._admission.submit_reader(Request(task.job, self._demand), told)

    def admitted(self, chunk: int) -> Admitted | None:
        """How a chunk that is being read was admitted."""
        return None if (task := self._tasks.get(chunk)) is None else task.admitted

    def arrived(self, chunk: int, size: int, requests: int) -> None:
        """A chunk has been read.

        :param size: bytes of it
        :param requests: how often the reader has asked for some: not for those that were cached before the session
        """
        if (task := self._tasks.pop(chunk, None)) is not None:
            # What the kernel has read ahead meanwhile counts: it is because of this session.
            moved, observation = asked_bytes(size, requests), None
            if moved >= _FROM_STORAGE * size:
                # Until the next one can be granted, which matters most where few are read at the same time.
                observation = Observation(time.time() - task.granted, moved, is_io_only=True)
            self._admission.end_reader(task.job, observation)

    def withdraw(self, chunk: int) -> None:
        """A chunk is not to be read, or nobody needs it any more."""
        if (task := self._tasks.pop(chunk, None)) is not None:
            self._admission.end_reader(task.job, None)

    def close(self) -> None:
        """Nothing more is to be read."""
        for chunk in list(self._tasks):
            self.withdraw(chunk)


class ReaderTaskMaker:
    """Finds what the chunks of a session need."""

    def __init__(self, admission: LocatingAdmission, remembered: RememberedLimits) -> None:
        self._admission = admission
        self._remembered = remembered

    async def make(
        self,
        session: int,
        target: Target,
        node: str | None,
        storage: StorageConfig | None,
        size: int,
        chunk: int,
        window: int,
    ) -> ReaderTasks:
        """
        :param session: its number in the run
        :param target: of the jobs that read the file
        :param node: where chunks are read, of the nodes of this target; None: it has one
        :param storage: that holds it
        :param size: of the file
        :param chunk: bytes of a chunk
        :param window: bytes that may be read ahead
        """
        placement = Placement(await self._admission.locate(target, node), storage)
        demand = Demand(READ_SESSIONS, True, None, "read", (placement,))
        readers = fixed_readers(storage)
        if readers is None:
            assert storage is not None, "of no storage nothing is learned"
            learned = learned_readers(storage, chunk, window)
            demand, remembered = await self._remembered.load_tool(
                replace(demand, constraint=learned.constraint), reader_tool(chunk), size_class_of(chunk)
            )
            readers = readers_of(learned, storage, -(-size // chunk), remembered.get(storage.name))
        if readers.constraint is not None:
            self._admission.share(storage)
        return ReaderTasks(session, readers, replace(demand, constraint=readers.constraint), self._admission)
