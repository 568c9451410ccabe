"""The start of each job of a run, had there been other hints.

The run is taken as a network of activities (as in the critical path method, Kelley and Walker 1959): a job starts when
its last predecessor has delivered, and when a core is free. The assumptions:

- A job takes as long as it took, whatever runs beside it. The storage does not congest more, and is not relieved.
- The time between the last delivery and the start of a job passes again: StreamFlow's own time, unknown inputs, and the
  wait for cores. A job that waited and started when another ended had its core from that job, and has it again. If that
  job takes no core now, the core comes from the job before it.
- I/O tasks take no core, nor do readers of streams, as with `oversubscribe: gangs`. A job that starts earlier finds a
  core if it did not wait for one before.
- A file is there for its readers at its last close, where a commit rule says so; a stream when the file was opened.
- The reader of a stream works as it reads: it ends when the stream has ended, if its own time has passed since its
  start. A reader that wrote nothing before it had read all of the stream (a sort) works on for the same time after it.
- A split that writes nothing takes no time.
- A reader that starts with its producer works until it opens its input, and then waits at the gate.

With no hints the simulation gives the run as it was.

The cores: the work is a fluid, and a job uses its CPU time evenly while its command runs. While all jobs together want
more than all cores, all of them slow down alike. The cores of all locations count as one pool. Other programs are not
known.
"""

from __future__ import annotations

import posixpath
from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate, pairwise

from msgspec import Struct

from streamflow_io.records.history import History


class CommitHint(Struct, frozen=True):
    """An output is delivered at its commit."""

    output: str


class StreamHint(Struct, frozen=True):
    """An input reads an output while it is written."""

    output: str
    input: str


class GateHint(Struct, frozen=True):
    """The readers of an output start with its producer, and wait where they open the output."""

    output: str


class IOTaskHint(Struct, frozen=True):
    """The jobs of a step take no core."""

    step: str


class RequiredHint(Struct, frozen=True):
    """The jobs of a step, which take no core, move no faster than required. No job ends earlier by this hint."""

    step: str


class SplitHint(Struct, frozen=True):
    """The files of an output are parts of an input, and are not written."""

    output: str

    @property
    def step(self) -> str:
        return posixpath.dirname(self.output)


SimulatedHint = CommitHint | StreamHint | GateHint | IOTaskHint | RequiredHint | SplitHint


class ReadOutput(Struct, frozen=True):
    """An output of an earlier job that a job reads. Times are seconds since the start of the run.

    :ivar producer: the index of the job that wrote the output
    :ivar opened: when the output was first there. None: unknown
    :ivar committed: when the proposed commit rule would have held. None: only at the end of the producer
    :ivar is_own: whether the job reads the output itself, and not only another element of the same list
    :ivar by_element: whether under a hint the job waits for its own element of the list only
    :ivar tail: seconds that the reader works after its last byte, if it begins to write only then
    :ivar touched: seconds that the reader works before it would wait at the gate. None: unknown
    """

    producer: int
    output: str
    input: str
    opened: float | None = None
    committed: float | None = None
    is_own: bool = True
    by_element: bool = False
    tail: float = 0.0
    touched: float | None = None


class SimulatedJob(Struct, frozen=True):
    """A job that succeeded. Times are seconds since the start of the run; submitted <= started <= ended.

    :ivar core_from: the index of the job that gave up its core for this one. None: the job did not wait for a core
    :ivar cpu_seconds: the CPU time of the job's processes
    :ivar location_cores: the cores of the job's location. None: unknown
    """

    step: str
    submitted: float
    started: float
    ended: float
    reads: tuple[ReadOutput, ...] = ()
    core_from: int | None = None
    cpu_seconds: float = 0.0
    location: str | None = None
    location_cores: float | None = None

    @property
    def seconds(self) -> float:
        return self.ended - self.started


class Times(Struct, frozen=True):
    """When a job runs, in seconds since the start of the run."""

    started: float
    ended: float


def simulate(jobs: Sequence[SimulatedJob], hints: Collection[SimulatedHint] = ()) -> list[Times]:
    """Return when each job would have run under these hints.

    :param jobs: in the order of their starts. The producers of a job, and the job that gave it its core, come before it
    :return: never later than in the run, and never later with more hints than with fewer
    """
    return _HintSimulation(jobs, frozenset(hints)).run()


