"""The proposals for the next run, and the hints that are not proposed, each with its reasons."""

from __future__ import annotations

import posixpath
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from statistics import fmean, median

from msgspec import Struct
from msgspec.structs import replace

from streamflow_io.bandwidth.pacing import SMALL
from streamflow_io.records.history import History, JobAttempt
from streamflow_io.report.analysis.requirements import requirements

from .evidence import EARLY, evidence
from .proposal import Proposal, Refusal
from .simulated_jobs import completed_jobs, simulated_jobs
from .simulation import (
    CommitHint,
    CoreUse,
    GateHint,
    IOTaskHint,
    RequiredHint,
    SimulatedHint,
    SimulatedJob,
    SplitHint,
    StreamHint,
    Times,
    core_use,
    end_of,
    saved_on_cores,
    saved_seconds,
    simulate_on_cores,
)

_MB = 1e6
#: Share of the reached rate. A job that required more gains nothing visible, and is easily late.
HIDDEN = 0.5


def hidden(
    history: History, jobs: Sequence[JobAttempt], simulated: Sequence[SimulatedJob], io_tasks: AbstractSet[str]
) -> Iterator[Proposal]:
    """Yield proposals for I/O tasks that moved their data at least twice as fast as required.

    A small request is not limited, and needs no such hint.

    :param jobs: the jobs that count
    :param simulated: these jobs in the simulation
    :param io_tasks: the steps that are to be I/O tasks
    """
    tasks = {*io_tasks, *(step for step, hints in history.steps.items() if hints.io_task)}
    windows = _windows(simulated, tasks)
    # Another StorageBandwidth would replace that of a step which has one, with its storage and direction.
    for step in sorted(io_tasks - history.steps.keys()):
        moves = [
            (job.usage.moved("write"), windows[index], job.usage.ended - job.usage.started)
            for index, job in enumerate(jobs)
            if job.step == step and job.usage is not None
        ]
        yield from _proposal(step, [move for move in moves if move[0] >= SMALL])
    without = {step for step, hints in history.steps.items() if hints.io_task and hints.storage_bw is None}
    for found in requirements(history).steps if history.requests else ():
        if found.step in without and (found.bytes or 0.0) >= SMALL:
            yield from _compared(found.step, found.phases, found.bytes, found.window, found.throughput)


def _windows(simulated: Sequence[SimulatedJob], io_tasks: Collection[str]) -> list[float]:
    """Return, for each job, the seconds from when its inputs are there until a job waits for its outputs.

    0 means that a job waits at once. A reader with other inputs waits from when those are there. Data that only I/O
    tasks may read is needed when the last job has computed.
    """
    readers: dict[int, list[SimulatedJob]] = defaultdict(list)
    for reader in simulated:
        for read in reader.reads if reader.step not in io_tasks else ():
            readers[read.producer].append(reader)
    end = end_of([job for job in simulated if job.step not in io_tasks])
    found = []
    for index, job in enumerate(simulated):
        ready = _ready(simulated, job)
        needed = [
            max((simulated[read.producer].ended for read in reader.reads if read.producer != index), default=ready)
            for reader in readers[index]
        ]
        found.append(max(0.0, min(needed, default=end) - ready))
    return found


def _ready(simulated: Sequence[SimulatedJob], job: SimulatedJob) -> float:
    return min(job.started, max((simulated[read.producer].ended for read in job.reads), default=job.submitted))


def _proposal(step: str, moves: Sequence[tuple[int, float, float]]) -> Iterator[Proposal]:
    if moves:
        size, window = median(moved for moved, _, _ in moves), median(window for _, window, _ in moves)
        reached = median(moved / seconds for moved, _, seconds in moves if seconds > 0)
        yield from _compared(step, len(moves), size, window, reached / _MB)


def _compared(
    step: str, count: int, size: float | None, window: float | None, reached: float | None
) -> Iterator[Proposal]:
    """Yield a proposal if the required rate is low enough.

    :param reached: in MB/s
    """
    if size is None or reached is None or not window:
        return
    required = size / _MB / window
    if required <= HIDDEN * reached:
        times = "once" if count == 1 else f"{count:,} times"
        evidence = (
            f"{times} {size / _MB:.0f} MB, for which a job waited after {window:.1f} s in the median: "
            f"{rate_text(required)} would do, {rate_text(reached)} were reached"
        )
        yield Proposal(RequiredHint(step), evidence)


def rate_text(value: float) -> str:
    """Return a rate as text.

    :param value: in MB/s
    """
    return f"{value:,.0f} MB/s" if value >= 100 else f"{value:.3g} MB/s"


#: The least share of a run's time that is worth a proposal. Runs differ by less.
WORTH = 0.03
_NO_SHORTER = "the run would have been no shorter"
_BUSY = f"the cores were busy: {_NO_SHORTER}"


