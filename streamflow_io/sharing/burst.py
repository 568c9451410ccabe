"""How long a run's burst of jobs takes if the storage is theirs alone: when it is due follows from that. Pure."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from streamflow_io.admission.demand import Queued

# Of a step of which no job has ended: with 0 its burst would be due at once, before all others.
_UNKNOWN_SECONDS = 1.0
# So many of the last jobs of a step tell how long one takes.
_LAST_JOBS = 32


@dataclass(frozen=True)
class _Running:
    step: str
    amount: int
    started: float


class Burst:
    """The jobs of a run on one storage, from when the first of them waits until none runs or waits.

    Those that have ended count: a burst does not become shorter while it goes on.
    """

    def __init__(self) -> None:
        self._running: dict[str, _Running] = {}
        self._took: defaultdict[str, deque[float]] = defaultdict(lambda: deque(maxlen=_LAST_JOBS))
        # Bytes that jobs of this burst that have ended were to move.
        self._ended = 0.0

    def started(self, job: str, step: str, amount: int, now: float) -> None:
        """A job has so many bytes per second from now on."""
        self._running[job] = _Running(step, amount, now)

    def ended(self, job: str, now: float) -> float | None:
        """A job has ended.

        :return: when it had started; none: it had no bandwidth
        """
        if (one := self._running.pop(job, None)) is None:
            return None
        self._took[one.step].append(now - one.started)
        self._ended += one.amount * self._expected(one.step)
        return one.started

    def returned(self, job: str) -> None:
        """A job has given back what it had, and waits again."""
        self._running.pop(job, None)

    def seconds(self, queued: Iterable[Queued], bandwidth: int) -> float:
        """How long all jobs of the burst take, one after the other or together, if nobody else uses the storage.

        :param queued: those that wait
        :param bandwidth: of the storage, bytes per second
        """
        waiting = [*queued]
        if not self._running and not waiting:
            self._ended = 0.0
        running = sum(one.amount * self._expected(one.step) for one in self._running.values())
        queue = sum(one.amount * one.jobs * self._expected(one.step) for one in waiting)
        return (self._ended + running + queue) / bandwidth

    def _expected(self, step: str) -> float:
        return median(self._took[step]) if self._took[step] else _UNKNOWN_SECONDS
