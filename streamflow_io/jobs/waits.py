"""What jobs wait for before they have a place. Pure."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from streamflow_io.records.jobs import WaitCause

# Nobody sees a shorter one.
_LEAST = 0.001


@dataclass
class Waits:
    """Adds up what a job waits for. What the job lacks at one look is the cause of its wait until the next look.

    Times are seconds of any clock that does not go back.

    :ivar since: the time of the last look that has changed the cause
    :ivar cause: of the wait that goes on; None: the job waits for nothing that is known
    """

    since: float
    cause: WaitCause | None = None
    _seconds: defaultdict[WaitCause, float] = field(default_factory=lambda: defaultdict(float))

    def lacks(self, cause: WaitCause | None, now: float) -> None:
        """Take in what the job lacks; None: nothing."""
        if self.cause != cause:
            self._add(now)
            self.since, self.cause = now, cause

    def end(self, now: float) -> dict[WaitCause, float]:
        """End the wait of the job.

        :return: how long the job has waited for each cause, in seconds
        """
        self._add(now)
        self.cause = None
        return {cause: seconds for cause, seconds in self._seconds.items() if seconds >= _LEAST}

    def _add(self, now: float) -> None:
        if self.cause is not None:
            self._seconds[self.cause] += now - self.since
