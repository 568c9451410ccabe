"""How jobs went, and groups of such observations."""

from __future__ import annotations

from dataclasses import dataclass

_UNEVEN = 1.1
# The time of a job that moves less is not that of its bytes, which are logs and the like.
_LEAST_BYTES = 1_000_000
# Shorter jobs are alike: what they take is the start of their processes, and the driver does not start them faster.
_LEAST_SECONDS = 0.25
# Of a storage: in less time it may be much faster or slower than it is.
_TELLING_SECONDS = 1.0


@dataclass(frozen=True)
class Observation:
    """A job that succeeded.

    :ivar bytes: what it moved in the direction of its constraint; none: not measured. Less than 1 MB does not count
    :ivar is_io_only: the seconds are those of its I/O, without the start of a process
    :ivar is_disturbed: somebody has used the storage meanwhile of whom nothing is known here
    """

    seconds: float
    bytes: float | None = None
    is_io_only: bool = False
    is_disturbed: bool = False


class Group:
    """The observations of jobs that ran under one constraint.

    :ivar concurrency: the most that were seen to run at once
    """

    def __init__(self) -> None:
        self._observations: list[Observation] = []
        self._seconds = 0.0
        self._is_io_only = True
        self._bytes: float | None = 0.0
        self.concurrency = 0

    def __len__(self) -> int:
        return len(self._observations)

    def add(self, observation: Observation, concurrency: int) -> None:
        self._observations.append(observation)
        self._seconds += observation.seconds
        self._is_io_only = self._is_io_only and observation.is_io_only
        # Of no use unless all are measured.
        size = observation.bytes or 0
        self._bytes = self._bytes + size if self._bytes is not None and size >= _LEAST_BYTES else None
        self.concurrency = max(self.concurrency, concurrency)

    @property
    def is_brief(self) -> bool:
        """Whether its jobs only do I/O, and have used the storage for less than a second together."""
        return self._is_io_only and self._seconds < _TELLING_SECONDS * self.concurrency

    @property
    def job_bytes(self) -> float | None:
        """The mean bytes of a job; none unless all were measured."""
        return self._bytes / len(self) if self._bytes else None

    @property
    def is_uneven(self) -> bool:
        """Whether jobs are known to differ in size."""
        sizes = self._sizes()
        return bool(sizes) and max(sizes) > _UNEVEN * min(sizes)

    def seconds(self, job_bytes: float | None) -> float | None:
        """The mean time of a job; where bytes were measured, that of a job of so many bytes.

        At least 0.25 s, if processes were started. None of an empty group.
        """
        if not self._observations:
            return None
        mean = self._seconds / len(self)
        if not self._is_io_only:
            mean = max(mean, _LEAST_SECONDS)
        mine = self.job_bytes
        return mean * job_bytes / mine if job_bytes and mine else mean

    def without_slowest(self) -> Group:
        """Without the job that took longest, by bytes where they were measured; an only one stays."""
        sizes = self._sizes()
        pace = [
            observation.seconds / (sizes[index] if sizes else 1.0)
            for index, observation in enumerate(self._observations)
        ]
        rest = Group()
        slowest = pace.index(max(pace)) if len(pace) > 1 else None
        for index, one in enumerate(self._observations):
            if index != slowest:
                rest.add(one, self.concurrency)
        return rest

    def _sizes(self) -> list[float]:
        sizes = [size for one in self._observations if (size := one.bytes or 0) >= _LEAST_BYTES]
        return sizes if len(sizes) == len(self._observations) else []


class Crowd:
    """How many jobs run at once on one location, and how many did on average while a job ran.

    :ivar running: how many run now
    """

    def __init__(self) -> None:
        self.running = 0
        self._job_seconds = 0.0
        self._now = 0.0

    def job_seconds(self, now: float) -> float:
        """The integral over time of the number of jobs; its growth, divided by the time that it took, is their mean."""
        self._job_seconds += self.running * max(0.0, now - self._now)
        self._now = now
        return self._job_seconds

    def enter(self, now: float) -> float:
        """One more; return :meth:`job_seconds`."""
        before = self.job_seconds(now)
        self.running += 1
        return before

    def leave(self, now: float, entered: float, job_seconds: float) -> float:
        """One less; return how many ran on average since it entered, itself included.

        :param job_seconds: what :meth:`enter` returned at the time `entered`
        """
        grown = self.job_seconds(now) - job_seconds
        mean = grown / (now - entered) if now > entered else float(self.running)
        self.running -= 1
        return mean
