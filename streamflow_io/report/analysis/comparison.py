"""The differences between two runs, in words."""

from __future__ import annotations

from collections.abc import Iterator

from streamflow_io.graph.io_graph import Delivery
from streamflow_io.grouping import grouped
from streamflow_io.records.files import OFF
from streamflow_io.records.jobs import CAUSES
from streamflow_io.wording import counted

from .model import AnalysisModel
from .results import RunResult, StepResult

# A smaller difference, in seconds and as a share of the longer run, does not count: no two runs take the same time.
_LEAST, _LEAST_SHARE = 0.1, 0.03
_LEAST_RATIO = 0.1
_MOST = 10
# From this number on, steps with one reason share a sentence.
_TOGETHER = 3


class RunComparison(AnalysisModel):
    """A comparison of two runs.

    :ivar run: the run that is compared
    :ivar with_run: the run with which it is compared
    :ivar verdict: the difference of their times
    :ivar differences: sentences, those first that explain most seconds
    """

    run: str
    with_run: str
    verdict: str
    differences: list[str]


def compare(base: RunResult, other: RunResult) -> RunComparison:
    """Return the differences of another run from the first."""
    found = [
        *_failures(base, other),
        *_steps(base, other),
        *_deliveries(base, other),
        *_throughput(base, other),
    ]
    found.sort(key=lambda one: -one[0])
    texts = [text for _, text in found]
    if len(texts) > _MOST:
        texts = [*texts[:_MOST], f"{counted(len(texts) - _MOST, 'smaller difference')} more."]
    return RunComparison(run=other.run, with_run=base.run, verdict=_verdict(base, other), differences=texts)


def _verdict(base: RunResult, other: RunResult) -> str:
    changed = other.seconds - base.seconds
    took = f"{other.run} took {other.seconds:,.1f} s, {base.run} {base.seconds:,.1f} s"
    for run in (base, other):
        if run.status in ("failed", "cancelled") or not run.ended:
            return f"{took}; {run.run} has not succeeded, so that their times say little."
    if abs(changed) < _least(base, other):
        return f"{took}: as good as the same."
    share = f" ({abs(changed) / base.seconds:.0%})" if base.seconds > 0 else ""
    return f"{took}: {abs(changed):,.1f} s{share} {'less' if changed < 0 else 'more'}."


def _least(base: RunResult, other: RunResult) -> float:
    return max(_LEAST, _LEAST_SHARE * max(base.seconds, other.seconds))


def _is_other(before: float, now: float, least: float) -> bool:
    return abs(now - before) >= max(least, _LEAST_RATIO * max(before, now))


def _failures(base: RunResult, other: RunResult) -> Iterator[tuple[float, str]]:
    before = {step.step: step.failed for step in base.steps}
    for step in other.steps:
        if step.failed != before.get(step.step, 0):
            then = before.get(step.step, 0)
            yield float("inf"), f"{step.step}: {step.failed:,} of its jobs failed, {then:,} in {base.run}."


def _steps(base: RunResult, other: RunResult) -> Iterator[tuple[float, str]]:
    least = _least(base, other)
    ours, theirs = ({step.step: step for step in run.steps} for run in (other, base))
    for name in dict.fromkeys((*theirs, *ours)):
        step, before = ours.get(name), theirs.get(name)
        if step is None or before is None:
            has, lacks = (base.run, other.run) if step is None else (other.run, base.run)
            yield 0.0, f"{name} has jobs in {has} only, none in {lacks}."
            continue
        yield from _step(base, other, before, step, least)
    yield from _starts(base, other, least)


def _starts(base: RunResult, other: RunResult, least: float) -> Iterator[tuple[float, str]]:
    """Yield the steps that began earlier or later. Many steps with one reason share a sentence."""
    began, begins = _begins(base), _begins(other)
    reads = _reads_early(base, other)
    moved = [
        (name, began[name], begins[name])
        for name in begins
        if name in began and _is_other(began[name], begins[name], least)
    ]
    for (is_earlier, way), some in grouped(moved, lambda one: (one[2] < one[1], reads.get(one[0], _ALONE)[:2])).items():
        when = "earlier" if is_earlier else "later"
        by = [abs(now - then) for _, then, now in some]
        if len(some) >= _TOGETHER:
            why = "" if way == _ALONE[:2] else f": {way[0]}{_EACH[way[1]]}"
            *names, last = (name for name, _, _ in some)
            yield max(by), f"{', '.join(names)} and {last} began {min(by):,.1f} to {max(by):,.1f} s {when}{why}."
            continue
        for (name, then, now), seconds in zip(some, by, strict=True):
            where, how, source = reads.get(name, _ALONE)
            why = "" if how is None else f": {where}{_HOW[how].format(source=source)}"
            yield seconds, f"{name} began {seconds:,.1f} s {when}, at {now:,.1f} s instead of {then:,.1f} s{why}."