def saved_seconds(jobs: Sequence[SimulatedJob], hints: Collection[SimulatedHint]) -> float:
    """Return the seconds by which the last job would have ended earlier; from 0 to the time of the run."""
    return end_of(jobs) - end_of(simulate(jobs, hints))


def end_of(jobs: Sequence[SimulatedJob] | Sequence[Times]) -> float:
    """Return when the last job ends, in seconds since the start of the run; 0 if there is none."""
    return max((job.ended for job in jobs), default=0.0)


class _HintSimulation:
    def __init__(self, jobs: Sequence[SimulatedJob], hints: frozenset[SimulatedHint]) -> None:
        self._jobs = jobs
        self._hints = hints
        self._splits = {hint.step for hint in hints if isinstance(hint, SplitHint)}
        self._times: list[Times] = []
        # The time that every job waits from when its inputs are there until it runs.
        self._overhead = min((job.started - job.submitted for job in jobs), default=0.0)

    def run(self) -> list[Times]:
        for job in self._jobs:
            started = self._start(job)
            ended = started + (0.0 if job.step in self._splits else job.seconds)
            for read in job.reads:
                if (left := self._left(read, job)) is not None:
                    ended = max(ended, self._delivered(read, job) + min(max(left, 0.0), job.seconds))
            self._times.append(Times(started, min(ended, job.ended)))
        return self._times

    def _start(self, job: SimulatedJob) -> float:
        ready_then = max((self._arrived(read, job) for read in job.reads), default=job.submitted)
        ready_now = max((self._arrives(read, job) for read in job.reads), default=job.submitted)
        if job.core_from is None and not self._takes_none(job):
            return min(job.started, ready_now + (job.started - ready_then))
        started = ready_now + (job.submitted - ready_then) + self._overhead
        giver = None if self._takes_none(job) else job.core_from
        while giver is not None and self._takes_none(self._jobs[giver]):
            giver = self._jobs[giver].core_from
        if giver is not None and job.core_from is not None:
            started = max(started, self._times[giver].ended + (job.started - self._jobs[job.core_from].ended))
        return min(job.started, started)

    def _takes_none(self, job: SimulatedJob) -> bool:
        """Whether a job takes no core under the hints."""
        if IOTaskHint(job.step) in self._hints or job.step in self._splits:
            return True
        return any(self._left(read, job) is not None for read in job.reads)

    def _left(self, read: ReadOutput, job: SimulatedJob) -> float | None:
        """Return the seconds that a reader works once its input is complete. None: the reader starts only then."""
        left: list[float] = []
        if read.is_own and read.opened is not None:
            if StreamHint(read.output, read.input) in self._hints:
                left.append(read.tail)
            if read.touched is not None and GateHint(read.output) in self._hints:
                left.append(job.seconds - read.touched)
        return min(left, default=None)

    def _arrived(self, read: ReadOutput, job: SimulatedJob) -> float:
        """Return when an input was delivered: at the end of its job, or at the earlier submission of its reader."""
        return min(self._jobs[read.producer].ended, job.submitted)

    def _arrives(self, read: ReadOutput, job: SimulatedJob) -> float:
        """Return from when on the reader need not wait for an input."""
        if not read.is_own and read.by_element and self._goes_alone(read):
            return 0.0
        arrives = self._delivered(read, job)
        if self._left(read, job) is not None and read.opened is not None:
            producer, now = self._jobs[read.producer], self._times[read.producer]
            opened = min(max(read.opened, producer.started), producer.ended)
            arrives = min(arrives, opened - (producer.started - now.started))
        return arrives

    def _delivered(self, read: ReadOutput, job: SimulatedJob) -> float:
        """Return when an output is complete, and known to be."""
        producer, now = self._jobs[read.producer], self._times[read.producer]
        delivered = self._arrived(read, job)
        if read.committed is not None and CommitHint(read.output) in self._hints:
            delivered = min(delivered, max(read.committed, producer.started))
        return delivered - (producer.ended - now.ended)

    def _goes_alone(self, read: ReadOutput) -> bool:
        hints = (CommitHint(read.output), GateHint(read.output), StreamHint(read.output, read.input))
        return not self._hints.isdisjoint(hints)


