"""The storage bandwidth that jobs need and are granted, the storage that they use, and its accounts."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Generic, NamedTuple, TypeVar

from msgspec import Struct

from streamflow_io.hints.bandwidth import StorageBW
from streamflow_io.hints.config import StorageConfig
from streamflow_io.hints.errors import HintError
from streamflow_io.hints.models import WAYS, Direction, Way

from .ledger import Account

J = TypeVar("J", bound=Hashable)
#: Bytes per second in each direction.
Amounts = Mapping[Way, int]

ONE_WAY: dict[Direction, tuple[Way, ...]] = {
    "read": ("read",),
    "write": ("write",),
    "both": WAYS,
}
BYTES_PER_MEGABYTE = 1_000_000


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


class StepStorage(Struct, frozen=True):
    """The storage hints of a step, and the storage that they lead to on one deployment.

    :ivar storage_bw: the storageBW as written. None: no limit
    :ivar storage: the name of the storage. None: no storage is found
    """

    step: str
    io_task: bool
    storage_bw: str | None
    direction: str | None
    deployment: str
    storage: str | None


class StepStorages(Struct, frozen=True):
    """The findings about storages before a run.

    :ivar errors: constraints above their storage
    :ivar warnings: constraints without a storage, storages without a location
    """

    steps: tuple[StepStorage, ...]
    errors: tuple[HintError, ...]
    warnings: tuple[str, ...]


def bytes_per_second(megabytes: float) -> int:
    """Convert MB/s to a whole number of bytes per second, at least 1."""
    return max(1, round(megabytes * BYTES_PER_MEGABYTE))


def bandwidth_account(storage: StorageConfig, direction: Way, location: str) -> Account:
    """Return the account of a storage's bandwidth for jobs on a location."""
    return Account(f"{storage.name} {direction}", location if storage.scope == "node" else None)
