"""The completed jobs of a run for the simulation: the producers of their inputs, and the jobs that gave them cores."""

from __future__ import annotations

import posixpath
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence

from streamflow_io.graph.io_graph import HopKind, OutputKind
from streamflow_io.grouping import grouped
from streamflow_io.records.files import InputRecord, OutputRecord, RouteRecord
from streamflow_io.records.history import History, JobAttempt
from streamflow_io.report.analysis.network import Network, known, step_of

from .simulation import ReadOutput, SimulatedJob

# In seconds. A job with a longer wait than `_WAITED` waited for a core. The core came from a job that ended at most
# `_HANDED_ON` before.
_WAITED = 0.25
_HANDED_ON = 1.0
# Only this many of the last elements of a gathered list are looked at.
_MOST_GATHERED = 100


def completed_jobs(history: History) -> list[JobAttempt]:
    """Return the jobs that succeeded, each once, in the order of their starts."""
    last = {job.name: job for job in history.jobs if job.status == "completed"}
    complete = [job for job in last.values() if None not in (job.submitted, job.started, job.ended)]
    return sorted(complete, key=lambda job: (job.started or 0.0, job.ended or 0.0))


def simulated_jobs(history: History, jobs: Sequence[JobAttempt]) -> list[SimulatedJob]:
    """Return the jobs of a run, each with the outputs of other jobs that it read.

    :param jobs: the jobs of :func:`completed_jobs`
    """
    return _SimulatedJobs(history, jobs).build()


class _SimulatedJobs:
    def __init__(self, history: History, jobs: Sequence[JobAttempt]) -> None:
        self._history = history
        self._jobs = jobs
        self._network = Network(history, jobs)
        self._routes = grouped(history.routes, lambda route: posixpath.dirname(route.input))

    def build(self) -> list[SimulatedJob]:
        givers = self._givers()
        return [
            SimulatedJob(
                job.step,
                min(known(job.submitted), known(job.started)),
                known(job.started),
                max(known(job.ended), known(job.started)),
                tuple(self._reads(index)),
                givers.get(index),
                0.0 if job.usage is None else job.usage.cpu_seconds,
                job.location,
                job.location_cores,
            )
            for index, job in enumerate(self._jobs)
        ]

    def _reads(self, index: int) -> Iterator[ReadOutput]:
        job = self._jobs[index]
        for route in self._routes[job.step]:
            records = [record for record in job.inputs if record.input == posixpath.basename(route.input)]
            sources = self._sources(route, records, index)
            producers = {*sources, *self._candidates(route, index, exact=bool(sources))}
            for producer in sorted(producers):
                is_own = producer in sources or not sources
                yield self._read(route, producer, sources.get(producer, ()), index, is_own=is_own)

    def _sources(self, route: RouteRecord, records: Sequence[InputRecord], index: int) -> dict[int, list[InputRecord]]:
        """Return the jobs that wrote the files of a job's input, with these files."""
        found: dict[int, list[InputRecord]] = defaultdict(list)
        for record in records:
            producer = self._network.attempt(record.source, index)
            if producer is not None and producer < index and self._jobs[producer].step == step_of(route.output):
                found[producer].append(record)
        return found

    def _candidates(self, route: RouteRecord, index: int, *, exact: bool) -> list[int]:
        """Return the jobs for which a job may have waited, by their tags.

        :param exact: whether the producers of the files are known; other jobs may have been gathered with them
        """
        gathered = HopKind.GATHER in route.through
        if exact and not gathered:
            return []
        job, step = self._jobs[index], step_of(route.output)
        candidates = self._network.of_step(step) if gathered else sorted(self._network.related(step, index))
        before = [
            other for other in candidates if other < index and known(self._jobs[other].ended) <= known(job.submitted)
        ]
        if HopKind.SCATTER in route.through and len(before) > _MOST_GATHERED:
            before = sorted(before, key=lambda other: known(self._jobs[other].ended))[-_MOST_GATHERED:]
        return before

    def _read(
        self, route: RouteRecord, producer: int, records: Sequence[InputRecord], index: int, *, is_own: bool
    ) -> ReadOutput:
        started = known(self._jobs[index].started)
        port = posixpath.basename(route.output)
        written = [
            output
            for output in self._jobs[producer].outputs
            if output.port == port and (not records or any(_overlap(output.path, record.path) for record in records))
        ]
        opened = [output.opened for output in written if output.opened is not None]
        return ReadOutput(
            producer,
            route.output,
            route.input,
            opened=self._since_start(min(opened, default=None)),
            committed=self._since_start(self._committed(route, producer, written)),
            is_own=is_own,
            by_element=route.by_element,
            tail=tail(self._history, records, self._jobs[index]),
            touched=touched(self._history, records, started),
        )

    def _committed(self, route: RouteRecord, producer: int, written: Sequence[OutputRecord]) -> float | None:
        """Return when a proposed commit rule would have held for an output. None: only at the end of its job."""
        if route.not_at_commit is not None:
            return None
        if route.kind in (OutputKind.FILES, OutputKind.DIRECTORY) and not route.by_element:
            # A list or directory is complete with the last of all its files.
            port = posixpath.basename(route.output)
            written = [output for output in self._jobs[producer].outputs if output.port == port]
        closes = [output.last_close for output in written]
        known = [close for close in closes if close is not None]
        return max(known) if known and len(known) == len(closes) else None

    def _since_start(self, time: float | None) -> float | None:
        return None if time is None else self._history.since_start(time)

    def _givers(self) -> dict[int, int]:
        """Return, for each job that waited for a core, the job that gave the core up."""
        free: dict[str | None, list[tuple[float, int]]] = defaultdict(list)
        for index, job in enumerate(self._jobs):
            if not self._history.is_io_task(job.step):
                free[job.location].append((known(job.ended), index))
        for ends in free.values():
            ends.sort()
        givers = {}
        for index, job in enumerate(self._jobs):
            submitted, started, ends = known(job.submitted), known(job.started), free[job.location]
            if started - submitted < _WAITED:
                continue
            last = bisect_right(ends, (started, len(self._jobs))) - 1
            if last >= 0 and ends[last][0] >= max(submitted, started - _HANDED_ON) and ends[last][1] < index:
                givers[index] = ends.pop(last)[1]
        return givers


def touched(history: History, records: Sequence[InputRecord], started: float) -> float | None:
    """Return the seconds that a job worked before it would have waited for a file at the gate. None: unknown.

    :param records: the records of the input
    :param started: when the job started
    """
    times = [record.first if record.touched is None else record.touched for record in records]
    known = [history.since_start(time) for time in times if time is not None]
    return max(min(known) - started, 0.0) if known else None


def tail(history: History, records: Sequence[InputRecord], job: JobAttempt) -> float:
    """Return the seconds that a job worked after it had read all of a file, if it began to write only then.

    A job that wrote before, as `sed` does, works as it reads. A file that is read in one go does not show how long the
    job works on it afterwards.

    :param records: the records of the input
    """
    reads = [history.since_start(record.read) for record in records if record.read is not None and record.whole]
    return max(known(job.ended) - max(reads), 0.0) if reads and len(reads) == len(records) else 0.0


def _overlap(one: str, other: str) -> bool:
    return one == other or other == "." or one.startswith(f"{other}/") or other.startswith(f"{one}/") or one == "."
