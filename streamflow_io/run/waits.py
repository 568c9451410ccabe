"""What jobs wait for before they have a place. Pure."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from streamflow_io.records.jobs import WaitCause

# Nobody sees a shorter one.
_LEAST = 0.001


@dataclass
class _Wait:
    """:ivar cause: of the wait that goes on; none: it waits for nothing that is known"""

    since: float
    cause: WaitCause | None = None
    seconds: defaultdict[WaitCause, float] = field(default_factory=lambda: defaultdict(float))


class Waits:
    """Adds up what each job waits for. What it lacks at the last look is what it waits for until the next.

    Times are seconds of any clock that does not go back.
    """

    def __init__(self) -> None:
        self._jobs: dict[str, _Wait] = {}

    def lacks(self, job_name: str, cause: WaitCause | None, now: float) -> None:
        """A job was looked at: it lacks something, or nothing."""
        wait = self._jobs.setdefault(job_name, _Wait(now))
        if wait.cause != cause:
            _add(wait, now)
            wait.since, wait.cause = now, cause

    def end(self, job_name: str, now: float) -> dict[WaitCause, float]:
        """A job does not wait any more.

        :return: how long it has waited for each cause, in seconds
        """
        wait = self._jobs.pop(job_name, None)
        if wait is None:
            return {}
        _add(wait, now)
        return {cause: seconds for cause, seconds in wait.seconds.items() if seconds >= _LEAST}


def _add(wait: _Wait, now: float) -> None:
    if wait.cause is not None:
        wait.seconds[wait.cause] += now - wait.since
