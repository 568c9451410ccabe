"""The constraint registry: learned times of the jobs of one step on one storage, and the best constraint of it.

Source: H. Elshazly et al., "Towards enabling I/O awareness in task-based programming models" (2021), 4.2.3 C. Choose
the constraint under which all remaining jobs end first. Of equally good constraints, choose the highest.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace


class RegisteredConstraint(Struct, frozen=True):
    """The outcome of an epoch.

    :ivar constraint: storageBW of each job, in MB/s
    :ivar seconds: the mean time of a job
    :ivar concurrency: how many jobs run at once under this constraint
    :ivar jobs: how many jobs the mean covers
    """

    constraint: float
    seconds: float
    concurrency: int
    jobs: int


class ConstraintRegistry(Struct, frozen=True):
    """Registered constraints, in ascending order of their storageBW; at most one for each.

    :ivar job_bytes: the bytes of the job that the times stand for. The time of a job is proportional to its bytes.
        None: bytes were not measured, and all jobs count as equal
    :ivar is_complete: learning has come to its end. Otherwise there were too few jobs for the constraints that follow
    """

    entries: tuple[RegisteredConstraint, ...] = ()
    job_bytes: float | None = None
    is_complete: bool = True

    def __bool__(self) -> bool:
        return bool(self.entries)

    @property
    def constraints(self) -> tuple[float, ...]:
        return tuple(entry.constraint for entry in self.entries)

    def get(self, constraint: float) -> RegisteredConstraint | None:
        return next((entry for entry in self.entries if entry.constraint == constraint), None)

    def register(self, entry: RegisteredConstraint) -> ConstraintRegistry:
        """Return the registry with a further entry, which replaces the one with the same constraint."""
        return self._with(entry, *(other for other in self.entries if other.constraint != entry.constraint))

    def without(self, constraint: float) -> ConstraintRegistry:
        """Return the registry without the entry of a constraint."""
        return self._with(*(entry for entry in self.entries if entry.constraint != constraint))

    def seconds_at(self, concurrency: int) -> float:
        """Return the time of a job when `concurrency` jobs run at once.

        The time is that of the registered constraint that allows the fewest jobs, but at least `concurrency`. If none
        does, the time is that of the constraint that allows most.

        :raises ValueError: if the registry is empty
        """
        if not self.entries:
            raise ValueError("no constraint is registered")
        enough = [entry for entry in self.entries if entry.concurrency >= concurrency]
        if enough:
            return min(enough, key=lambda entry: (entry.concurrency, entry.seconds)).seconds
        return max(self.entries, key=lambda entry: (entry.concurrency, -entry.seconds)).seconds

    def _with(self, *entries: RegisteredConstraint) -> ConstraintRegistry:
        return replace(self, entries=tuple(sorted(entries, key=lambda entry: entry.constraint)))


def completion_seconds(jobs: int, entry: RegisteredConstraint, registry: ConstraintRegistry) -> float:
    """Return T(n, c): the time until n jobs have ended under a constraint.

    Full groups take their mean time. The remaining jobs are a group by themselves. Each remaining job takes the time of
    the constraint that lets just this number run at once, not the time of a full group.
    """
    groups, remainder = divmod(jobs, entry.concurrency)
    seconds = groups * entry.seconds
    if remainder:
        seconds += min(entry.seconds, registry.seconds_at(remainder))
    return seconds


def estimates(jobs: int, registry: ConstraintRegistry) -> dict[float, float]:
    """Return T(n, c) of every registered constraint."""
    return {entry.constraint: completion_seconds(jobs, entry, registry) for entry in registry.entries}


def best_constraint(jobs: int, registry: ConstraintRegistry) -> float:
    """Return the constraint with the least T(n, c). Of several, return the highest.

    :raises ValueError: if the registry is empty
    """
    if not registry:
        raise ValueError("no constraint is registered")
    times = estimates(max(jobs, 1), registry)
    return min(times, key=lambda constraint: (times[constraint], -constraint))
