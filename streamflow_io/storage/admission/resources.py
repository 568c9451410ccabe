"""The resources that admission gives out: bandwidth of storages and I/O executors of locations."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence, Set

from msgspec import Struct

from streamflow_io.hints.config import StorageConfig
from streamflow_io.hints.models import WAYS, Direction, Way

from .demand import BYTES_PER_MEGABYTE, ONE_WAY, Capacity, Demand, Placement, bandwidth_account, bytes_per_second
from .leases import Leases
from .ledger import Account, Ledger

EXECUTORS_PER_CORE = 4


class _Occupied(Struct, frozen=True):
    """The locations and the storage of a running job."""

    locations: tuple[str, ...]
    storage: str
    io_task: bool


class Resources:
    """The free bandwidth and I/O executors of each location.

    Locations and the storage that they share can be locked. Then only the epoch that holds the lock may start I/O tasks
    there.

    :ivar leases: storages that are shared with other runs
    :param io_executors: the most I/O tasks at once on one location. None: four for each core
    """

    def __init__(self, io_executors: int | None) -> None:
        self._io_executors = io_executors
        self._ledger = Ledger()
        self.leases = Leases(self._ledger)
        self._pools: dict[str, Mapping[str, float]] = {}
        self._slots: dict[str, int] = {}
        # Pools that have locations in common have one group name.
        self._groups: dict[str, str] = {}
        self._storages: dict[str, dict[str, StorageConfig]] = defaultdict(dict)
        self._locked: set[str] = set()
        # Shared storages on which only the I/O tasks of one epoch may start.
        self._locked_storages: set[str] = set()
        self._running: dict[Hashable, _Occupied] = {}

    # Locations

    def set_locations(self, pool: str, cores: Mapping[str, float], slots: Mapping[str, int]) -> None:
        """Set the locations of a pool, in order of preference, with their cores.

        :param slots: how many jobs at once a location takes, for locations that limit them
        """
        if list(self._pools.get(pool, ())) == list(cores):
            return
        self._pools[pool] = dict(cores)
        self._slots |= slots
        for location in cores:
            self._ledger.open(_executors(location), self.executors(pool, location))
        for storage in self._storages[pool].values():
            self._open(pool, storage)
        self._join(pool)

    def locations(self, pool: str) -> Set[str]:
        return self._pools[pool].keys()

    def quietest(self, locations: Iterable[str]) -> str | None:
        """Return the unlocked location with the fewest I/O tasks. None: all are locked."""
        return min((where for where in locations if where not in self._locked), key=self.io_tasks, default=None)

    def open(self, placement: Placement) -> None:
        """Open the accounts of a placement."""
        storage, known = placement.storage, self._storages[placement.pool]
        if storage is not None and storage.name not in known:
            known[storage.name] = storage
            self._open(placement.pool, storage)

    def executors(self, pool: str, location: str) -> int:
        """Return the most I/O tasks at once on a location."""
        executors = self._io_executors or max(1, int(EXECUTORS_PER_CORE * self._pools[pool][location]))
        return min(executors, self._slots.get(location, executors))

    def cores(self, pool: str, location: str) -> int:
        """Return the cores of a location, at least one."""
        return max(1, int(self._pools[pool][location]))

    def bandwidth(self, storage: StorageConfig, direction: Direction) -> float:
        """Return the bandwidth of a storage for all runs, in MB/s. Runs that share a storage may have agreed on another
        bandwidth than that of the StreamFlow file.
        """
        if not self.leases.has(storage):
            return storage.bandwidth(direction)
        return min(self.leases.bandwidth(storage, way) for way in ONE_WAY[direction]) / BYTES_PER_MEGABYTE

    def capacity(self, storage: StorageConfig, way: Way, location: str) -> Capacity:
        """Return the free bandwidth of a storage, and the free I/O executors of a location."""
        executors, is_leased = _executors(location), self.leases.has(storage)
        free = self._ledger.free(bandwidth_account(storage, way, location))
        return Capacity(
            bandwidth=self.leases.unheld(storage, way) if is_leased else free,
            is_shared=storage.scope == "shared",
            executors=self._ledger.capacity(executors),
            idle=self._ledger.free(executors),
        )

    def io_tasks(self, location: str) -> int:
        """Return how many I/O tasks run at a location."""
        return self._ledger.allocated(_executors(location))

    def is_any_locked(self, locations: Iterable[str], storage: StorageConfig | None = None) -> bool:
        """Whether one of these locations, or the storage that they share, is locked."""
        return not self._locked.isdisjoint(locations) or (storage is not None and storage.name in self._locked_storages)

    def lock(self, locations: Iterable[str], storage: StorageConfig | None = None) -> set[Hashable]:
        """Keep other jobs out of some locations, and from a storage at any location, if one is given.

        :return: the I/O tasks that run there now
        """
        locked = set(locations)
        self._locked |= locked
        if storage is not None:
            self._locked_storages.add(storage.name)
        return {
            job
            for job, place in self._running.items()
            if place.io_task
            and (not locked.isdisjoint(place.locations) or (storage is not None and place.storage == storage.name))
        }

    def unlock(self, locations: Iterable[str], storage: StorageConfig | None = None) -> None:
        self._locked.difference_update(locations)
        if storage is not None:
            self._locked_storages.discard(storage.name)

    # Jobs

    def names(self, demand: Demand, placement: Placement) -> list[str]:
        """Return the names of the resources that jobs take.

        A job that lacks a resource holds back later jobs that need a resource of the same name.
        """
        storage = placement.storage if demand.constraint is not None else None
        names = [f"{storage.name} {way}" for way in ONE_WAY[demand.direction]] if storage is not None else []
        return [*names, f"executors of {self._groups[placement.pool]}"] if demand.io_task else names

    def choose(
        self, demand: Demand, placement: Placement, amount: int, preferred: Iterable[str], holds_lock: bool = False
    ) -> list[str]:
        """Choose locations: preferred ones where the job fits, then those with most free bandwidth.

        :param amount: bytes per second on each
        :param holds_lock: the locks belong to the epoch of the job itself
        """
        chosen: list[str] = []
        candidates = (location for location in preferred if location in self._pools[placement.pool])
        for location in candidates:
            may_use = self.may_use(demand, placement, (location,), holds_lock)
            if may_use and self.fits(demand, placement, (location,), amount):
                chosen.append(location)
        if len(chosen) < demand.locations:
            chosen += self._freest(demand, placement, holds_lock)
        return list(dict.fromkeys(chosen))[: demand.locations]

    def are_enough_unlocked(self, demand: Demand, placement: Placement) -> bool:
        """Whether enough locations are unlocked for a job. Otherwise jobs can only wait until some are unlocked."""
        if not demand.io_task:
            return len(self._pools[placement.pool]) >= demand.locations
        unlocked = len(self._pools[placement.pool].keys() - self._locked)
        return unlocked >= demand.locations and self.may_use(demand, placement, ())

    def may_use(self, demand: Demand, placement: Placement, locations: Iterable[str], holds_lock: bool = False) -> bool:
        """Whether no lock keeps the jobs from some locations and from their storage."""
        if not demand.io_task or holds_lock:
            return True
        return self._locked.isdisjoint(locations) and _name(placement) not in self._locked_storages

    def fits(self, demand: Demand, placement: Placement, locations: Sequence[str], amount: int) -> bool:
        return self._ledger.fits(self._amounts(demand, placement, locations, amount))

    def lacking(self, demand: Demand, placement: Placement, locations: Sequence[str]) -> frozenset[str]:
        """Return the names of the resources that I/O tasks lack at some locations.

        Where no location has a free executor, no other job finds one either, except jobs that need fewer locations.
        """
        names = self.names(demand, placement)
        executors = frozenset(names[-1:])
        if len(locations) < demand.locations:
            return executors if demand.locations > 1 else frozenset()
        if any(self._ledger.free(_executors(location)) == 0 for location in locations):
            return executors
        return frozenset(names) - executors

    def allocate(
        self, job: Hashable, demand: Demand, placement: Placement, locations: Sequence[str], amount: int
    ) -> None:
        """Allocate the resources of a job at some locations.

        :raises ValueError: if the job does not fit; then nothing is allocated
        """
        self._ledger.allocate(job, self._amounts(demand, placement, locations, amount))
        self._running[job] = _Occupied(tuple(locations), _name(placement), demand.io_task)

    def release(self, job: Hashable) -> None:
        self._ledger.release(job)
        self._running.pop(job, None)

    def allocated(self, demand: Demand, placement: Placement, location: str) -> int:
        """Return the bytes per second of all jobs on the storage; of two directions, the larger amount."""
        if placement.storage is None:
            return 0
        return max(
            self._ledger.allocated(bandwidth_account(placement.storage, way, location))
            for way in ONE_WAY[demand.direction]
        )

    def _amounts(
        self, demand: Demand, placement: Placement, locations: Sequence[str], amount: int
    ) -> dict[Account, int]:
        amounts = {_executors(location): 1 for location in locations} if demand.io_task else {}
        if placement.storage is not None and amount:
            for way in ONE_WAY[demand.direction]:
                amounts |= {bandwidth_account(placement.storage, way, location): amount for location in locations}
        return amounts

    def _open(self, pool: str, storage: StorageConfig) -> None:
        for location in self._pools[pool]:
            for way in WAYS:
                self._ledger.open(bandwidth_account(storage, way, location), bytes_per_second(storage.bandwidth(way)))
            if storage.scope == "shared":
                self.leases.limit(storage)
                return

    def _join(self, pool: str) -> None:
        locations = self._pools[pool].keys()
        joined = {pool} | {self._groups[other] for other in self._groups if locations & self._pools[other].keys()}
        self._groups[pool] = pool
        for other, group in self._groups.items():
            if group in joined:
                self._groups[other] = min(joined)

    def _freest(self, demand: Demand, placement: Placement, holds_lock: bool) -> list[str]:
        """Return the locations with most free bandwidth, then with most free executors; the first of equals first."""
        storage = placement.storage if placement.storage is not None and placement.storage.scope == "node" else None
        free: list[tuple[int, int, int, str]] = []
        for index, location in enumerate(self._pools[placement.pool]):
            executors, bandwidth = self._ledger.free(_executors(location)), 0
            if demand.io_task and (executors == 0 or (location in self._locked and not holds_lock)):
                continue
            if storage is not None:
                accounts = (bandwidth_account(storage, way, location) for way in ONE_WAY[demand.direction])
                bandwidth = min(map(self._ledger.free, accounts))
            free.append((bandwidth, executors, -index, location))
        return [location for *_, location in heapq.nlargest(demand.locations, free)]


def _executors(location: str) -> Account:
    return Account("executors", location)


def _name(placement: Placement) -> str:
    return "" if placement.storage is None else placement.storage.name
