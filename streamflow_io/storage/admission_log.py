"""Reports of the admission of jobs by storages: for telemetry, the log, and the next run."""

from __future__ import annotations

from collections.abc import Callable

from streamflow.log_handler import logger

from streamflow_io.records.jobs import AdmittedRecord
from streamflow_io.records.records import ChoiceRecord, EpochRecord, Record

from .admission.demand import Grant
from .admission.epochs import EpochEnded
from .admission.learners import LearningEvent
from .learned_limits import RememberedLimits


class AdmissionLog:
    """Records what admission reports.

    :param remembered: the learned limits, for the next run
    :param record: keeps a record for telemetry
    """

    def __init__(self, remembered: RememberedLimits, record: Callable[[Record], None]) -> None:
        self._remembered = remembered
        self._record = record
        self._uneven: set[str] = set()

    def admitted(self, grant: Grant, now: float) -> None:
        """Record that a job may start."""
        storage = grant.placement.storage.name if grant.placement.storage is not None else None
        self._record(
            AdmittedRecord(
                time=now,
                job=grant.job,
                step=grant.step,
                location=grant.locations[0],
                storage=storage,
                constraint=grant.constraint,
                allocated=grant.allocated,
                running=grant.running,
            )
        )

    def told(self, learning: LearningEvent, now: float) -> None:
        """Record, log and remember an event of a learner."""
        step, storage, event = learning.step, learning.subject.storage.name, learning.event
        if isinstance(event, EpochEnded):
            self._record(
                EpochRecord(
                    time=now,
                    step=step,
                    storage=storage,
                    location=event.location or "",
                    number=event.number,
                    constraint=event.constraint,
                    concurrency=event.concurrency,
                    jobs=event.jobs,
                    mean_seconds=event.mean_seconds,
                    registered=event.registered,
                    started=event.started,
                )
            )
            if event.uneven and step not in self._uneven:
                self._uneven.add(step)
                logger.info(f"The jobs of {step} differ in size: their times are compared per byte")
            if event.registered:
                # There may be too few jobs for the next epoch. The next run continues from here.
                self._remembered.learned(learning)
            return
        estimates = {f"{constraint:g}": seconds for constraint, seconds in event.estimates.items()}
        choice = ChoiceRecord(
            time=now,
            step=step,
            storage=storage,
            constraint=event.constraint,
            reason=event.reason,
            outstanding=event.outstanding,
            estimates=estimates,
        )
        self._record(choice)
        if event.reason in ("learned", "remembered", "contradicted", "drifted"):
            logger.info(f"{_what(learning)}: {event.constraint:g} MB/s ({event.reason})")
        if event.reason == "too few jobs":
            logger.info(
                f"{_what(learning)}: there were too few jobs to learn all of it. The last ones had "
                f"{event.constraint:g} MB/s. The next run goes on from what was learned"
            )
        if event.reason == "learned":
            self._remembered.learned(learning)


def _what(learning: LearningEvent) -> str:
    storage = learning.subject.storage.name
    return f"storageBW of {learning.step} on {storage}"
