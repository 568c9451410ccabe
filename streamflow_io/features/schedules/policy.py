"""Turns of bursts by schedules: where they come from, and what people are told of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path, PurePath
from typing import Annotated

from msgspec.structs import replace
from pydantic import Field, TypeAdapter, ValidationError

from streamflow_io.adapters.jobs import JobState, Listener
from streamflow_io.hints.config import StorageConfig
from streamflow_io.hints.models import Way
from streamflow_io.records.history import History, JobAttempt
from streamflow_io.records.records import LeaseRecord, RunRecord, StepRecord
from streamflow_io.storage.admission.demand import Grant
from streamflow_io.storage.sharing.entries import Entry, LedgerFile
from streamflow_io.storage.sharing.other_entries import SharingError, lock_holder
from streamflow_io.storage.sharing.turns import TurnPolicy, Turns

from .burst_profile import BurstProfile, profile_of
from .followed import STILL_SECONDS, unsteady
from .turns import ScheduleTurns, state_of

# The history keeps this number of the last jobs, up to twice as many: older jobs say little about the next ones.
_MOST_JOBS = 2_000


class OwnBursts(Listener):
    """The bursts of a run on storages that the run shares. Nothing is kept before :meth:`follow`.

    This listener comes before the admission of jobs: the end of a burst is found when its last job ends.

    :param clock: gives seconds since the epoch
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._history: History | None = None

    def follow(self) -> None:
        """Begin to keep the jobs that are submitted from now on."""
        if self._history is None:
            self._history = History("", RunRecord(time=self._clock(), name="", workflow=""))

    def submitted(self, job: JobState) -> None:
        if (history := self._history) is None or job.hints is None:
            return
        attempt = JobAttempt(job.name, job.step, submitted=history.since_start(job.submitted))
        job.keep(attempt)
        history.jobs.append(attempt)
        history.steps[job.step] = StepRecord(
            time=job.submitted, step=job.step, io_task=job.is_io_task, direction=job.hints.direction
        )
        if len(history.jobs) > 2 * _MOST_JOBS:
            history.forget(_MOST_JOBS)

    def placed(self, job: JobState) -> None:
        if self._history is not None and (attempt := job.kept(JobAttempt)) is not None:
            attempt.admitted = self._history.since_start(self._clock())

    def running(self, job: JobState) -> None:
        if self._history is not None and job.started is not None and (attempt := job.kept(JobAttempt)) is not None:
            attempt.started = self._history.since_start(job.started)

    def ended(self, job: JobState) -> None:
        if self._history is None or job.ended is None or (attempt := job.drop(JobAttempt)) is None:
            return
        attempt.ended, attempt.usage = self._history.since_start(job.ended), job.usage
        if (grant := job.kept(Grant)) is not None and grant.placement.storage is not None:
            attempt.storage, attempt.constraint = grant.placement.storage.name, grant.constraint

    def leased(self, lease: LeaseRecord) -> None:
        """The amounts of a shared storage have changed."""
        if self._history is not None:
            self._history.leases.append(lease)

    def profile(self, storage: StorageConfig) -> BurstProfile | None:
        """The profile of its bursts on a storage. None: the bursts are not periodic, or go on while it computes."""
        if self._history is None:
            return None
        from .profile import find_profile

        seconds = self._history.since_start(self._clock())
        return find_profile(replace(self._history, seconds=seconds), storage)


MOST_POINTS, MOST_JOBS = 64, 10**6
#: Points of a curve: a number of jobs, and MB/s.
Points = Annotated[
    tuple[tuple[Annotated[int, Field(ge=1, le=MOST_JOBS)], Annotated[float, Field(gt=0, le=1e12)]], ...],
    Field(max_length=MOST_POINTS),
]


class SchedulePolicy(TurnPolicy):
    """Lets a run follow schedules, in directories with `holds: auto`."""

    def __init__(self) -> None:
        self._bursts = OwnBursts()

    def listeners(self) -> Sequence[Listener]:
        return (self._bursts,)

    def leased(self, lease: LeaseRecord) -> None:
        self._bursts.leased(lease)

    def join(self, storage: StorageConfig, directory: PurePath, mine: bool, ledger: LedgerFile, own: str) -> Turns:
        # Only a run on such a storage needs the modules of schedules.
        from .plans import SharedPlans

        plans = SharedPlans(Path(directory), mine, _curve(directory, ledger))
        self._bursts.follow()
        return ScheduleTurns(own, plans, partial(self._bursts.profile, storage))

    def status(self, directory: PurePath, entries: Mapping[str, Entry]) -> str:
        return _text(Path(directory), entries)


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
