"""A run in a sentence, and what decided its time, in words. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from streamflow_io.graph.io_graph import Delivery
from streamflow_io.wording import counted

from .critical_path import PathSpan
from .early_delivery import Otherwise, at_termination
from .ending import early_parts, is_to_speak_of
from .history import History
from .records import OFF
from .waiting_words import CAUSES

_MOST = 5


def verdict(history: History) -> str:
    """What a run took, instead of what, and why."""
    took = f"{history.seconds:,.1f} s"
    jobs = [job for job in history.jobs if job.status == "completed"]
    if not history.ended:
        return (
            f"Killed, or still going on: nothing is known after {took}; {counted(len(jobs), 'job')} succeeded by then"
        )
    if history.status in ("failed", "cancelled"):
        what = "Failed" if history.status == "failed" else "Cancelled"
        text = f"{what} after {took}: {len(jobs):,} of {counted(len(history.jobs), 'job')} succeeded"
        failed = [job for job in history.jobs if job.status == "failed" and job.ended is not None]
        if failed:
            first = min(failed, key=lambda job: job.ended or 0.0)
            text += f"; the first to fail was {first.name}, {first.ended or 0.0:,.1f} s after the start"
        return text
    told = ", ".join(early_parts(history))
    if told:
        return f"{took}{_instead(history, at_termination(history))}: {told}"
    if is_off(history):
        return f"{took} with {OFF}: nothing was to be delivered before its job had ended"
    if any(edge.delivery is not Delivery.TERMINATION or edge.fallback for edge in history.edges):
        return f"{took}; nothing was delivered before its job had ended"
    if history.edges or history.steps:
        return f"{took}, for {counted(len(history.jobs), 'job')}"
    return f"{took}, for {counted(len(history.jobs), 'job')}; nothing was to be delivered before its job had ended"


def is_off(history: History) -> bool:
    """Whether a run with hints was to be a baseline."""
    return any(edge.fallback == OFF for edge in history.edges)


def _instead(history: History, otherwise: Otherwise) -> str:
    if otherwise.seconds is None:
        return f" (what early delivery saved is not known: {otherwise.unknown})"
    if not is_to_speak_of(history, otherwise):
        return ", and next to no time was saved" + (", as far as is known" if otherwise.is_least else "")
    return f" instead of {'at least' if otherwise.is_least else 'about'} {otherwise.seconds:,.1f} s"


def path_text(path: Sequence[PathSpan]) -> str:
    """What a critical path consists of, the longest first."""
    if not path:
        return ""
    seconds: defaultdict[str, float] = defaultdict(float)
    for span in path:
        seconds[span_text(span)] += span.seconds
    whole = path[-1].end - path[0].begin
    longest = sorted(seconds.items(), key=lambda item: -item[1])
    parts = [f"{what} {time:,.1f} s" for what, time in longest[:_MOST] if time >= 0.05]
    if rest := sum(time for _, time in longest[len(parts) :]):
        parts += [f"other {rest:,.1f} s"] if rest >= 0.05 else []
    return f"Of the {whole:,.1f} s: {', '.join(parts)}." if parts else ""


def span_text(span: PathSpan) -> str:
    """What a span of the path is, without its job."""
    if span.what == "ran":
        return f"{span.step} ran"
    if span.what == "tail":
        return f"{span.step} after its last byte"
    if span.what == "waited":
        if span.cause is not None:
            return f"{span.step} waited for {CAUSES[span.cause]}"
        return "StreamFlow" if span.is_overhead else f"{span.step} waited to be started"
    return "StreamFlow"


def span_name(span: PathSpan) -> str:
    """The job that ran in a span of the path, or else what the span is."""
    return span.job if span.what in ("ran", "tail") and span.job is not None else span_text(span)
