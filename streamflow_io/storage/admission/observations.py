"""Observations of jobs, and groups of them."""

from __future__ import annotations

from msgspec import Struct

_UNEVEN = 1.1
# The bytes of a job that moves less are mostly logs and the like, so they do not explain its time.
_LEAST_BYTES = 1_000_000
# Shorter jobs count as equal: their time is mostly the start of processes, and the driver does not start them faster.
_LEAST_SECONDS = 0.25


class Observation(Struct, frozen=True):
    """The time and bytes of a job that succeeded.

    :ivar bytes: bytes moved in the direction of the constraint. None or less than 1 MB: the time is taken as it is
    :ivar is_disturbed: a run or program that this run does not know has used the storage meanwhile
    """

    seconds: float
    bytes: float | None = None
    is_disturbed: bool = False


class Group:
    """The observations of jobs that ran under one constraint.

    :ivar concurrency: the most jobs that were seen to run at once
    """

    def __init__(self) -> None:
        self._observations: list[Observation] = []
        self._seconds = 0.0
        self._bytes: float | None = 0.0
        self.concurrency = 0

    def __len__(self) -> int:
        return len(self._observations)

    def add(self, observation: Observation, concurrency: int) -> None:
        self._observations.append(observation)
        self._seconds += observation.seconds
        # The sum is of no use unless all jobs are measured.
        size = observation.bytes or 0
        self._bytes = self._bytes + size if self._bytes is not None and size >= _LEAST_BYTES else None
        self.concurrency = max(self.concurrency, concurrency)

    @property
    def job_bytes(self) -> float | None:
        """The mean bytes of a job. None: some job was not measured."""
        return self._bytes / len(self) if self._bytes else None

    @property
    def is_uneven(self) -> bool:
        """Whether jobs are known to differ in size."""
        sizes = self._sizes()
        return bool(sizes) and max(sizes) > _UNEVEN * min(sizes)

    def seconds(self, job_bytes: float | None) -> float | None:
        """Return the mean time of a job. Where bytes were measured, scale it to a job of `job_bytes`.

        At least 0.25 s. None for an empty group.
        """
        if not self._observations:
            return None
        mean = max(self._seconds / len(self), _LEAST_SECONDS)
        mine = self.job_bytes
        return mean * job_bytes / mine if job_bytes and mine else mean

    def without_slowest(self) -> Group:
        """Return the group without the slowest job, by bytes where they were measured. A single job stays."""
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
        """Return the integral of the number of jobs over time.

        The mean number is the growth of this integral divided by the elapsed time.
        """
        self._job_seconds += self.running * max(0.0, now - self._now)
        self._now = now
        return self._job_seconds

    def enter(self, now: float) -> float:
        """Count one more job, and return :meth:`job_seconds`."""
        before = self.job_seconds(now)
        self.running += 1
        return before

    def leave(self, now: float, entered: float, job_seconds: float) -> float:
        """Count one job less, and return how many jobs ran on average since it entered, itself included.

        :param job_seconds: what :meth:`enter` returned at the time `entered`
        """
        grown = self.job_seconds(now) - job_seconds
        mean = grown / (now - entered) if now > entered else float(self.running)
        self.running -= 1
        return mean
