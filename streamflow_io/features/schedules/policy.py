"""Turns of bursts by schedules: where they come from, and what people are told of them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Annotated

from msgspec import convert
from msgspec.structs import replace
from pydantic import Field, TypeAdapter, ValidationError

from streamflow_io.hints.config import StorageConfig
from streamflow_io.hints.models import Way
from streamflow_io.records.history import HistoryReader
from streamflow_io.records.jobs import JobRecord
from streamflow_io.records.records import LeaseRecord, Record, RunRecord, RunStorage, StepRecord
from streamflow_io.storage.sharing.entries import Entry, LedgerFile
from streamflow_io.storage.sharing.locking import SharingError, lock_holder
from streamflow_io.storage.sharing.turns import TurnPolicy, Turns, TurnStatus

from .burst_profile import BurstProfile, PublishedRate, profile_of
from .followed import STILL_SECONDS, unsteady
from .turns import ScheduleTurns, state_of

if TYPE_CHECKING:
    from .profile import Profile

# The history keeps this number of the last jobs, up to twice as many: older jobs say little about the next ones.
_MOST_JOBS = 2_000


class RecordedBursts:
    """The bursts of a run on storages that it shares."""

    def __init__(self) -> None:
        self._steps: dict[str, StepRecord] = {}
        self._reader: HistoryReader | None = None

    def told(self, record: Record) -> None:
        """Something was recorded."""
        if isinstance(record, StepRecord):
            self._steps[record.step] = record
        elif isinstance(record, JobRecord | LeaseRecord):
            if self._reader is None:
                self._reader = HistoryReader("", RunRecord(time=record.time, name="", workflow=""))
            self._reader.told(record)
            if len(self._reader.history.jobs) > 2 * _MOST_JOBS:
                self._reader.forget(_MOST_JOBS)

    def profile(self, storage: StorageConfig) -> BurstProfile | None:
        """The profile of its bursts on a storage. None: the bursts are not periodic, or go on while it computes."""
        if self._reader is None:
            return None
        from .profile import Profile, profiles

        known = convert(storage, RunStorage, from_attributes=True)
        history = self._reader.history
        run = replace(history.run, storages=(known,))
        jobs = [job for job in history.jobs if job.storage in (None, storage.name)]
        for found in profiles(replace(history, run=run, steps=self._steps, jobs=jobs)):
            if isinstance(found, Profile) and found.storage == storage.name and found.compact:
                return _to_burst_profile(found)
        return None


def _to_burst_profile(found: Profile) -> BurstProfile | None:
    if found.direction == "both" or found.leased <= 0:
        return None
    return BurstProfile(
        direction=found.direction,
        bursts=found.bursts,
        jobs=found.jobs,
        storage_bw=found.storage_bw,
        volume=found.leased,
        rate=found.rate,
        work=found.work,
        error=found.error,
        moved=found.volume,
        latency=found.latency,
        seen=tuple(PublishedRate(jobs=one.jobs, rate=one.rate, seconds=one.seconds) for one in found.seen),
    )


MOST_POINTS, MOST_JOBS = 64, 10**6
#: Points of a curve: a number of jobs, and MB/s.
Points = Annotated[
    tuple[tuple[Annotated[int, Field(ge=1, le=MOST_JOBS)], Annotated[float, Field(gt=0, le=1e12)]], ...],
    Field(max_length=MOST_POINTS),
]


class SchedulePolicy(TurnPolicy):
    """Lets a run follow schedules, in directories with `holds: auto`."""

    def __init__(self) -> None:
        self._bursts = RecordedBursts()
        self._has_turns = False

    def recorded(self, record: Record) -> None:
        if self._has_turns or isinstance(record, StepRecord):
            self._bursts.told(record)

    def join(self, storage: StorageConfig, directory: PurePath, mine: bool, ledger: LedgerFile, own: str) -> Turns:
        # Only a run on such a storage needs the modules of schedules.
        from .plans import SharedPlans

        plans = SharedPlans(Path(directory), mine, _curve(directory, ledger))
        self._has_turns = True
        return ScheduleTurns(own, plans, partial(self._bursts.profile, storage))

    def status(self, directory: PurePath, entries: Mapping[str, Entry]) -> TurnStatus:
        states = {name: state_of(entry) for name, entry in entries.items()}
        since = {name: state.since for name, state in states.items() if state is not None and state.since is not None}
        return TurnStatus(_text(Path(directory), entries), since)


def _curve(directory: PurePath, ledger: LedgerFile) -> dict[Way, Points]:
    """The curve of the storage by direction: numbers of jobs, and MB/s of all together. A direction may be missing."""
    try:
        return TypeAdapter(dict[Way, Points]).validate_python((ledger.model_extra or {}).get("curve", {}))
    except ValidationError:
        allowed = f"up to {MOST_POINTS} pairs of jobs and MB/s, for `write` and `read`"
        raise SharingError(f"`curve` in {directory / 'ledger.json'} is wrong; allowed: {allowed}") from None


def _text(directory: Path, entries: Mapping[str, Entry]) -> str:
    """The state of the schedule of the runs that are there, for people."""
    profiles = {identifier: profile_of(entry) for identifier, entry in entries.items()}
    if (why := unsteady({identifier: entry.run for identifier, entry in entries.items()}, profiles)) is not None:
        return f"no schedule: {why}"
    states = [state_of(entry) for entry in entries.values()]
    found = [state for state in states if state is not None]
    if len(found) == len(states):
        following = sum(state.since is not None for state in found)
        said = next((state.reason for state in found if state.since is None), found[0].reason)
        if not following:
            return f"no schedule is followed: {said}"
        who = "all follow a schedule" if following == len(found) else f"{following} of {len(found)} follow a schedule"
        return f"{who}: {said}"
    if (holder := lock_holder(directory / "plans" / "lock")) is not None:
        return f"no schedule yet: process {holder} makes one"
    return f"no schedule yet: one is made when no run has begun or ended for {STILL_SECONDS:g} s"