#: Cores that compute for this share of the time have next to nothing to spare.
BUSY = 0.9


class CoreUse(Struct, frozen=True):
    """The use that a run's jobs made of the cores of its locations.

    :ivar cores: the cores of all locations with a known number of cores
    :ivar share: the CPU time of the jobs, as a share of the cores' time between the first start and the last end
    """

    cores: float
    share: float

    @property
    def is_busy(self) -> bool:
        return self.share >= BUSY

    @property
    def text(self) -> str:
        """The use of the cores and its consequence, as a sentence without its end."""
        one = self.cores == 1
        return (
            f"the {'core' if one else f'{self.cores:,.0f} cores'} of the run computed for {self.share:.0%} of its time:"
            " jobs that run beside others cannot make it shorter"
        )


def core_use(history: History) -> CoreUse | None:
    """Return the use that a run's jobs made of its cores. None: the cores or their use are not known."""
    known = [job for job in history.jobs if job.usage is not None and job.location_cores]
    cores = sum({job.location: job.location_cores or 0.0 for job in known}.values())
    intervals = [interval for job in known if (interval := history.measured(job)) is not None]
    seconds = max((end for _, end in intervals), default=0.0) - min((begin for begin, _ in intervals), default=0.0)
    if not cores or seconds <= 0:
        return None
    used = sum(job.usage.cpu_seconds for job in known if job.usage is not None)
    return CoreUse(cores, min(1.0, used / (cores * seconds)))


def simulate_on_cores(jobs: Sequence[SimulatedJob], hints: Collection[SimulatedHint] = ()) -> list[Times]:
    """Return when each job would have run under these hints on the cores of the run."""
    return share_cores(jobs, simulate(jobs, hints))


def saved_on_cores(jobs: Sequence[SimulatedJob], hints: Collection[SimulatedHint]) -> float:
    """Return the seconds by which the last job would have ended earlier; from 0 to the time of the run."""
    before, after = (end_of(simulate_on_cores(jobs, some)) for some in ((), hints))
    # Errors of the fluid model are in both times.
    return end_of(jobs) * max(0.0, 1.0 - after / before) if before > 0 else 0.0


def share_cores(jobs: Sequence[SimulatedJob], times: Sequence[Times]) -> list[Times]:
    """Return when jobs run that share the cores.

    :param times: when each job would run if there were enough cores, in the order of `jobs`
    :return: never earlier than `times`, and the same where the cores are enough or not known
    """
    clock = _Clock(jobs, times)
    return [Times(clock.at(one.started), clock.at(one.ended)) for one in times]


class _Clock:
    """Maps times with enough cores to times on the cores of the run."""

    def __init__(self, jobs: Sequence[SimulatedJob], times: Sequence[Times]) -> None:
        cores = sum(_cores(jobs).values())
        changes: dict[float, float] = {}
        for job, one in zip(jobs, times, strict=True):
            if job.cpu_seconds > 0 and job.location_cores and one.ended > one.started:
                rate = job.cpu_seconds / (one.ended - one.started)
                changes[one.started] = changes.get(one.started, 0.0) + rate
                changes[one.ended] = changes.get(one.ended, 0.0) - rate
        self._moments = sorted(changes)
        wanted = list(accumulate(changes[moment] for moment in self._moments))
        self._rates = [max(1.0, want / cores) for want in wanted]
        passed = [
            rate * (after - before)
            for rate, (before, after) in zip(self._rates[:-1], pairwise(self._moments), strict=True)
        ]
        self._passed = list(accumulate(passed, initial=self._moments[0])) if self._moments else []

    def at(self, time: float) -> float:
        index = bisect_right(self._moments, time) - 1
        if index < 0:
            return time
        return self._passed[index] + self._rates[index] * (time - self._moments[index])


def _cores(jobs: Sequence[SimulatedJob]) -> Mapping[str | None, float]:
    return {job.location: job.location_cores for job in jobs if job.location_cores}
