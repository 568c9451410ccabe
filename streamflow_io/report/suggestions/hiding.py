"""I/O for which no job waits at once, and that could move no faster than it has to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from statistics import median

from streamflow_io.bandwidth.pacing import SMALL
from streamflow_io.records.history import History, JobAttempt
from streamflow_io.report.analysis.requirements import requirements

from .proposal import Proposal
from .simulation import RequiredHint, SimulatedJob, end_of

_MB = 1e6
#: Share of the reached rate. A job that required more gains nothing visible, and is easily late.
HIDDEN = 0.5


def hidden(
    history: History, jobs: Sequence[JobAttempt], simulated: Sequence[SimulatedJob], io_tasks: Collection[str]
) -> Iterator[Proposal]:
    """Yield proposals for I/O tasks that moved their data at least twice as fast as required.

    A small request is not limited, and needs no such hint.

    :param jobs: the jobs that count
    :param simulated: these jobs in the simulation
    :param io_tasks: the steps that are to be I/O tasks
    """
    tasks = {*io_tasks, *(step for step, hints in history.steps.items() if hints.io_task)}
    windows = _windows(simulated, tasks)
    for step in sorted(io_tasks):
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