class Suggestions(Struct, frozen=True):
    """All hints and changes for which a run gives reasons.

    :ivar seconds: from the start of the run to the end of its last job
    :ivar saved: seconds that all sure proposals save together
    :ivar saved_at_most: seconds that all proposals save, including those that are to be tried
    :ivar core_use: the run's use of its cores. None: unknown
    """

    seconds: float
    saved: float
    saved_at_most: float
    proposals: tuple[Proposal, ...]
    refusals: tuple[Refusal, ...]
    core_use: CoreUse | None = None


def suggest(history: History) -> Suggestions:
    """Return the hints that would have made a run faster.

    A proposal is sure if all evidence speaks for it. Another run with other inputs may still contradict the proposal,
    and then fails with a message, or warns.

    :param history: the history of a run that was observed
    """
    jobs = completed_jobs(history)
    simulated = simulated_jobs(history, jobs)
    found = list(evidence(history, jobs))
    io_tasks = {one.hint.step for one in found if isinstance(one, Proposal) and isinstance(one.hint, IOTaskHint)}
    found += hidden(history, jobs, simulated, io_tasks)
    refusals = [one for one in found if isinstance(one, Refusal)]
    weighed, idle = _weigh(simulated, [one for one in found if isinstance(one, Proposal)])
    used = core_use(history)
    if saved_on_cores(simulated, _hints(weighed)) < max(EARLY, WORTH * end_of(simulated)):
        why = _BUSY if used is not None and used.is_busy else _NO_SHORTER
        idle += [Refusal(one.subject, one.text, f"{one.evidence}, but {why}") for one in weighed if _overlaps(one)]
        weighed = [one for one in weighed if not _overlaps(one)]
    sure = [proposal.hint for proposal in weighed if proposal.is_sure]
    every = _hints(weighed)
    return Suggestions(
        end_of(simulated),
        saved_on_cores(simulated, sure),
        saved_on_cores(simulated, every),
        tuple(weighed),
        (*refusals, *idle),
        used,
    )


def _hints(proposals: Sequence[Proposal]) -> list[SimulatedHint]:
    return [proposal.hint for proposal in proposals]


def _overlaps(proposal: Proposal) -> bool:
    """Whether a hint only lets jobs run beside others: a hint for I/O takes no core, a split writes nothing."""
    return isinstance(proposal.hint, CommitHint | GateHint | StreamHint)


def _weigh(simulated: Sequence[SimulatedJob], proposals: Sequence[Proposal]) -> tuple[list[Proposal], list[Refusal]]:
    """Return the proposals with their savings, the most valuable first, and refusals of those that bring nothing."""
    weighed, idle = [], []
    for proposal in proposals:
        others = [other.hint for other in proposals if other != proposal and (other.is_sure or not proposal.is_sure)]
        # Two early files help only together, if one job needs both.
        alone, joint = _gains(simulated, [], proposal.hint), _gains(simulated, others, proposal.hint)
        gains = max(alone, joint, key=lambda gains: max((gain.ended for gain in gains), default=0.0))
        moved = [gain.started for gain in gains if gain.started > 0.0]
        # A job that starts earlier, and then only waits, gains nothing.
        saved = saved_on_cores(simulated, [proposal.hint])
        if _overlaps(proposal) and saved < EARLY <= saved_seconds(simulated, [proposal.hint]):
            idle.append(Refusal(proposal.subject, proposal.text, f"{proposal.evidence}, but {_BUSY}"))
            continue
        if max((gain.ended for gain in gains), default=0.0) < EARLY and not isinstance(
            proposal.hint, IOTaskHint | RequiredHint
        ):
            what = "ended" if max(moved, default=0.0) >= EARLY else "started"
            reason = f"{proposal.evidence}, but no job would have {what} earlier"
            idle.append(Refusal(proposal.subject, proposal.text, reason))
            continue
        weighed.append(replace(proposal, saved=saved, earlier=fmean(moved) if moved else 0.0))
    weighed.sort(key=lambda proposal: (not proposal.is_sure, -proposal.saved, -proposal.earlier, proposal.subject))
    return weighed, idle


def _gains(simulated: Sequence[SimulatedJob], others: Collection[SimulatedHint], hint: SimulatedHint) -> list[Times]:
    """Return the seconds by which each job starts, and ends, earlier with one more hint."""
    pairs = zip(simulate_on_cores(simulated, others), simulate_on_cores(simulated, [*others, hint]), strict=True)
    return [Times(one.started - other.started, one.ended - other.ended) for one, other in pairs]


def by_step(proposals: Iterable[Proposal]) -> Mapping[str, list[Proposal]]:
    """Return commit rules, splits, I/O tasks and their bandwidth by the path of their step, ordered by path."""
    found: dict[str, list[Proposal]] = {}
    for proposal in proposals:
        match proposal.hint:
            case CommitHint(output) | GateHint(output) | SplitHint(output):
                found.setdefault(posixpath.dirname(output), []).append(proposal)
            case IOTaskHint(step) | RequiredHint(step):
                found.setdefault(step, []).append(proposal)
    return dict(sorted(found.items()))
