"""The storages that this run shares with other runs, and the bandwidth that it was given of them.

:mod:`streamflow_io.storage.admission.leases` and :mod:`streamflow_io.storage.sharing.lease_holder` decide what this run
requests. Each run decides with the same rule, in a thread of its own, which run is given how much.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from streamflow.log_handler import logger

from streamflow_io.adapters.jobs import Listener
from streamflow_io.hints.config import StorageConfig
from streamflow_io.hints.models import WAYS, Way
from streamflow_io.installed_features import subclass_of
from streamflow_io.messages import Code, coded
from streamflow_io.records.records import HeldRecord, LeaseRecord, Record

from .admission.demand import Amounts, Grant, J, Queued, bytes_per_second
from .admission.leases import Leases, Need
from .sharing.allocation import Lease
from .sharing.lease_holder import UNUSED_SECONDS, LeaseBurst, LeaseHolder
from .sharing.turns import BurstDelay, TurnPolicy

if TYPE_CHECKING:
    from .sharing.client import LeaseClient
    from .sharing.directory import SharedDirectory

_MB = 10**6
# After this wait for other runs, the log says which runs hold the storage.
_LONG_WAIT_SECONDS = 5.0


class _SharedStorage(Struct):
    """A storage that this run shares.

    :ivar others: what other runs hold, as far as is known
    :ivar disturbed: when another run was last seen to hold something, by a clock that never goes back
    :ivar told: the last amounts in telemetry, for each direction: held, used, others, wanted
    :ivar looking: the timer of the next look, while the run holds something that no job uses
    :ivar saying: the timer after which the log says which runs hold what the jobs of this run wait for
    """

    storage: StorageConfig
    client: LeaseClient
    holding: LeaseHolder = field(default_factory=LeaseHolder)
    burst: LeaseBurst = field(default_factory=LeaseBurst)
    others: Amounts = field(default_factory=dict)
    disturbed: float = float("-inf")
    told: dict[Way, tuple[int, ...]] = field(default_factory=dict)
    looking: asyncio.TimerHandle | None = None
    saying: asyncio.TimerHandle | None = None

    def cancel(self) -> None:
        """Stop the timers."""
        for timer in (self.looking, self.saying):
            if timer is not None:
                timer.cancel()


class Meeting:
    """The directories where the runs meet that use the storages of a StreamFlow file.

    :param run: the name of this run, for others
    :param storages: the storages of the StreamFlow file
    :param deployments: the deployments of the StreamFlow file
    """

    def __init__(
        self, run: str, storages: Iterable[StorageConfig], deployments: Mapping[str, Mapping[str, Any]]
    ) -> None:
        self.run = run
        self._storages = tuple(storages)
        self._deployments = deployments

    def of(self, storage: StorageConfig) -> SharedDirectory | None:
        """Return the directory of a storage. None: the storage is not shared.

        :raises OSError: if the mounts of this node cannot be read
        """
        return self._directories.get(storage.name)

    @cached_property
    def _directories(self) -> dict[str, SharedDirectory]:
        # Imported late, as the client of leases: few runs use a storage that they share.
        from .sharing.directory import shared_directories

        return shared_directories(self._storages, self._deployments)


class SharedStorages:
    """The storages of this run that other runs use, too.

    :param meeting: where the runs meet. None: nothing is shared
    :param leases: the leases of admission. :meth:`returned` comes before each decision, :meth:`settle` after it
    :param queued: yields the jobs that wait for a storage
    :param changed: lets admission decide, and StreamFlow ask again for jobs that wait for a location
    :param record: keeps a record for telemetry
    """

    def __init__(
        self,
        meeting: Meeting | None,
        leases: Leases,
        queued: Callable[[StorageConfig], Iterable[Queued]],
        changed: Callable[[], None],
        record: Callable[[Record], None],
    ) -> None:
        self._meeting = meeting
        self._leases = leases
        self._queued = queued
        self._changed = changed
        self._record = record
        self._policy = TurnPolicy() if meeting is None else subclass_of(TurnPolicy)()
        self._known: set[str] = set()
        self._shared: dict[str, _SharedStorage] = {}

    def use(self, storage: StorageConfig) -> None:
        """Begin to share a storage, because a job is about to ask for its bandwidth."""
        if self._meeting is None or storage.name in self._known:
            return
        self._known.add(storage.name)
        try:
            directory = self._meeting.of(storage)
        except OSError as error:
            logger.warning(coded(f"Storage {storage.name!r} is not shared with other runs: {error}", Code.NOT_SHARED))
            return
        if directory is not None:
            self._leases.add(storage)
            self._shared[storage.name] = _SharedStorage(storage, self._join(storage, self._meeting.run, directory))

    def watch(self, storage: StorageConfig) -> None:
        """Begin to watch a storage, because a job is about to use its unheld bandwidth without taking any."""
        self.use(storage)
        if (one := self._shared.get(storage.name)) is not None:
            one.client.watch()

    def _join(self, storage: StorageConfig, run: str, directory: SharedDirectory) -> LeaseClient:
        from .sharing.client import LeaseClient

        loop, name = asyncio.get_running_loop(), storage.name

        def call(callback: Callable[[], None]) -> None:
            # The event loop may have ended.
            if not loop.is_closed():
                loop.call_soon_threadsafe(callback)

        return LeaseClient(
            directory,
            run,
            {way: bytes_per_second(storage.bandwidth(way)) for way in WAYS},
            tell=lambda lease: call(partial(self._told, name, lease)),
            failed=lambda reason: call(partial(self._failed, name, reason)),
            warn=lambda text: call(partial(logger.warning, f"Storage {name!r}: {text}")),
            join=partial(self._policy.join, storage, directory.path, directory.mine),
            held=lambda hold: call(partial(self._held, name, hold)),
        )

    @property
    def listeners(self) -> Sequence[Listener]:
        """The listeners of the turn policy. They hear of jobs before these are admitted."""
        return self._policy.listeners()

    def started(self, grant: Grant[J]) -> None:
        """Note that a job has been admitted."""
        if (one := self._of(grant.placement.storage)) is not None and grant.constraint is not None:
            one.burst.started(grant.job, grant.step, bytes_per_second(grant.constraint), time.monotonic())

    def returned_by(self, job: Hashable) -> None:
        """Note that an admitted job waits again."""
        for one in self._shared.values():
            one.burst.returned(job)

    def ended(self, job: Hashable) -> bool:
        """Note that a job has ended, or will not start.

        :return: whether another run is known to have used the job's storage meanwhile
        """
        is_disturbed = False
        for one in self._shared.values():
            if (started := one.burst.ended(job, time.monotonic())) is not None:
                is_disturbed = any(one.others.values()) or one.disturbed >= started
        return is_disturbed

    def returned(self) -> None:
        """Give returned bandwidth back where other runs want it. Call before it is decided which jobs start."""
        for one in self._shared.values():
            one.holding.returned(self._leases.used(one.storage))
            self._leases.give(one.storage, one.holding.held, one.others)

    def settle(self, now: float) -> None:
        """Request what waiting jobs need. Call when all jobs have started that can.

        :param now: seconds on the wall clock
        """
        for one in self._shared.values():
            self._settle(one, now)

    async def close(self) -> None:
        """Give back all that this run holds, and leave the shared storages."""
        for one in self._shared.values():
            one.cancel()
            self._tell_returned(one)
        await asyncio.gather(*(asyncio.to_thread(one.client.close) for one in self._shared.values()))

    def _settle(self, one: _SharedStorage, now: float) -> None:
        storage, needs, used = one.storage, self._leases.needs(one.storage), self._leases.used(one.storage)
        # With thousands of running jobs, most decisions leave no job waiting. Then nothing is summed up.
        queued = [*self._queued(storage)] if needs or one.burst.is_idle else []
        if not queued and one.burst.is_idle:
            self._burst_is_over(one)
        needed, useful = _amounts(needs, queued)
        bandwidth = max(self._leases.bandwidth(storage, way) for way in WAYS)
        seconds = round(one.burst.seconds(queued, bandwidth), 1) if needs else 0.0
        together = any(len(need.amounts) > 1 for need in needs)
        began = one.burst.began(bool(needs), now)
        request = one.holding.settle(used, needed, useful, together, seconds, time.monotonic(), began)
        self._leases.give(storage, one.holding.held, one.others)
        if request is not None:
            one.client.request(request)
        self._tell(one, needed, now)
        self._set_timers(one, needs)

    def _burst_is_over(self, one: _SharedStorage) -> None:
        had_jobs = one.burst.over()
        if one.client.turns is not None:
            one.holding.over()
            if had_jobs:
                one.client.turns.over()

    def _set_timers(self, one: _SharedStorage, needs: Sequence[Need]) -> None:
        loop = asyncio.get_running_loop()
        if one.saying is not None and not needs:
            one.saying.cancel()
            one.saying = None
        elif one.saying is None and needs:
            steps = [need.step for need in needs]
            one.saying = loop.call_later(_LONG_WAIT_SECONDS, self._say_who_holds, one, steps)
        if one.looking is None and not one.holding.is_idle:
            one.looking = loop.call_later(UNUSED_SECONDS, self._look_again, one)

    def _say_who_holds(self, one: _SharedStorage, steps: Sequence[str]) -> None:
        """Log, once for each wait, which runs hold the storage."""
        if one.client.holders:
            what = f"{', '.join(steps)} waits" if len(steps) == 1 else f"{', '.join(steps)} wait"
            logger.info(f"{what} for storage {one.storage.name!r}: {'; '.join(one.client.holders)}")

    def _look_again(self, one: _SharedStorage) -> None:
        one.looking = None
        self._changed()

    def _told(self, name: str, lease: Lease) -> None:
        one, now = self._shared[name], time.monotonic()
        one.holding.told(lease, now)
        if any((*one.others.values(), *lease.others.values())):
            one.disturbed = now
        one.others = lease.others
        self._leases.share(one.storage, lease.bandwidth)
        self._leases.give(one.storage, one.holding.held, one.others)
        self._changed()

    def _held(self, name: str, hold: BurstDelay) -> None:
        self._record(HeldRecord(time=time.time(), storage=name, until=hold.until))

    def _failed(self, name: str, reason: str) -> None:
        one = self._shared.pop(name)
        one.cancel()
        logger.warning(coded(f"Storage {name!r} is not shared with other runs any more: {reason}", Code.NOT_SHARED))
        self._leases.remove(one.storage)
        self._changed()

    def _tell(self, one: _SharedStorage, needed: Mapping[Way, int], now: float) -> None:
        """Record the amounts that have changed for telemetry."""
        held, used = self._leases.held(one.storage), self._leases.allocated(one.storage)
        for way in WAYS:
            found = held[way], used[way], one.others.get(way, 0), needed.get(way, 0)
            # A record takes longer to make than all else here, and most decisions change nothing.
            if one.told.get(way) != found:
                one.told[way] = found
                amounts = dict(zip(("held", "used", "others", "wanted"), (each / _MB for each in found), strict=True))
                record = LeaseRecord(time=now, storage=one.storage.name, direction=way, **amounts)
                self._record(record)
                self._policy.leased(record)

    def _tell_returned(self, one: _SharedStorage) -> None:
        """Record for telemetry that the run holds nothing any more."""
        now, storage = time.time(), one.storage.name
        for way, (held, _, others, _) in one.told.items():
            if held:
                self._record(
                    LeaseRecord(time=now, storage=storage, direction=way, held=0, used=0, others=others / _MB, wanted=0)
                )

    def _of(self, storage: StorageConfig | None) -> _SharedStorage | None:
        return None if storage is None else self._shared.get(storage.name)


def _amounts(needs: Sequence[Need], queued: Sequence[Queued]) -> tuple[dict[Way, int], dict[Way, int]]:
    """Return the bandwidth that waiting jobs need, and the bandwidth that all jobs of the same steps could use."""
    jobs = {each.step: each.jobs for each in queued}
    needed: dict[Way, int] = {}
    useful: dict[Way, int] = {}
    for need in needs:
        more = need.each * max(0, jobs.get(need.step, 1) - 1)
        needed |= need.amounts
        useful |= {way: amount + more for way, amount in need.amounts.items()}
    return needed, useful
