"""A run in a sentence or a few lines, and the causes of its duration, in words."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from streamflow_io.graph.io_graph import Delivery
from streamflow_io.records.files import OFF
from streamflow_io.records.history import History
from streamflow_io.records.jobs import CAUSES
from streamflow_io.wording import counted, size_text

from .critical_path import PathSpan
from .early_delivery import Otherwise, at_termination

_MOST = 5


def verdict(history: History) -> str:
    """Return the run in a sentence: its time, what was delivered early and what that saved, and what was removed."""
    done = counted(sum(job.status == "completed" for job in history.jobs), "job")
    first = f"Killed, or still going on: nothing is known after {history.seconds:,.1f} s; {done} succeeded by then"
    if history.ended:
        first = _time_line(history) + (f", with {OFF}" if is_off(history) else "")
    lines = [*_early_lines(history), *_removed_lines(history)]
    return "; ".join([first, *(line[0].lower() + line[1:] for line in lines)])


def _removed_lines(history: History) -> Iterator[str]:
    if history.removed:
        last = history.removed[-1]
        limit = "" if last.limit is None else f" (limit: {size_text(last.limit)} on each disk)"
        yield (
            f"Intermediate files: {size_text(last.bytes)} removed; the directories of jobs held at most "
            f"{size_text(last.peak)}{limit}, and hold {size_text(last.held)} now"
        )
    for disk in history.disks:
        at_most, in_all = _came(disk.peak, disk.expected_peak), _came(disk.written, disk.expected_written)
        yield f"Disk of {disk.location}: at most {at_most} at a time; written: {in_all}"
    if history.disks:
        without = sum(disk.written for disk in history.disks) + sum(one.bytes for one in history.discarded)
        yield f"With `intermediates: keep`, both would have been {size_text(without)}"
    if history.discarded:
        gone, written = sum(one.bytes for one in history.discarded), sum(one.size for one in history.discarded)
        yield f"Windows: {size_text(gone)} of {size_text(written)} removed behind the readers, while jobs wrote"


def _came(size: int, expected: int | None) -> str:
    """Name a size, and how much its forecast was off."""
    return size_text(size) + ("" if expected is None else f" (forecast: {size_text(expected)})")


def is_off(history: History) -> bool:
    """Whether a run with hints was a baseline, without a node runtime."""
    return any(edge.fallback == OFF for edge in history.edges)


def path_text(path: Sequence[PathSpan]) -> str:
    """Return the parts of a critical path, the longest first."""
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
    """Return the kind of a span of the path, without its job."""
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
    """Return the job that ran in a span of the path, or else the kind of the span."""
    return span.job if span.what in ("ran", "tail") and span.job is not None else span_text(span)


# Smaller savings are not mentioned: in seconds, and as a share of the time of the run.
_LEAST, _LEAST_SHARE = 0.05, 0.01
_LONGEST = 200


def ending_lines(history: History) -> list[str]:
    """Return the lines that end a run: its time, early deliveries and their savings, and fallbacks.

    :param history: the history of a run, without the records that :class:`RunTelemetry` does not keep
    :return: without hints, what was removed
    """
    removed = [*_removed_lines(history)]
    if not history.edges and not history.steps:
        return removed
    return [_time_line(history), *_early_lines(history), *removed, *_fallback_lines(history)]


def _time_line(history: History) -> str:
    done = sum(job.status == "completed" for job in history.jobs)
    took = f"{history.seconds:,.1f} s"
    if history.status in ("failed", "cancelled"):
        what = "has failed" if history.status == "failed" else "was cancelled"
        return f"This run {what} after {took}: {done:,} of {counted(len(history.job_names), 'job')} succeeded"
    return f"This run has taken {took}, for {counted(len(history.job_names), 'job')}"


def _early_lines(history: History) -> Iterator[str]:
    told = list(_early_parts(history))
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
    if not _is_to_speak_of(history, otherwise):
        which = "no time, as far as is known" if otherwise.is_least else "next to no time"
        yield f"{text}; that saved {which}"
    else:
        yield (
            f"{text}; with each file delivered when its job ended, the run would have taken {about} "
            f"{otherwise.seconds:,.1f} s, {otherwise.seconds - history.seconds:,.1f} s more"
        )


def _is_to_speak_of(history: History, otherwise: Otherwise) -> bool:
    """Whether early delivery has saved enough time to be mentioned."""
    if otherwise.seconds is None:
        return False
    return otherwise.seconds - history.seconds >= max(_LEAST, _LEAST_SHARE * history.seconds)


def _early_parts(history: History) -> Iterator[str]:
    """Yield the data that was delivered before its job had ended, by way of delivery."""
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
    """Return the files that were delivered later than asked, and why. None: no such files."""
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
