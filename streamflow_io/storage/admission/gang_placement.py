"""Choice of a location for a job of a gang: the whole gang on one node when cores allow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence, Set

from streamflow_io.graph.gangs import Gang
from streamflow_io.graph.io_graph import Step


def gang_cores(gangs: Iterable[Gang], steps: Mapping[str, Step]) -> dict[str, float]:
    """Return, for each step of a gang, the cores of one job of each of the gang's steps.

    Steps whose cores only a job tells count as 0.
    """
    return {step: sum(steps[member].cores or 0.0 for member in gang.steps) for gang in gangs for step in gang.steps}


def candidates(
    fitting: Sequence[str],
    partners: Sequence[str],
    cores: float,
    together: float,
    free_cores: Callable[[str], float],
    apart: Set[tuple[str, str]] = frozenset(),
) -> list[str]:
    """Return the locations to choose from for a job of a gang. All of them are equally good for the gang.

    A job with partners goes to the location with most of its partners, if its cores are free there. Otherwise the job
    goes to a location that has its cores free and can read from all partners. If there is no such location, the job
    goes to its partners anyway, because it mostly waits for them.

    A head, a job without partners, goes where the cores of its whole gang are free, if there is such a location.

    :param fitting: where the job can start. Locations without a free core count, if the job needs no core to start
    :param partners: the locations of the jobs that it reads from, one entry for each job. Empty: the job is a head
    :param cores: the cores that the job declares
    :param together: the cores of its whole gang, from :func:`gang_cores`
    :param free_cores: returns the free cores of a location
    :param apart: pairs of locations. No job at the first can read a file while a job at the second writes the file
    :return: some of `fitting`, in that order; at least one, if `fitting` has any
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
    """The cores that jobs use without holding them: cores of gang members that were admitted without."""

    def __init__(self) -> None:
        self._jobs: dict[Hashable, tuple[str, float]] = {}
        self._locations: Counter[str] = Counter()

    def borrow(self, job: Hashable, location: str, cores: float) -> None:
        """Record the cores of a job that starts, or of a running job that has moved."""
        self.give_back(job)
        self._jobs[job] = location, cores
        # Count whole thousandths, so that nothing is lost in rounding.
        self._locations[location] += _thousandths(cores)

    def give_back(self, job: Hashable) -> None:
        """Forget the cores of a job that has ended. Does nothing for a job that has borrowed none."""
        if (borrowed := self._jobs.pop(job, None)) is not None:
            self._locations[borrowed[0]] -= _thousandths(borrowed[1])

    def on(self, location: str) -> float:
        return self._locations[location] / 1000


def _thousandths(cores: float) -> int:
    return round(cores * 1000)
