"""What is said of a run when it has ended, in some lines. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from streamflow_io.graph.io_graph import Delivery
from streamflow_io.wording import counted, size_text

from .early_delivery import Otherwise, at_termination
from .history import History
from .records import (
    CommittedRecord,
    EdgeRecord,
    EndedRecord,
    EndRecord,
    FallbackRecord,
    ReadingRecord,
    Record,
    RunRecord,
    StartedRecord,
    StepRecord,
    StreamedRecord,
    SubmittedRecord,
)

_KEPT = (
    RunRecord,
    StepRecord,
    EdgeRecord,
    SubmittedRecord,
    StartedRecord,
    EndedRecord,
    ReadingRecord,
    StreamedRecord,
    CommittedRecord,
    FallbackRecord,
    EndRecord,
)
# Less than that is nothing to speak of: seconds, and of the time of the run.
_LEAST, _LEAST_SHARE = 0.05, 0.01
_LONGEST = 200


def matters_at_the_end(record: Record) -> bool:
    """Whether a record is needed for :func:`ending_lines`: the others are many."""
    return isinstance(record, _KEPT)


def ending_lines(history: History) -> list[str]:
    """What a run has taken, what streamed and what that has saved, and what has fallen back; none: it had no hints.

    :param history: of what :func:`matters_at_the_end`
    """
    if not history.edges and not history.steps:
        return []
    return [_time_line(history), *_early_lines(history), *_fallback_lines(history)]


def _time_line(history: History) -> str:
    done = sum(job.status == "completed" for job in history.jobs)
    took = f"{history.seconds:,.1f} s"
    if history.status in ("failed", "cancelled"):
        what = "has failed" if history.status == "failed" else "was cancelled"
        return f"This run {what} after {took}: {done:,} of {counted(len(history.jobs), 'job')} succeeded"
    return f"This run has taken {took}, for {counted(len(history.jobs), 'job')}"


def _early_lines(history: History) -> Iterator[str]:
    told = list(early_parts(history))
    if not told:
        if any(edge.delivery is not Delivery.TERMINATION for edge in history.edges):
            yield "Nothing was delivered before its job had ended"
        return
    text = ", ".join(told)
    text = text[0].upper() + text[1:]
    otherwise = at_termination(history)
    if otherwise.seconds is None:
        yield text if history.status != "completed" else f"{text}; what that saved is not known: {otherwise.unknown}"
        return
    about = "at least" if otherwise.is_least else "about"
    if not is_to_speak_of(history, otherwise):
        which = "no time, as far as is known" if otherwise.is_least else "next to no time"
        yield f"{text}; that saved {which}"
    else:
        yield (
            f"{text}; with each file delivered when its job ended, the run would have taken {about} "
            f"{otherwise.seconds:,.1f} s, {otherwise.seconds - history.seconds:,.1f} s more"
        )


def is_to_speak_of(history: History, otherwise: Otherwise) -> bool:
    """Whether early delivery has saved so much time that it is worth a word."""
    if otherwise.seconds is None:
        return False
    return otherwise.seconds - history.seconds >= max(_LEAST, _LEAST_SHARE * history.seconds)


def early_parts(history: History) -> Iterator[str]:
    """What was delivered before its job had ended, way by way."""
    if history.streamed:
        size = sum(stream.bytes for stream in history.streamed)
        yield f"{counted(len(history.streamed), 'byte stream')} carried {size_text(size)}"
    if gated := {reading.job for reading in history.readings if reading.delivery == "gate"}:
        yield f"{counted(len(gated), 'job')} started before what {'it opens' if len(gated) == 1 else 'they open'}"
    if files := sum(commit.files for commit in history.committed):
        first = max(commit.ended - commit.first for commit in history.committed)
        if first < _LEAST:
            return
        if files == 1:
            yield f"1 file was committed {first:,.1f} s before its job ended"
        else:
            yield f"{files:,} files were committed up to {first:,.1f} s before their jobs ended"


def _fallback_lines(history: History) -> Iterator[str]:
    if (line := fallback_line(history)) is not None:
        yield line
    elif history.edges and history.status == "completed":
        yield "Nothing was delivered later than asked"


def fallback_line(history: History) -> str | None:
    """What was delivered later than asked, and why; none: nothing was."""
    found: dict[tuple[str | None, str], None] = {}
    for edge in history.edges:
        if edge.fallback is not None:
            found.setdefault((edge.output, edge.fallback))
    for fallback in history.fallbacks:
        found.setdefault((fallback.output or fallback.step, fallback.reason))
    if not found:
        return None
    what, reason = next(iter(found))
    reason = reason if len(reason) <= _LONGEST else f"{reason[:_LONGEST]}..."
    if more := len({name for name, _ in found}) - 1:
        return f"Not delivered as asked: {what} and {counted(more, 'other')}; {what}: {reason}"
    return f"Not delivered as asked: {what}: {reason}"
