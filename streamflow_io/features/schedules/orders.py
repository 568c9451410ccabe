"""The order in which transfers may begin and end, without times; of a pattern, or of a simulation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import merge
from typing import NamedTuple

from .fluid import simulate
from .model import ApplicationSet, Pattern
from .play import Event
from .policies import Paced, paced

# Of the period: what is nearer to each other happens at the same time.
_SAME_TIME = 1e-10
_ROUNDS = 5


class PhaseChange(NamedTuple):
    """A transfer of an application may begin, its compute has ended; or it has ended, and the next compute begins."""

    application: int
    is_end: bool


# Cyclic: after the last comes the first. The turns of an application alternate.
Order = Sequence[PhaseChange]


class _Timed(NamedTuple):
    time: float
    turn: PhaseChange


def order_of(pattern: Pattern) -> list[PhaseChange]:
    """The order of a pattern; of what happens at the same time beginnings go first, which leaves most freedom."""
    rows = []
    for index, instances in enumerate(pattern.instances):
        turns = [
            _Timed(time, PhaseChange(index, is_end))
            for one in instances
            for time, is_end in ((one.work[1], False), (one.transfers[-1].end, True))
        ]
        late = [_Timed(one.time - pattern.period, one.turn) for one in turns if one.time >= pattern.period]
        rows.append([*late, *turns[: len(turns) - len(late)]])
    return _merged(rows, _SAME_TIME * pattern.period)


def paced_order(
    applications: ApplicationSet, counts: Sequence[int], *, alternate: bool = True
) -> list[PhaseChange] | None:
    """The order of a simulation in which all applications keep pace with these counts.

    Who is due first transfers first. Of the simulation it is a part that has just these counts, or nearly.

    :param alternate: equal applications take turns; else they stay together
    :return: None if no part of it has an instance of each application
    """
    period = applications.least_period(counts)
    log: list[Event] = []
    rates = [count / period for count in counts]
    policy = paced(applications, rates) if alternate else Paced(rates)
    simulate(applications, policy, _ROUNDS * period, log=log)
    turns = [_Timed(event.time, PhaseChange(event.application, event.is_end)) for event in log]
    part = _part(turns, counts)
    if part is None:
        return None
    rows: list[list[_Timed]] = [[] for _ in counts]
    for each in part:
        rows[each.turn.application].append(each)
    for row in rows:
        if len(row) % 2:
            row.pop()
    return _merged(rows, _SAME_TIME * period) if all(rows) else None


def _part(turns: Sequence[_Timed], counts: Sequence[int]) -> Sequence[_Timed] | None:
    """As many turns as these counts have, of which the numbers differ least from theirs; of equals the shortest."""
    size, warm = 2 * sum(counts), len(turns) // _ROUNDS
    missing = [2 * count for count in counts]
    for each in turns[warm : warm + size]:
        missing[each.turn.application] -= 1
    best: tuple[int, float, int] | None = None
    for begin in range(warm, len(turns) - size):
        length = turns[begin + size].time - turns[begin].time
        found = (sum(map(abs, missing)), length, begin)
        best = found if best is None else min(best, found)
        missing[turns[begin].turn.application] += 1
        missing[turns[begin + size].turn.application] -= 1
    return None if best is None else turns[best[2] : best[2] + size]


def _merged(rows: Iterable[Iterable[_Timed]], near: float) -> list[PhaseChange]:
    return [each.turn for each in merge(*rows, key=lambda one: (round(one.time / near), one.turn.is_end))]


def counts_of(applications: ApplicationSet, order: Order) -> list[int]:
    """How many instances of each application an order has."""
    counts = [0] * len(applications.applications)
    for turn in order:
        counts[turn.application] += turn.is_end
    return counts
