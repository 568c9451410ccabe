"""The rehearsals that wait for a free core, and which of them begins next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence

from .rehearsal import Rehearsal

# The most rehearsals that wait at a host. Where each job has a value of its own, there may be thousands.
_MOST = 64


class WaitingRehearsals:
    """The rehearsals that wait for a free core, by the host on which they run."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[Rehearsal]] = {}
        # How many rehearsals were begun, by input.
        self._begun: Counter[str] = Counter()
        # The names of the jobs whose files are kept for a rehearsal.
        self._kept: frozenset[str] = frozenset()

    def __iter__(self) -> Iterator[Rehearsal]:
        """Yield all of them."""
        return (each for waiting in self._waiting.values() for each in waiting)

    def hosts(self) -> Iterator[str]:
        """Yield the hosts on which rehearsals have waited."""
        return iter(self._waiting)

    def at(self, host: str) -> Sequence[Rehearsal]:
        """The rehearsals that wait at a host."""
        return self._waiting.get(host, ())

    def add(self, rehearsals: Sequence[Rehearsal]) -> Sequence[Rehearsal]:
        """Add the rehearsals of one job, as far as there is a place for them.

        :return: those that were added
        """
        if not rehearsals:
            return ()
        waiting = self._waiting.setdefault(rehearsals[0].host, [])
        added = list[Rehearsal]()
        for rehearsal in rehearsals:
            # A larger file proves more than a smaller one that waits. But files that are kept already take less.
            left = [each for each in waiting if each.key != rehearsal.key or each.spent or self._is_kept(each)]
            if len(left) < _MOST:
                waiting[:] = [*left, rehearsal]
                added.append(rehearsal)
        return added

    def keep(self, jobs: Collection[str]) -> None:
        """Note the jobs whose files are kept: no later job takes the place of their rehearsals."""
        self._kept = frozenset(jobs)

    def _is_kept(self, rehearsal: Rehearsal) -> bool:
        return rehearsal.original.job.name in self._kept

    def put_back(self, rehearsal: Rehearsal) -> None:
        """Let a rehearsal wait again, which :meth:`take` has returned."""
        self._waiting.setdefault(rehearsal.host, []).append(rehearsal)

    def take(self, host: str, may_start: Callable[[Rehearsal], bool]) -> Rehearsal | None:
        """Remove the rehearsal that begins next at a host, and return it; None: no rehearsal may start.

        The input with the fewest rehearsals comes first, then the shortest rehearsal. A core may be idle for a short
        time only, and a rehearsal that has to end too early is lost. Among equals the largest file comes first, because
        it gains most.
        """

        def rank(rehearsal: Rehearsal) -> tuple[int, float, float, int]:
            return self._begun[rehearsal.name], rehearsal.seconds, rehearsal.share, -rehearsal.size

        if (following := min(filter(may_start, self.at(host)), key=rank, default=None)) is not None:
            self._waiting[host].remove(following)
            self._begun[following.name] += 1
        return following

    def remove(self, is_void: Callable[[Rehearsal], bool]) -> list[Rehearsal]:
        """Remove the rehearsals for which `is_void` holds, and return them."""
        removed = [each for each in self if is_void(each)]
        for host, waiting in self._waiting.items():
            self._waiting[host] = [each for each in waiting if each not in removed]
        return removed

    def clear(self) -> None:
        """Remove all of them."""
        self._waiting.clear()
