"""The next steps after a run: its most valuable proposals, or what would shorten its waits."""

from __future__ import annotations

import posixpath
import shlex
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from streamflow_io.grouping import grouped
from streamflow_io.records.files import OFF
from streamflow_io.records.history import History, JobAttempt
from streamflow_io.records.jobs import CAUSES, DelayCause
from streamflow_io.report.analysis.critical_path import PathSpan
from streamflow_io.report.analysis.edges import EdgeResult
from streamflow_io.report.analysis.model import Advice
from streamflow_io.wording import counted

from .proposal import Pair
from .proposals import WORTH, CoreUse, core_use, overlap_gains, suggest

MOST = 3
# Smaller savings, in seconds, are not mentioned.
_LEAST = 0.1
# In a shorter run, in seconds, the start of the programs takes a large share.
_WHILE = 5.0
# StreamFlow's own time is mentioned from this share of the run on.
_OVERHEAD = 0.3
# Jobs that use a smaller share of their cores, in the mean, could share them.
_IDLE = 0.5
# The longest step is mentioned from this share of the run on.
_ITSELF = 0.1


def advice(history: History, path: Sequence[PathSpan], edges: Sequence[EdgeResult]) -> list[Advice]:
    """Return at most three next steps, the most valuable first. A run without a recorded end gets none.

    :param path: the critical path of the run
    :param edges: the edges that were to be delivered early
    """
    if not history.ended:
        return []
    gains = {pair: sum(every) for pair, every in overlap_gains(history, path).items()}
    if first := [*_failed(history)]:
        return first + [*_not_as_asked(edges, gains)][: MOST - 1]
    used = core_use(history)
    busy = used if used is not None and used.is_busy else None
    others = [
        *_busy(history, busy),
        *_proposed(history),
        *_not_as_asked(edges, gains),
        *_waited(history, path, busy),
        *([] if busy else _handed_over(history, gains)),
    ]
    others = [one for one in others if one.saved is None or _is_much(history, one.saved)]
    others.sort(key=lambda one: -(one.saved or 0.0))
    return ([*others, *_itself(history, path)])[:MOST]


def _busy(history: History, busy: CoreUse | None) -> Iterator[Advice]:
    """Yield advice for a run with cores that compute all the time.

    :param busy: the run's use of its cores. None: the cores had time to spare, or their use is not known
    """
    if busy is not None and history.seconds >= _WHILE:
        yield Advice(text="More cores, or less to compute (compress less, write fewer bytes)", why=busy.text)


def _is_much(history: History, seconds: float) -> bool:
    return seconds >= max(_LEAST, WORTH * history.seconds)


def _failed(history: History) -> Iterator[Advice]:
    failed = [job for job in history.jobs if job.status == "failed"]
    if history.status == "failed" and failed:
        first = min(failed, key=lambda job: job.ended or 0.0)
        yield Advice(
            text=f"Mend {first.step}: `streamflow-io logs {shlex.join([history.label, *posixpath.split(first.name)])}` "
            "shows the command and its standard error",
            why=f"{counted(len(failed), 'job')} failed, first {first.name} after {first.ended or 0.0:,.1f} s"
            + _what_it_streamed(history, first),
        )


def _what_it_streamed(history: History, job: JobAttempt) -> str:
    """Return a remark about the outputs that the last attempt of a job read while they were written."""
    began = (history.measured(job) or history.running(job) or (history.seconds,))[0]
    over = {each.name for each in history.jobs if each.ended is not None and each.ended <= began}
    read = {
        reading.output: None
        for reading in history.readings
        if reading.job == job.name and reading.delivery == "stream" and not over.issuperset(reading.sources)
    }
    if not read:
        return ""
    return f"; it read {', '.join(read)} as a byte stream: if its command seeks, or reads twice, remove `streamable`"


def _is_observed(history: History) -> bool:
    return bool(history.routes) or any(job.outputs or job.inputs for job in history.jobs)


def _proposed(history: History) -> Iterator[Advice]:
    if not _is_observed(history):
        return
    found = suggest(history)
    for place, one in enumerate(found.proposals):
        what = f"`{one.text}`" if one.is_sure else f"`{one.text.removeprefix('try ')}`, which is to be tried"
        write = "; `streamflow-io suggest -o FILE` writes all such hints" if place == 0 else ""
        yield Advice(text=f"Give {one.subject} the hint {what}", why=one.evidence + write, saved=one.saved or None)


