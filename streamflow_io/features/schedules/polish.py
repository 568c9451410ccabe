"""The shortest pattern with a given cyclic order, as a linear program; and better orders. Pure; solved by HiGHS.

Between two neighbours of an order nothing begins or ends: all that counts is how long that takes, and how much each
application transfers meanwhile. Neighbours between which no time passes may change their places: what was possible
still is. Which of these changes are worthwhile is told by the prices (duals) of the program.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from math import isclose
from typing import NamedTuple

from .model import ApplicationSet, Instance, Pattern, Transfer
from .orders import Order
from .solver import Solver

# Of the unit of time, which is the shortest I/O time; the solver knows numbers to 1e-7.
_ZERO = 1e-7
_LEAST_PROFIT = 1e-6
# What is smaller is what floats leave.
_NOTHING = 1e-10
_SAME_RATE = 1e-9


class _State(NamedTuple):
    """What an application does in an interval: it transfers, or computes, for which of all instances."""

    is_transfer: bool
    instance: int


class Program:
    """The linear program of an order.

    Variables: the length of the interval after each turn; the time that each application with an open transfer would
    take, alone, for what it transfers in it. Minimised is the sum of the lengths.

    :ivar order: now
    :ivar period: of the solution, in s; infinite before the first
    """

    def __init__(self, applications: ApplicationSet, order: Order) -> None:
        self._set = applications
        self._unit = min(applications.io_times)
        self._shares = [peak / applications.platform.bandwidth for peak in applications.peaks]
        self.order = list(order)
        self.period = float("inf")
        self._first = _firsts(order, len(applications.applications))
        self._states = _states(self.order, self._first)
        self._solver = Solver()
        self._build()

    def _build(self) -> None:
        solver, instances = self._solver, self._first[-1]
        owners = [
            index for index, _ in enumerate(self._shares) for _ in range(self._first[index], self._first[index + 1])
        ]
        applications = self._set.applications
        self._computes = [solver.add_row(applications[owner].work / self._unit) for owner in owners]
        self._transfers = [solver.add_row(self._set.io_times[owner] / self._unit, is_equal=True) for owner in owners]
        assert len(self._transfers) == instances
        self._capacity = [solver.add_row(0) for _ in self.order]
        self._lengths = []
        self._moved: list[dict[int, int]] = []
        for interval, states in enumerate(self._states):
            computes = [(self._computes[state.instance], 1.0) for state in states if not state.is_transfer]
            self._lengths.append(solver.add_column(1, [(self._capacity[interval], 1.0), *computes]))
            self._moved.append({})
        for interval, states in enumerate(self._states):
            for application, state in enumerate(states):
                if state.is_transfer:
                    self._add_moved(interval, application, state.instance)

    def _add_moved(self, interval: int, application: int, instance: int) -> None:
        """What an application transfers in an interval, in the time that it would take alone."""
        within = self._solver.add_row(0, [(self._lengths[interval], 1.0)])
        rows = [(self._transfers[instance], 1.0), (self._capacity[interval], -self._shares[application])]
        self._moved[interval][application] = self._solver.add_column(0, [*rows, (within, -1.0)])

    def solve(self) -> bool:
        """Find the shortest period.

        :return: False if there is none, which happens only if the solver gives up
        """
        if not self._solver.solve():
            return False
        self.period = sum(self._solver.values[column] for column in self._lengths) * self._unit
        return True

    def _set_state(self, interval: int, application: int, state: _State) -> None:
        old = self._states[interval][application]
        solver, moved = self._solver, self._moved[interval]
        if old.is_transfer:
            solver.change(self._transfers[old.instance], moved[application], 0)
            solver.allow(moved[application], False)
        else:
            solver.change(self._computes[old.instance], self._lengths[interval], 0)
        if not state.is_transfer:
            solver.change(self._computes[state.instance], self._lengths[interval], 1)
        elif application in moved:
            solver.change(self._transfers[state.instance], moved[application], 1)
            solver.allow(moved[application], True)
        else:
            self._add_moved(interval, application, state.instance)
        self._states[interval][application] = state

    def exchange(self, position: int) -> None:
        """Let a turn and the next one change their places; no time must pass between them."""
        count = len(self.order)
        one, other = self.order[position], self.order[(position + 1) % count]
        self.order[position], self.order[(position + 1) % count] = other, one
        self._set_state(position, one.application, self._states[position - 1][one.application])
        self._set_state(position, other.application, self._states[(position + 1) % count][other.application])

    def improve(self) -> int:
        """Change places where the prices say that it pays; :meth:`solve` then.

        :return: how many of such places there were
        """
        found = 0
        for cluster in self._clusters():
            if (early := self._best_subset(cluster)) is not None:
                self._bring_forward(cluster, early)
                found += 1
        return found

    def _clusters(self) -> Iterator[list[int]]:
        """Positions of turns at the same time, of at least two applications."""
        values, count = self._solver.values, len(self.order)
        after = [values[column] > _ZERO for column in self._lengths]
        if not any(after):
            return
        begin = after.index(True) + 1
        cluster: list[int] = []
        for position in range(begin, begin + count):
            cluster.append(position % count)
            if after[position % count]:
                if len(cluster) > 1:
                    yield cluster
                cluster = []

    def _best_subset(self, cluster: Sequence[int]) -> set[int] | None:
        """Which turns of a cluster should go first, so that an interval between them and the others pays most."""
        duals, before = self._solver.duals, self._states[cluster[0] - 1]
        profit, options = -1.0, []
        turned: dict[int, int] = {}
        for position in cluster:
            # Of an application that turns twice, only the first turn.
            turned.setdefault(self.order[position].application, position)
        for application, state in enumerate(before):
            choices = [(state, -1)]
            if application in turned:
                choices.append((self._states[turned[application]][application], turned[application]))
            computing = [(duals[self._computes[one.instance]], at) for one, at in choices if not one.is_transfer]
            moving = [(duals[self._transfers[one.instance]], at) for one, at in choices if one.is_transfer]
            value, at = max(computing, default=(0.0, choices[0][1]))
            gain, other = max(moving, default=(0.0, at))
            profit += value
            options.append((gain - value, self._shares[application], at, other))
        return self._knapsack(profit, options)

    @staticmethod
    def _knapsack(profit: float, options: list[tuple[float, float, int, int]]) -> set[int] | None:
        left, early = 1.0, set()
        for gain, share, computing, moving in sorted(options, key=lambda one: -one[0] / one[1]):
            chosen = computing
            if gain > 0 and left > 0:
                part = min(1.0, left / share)
                if part == 1.0 or computing == moving:
                    profit += gain * part
                    left -= share * part
                    chosen = moving
            early.add(chosen)
        early.discard(-1)
        return early if profit > _LEAST_PROFIT else None

    def _bring_forward(self, cluster: Sequence[int], early: set[int]) -> None:
        place = 0
        for at, position in enumerate(cluster):
            if position in early:
                for back in range(at - 1, place - 1, -1):
                    self.exchange(cluster[back])
                place += 1

    def pattern(self) -> Pattern:
        """The pattern of the solution.

        The solver is exact to 1e-7 of its unit: volumes are made exact, and then lengths large enough.
        """
        values = self._solver.values
        lengths = [values[column] if values[column] > _NOTHING else 0.0 for column in self._lengths]
        moved = [
            {one: values[column] for one, column in columns.items() if length > 0 and values[column] > _NOTHING}
            for length, columns in zip(lengths, self._moved, strict=True)
        ]
        self._make_volumes_exact(moved)
        self._make_room(lengths, moved)
        times = list(accumulate((self._unit * length for length in lengths), initial=0.0))
        return self._placed(times, [{one: self._unit * time for one, time in each.items()} for each in moved])

    def _make_volumes_exact(self, moved: Sequence[dict[int, float]]) -> None:
        sums = [0.0] * self._first[-1]
        for states, each in zip(self._states, moved, strict=True):
            for one, time in each.items():
                sums[states[one].instance] += time
        for states, each in zip(self._states, moved, strict=True):
            for one in each:
                each[one] *= self._set.io_times[one] / self._unit / sums[states[one].instance]

    def _make_room(self, lengths: list[float], moved: Sequence[dict[int, float]]) -> None:
        """Make lengths longer, so that everything has the time that it needs."""
        computed = [0.0] * self._first[-1]
        interval_of = [0] * self._first[-1]
        for interval, (states, each) in enumerate(zip(self._states, moved, strict=True)):
            used = sum(self._shares[one] * time for one, time in each.items())
            lengths[interval] = max(lengths[interval], used, *each.values(), 0.0)
            for state in states:
                if not state.is_transfer:
                    computed[state.instance] += lengths[interval]
                    interval_of[state.instance] = interval
        for index, one in enumerate(self._set.applications):
            for instance in range(self._first[index], self._first[index + 1]):
                lengths[interval_of[instance]] += max(0.0, one.work / self._unit - computed[instance])

    def _placed(self, times: Sequence[float], moved: Sequence[dict[int, float]]) -> Pattern:
        """:param times: of the turns; at last, the period
        :param moved: seconds at the peak rate, by application, in each interval
        """
        period, rows = times[-1], []
        # What is at the end of the period is at its beginning.
        turned = [0.0 if time == period else time for time in times]
        for index, application in enumerate(self._set.applications):
            own = [position for position, turn in enumerate(self.order) if turn.application == index]
            ends = [at for at, position in enumerate(own) if self.order[position].is_end]
            placed = []
            for at in ends:
                begin, opened = turned[own[at - 2]], turned[own[at - 1]]
                opened += period if opened < begin else 0
                transfers = list(self._transfers_of(index, own[at - 1], own[at], opened, times, moved))
                placed.append(Instance((begin, begin + application.work), tuple(transfers)))
            rows.append(tuple(sorted(placed, key=lambda one: one.work)))
        return Pattern(period, tuple(rows))

    def _transfers_of(
        self, index: int, first: int, last: int, now: float, times: Sequence[float], moved: Sequence[dict[int, float]]
    ) -> Iterator[Transfer]:
        """What an application transfers from one turn to another; neighbours with one rate are one transfer."""
        count, position = len(self.order), first
        open_: Transfer | None = None
        while position != last:
            length = times[position + 1] - times[position]
            if (time := moved[position].get(index, 0.0)) > 0:
                rate = self._set.peaks[index] * time / length
                if open_ is not None and open_.end == now and isclose(open_.rate, rate, rel_tol=_SAME_RATE):
                    open_ = Transfer(open_.start, now + length, open_.rate)
                else:
                    if open_ is not None:
                        yield open_
                    open_ = Transfer(now, now + length, rate)
            now += length
            position = (position + 1) % count
        if open_ is not None:
            yield open_


def _firsts(order: Order, applications: int) -> list[int]:
    """The number of the first instance of each application, among all; at last, how many there are."""
    firsts = [0]
    for index in range(applications):
        firsts.append(firsts[-1] + sum(turn.is_end for turn in order if turn.application == index))
    return firsts


def _states(order: Order, firsts: Sequence[int]) -> list[list[_State]]:
    """What each application does after each turn."""
    count = len(firsts) - 1
    # The first turn of one that ends a transfer has it open before.
    now = [0] * count
    seen: dict[int, bool] = {}
    for turn in order:
        seen.setdefault(turn.application, turn.is_end)
    states = [_State(seen[index], firsts[index]) for index in range(count)]
    rows = []
    for turn in order:
        index = turn.application
        if turn.is_end:
            now[index] = (now[index] + 1) % (firsts[index + 1] - firsts[index])
        states[index] = _State(not turn.is_end, firsts[index] + now[index])
        rows.append(states.copy())
    return rows