def _step(
    base: RunResult, other: RunResult, before: StepResult, step: StepResult, least: float
) -> Iterator[tuple[float, str]]:
    if step.jobs != before.jobs:
        yield 0.0, f"{step.step} had {counted(step.jobs, 'job')} instead of {before.jobs:,}."
    if step.mean_seconds is not None and before.mean_seconds is not None:
        # The time in which a job waits inside for others is no difference of its own.
        waits_then, waits = _inside(base, step.step), _inside(other, step.step)
        then, now = (mean - sum(some) for mean, some in ((before.mean_seconds, waits_then), (step.mean_seconds, waits)))
        if _is_other(then, now, least):
            which = f"The job of {step.step}" if step.jobs == 1 else f"A job of {step.step}"
            without = ", without what it waited for bytes or at the gate" if any((*waits_then, *waits)) else ""
            yield abs(now - then), f"{which} took {now:,.1f} s instead of {then:,.1f} s{without}."
    for cause in dict.fromkeys((*before.waited, *step.waited)):
        then, now = before.waited.get(cause, 0.0), step.waited.get(cause, 0.0)
        if _is_other(then, now, least):
            text = f"A job of {step.step} waited {now:,.1f} s for {CAUSES[cause]}, instead of {then:,.1f} s."
            yield abs(now - then), text


def _inside(run: RunResult, step: str) -> tuple[float, float]:
    """Return the mean seconds for which a job of a step waited for bytes, and at the gate."""
    jobs = [job for job in run.timeline if job.step == step and job.status == "completed"]
    count = max(1, len(jobs))
    # A job reads its streams at the same time.
    bytes_ = sum(max((stream.waited or 0.0 for stream in job.streams), default=0.0) for job in jobs)
    return bytes_ / count, sum(job.held_seconds or 0.0 for job in jobs) / count


def _begins(run: RunResult) -> dict[str, float]:
    """Return when the first job of each step ran."""
    began: dict[str, float] = {}
    for job in run.timeline:
        if job.running is not None:
            began.setdefault(job.step, job.running[0])
            began[job.step] = min(began[job.step], job.running[0])
    return began


def _ways(run: RunResult) -> dict[tuple[str, str], set[Delivery]]:
    """Return how files went from step to step, as far as they went before the end of a job."""
    flows = grouped(run.graph.flows, lambda flow: (flow.source, flow.target))
    return {pair: {flow.delivery for flow in some} for pair, some in flows.items()}


_HOW = {
    Delivery.STREAM: "it read what {source} wrote while that was written",
    Delivery.GATE: "it started with {source}, and waited at the gate",
    Delivery.COMMIT: "{source} committed its output before it ended",
    Delivery.PART: "it read parts that were not written",
}
_EACH: dict[Delivery | None, str] = {
    Delivery.STREAM: "each read what another wrote while that was written",
    Delivery.GATE: "each started with another, and waited at the gate",
    Delivery.COMMIT: "others committed what they read before they ended",
    Delivery.PART: "each read parts that were not written",
}
# The run in which a step got its input in another way, that way, and the step that gave the input.
_Reason = tuple[str, Delivery | None, str]
_ALONE: _Reason = ("", None, "")


def _reads_early(base: RunResult, other: RunResult) -> dict[str, _Reason]:
    """Return, for each step with an input delivered in another way, the reason why the step began at another time."""
    ours, theirs = _ways(other), _ways(base)
    found: dict[str, _Reason] = {}
    for run, mine, its in ((other, ours, theirs), (base, theirs, ours)):
        for (source, target), ways in mine.items():
            for way in ways - its.get((source, target), set()) - {Delivery.TERMINATION}:
                found.setdefault(target, ("" if run is other else f"in {run.run} ", way, source))
    return found


def _deliveries(base: RunResult, other: RunResult) -> Iterator[tuple[float, str]]:
    before = {(edge.output, edge.input): edge for edge in base.edges}
    for edge in other.edges:
        then = before.get((edge.output, edge.input))
        was = [] if then is None else then.reasons
        if edge.reasons not in ([], [OFF], was):
            way = f"{edge.output} -> {edge.input or 'workflow output'}"
            yield 0.0, f"{way} was not delivered as asked in {other.run}: {'; '.join(edge.reasons)}."
    now = {(edge.output, edge.input): edge.reasons for edge in other.edges}
    for key, edge in before.items():
        if edge.reasons not in ([], [OFF]) and not now.get(key, [OFF]):
            way = f"{edge.output} -> {edge.input or 'workflow output'}"
            yield 0.0, f"{way} was not delivered as asked in {base.run}: {'; '.join(edge.reasons)}."


def _throughput(base: RunResult, other: RunResult) -> Iterator[tuple[float, str]]:
    if base.throughput is None or other.throughput is None:
        return
    then, now = base.throughput.mean, other.throughput.mean
    if _is_other(then, now, 0.1):
        yield 0.0, f"I/O tasks moved {now:,.3g} MB/s in the mean instead of {then:,.3g} MB/s."
