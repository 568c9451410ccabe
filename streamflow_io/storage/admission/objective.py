"""The objective function over a constraint registry.

H. Elshazly et al., "Towards enabling I/O awareness in task-based programming models" (2021), 4.2.3 C: choose the
constraint under which all jobs that are left end first; of those that are equally good, the highest.
"""

from __future__ import annotations

from .registry import ConstraintRegistry, RegisteredConstraint


def completion_seconds(jobs: int, entry: RegisteredConstraint, registry: ConstraintRegistry) -> float:
    """T(n, c): the time until n jobs have ended under a constraint.

    Full groups take their mean time. The jobs that remain are a group by themselves: with so few at once each takes the
    time that was learned for the constraint that lets just so many run, not that of a full group.
    """
    groups, remainder = divmod(jobs, entry.concurrency)
    seconds = groups * entry.seconds
    if remainder:
        seconds += min(entry.seconds, registry.seconds_at(remainder))
    return seconds


def estimates(jobs: int, registry: ConstraintRegistry) -> dict[float, float]:
    """T(n, c) of every registered constraint."""
    return {entry.constraint: completion_seconds(jobs, entry, registry) for entry in registry.entries}


def best_constraint(jobs: int, registry: ConstraintRegistry) -> float:
    """The constraint with the least T(n, c); ties to the highest.

    :raises ValueError: if nothing is registered
    """
    if not registry:
        raise ValueError("no constraint is registered")
    times = estimates(max(jobs, 1), registry)
    return min(times, key=lambda constraint: (times[constraint], -constraint))
