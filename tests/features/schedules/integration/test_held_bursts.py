"""Runs in a directory with `holds: auto`: real files and threads; the schedule is given."""

from __future__ import annotations

import itertools
import queue
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import pytest

from streamflow_io.features.schedules import turns
from streamflow_io.features.schedules.burst_profile import BurstProfile
from streamflow_io.features.schedules.followed import FollowedPlan
from streamflow_io.features.schedules.model import Slots
from streamflow_io.features.schedules.turns import ScheduleTurns
from streamflow_io.storage.sharing.allocation import Lease, LeaseRequest
from streamflow_io.storage.sharing.client import LeaseClient
from streamflow_io.storage.sharing.directory import SharedDirectory, make_own
from streamflow_io.storage.sharing.entries import LedgerFile
from streamflow_io.storage.sharing.turns import BurstDelay

PROFILE = BurstProfile(direction="write", bursts=8, jobs=1, storage_bw=4, volume=8, rate=4, work=8, error=0.01)
PERIOD = 4.0


class OneSchedule:
    """All runs have their slots at the same times."""

    def __init__(self, start: float, period: float) -> None:
        self._start = start
        self._period = period

    def of(self, name: str, profiles: Mapping[str, BurstProfile], own: str) -> FollowedPlan:
        return FollowedPlan(Slots(self._period, (0.0,)), self._start, "it is a test")

    def make(self, name: str, profiles: Mapping[str, BurstProfile], bandwidth: float) -> None: ...
    def close(self) -> None: ...


class Run:
    def __init__(
        self, directory: SharedDirectory, name: str, start: float, profile: BurstProfile | None, period: float
    ) -> None:
        self.leases: queue.Queue[Lease] = queue.Queue()
        self.held: queue.Queue[BurstDelay] = queue.Queue()
        self.failures: list[str] = []
        self.seen = 0
        self.profile = profile
        self.client = LeaseClient(
            directory, name, {"write": 10, "read": 10}, self.leases.put, self.failures.append,
            join=lambda _, own: self.join(own, OneSchedule(start, period)), held=self.held.put,
        )  # fmt: skip

    def join(self, own: str, schedule: OneSchedule) -> ScheduleTurns:
        follower = ScheduleTurns(own, schedule, lambda: self.profile)
        follower.over()
        return follower

    def hold_until(self, least: float) -> BurstDelay:
        """Wait for the first hold that lasts until this time, or longer."""
        while True:
            hold = self.held.get(timeout=30)
            if hold.until >= least:
                return hold

    def burst(self, seconds: float = 10) -> float:
        """Have a burst; return when it was given something."""
        self._begin()
        deadline = time.monotonic() + seconds
        while True:
            lease = self.leases.get(timeout=max(0.01, deadline - time.monotonic()))
            self.seen = lease.number
            if lease.given:
                break
        given = time.time()
        self.client.request(LeaseRequest(seen=self.seen))
        return given

    def is_held(self, least: float) -> bool:
        """Begin a burst, and tell whether it is held until this time, or longer; else it is over."""
        self._begin()
        while True:
            with suppress(queue.Empty):
                if self.held.get(timeout=0.02).until >= least:
                    return True
            with suppress(queue.Empty):
                lease = self.leases.get(timeout=0.02)
                self.seen = lease.number
                if lease.given:
                    self.client.request(LeaseRequest(seen=self.seen))
                    return False

    def _begin(self) -> None:
        lacks: Mapping = {"write": 5}
        self.client.request(LeaseRequest({}, lacks, useful=lacks, seconds=1.0, seen=self.seen, began=time.time()))


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Run]]:
    monkeypatch.setattr(turns, "STILL_SECONDS", 0.0)
    directory = SharedDirectory(tmp_path / "shared", "disk")
    make_own(directory)
    (directory.path / "ledger.json").write_text(LedgerFile(path="/", holds="auto").model_dump_json())
    runs: list[Run] = []

    def make_run(name: str, start: float, profile: BurstProfile | None = PROFILE, period: float = PERIOD) -> Run:
        runs.append(Run(directory, name, start, profile, period))
        return runs[-1]

    yield make_run
    for run in runs:
        run.client.close()
        assert run.failures == []


def test_bursts_wait_for_their_slots(make: Callable[..., Run]) -> None:
    start = time.time() + 1.5
    one, other = make("one", start), make("other", start)
    # Both runs see each other, and follow the schedule from the next burst on.
    for run in (one, other, one, other):
        run.burst()
    one.burst()
    given = one.burst()
    late = (given - start) % PERIOD
    assert late < 1.0, f"{late:.2f} s after a slot"
    hold = one.hold_until(given - 1.0)
    assert abs(given - hold.until) < 1.0
    assert (hold.due - start) % PERIOD < 0.01


def test_who_comes_ends_the_schedule(make: Callable[..., Run]) -> None:
    """The new run has no profile yet: held bursts go on, and not in an hour."""
    hour = 3_600.0
    start = time.time() + hour
    one, other = (make(name, start, period=hour) for name in ("one", "other"))
    for held in itertools.cycle((one, other)):
        if held.is_held(start - hour / 2):
            break
    third = make("third", start, None)
    third.burst()
    while not held.leases.get(timeout=30).given:
        pass
