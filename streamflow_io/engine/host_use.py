"""The jobs of deployments whose hosts come and go."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from streamflow.core.deployment import ExecutionLocation

from streamflow_io._streamflow import HostJobs


class HostUse:
    """Counts the jobs that need each location, and knows the jobs that wait for one."""

    def __init__(self) -> None:
        self._needed: dict[str, list[ExecutionLocation]] = {}
        self._busy: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._waiting: defaultdict[str, set[str]] = defaultdict(set)
        self._lacking: defaultdict[str, set[str]] = defaultdict(set)

    def of(self, deployment: str) -> HostJobs:
        """The jobs of a deployment."""
        busy = frozenset(name for name, count in self._busy[deployment].items() if count > 0)
        return HostJobs(busy, bool(self._waiting[deployment]), bool(self._lacking[deployment]))

    @contextmanager
    def waiting(self, deployment: str, job: str) -> Iterator[None]:
        """Note that a job waits for a location of a deployment."""
        self._waiting[deployment].add(job)
        try:
            yield
        finally:
            self._waiting[deployment].discard(job)
            self._lacking[deployment].discard(job)

    def lacks(self, deployment: str, job: str) -> None:
        """Note that a waiting job needs more than a location has free."""
        if job in self._waiting[deployment]:
            self._lacking[deployment].add(job)

    def placed(self, job: str, locations: Iterable[ExecutionLocation]) -> None:
        """Note that a job needs locations from now on: its own, and those from which it reads."""
        self._needed[job] = list(locations)
        self._count(job, 1)

    def freed(self, job: str) -> None:
        """Note that a job has ended."""
        self._count(job, -1)
        self._needed.pop(job, None)

    def _count(self, job: str, change: int) -> None:
        for location in self._needed.get(job, ()):
            self._busy[location.deployment][location.name] += change
