"""Which location a job of a gang is given, of those where it fits: gangs on one node when cores allow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set

from streamflow_io.graph.gangs import Gang
from streamflow_io.graph.io_graph import Step


def gang_cores(gangs: Iterable[Gang], steps: Mapping[str, Step]) -> dict[str, float]:
    """The cores of a whole gang, one job of each step, for each of its steps; 0 for those that only a job tells."""
    return {step: sum(steps[member].cores or 0.0 for member in gang.steps) for gang in gangs for step in gang.steps}


def candidates(
    fitting: Sequence[str],
    partners: Sequence[str],
    cores: float,
    together: float,
    free_cores: Callable[[str], float],
    apart: Set[tuple[str, str]] = frozenset(),
) -> list[str]:
    """The locations to choose from for a job of a gang; all of them are equally good for the gang.

    A job that reads from others goes to the location of most of them, if its cores are free there, else to a neighbour
    where they are, and that can read from there; if there is none, it goes to its producers nonetheless: it mostly
    waits for them. A head goes where the cores of its whole gang are free, if there is such a location.

    :param fitting: where the job can start, which is also where no core is free, if it needs none to start
    :param partners: where the jobs run that it reads from, one for each; none: it is a head
    :param cores: that it declares
    :param together: the cores of its whole gang, as of :func:`gang_cores`
    :param free_cores: of a location
    :param apart: pairs of locations: no job at the first can read what a job at the second writes, while it writes it
    :return: some of `fitting`, in that order; one at least, if there is one
    """
    if not partners:
        return [location for location in fitting if free_cores(location) >= together] or list(fitting)
    fits = set(fitting)
    near = [location for location, _ in Counter(partners).most_common() if location in fits]
    for location in near:
        if free_cores(location) >= cores:
            return [location]
    roomy = [location for location in fitting if free_cores(location) >= cores]
    written = set(partners)
    joined = [location for location in roomy if all((location, partner) not in apart for partner in written)]
    return joined or near[:1] or roomy or list(fitting)


class BorrowedCores:
    """The cores that jobs use without holding them: those of gang members that were admitted without."""

    def __init__(self) -> None:
        self._jobs: dict[str, tuple[str, float]] = {}
        self._locations: Counter[str] = Counter()

    def borrow(self, job: str, location: str, cores: float) -> None:
        """A job starts; one that runs already has moved."""
        self.give_back(job)
        self._jobs[job] = location, cores
        # Whole thousandths, so that nothing is lost in rounding.
        self._locations[location] += _thousandths(cores)

    def give_back(self, job: str) -> None:
        """A job has ended. Does nothing for one that has borrowed none."""
        if (borrowed := self._jobs.pop(job, None)) is not None:
            self._locations[borrowed[0]] -= _thousandths(borrowed[1])

    def on(self, location: str) -> float:
        return self._locations[location] / 1000


def _thousandths(cores: float) -> int:
    return round(cores * 1000)
