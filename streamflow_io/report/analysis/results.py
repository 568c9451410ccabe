"""The results of a run: the numbers of the report's figures and tables.

Times are seconds since the start of the run, bandwidths and throughputs MB/s (10^6 bytes per second).
"""

from __future__ import annotations

import posixpath
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from statistics import fmean

from streamflow_io.grouping import grouped
from streamflow_io.hints.models import WAYS, Direction, Way
from streamflow_io.records.history import History, Interval, JobAttempt
from streamflow_io.records.jobs import DelayCause, RehearsedRecord
from streamflow_io.records.records import EpochRecord, LeaseRecord, RunStatus
from streamflow_io.series import covered, levels, rates

from .critical_path import PathSpan, critical_path
from .edges import EdgeResult, WorkflowGraph, edge_results, workflow_graph
from .locations import LocationResult, location_results
from .model import MB, POINTS, AnalysisModel
from .requirements import Requirements, requirements
from .session_results import SessionResult, session_results
from .timeline import TimelineJob, timeline
from .verdict import fallback_line, is_off, verdict


class LeaseResult(AnalysisModel):
    """A storage that is shared, in one direction.

    :ivar waited: the seconds in which a job waited while other runs held something, also for its turn in a schedule
    :ivar slowdown: how many times as long the run took as without these waits, at most: other jobs may have run
        meanwhile
    """

    storage: str
    direction: Way
    waited: float
    slowdown: float


def lease_results(history: History) -> list[LeaseResult]:
    """Return the leases of each shared storage, in the directions in which it was used."""
    by_account = grouped(history.leases, lambda lease: (lease.storage, lease.direction))
    results = []
    for (name, direction), leases in by_account.items():
        if not any(lease.used or lease.wanted for lease in leases):
            continue
        waited = covered(_waits(history, leases))
        results.append(
            LeaseResult(
                storage=name,
                direction=direction,
                waited=waited,
                slowdown=history.seconds / max(history.seconds - waited, 1e-3) if history.seconds else 1.0,
            )
        )
    return results


def _waits(history: History, leases: Sequence[LeaseRecord]) -> list[Interval]:
    """Return the times in which more was wanted than was held, while others held some."""
    waits: list[Interval] = []
    for number, one in enumerate(leases):
        if one.others > 0 and one.wanted > one.held - one.used:
            until = history.since_start(leases[number + 1].time) if number + 1 < len(leases) else history.seconds
            waits.append((history.since_start(one.time), until))
    return waits


BINS = 200


class HeldBursts(AnalysisModel):
    """The bursts on a storage that waited for their slots in a schedule.

    :ivar seconds: the time of all these waits, at most
    """

    storage: str
    bursts: int
    seconds: float


def held_bursts(history: History) -> list[HeldBursts]:
    """Return the bursts of a run that were held back, by storage."""
    by_storage = grouped((held for held in history.held_back if held.until > held.time), lambda held: held.storage)
    return [
        HeldBursts(storage=name, bursts=len(held), seconds=sum(one.until - one.time for one in held))
        for name, held in by_storage.items()
    ]


class StepResult(AnalysisModel):
    """A row of the table of steps. Means are over completed jobs. None: nothing was measured.

    :ivar mean_wait: mean seconds from submission until the job ran, over all attempts that started
    :ivar waited: mean seconds of such a wait, by cause
    :ivar throughput: MB/s of one job, in the direction of the step, while its command ran
    :ivar pauses: mean over jobs that had a limit, however they ended. None: no job had a limit
    :ivar paused_seconds: mean seconds of these pauses
    """

    step: str
    io_task: bool
    storage_bw: str | None
    jobs: int
    completed: int
    failed: int
    mean_seconds: float | None
    mean_wait: float | None
    waited: dict[DelayCause, float]
    bytes_read: int
    bytes_written: int
    throughput: float | None
    pauses: float | None
    paused_seconds: float | None


class JobActivity(AnalysisModel):
    """The mean number of jobs in each interval of `width` seconds."""

    width: float
    compute: list[float]
    io_tasks: list[float]
    waiting: list[float]


class Throughput(AnalysisModel):
    """Bytes of I/O tasks.

    :ivar mean: over the time in which at least one I/O task ran
    """

    mean: float
    bytes: int
    seconds: float


