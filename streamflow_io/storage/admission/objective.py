"""The objective function over a constraint registry.

Source: H. Elshazly et al., "Towards enabling I/O awareness in task-based programming models" (2021), 4.2.3 C. Choose
the constraint under which all remaining jobs end first. Of equally good constraints, choose the highest.
"""

from __future__ import annotations

from .registry import ConstraintRegistry, RegisteredConstraint


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
