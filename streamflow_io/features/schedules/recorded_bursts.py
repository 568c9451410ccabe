"""Adapter: what the bursts of this run are like, while it runs, from what is recorded of its jobs."""

from __future__ import annotations

from dataclasses import replace

from streamflow_io.hints.config import StorageConfig
from streamflow_io.telemetry.history import HistoryReader
from streamflow_io.telemetry.records import JobRecord, LeaseRecord, Record, RunRecord, StepRecord, Storage

from .burst_profile import BurstProfile, SeenRate
from .profile import Profile, profiles

# Of the last so many jobs, and once more as many: what a run did long ago says little of what it does next.
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
        """What its bursts on a storage are like; None: they are not periodic, or go on while it computes."""
        if self._reader is None:
            return None
        known = Storage(**storage.model_dump(include=set(Storage.model_fields)))
        history = self._reader.history
        run = history.run.model_copy(update={"storages": (known,)})
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
        seen=tuple(SeenRate(jobs=one.jobs, rate=one.rate, seconds=one.seconds) for one in found.seen),
    )