class EpochResult(AnalysisModel):
    number: int
    constraint: float
    concurrency: int
    jobs: int
    mean_seconds: float | None
    registered: bool


class StepLearning(AnalysisModel):
    """The epochs of a step on a storage, of one learning.

    :ivar chosen: the storageBW that was learned. None: the learning has not ended
    """

    step: str
    storage: str
    epochs: list[EpochResult]
    chosen: float | None


class AdmittedBandwidth(AnalysisModel):
    """The sum of admitted storageBW on a storage; each level holds until the next.

    :ivar location: None: the storage is one for all locations
    :ivar measured: MB/s that these jobs moved, in intervals of equal width
    """

    storage: str
    location: str | None
    direction: Way
    limit: float | None
    levels: list[tuple[float, float]]
    measured: list[float]


class LentResult(AnalysisModel):
    """Jobs of a step that ran on cores that other jobs held and did not use.

    :ivar lenders: the steps of these other jobs
    """

    step: str
    jobs: int
    lenders: list[str]


class RehearsalResult(AnalysisModel):
    """The rehearsals of an input.

    :ivar seconds: the time of all trials
    :ivar finding: of the last rehearsal, in words
    """

    input: str
    rehearsals: int
    seconds: float
    finding: str


class RunResult(AnalysisModel):
    """All results that are shown of a run.

    :ivar began: in seconds since the epoch
    :ivar ended: whether the end was recorded; if not, the run was killed or goes on
    :ivar throughput: None: no I/O task was measured
    :ivar verdict: the run in a sentence
    :ivar not_as_asked: a sentence about files delivered later than asked. None: no such files
    :ivar status: how the run ended. None: the run has not ended, or its status is not known
    :ivar path: the critical path, from the start of the run to its end
    :ivar timeline: the timelines of all attempts of jobs
    :ivar held: the MB that the directories of jobs held, each from a time on; empty: not measured
    :ivar requirements: None: nothing was moved beside compute, or nothing was measured
    """

    run: str
    workflow: str
    verdict: str
    not_as_asked: str | None
    began: float
    seconds: float
    ended: bool
    status: RunStatus | None
    jobs: int
    path: list[PathSpan]
    graph: WorkflowGraph
    steps: list[StepResult]
    activity: JobActivity
    throughput: Throughput | None
    learning: list[StepLearning]
    admitted: list[AdmittedBandwidth]
    timeline: list[TimelineJob]
    requirements: Requirements | None
    sessions: list[SessionResult]
    leases: list[LeaseResult]
    held_back: list[HeldBursts]
    edges: list[EdgeResult]
    lent: list[LentResult]
    rehearsed: list[RehearsalResult]
    held: list[tuple[float, float]]
    locations: list[LocationResult]


def run_results(histories: Sequence[History]) -> list[RunResult]:
    """Return the results of runs that are compared.

    If a step is an I/O task in one of the runs, the step counts as an I/O task in all. So runs with different hints can
    be compared.
    """
    io_steps = {step: hints.direction for run in histories for step, hints in run.steps.items() if hints.io_task}
    return [_run_result(history, io_steps) for history in histories]


def _run_result(history: History, io_steps: Mapping[str, Direction]) -> RunResult:
    path, edges = critical_path(history), edge_results(history)
    return RunResult(
        run=history.label,
        workflow=history.run.workflow,
        verdict=verdict(history),
        not_as_asked=None if is_off(history) else fallback_line(history),
        began=history.run.time,
        seconds=history.seconds,
        ended=history.ended,
        status=history.status,
        jobs=len(history.job_names),
        path=path,
        graph=workflow_graph(history, edges, path),
        steps=_steps(history),
        activity=_activity(history),
        throughput=_throughput(history, io_steps),
        learning=_learning(history),
        admitted=_admitted(history),
        timeline=timeline(history, path),
        requirements=requirements(history) if history.requests else None,
        sessions=session_results(history),
        leases=lease_results(history),
        held_back=held_bursts(history),
        edges=edges,
        lent=_lent(history),
        rehearsed=_rehearsed(history),
        held=[(record.time - history.run.time, record.held / MB) for record in history.removed],
        locations=location_results(history),
    )