def _not_as_asked(edges: Sequence[EdgeResult], gains: Mapping[Pair, float]) -> Iterator[Advice]:
    by_reason: defaultdict[str, list[EdgeResult]] = defaultdict(list)
    for edge in edges:
        for reason in edge.reasons[:1]:
            by_reason[reason].append(edge)
    for reason, some in by_reason.items():
        first = some[0].output if some[0].input is None else f"{some[0].output} -> {some[0].input}"
        more = "" if len(some) == 1 else f" and {counted(len(some) - 1, 'other')}"
        pairs = {(posixpath.dirname(edge.output), posixpath.dirname(edge.input or "")) for edge in some}
        saved = sum(gains.get(pair, 0.0) for pair in pairs) or None
        if reason == OFF:
            are = "is" if len(some) == 1 else "are"
            yield Advice(text=f"Run it without {OFF}", why=f"{first}{more} {are} delivered early then", saved=saved)
        else:
            yield Advice(text=f"Mend what keeps {first}{more} from being delivered as asked", why=reason, saved=saved)


def _waited(history: History, path: Sequence[PathSpan], busy: CoreUse | None) -> Iterator[Advice]:
    by_cause = grouped((span for span in path if span.what == "waited" and span.cause), lambda span: span.cause)
    for cause, spans in by_cause.items():
        assert cause is not None
        if cause == "cores" and busy is not None:
            continue  # `_busy` says the same, with the reason
        seconds = sum(span.seconds for span in spans)
        steps = ", ".join(dict.fromkeys(span.step or "" for span in spans))
        why = f"{steps}: waited {seconds:,.1f} s for {CAUSES[cause]}"
        yield Advice(text=_for_more(history, cause), why=why, saved=seconds)


def _for_more(history: History, cause: DelayCause) -> str:
    if cause == "cores":
        held = sum(
            (job.cores or 0.0) * (job.usage.ended - job.usage.started) for job in history.jobs if job.usage is not None
        )
        used = sum(job.usage.cpu_seconds for job in history.jobs if job.usage is not None)
        if held > 0 and used < _IDLE * held:
            share = f"jobs used {used / held:.0%} of the cores that they held"
            if history.run.oversubscribe in (None, "idle"):
                return f"Ask for fewer cores for a job: {share}"
            return f"`oversubscribe: idle` lends idle cores ({share}); or ask for fewer cores for a job"
        return "More cores, or fewer for each job (`ResourceRequirement`)"
    if cause == "storage":
        if any(step.storage_bw not in (None, "auto") for step in history.steps.values()):
            return "`storageBW: auto` learns how many jobs the storage bears at once; or another storage"
        return "A storage with more bandwidth, or more `ioExecutors`"
    return {
        "memory": "More memory, or less for each job (`ramMin`)",
        "disk": "More space on disk, or less for each job (`tmpdirMin`, `outdirMin`)",
        "queue": "More nodes, another queue, or fewer and longer jobs",
        "place": "A location that takes more jobs at a time, or more locations",
    }[cause]


def _handed_over(history: History, all_gains: Mapping[Pair, float]) -> Iterator[Advice]:
    """Yield advice for a run without hints, about which nothing else is known."""
    if _is_observed(history):
        return
    asked = {(posixpath.dirname(edge.output), posixpath.dirname(edge.input or "")) for edge in history.edges}
    gains = {pair: seconds for pair, seconds in all_gains.items() if pair not in asked}
    if not gains:
        return
    (source, target), seconds = max(gains.items(), key=lambda item: item[1])
    auto = "" if history.run.streaming == "auto" else "; or `streaming: auto` finds out by itself"
    yield Advice(
        text=(
            "Run it once with `config: {observe: true}`, then `streamflow-io suggest` says what can be read while it is"
            f" written{auto}"
        ),
        why=f"{target} begins when {source} has ended: both at a time would take up to {seconds:,.1f} s less",
        saved=sum(gains.values()),
    )


def _itself(history: History, path: Sequence[PathSpan]) -> Iterator[Advice]:
    """Yield advice about time that no hint changes."""
    own = sum(span.seconds for span in path if span.is_overhead)
    if history.seconds > 0 and own >= _OVERHEAD * history.seconds:
        jobs = len({span.job for span in path if span.job is not None})
        yield Advice(
            text="Fewer and longer jobs: put what belongs together into one tool",
            why=f"StreamFlow itself took {own:,.1f} of {history.seconds:,.1f} s, for {counted(jobs, 'job')} in a row",
        )
    seconds: defaultdict[str, float] = defaultdict(float)
    for span in path:
        if span.what in ("ran", "tail") and span.step is not None:
            seconds[span.step] += span.seconds
    step, longest = max(seconds.items(), key=lambda item: item[1], default=("", 0.0))
    if longest >= _ITSELF * history.seconds > 0:
        yield Advice(
            text=f"Make {step} itself faster, or give it less to do",
            why=f"it ran for {longest:,.1f} of {history.seconds:,.1f} s",
        )
