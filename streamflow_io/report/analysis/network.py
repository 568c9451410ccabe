"""The network of a run: which job fed which. Critical path, savings and suggestions share it.

Two relations give the network. A `reading` record names the jobs that wrote what a job read before it was complete. All
other data came from the jobs of the steps before, as far as their tags allow: a job and its producer have the same tag,
or the tag of one continues that of the other, as `0` and `0.3`. In a loop, results also go to the next iteration: from
`0.2` to `0.3`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence

from streamflow_io.graph.io_graph import Delivery
from streamflow_io.grouping import grouped
from streamflow_io.records.history import History, JobAttempt

#: Seconds. A job that ends no later than this after another begins counts as ended before it.
SOON = 0.05


def step_of(port: str) -> str:
    """Return the step of a port: `/step` of `/step/port`."""
    return port.rpartition("/")[0]


def known(time: float | None) -> float:
    """Return a time of a job that has succeeded."""
    assert time is not None, "a job that has succeeded was submitted, started and ended"
    return time


class Network:
    """The jobs of a run by name, step and tag, and what was recorded of the data between them.

    :param jobs: attempts, in any order; the methods take and return their indexes
    :ivar early: for the steps of a producer and a consumer, the outputs that are delivered before their job ends
    :ivar readings: for each job, the outputs that the job read before they were complete
    :ivar streams: for each job, the byte streams that the job read
    :ivar commits: for each job, the files that the job committed before it ended
    """

    def __init__(self, history: History, jobs: Sequence[JobAttempt]) -> None:
        self.jobs = jobs
        self.readings = grouped(history.readings, lambda reading: reading.job)
        self.streams = grouped(history.streamed, lambda stream: stream.job)
        self.commits = grouped(history.committed, lambda commit: commit.job)
        self.early: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        for edge in history.edges:
            if edge.input is not None and edge.delivery is not Delivery.TERMINATION:
                self.early[step_of(edge.output), step_of(edge.input)].add(edge.output)
        self._before = history.run.steps
        self._behind = {step: _all_before(step, self._before) for step in self._before}
        self._attempts = grouped(range(len(jobs)), lambda index: jobs[index].name)
        self._tagged = grouped(range(len(jobs)), lambda index: (jobs[index].step, tag_of(jobs[index])))
        self._below: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        for index, job in enumerate(jobs):
            for above in _above(tag_of(job)):
                self._below[job.step, above].append(index)

    def attempts(self, name: str) -> Sequence[int]:
        """Return the attempts of a job, in order."""
        return self._attempts.get(name, ())

    def attempt(self, name: str | None, reader: int) -> int | None:
        """Return the last attempt of a job from which another attempt may have read."""
        return next((one for one in reversed(self.attempts(name or "")) if one != reader), None)

    def related(self, step: str, index: int) -> Iterator[int]:
        """Yield the attempts of a step's jobs with a tag that fits the tag of a job."""
        tag = tag_of(self.jobs[index])
        for one in (tag, *_above(tag)):
            yield from self._tagged.get((step, one), ())
        yield from self._below.get((step, tag), ())

    def read_early(self, index: int) -> set[int]:
        """Return the attempts from which a job read while they ran."""
        readings = self.readings.get(self.jobs[index].name, ())
        found = (self.attempt(name, index) for reading in readings for name in reading.sources)
        return {one for one in found if one is not None}

    def upstream(self, index: int) -> set[int]:
        """Return the attempts that may have fed a job, by their steps and tags."""
        of = self.jobs[index].step
        steps = self._before.get(of, ())
        found = {other for step in steps for other in self.related(step, index)} - {index}
        for step in steps:
            if of in self._behind.get(step, ()):
                found.update(self._of_last_iteration(step, index))
        return found

    def _of_last_iteration(self, step: str, index: int) -> Iterator[int]:
        """Yield the attempts of a step's jobs in the iteration before that of a job, of each loop around both."""
        tag = tag_of(self.jobs[index])
        for outer, number in _iterations(tag):
            last = f"{outer}.{number - 1}"
            yield from self._tagged.get((step, last), ())
            yield from self._below.get((step, last), ())


def _all_before(step: str, before: Mapping[str, Collection[str]]) -> set[str]:
    """Return the steps whose results a step gets, directly or through others; in a loop the step is among them."""
    found, ahead = set[str](), [step]
    while ahead:
        new = {*before.get(ahead.pop(), ())} - found
        found |= new
        ahead += new
    return found


def _iterations(tag: str) -> Iterator[tuple[str, int]]:
    """Yield the tags that a tag continues by a number above 0, with that number: `0` and 3 of `0.3.0`."""
    for one in (tag, *_above(tag)):
        above, _, number = one.rpartition(".")
        if above and number.isdecimal() and int(number) > 0:
            yield above, int(number)


def tag_of(job: JobAttempt) -> str:
    """Return the tag of a job: `0.3` of `/step/0.3`."""
    return job.name.rpartition("/")[2]


def _above(tag: str) -> Iterator[str]:
    """Yield the tags that a tag continues: `0.3` and `0` of `0.3.1`."""
    while "." in tag:
        tag = tag.rpartition(".")[0]
        yield tag