def _lent(history: History) -> list[LentResult]:
    by_step = grouped(history.lent, lambda lent: lent.step)
    return [
        LentResult(
            step=step,
            jobs=len(lent),
            lenders=sorted({posixpath.dirname(lender) for record in lent for lender in record.lenders}),
        )
        for step, lent in by_step.items()
    ]


def _rehearsed(history: History) -> list[RehearsalResult]:
    by_input = grouped(history.rehearsed, lambda rehearsed: rehearsed.input)
    return [
        RehearsalResult(
            input=name,
            rehearsals=len(rehearsed),
            seconds=sum(each.seconds for each in rehearsed),
            finding=_finding(rehearsed[-1]),
        )
        for name, rehearsed in by_input.items()
    ]


def _finding(rehearsed: RehearsedRecord) -> str:
    if rehearsed.way is not None:
        return "it may be read while it is written"
    return f"{'it is not streamed' if rehearsed.known else 'nothing is known yet'}: {rehearsed.reason}"


def _steps(history: History) -> list[StepResult]:
    jobs = grouped(history.jobs, lambda job: job.step)
    return [_step(history, step, jobs[step]) for step in dict.fromkeys((*history.steps, *jobs))]


def _step(history: History, step: str, jobs: Sequence[JobAttempt]) -> StepResult:
    record = history.steps.get(step)
    completed = [job for job in jobs if job.status == "completed"]
    times = [end - start for start, end in filter(None, map(history.running, completed))]
    started = [job for job in jobs if job.started is not None]
    waits = [end - start for start, end in filter(None, map(history.waiting, started))]
    usages = [job.usage for job in jobs if job.usage is not None]
    limited = [usage for usage in usages if usage.paused_seconds is not None]
    moved = sum(usage.moved(history.direction(step)) for usage in usages)
    seconds = sum(usage.ended - usage.started for usage in usages)
    return StepResult(
        step=step,
        io_task=history.is_io_task(step),
        storage_bw=record.storage_bw if record else None,
        jobs=sum(job.status != "rolled back" for job in jobs),
        completed=len(completed),
        failed=sum(job.status == "failed" for job in jobs),
        mean_seconds=fmean(times) if times else None,
        mean_wait=fmean(waits) if waits else None,
        waited=_mean_waits(history, started),
        bytes_read=sum(usage.moved("read") for usage in usages),
        bytes_written=sum(usage.moved("write") for usage in usages),
        throughput=moved / MB / seconds if seconds > 0 else None,
        pauses=fmean(usage.pauses or 0 for usage in limited) if limited else None,
        paused_seconds=fmean(usage.paused_seconds or 0.0 for usage in limited) if limited else None,
    )


def _mean_waits(history: History, started: Sequence[JobAttempt]) -> dict[DelayCause, float]:
    """Return the mean seconds of the jobs' waits by cause, the longest first."""
    sums: defaultdict[DelayCause, float] = defaultdict(float)
    for job in started:
        for cause, seconds in history.waited(job).items():
            sums[cause] += seconds
    longest_first = sorted(sums.items(), key=itemgetter(1), reverse=True)
    return {cause: seconds / len(started) for cause, seconds in longest_first}


def _activity(history: History) -> JobActivity:
    def count(intervals: Iterable[Interval | None]) -> list[float]:
        amounts = ((start, end, end - start) for start, end in filter(None, intervals))
        return rates(amounts, history.seconds, BINS)

    return JobActivity(
        width=history.seconds / BINS,
        compute=count(history.running(job) for job in history.jobs if not history.is_io_task(job.step)),
        io_tasks=count(history.running(job) for job in history.jobs if history.is_io_task(job.step)),
        waiting=count(map(history.waiting, history.jobs)),
    )


def _throughput(history: History, io_steps: Mapping[str, Direction]) -> Throughput | None:
    amounts = [
        (*interval, job.usage.moved(io_steps[job.step]))
        for job in history.jobs
        if job.step in io_steps and job.usage is not None and (interval := history.measured(job)) is not None
    ]
    if not amounts:
        return None
    total, seconds = sum(amount for _, _, amount in amounts), covered((start, end) for start, end, _ in amounts)
    return Throughput(mean=total / MB / seconds if seconds > 0 else 0.0, bytes=total, seconds=seconds)


