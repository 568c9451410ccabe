"""Turns of bursts by schedules: where they come from, and what people are told of them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path, PurePath
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from streamflow_io.hints.config import StorageConfig
from streamflow_io.hints.models import Way
from streamflow_io.sharing.entries import Entry, LedgerFile
from streamflow_io.sharing.locking import SharingError, lock_holder
from streamflow_io.sharing.turns import TurnPolicy, Turns, TurnStatus
from streamflow_io.telemetry.records import Record, StepRecord

from .burst_profile import profile_of
from .holds import STILL_SECONDS, unsteady
from .plans import SharedPlans
from .recorded_bursts import RecordedBursts
from .turns import Follower, state_of

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
        plans = SharedPlans(Path(directory), mine, _curve(directory, ledger))
        self._has_turns = True
        return Follower(own, plans, partial(self._bursts.profile, storage))

    def status(self, directory: PurePath, entries: Mapping[str, Entry]) -> TurnStatus:
        states = {name: state_of(entry) for name, entry in entries.items()}
        since = {name: state.since for name, state in states.items() if state is not None and state.since is not None}
        return TurnStatus(_text(Path(directory), entries), since)


def _curve(directory: PurePath, ledger: LedgerFile) -> dict[Way, Points]:
    """How fast the storage is with so many jobs at once, MB/s of all together. Other directions are not known."""
    try:
        return TypeAdapter(dict[Way, Points]).validate_python((ledger.model_extra or {}).get("curve", {}))
    except ValidationError:
        allowed = f"up to {MOST_POINTS} pairs of jobs and MB/s, for `write` and `read`"
        raise SharingError(f"`curve` in {directory / 'ledger.json'} is wrong; allowed: {allowed}") from None


def _text(directory: Path, entries: Mapping[str, Entry]) -> str:
    """What those that are there do about a schedule, for people."""
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
    return f"no schedule yet: it is made when nobody has come or gone for {STILL_SECONDS:g} s"
