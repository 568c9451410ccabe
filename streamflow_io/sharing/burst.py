"""How long a run's burst of jobs takes if the storage is theirs alone: when it is due follows from that."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from statistics import median

from streamflow_io.admission.demand import Queued

from .due import UNKNOWN_SECONDS

#: So many of the last jobs of a step tell how long one takes.
LAST_JOBS = 32


@dataclass(frozen=True)
class _Running:
    step: str
    amount: int
    started: float


def expected_seconds(took: Collection[float]) -> float:
    """How long the next job of a step takes.

    :param took: seconds of the last ones
    """
    return median(took) if took else UNKNOWN_SECONDS


class Burst:
    """The jobs of a run on one storage, from when the first of them waits until none runs or waits.

    Those that have ended count: a burst does not become shorter while it goes on.
    """

    def __init__(self) -> None:
        self._running: dict[str, _Running] = {}
        # By step, of all that run: there may be thousands of jobs.
        self._amounts: Counter[str] = Counter()
        self._took: defaultdict[str, deque[float]] = defaultdict(lambda: deque(maxlen=LAST_JOBS))
        # Bytes that jobs of this burst that have ended were to move.
        self._ended = 0.0
        self._began = 0.0

    def started(self, job: str, step: str, amount: int, now: float) -> None:
        """A job has so many bytes per second from now on."""
        self._running[job] = _Running(step, amount, now)
        self._amounts[step] += amount

    def ended(self, job: str, now: float) -> float | None:
        """A job has ended.

        :return: when it had started; none: it had no bandwidth
        """
        if (one := self._leave(job)) is None:
            return None
        self._took[one.step].append(now - one.started)
        self._ended += one.amount * self._expected(one.step)
        return one.started

    def returned(self, job: str) -> None:
        """A job has given back what it had, and waits again."""
        self._leave(job)

    @property
    def is_idle(self) -> bool:
        """Whether no job of it runs."""
        return not self._running

    def began(self, is_waiting: bool, now: float) -> float:
        """When it began: the run uses the storage since then, or waits for it.

        Whatever the run still holds of it: who keeps a lease through a pause has a new burst after it.

        :param is_waiting: a job of it lacks bandwidth
        :return: 0: it has not
        """
        if self.is_idle and not is_waiting:
            self._began = 0.0
        elif not self._began:
            self._began = now
        return self._began

    def over(self) -> bool:
        """None runs or waits: what comes next is another burst.

        :return: whether any has run since the last one
        """
        had_any, self._ended = self._ended > 0, 0.0
        return had_any

    def seconds(self, queued: Iterable[Queued], bandwidth: int) -> float:
        """How long all jobs of the burst take, one after the other or together, if nobody else uses the storage.

        :param queued: those that wait
        :param bandwidth: of the storage, bytes per second
        """
        running = sum(amount * self._expected(step) for step, amount in self._amounts.items())
        queue = sum(one.amount * one.jobs * self._expected(one.step) for one in queued)
        return (self._ended + running + queue) / bandwidth

    def _leave(self, job: str) -> _Running | None:
        one = self._running.pop(job, None)
        if one is not None:
            self._amounts[one.step] -= one.amount
            if not self._amounts[one.step]:
                del self._amounts[one.step]
        return one

    def _expected(self, step: str) -> float:
        return expected_seconds(self._took[step])