def _learning(history: History) -> list[StepLearning]:
    of: dict[tuple[str, str], list[list[EpochRecord]]] = {}
    every: list[list[EpochRecord]] = []
    for epoch in history.epochs:
        learnings = of.setdefault((epoch.step, epoch.storage), [])
        # The epochs of each learning are numbered from 1.
        if not learnings or epoch.number <= learnings[-1][-1].number:
            learnings.append([])
            every.append(learnings[-1])
        learnings[-1].append(epoch)
    chosen: dict[int, float] = {}
    for choice in history.choices:
        begun = [epochs for epochs in of.get((choice.step, choice.storage), ()) if epochs[0].time <= choice.time]
        # Later choices are for the jobs that are left, and others are an epoch that is tried.
        if choice.reason == "learned" and begun:
            chosen[id(begun[-1])] = choice.constraint
    return [
        StepLearning(
            step=epochs[0].step,
            storage=epochs[0].storage,
            epochs=[EpochResult.model_validate(epoch, from_attributes=True) for epoch in epochs],
            chosen=chosen.get(id(epochs)),
        )
        for epochs in every
    ]


def _admitted(history: History) -> list[AdmittedBandwidth]:
    storages = {storage.name: storage for storage in history.run.storages}
    changes: dict[tuple[str, str | None, Way], list[tuple[float, float]]] = defaultdict(list)
    moved: dict[tuple[str, str | None, Way], list[tuple[float, float, float]]] = defaultdict(list)
    for job in history.jobs:
        if job.admitted is None or job.constraint is None or job.storage is None:
            continue
        storage = storages.get(job.storage)
        location = None if storage is None or storage.scope == "shared" else job.location
        for direction in WAYS:
            if history.direction(job.step) in (direction, "both"):
                sums = changes[job.storage, location, direction]
                sums.append((job.admitted, job.constraint))
                sums.append((history.seconds if job.ended is None else job.ended, -job.constraint))
                if job.usage is not None and (measured := history.measured(job)) is not None:
                    moved[job.storage, location, direction].append((*measured, job.usage.moved(direction) / MB))
    return [
        AdmittedBandwidth(
            storage=name,
            location=location,
            direction=direction,
            limit=getattr(storages.get(name), direction, None),
            levels=levels(sums, POINTS),
            measured=rates(moved[name, location, direction], history.seconds, BINS),
        )
        for (name, location, direction), sums in changes.items()
    ]


# A smaller difference, in seconds and as a share of the longer run, does not count: no two runs take the same time.
_LEAST, _LEAST_SHARE = 0.1, 0.03

COMPARED_HEADER = ("step", "run", "began (s)", "jobs", "failed", "mean time (s)", "mean wait (s)")


def compared(base: RunResult, other: RunResult) -> str:
    """Return the difference of the times of two runs."""
    changed = other.seconds - base.seconds
    took = f"{other.run} took {other.seconds:,.1f} s, {base.run} {base.seconds:,.1f} s"
    for run in (base, other):
        if run.status in ("failed", "cancelled") or not run.ended:
            return f"{took}; {run.run} has not succeeded, so that their times say little."
    if abs(changed) < max(_LEAST, _LEAST_SHARE * max(base.seconds, other.seconds)):
        return f"{took}: as good as the same."
    share = f" ({abs(changed) / base.seconds:.0%})" if base.seconds > 0 else ""
    return f"{took}: {abs(changed):,.1f} s{share} {'less' if changed < 0 else 'more'}."


def compared_rows(runs: Sequence[RunResult]) -> Iterator[tuple[str, ...]]:
    """Yield the rows of the table of steps: for each step, a row for each run with jobs of it."""
    begins = [_begins(run) for run in runs]
    for name in dict.fromkeys(step.step for run in runs for step in run.steps):
        shown = name
        for run, began in zip(runs, begins, strict=True):
            for step in run.steps:
                if step.step == name:
                    times = (began.get(name), step.mean_seconds, step.mean_wait)
                    first, mean, wait = ("" if time is None else f"{time:,.1f}" for time in times)
                    yield shown, run.run, first, f"{step.jobs:,}", f"{step.failed:,}" if step.failed else "", mean, wait
                    shown = ""


def _begins(run: RunResult) -> dict[str, float]:
    """Return when the first job of each step ran."""
    began: dict[str, float] = {}
    for job in run.timeline:
        if job.running is not None:
            began[job.step] = min(began.get(job.step, job.running[0]), job.running[0])
    return began
