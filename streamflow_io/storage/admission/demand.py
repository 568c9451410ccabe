"""What jobs need of storages, and what they are given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from streamflow_io.hints.bandwidth import StorageBW
from streamflow_io.hints.config import StorageConfig
from streamflow_io.hints.models import Direction

#: The step of which the chunks of all read sessions are the jobs. (The path of a step begins with a slash.)
READ_SESSIONS = "read sessions"


class StoragePlace(NamedTuple):
    """A storage as the jobs of one location use it; the storage has a name, or is not known."""

    storage: str | None
    location: str


@dataclass(frozen=True)
class Placement:
    """Locations that a job may use, and the storage that it uses there.

    :ivar pool: a name for these locations
    :ivar storage: none: no bandwidth is accounted
    """

    pool: str
    storage: StorageConfig | None


@dataclass(frozen=True)
class Demand:
    """What each job of a step needs.

    :ivar constraint: its storageBW; none: no bandwidth
    :ivar locations: how many each job needs
    :ivar tool: a name for all jobs that are alike, of whichever step; none: the step
    """

    step: str
    io_task: bool
    constraint: StorageBW | None
    direction: Direction
    placements: tuple[Placement, ...]
    locations: int = 1
    tool: str = ""


@dataclass(frozen=True)
class AdmissionRequest:
    """A job that is to be admitted.

    :ivar preferred: locations to take if they are free, best first
    :ivar due: when it is needed; those of which that is known start in this order. None: in the order of arrival
    """

    job: str
    demand: Demand
    preferred: tuple[str, ...] = ()
    due: float | None = None


@dataclass(frozen=True)
class Queued:
    """Jobs of a step that wait for bandwidth.

    :ivar amount: bytes per second of each
    """

    step: str
    amount: int
    jobs: int


@dataclass(frozen=True)
class Capacity:
    """What a storage has in one direction for those that hold nothing of it, and a location.

    :ivar bandwidth: bytes/s that nobody holds
    :ivar is_shared: it is the same for all locations
    :ivar executors: I/O executors of the location
    :ivar idle: how many of these are free
    """

    bandwidth: float
    is_shared: bool
    executors: int
    idle: int


@dataclass(frozen=True)
class Grant:
    """A job may start.

    :ivar constraint: its storageBW, MB/s
    :ivar allocated: admitted storageBW of all jobs on that storage, with this one, MB/s
    :ivar running: admitted I/O tasks on the first location, with this one
    """

    job: str
    step: str
    placement: Placement
    locations: tuple[str, ...]
    constraint: float | None
    allocated: float | None
    running: int
