"""The storage bandwidth that jobs need, and the bandwidth that jobs are granted."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, NamedTuple, TypeVar

from msgspec import Struct

from streamflow_io.hints.bandwidth import StorageBW
from streamflow_io.hints.config import StorageConfig
from streamflow_io.hints.models import Direction

J = TypeVar("J", bound=Hashable)


class StoragePlace(NamedTuple):
    """A storage as the jobs of one location use it.

    :ivar storage: the name of the storage. None: the storage is not known
    """

    storage: str | None
    location: str


class Placement(Struct, frozen=True):
    """Locations that a job may use, and the storage that the job uses there.

    :ivar pool: a name for these locations
    :ivar storage: the storage of the job's files there. None: no bandwidth is accounted
    """

    pool: str
    storage: StorageConfig | None


class Demand(Struct, frozen=True):
    """The needs of each job of a step.

    :ivar constraint: the storageBW. None: jobs take no bandwidth
    :ivar locations: how many locations each job needs
    :ivar tool: a name for all jobs that are alike, across steps. Empty: the step
    """

    step: str
    io_task: bool
    constraint: StorageBW | None
    direction: Direction
    placements: tuple[Placement, ...]
    locations: int = 1
    tool: str = ""


class AdmissionRequest(Struct, Generic[J], frozen=True):
    """A job that is to be admitted.

    :ivar preferred: locations to take if they are free, best first
    """

    job: J
    demand: Demand
    preferred: tuple[str, ...] = ()


class Queued(Struct, frozen=True):
    """Waiting jobs of a step.

    :ivar amount: bytes per second that each job needs
    """

    step: str
    amount: int
    jobs: int


class Capacity(Struct, frozen=True):
    """The free bandwidth of a storage in one direction, and the I/O executors of a location.

    :ivar bandwidth: bytes per second that no job holds
    :ivar is_shared: all locations together have this bandwidth
    :ivar executors: I/O executors of the location
    :ivar idle: how many of the executors are free
    """

    bandwidth: float
    is_shared: bool
    executors: int
    idle: int


class Grant(Struct, Generic[J], frozen=True):
    """Permission for a job to start.

    :ivar constraint: the storageBW of the job, in MB/s
    :ivar allocated: admitted storageBW of all jobs on the storage, this job included, in MB/s
    :ivar running: admitted I/O tasks on the first location, this job included
    """

    job: J
    step: str
    placement: Placement
    locations: tuple[str, ...]
    constraint: float | None
    allocated: float | None
    running: int
