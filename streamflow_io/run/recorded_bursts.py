"""Adapter: what the bursts of this run are like, while it runs, from what is recorded of its jobs."""

from __future__ import annotations

from collections import deque

from streamflow_io.hints.config import StorageConfig
from streamflow_io.sharing.burst_profile import BurstProfile
from streamflow_io.telemetry.history import read_history
from streamflow_io.telemetry.profile import Profile, profiles
from streamflow_io.telemetry.records import JobRecord, Record, RunRecord, StepRecord, Storage

# Of the last so many records: what a run did long ago says little of what it does next.
_MOST_RECORDS = 20_000


class RecordedBursts:
    """The bursts of a run on storages that it shares."""

    def __init__(self) -> None:
        self._steps: dict[str, StepRecord] = {}
        self._records: deque[Record] = deque(maxlen=_MOST_RECORDS)

    def told(self, record: Record) -> None:
        """Something was recorded."""
        if isinstance(record, StepRecord):
            self._steps[record.step] = record
        elif isinstance(record, JobRecord):
            self._records.append(record)

    def profile(self, storage: StorageConfig) -> BurstProfile | None:
        """What its bursts on a storage are like; None: they are not periodic, or go on while it computes."""
        if not self._records:
            return None
        known = Storage(**storage.model_dump(include=set(Storage.model_fields)))
        run = RunRecord(time=self._records[0].time, name="", workflow="", storages=(known,))
        for found in profiles(read_history("", [run, *self._steps.values(), *self._records])):
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
    )
