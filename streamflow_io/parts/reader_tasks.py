"""The chunks of read sessions as I/O tasks of the run's admission."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import TypeVar

from msgspec import Struct
from streamflow.core.deployment import Target

from streamflow_io.hints.bandwidth import StaticConstraint
from streamflow_io.hints.config import StorageConfig
from streamflow_io.storage.admission.demand import READ_SESSIONS, AdmissionRequest, Demand, Grant, Placement
from streamflow_io.storage.admission.storages import BYTES_PER_MEGABYTE, bytes_per_second
from streamflow_io.storage.demands import StorageUser
from streamflow_io.storage.storage_admission import StorageAdmission

_Result = TypeVar("_Result")


async def to_the_end(work: Coroutine[object, object, _Result]) -> _Result:
    """Do something to its end, also when the task that does it is cancelled meanwhile; then it ends afterwards."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        if not task.cancelled():
            # No other task asks for the exception.
            task.exception()
        raise


async def end(*tasks: asyncio.Task[None]) -> None:
    """Cancel tasks, and wait until they have ended.

    :raises Exception: what one of them had failed with
    """
    for task in tasks:
        task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(result, Exception):
            raise result


# Where the user has given no number.
_USUAL = 4


class ReaderLimit(Struct, frozen=True):
    """The limits of the chunks of a file.

    :ivar most: how many chunks may be read at the same time
    :ivar constraint: the storageBW of each. None: a chunk takes nothing of a bandwidth
    """

    most: int
    constraint: StaticConstraint | None


def readers_of(storage: StorageConfig | None) -> ReaderLimit:
    """How many chunks of a file on a storage are read at the same time. Each has an equal part of the bandwidth."""
    if storage is None:
        return ReaderLimit(_USUAL, None)
    most = storage.readers or _USUAL
    # Rounded down to the unit of the ledger: then that number of chunks fits.
    share = max(1, bytes_per_second(storage.bandwidth("read")) // most)
    return ReaderLimit(most, StaticConstraint(share / BYTES_PER_MEGABYTE))


class Admitted(Struct, frozen=True):
    """How a chunk was admitted.

    :ivar waited: seconds, until it was
    :ivar readers: how many chunks of its session were read then, with this one
    :ivar constraint: its storageBW, MB/s
    """

    waited: float
    readers: int
    constraint: float | None


class _Task(Struct, eq=False):
    """A chunk that was submitted.

    :ivar told: called when the chunk is granted
    :ivar admitted: how. None: the chunk waits
    """

    told: Callable[[_Task, Grant[StorageUser]], None]
    submitted: float
    admitted: Admitted | None = None

    def granted(self, grant: Grant[StorageUser]) -> None:
        self.told(self, grant)


class ReaderTasks:
    """The chunks of one session, from when they are submitted until they have arrived, or no job needs them.

    :ivar readers: how many may be read at the same time

    :param demand: what each chunk needs
    """

    def __init__(self, readers: ReaderLimit, demand: Demand, admission: StorageAdmission) -> None:
        self.readers = readers
        self._demand = demand
        self._admission = admission
        self._tasks: dict[int, _Task] = {}

    def submit(self, chunk: int, granted: Callable[[int], None]) -> None:
        """A chunk waits for its turn; later, if it gets one, `granted` is called with it."""

        def told(task: _Task, grant: Grant[StorageUser]) -> None:
            readers = 1 + sum(other.admitted is not None for other in self._tasks.values())
            task.admitted = Admitted(time.time() - task.submitted, readers, grant.constraint)
            granted(chunk)

        task = self._tasks[chunk] = _Task(told, time.time())
        self._admission.submit_reader(AdmissionRequest(task, self._demand))

    def admitted(self, chunk: int) -> Admitted | None:
        """How a chunk that is being read was admitted."""
        return None if (task := self._tasks.get(chunk)) is None else task.admitted

    def end(self, chunk: int) -> None:
        """A chunk has arrived, is not to be read, or is not needed any more."""
        if (task := self._tasks.pop(chunk, None)) is not None:
            self._admission.end_reader(task)

    def close(self) -> None:
        """Nothing more is to be read."""
        for chunk in list(self._tasks):
            self.end(chunk)


class ReaderTaskMaker:
    """Finds what the chunks of a session need."""

    def __init__(self, admission: StorageAdmission) -> None:
        self._admission = admission

    async def make(self, target: Target, node: str | None, storage: StorageConfig | None) -> ReaderTasks:
        """
        :param target: of the jobs that read the file
        :param node: where chunks are read, of the nodes of this target. None: the target has one node
        :param storage: that holds the file
        """
        placement, readers = Placement(await self._admission.locate(target, node), storage), readers_of(storage)
        if readers.constraint is not None:
            self._admission.share(storage)
        demand = Demand(READ_SESSIONS, True, readers.constraint, "read", (placement,))
        return ReaderTasks(readers, demand, self._admission)
