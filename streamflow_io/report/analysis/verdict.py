"""A run in a sentence or a few lines, the causes of its duration in words, and what early delivery has saved.

The saved time is found by a comparison with a run in which each file is delivered when its job has ended.

The run is taken as a network of activities (Kelley and Walker 1959): a job starts when all jobs before it have ended.
The assumptions:

- A job comes after the jobs of the steps before that have its tag, or a tag above or below it.
- A job takes as long as it took, less its waits for bytes and at the gate. Jobs that shared too few cores may have
  taken longer than alone. Their time is bounded by their CPU time and their time in I/O.
- A job that ran again, with a rewritten input or with a file instead of a stream, counts with its last try only.
- No job starts earlier. A job that starts later waits for no core, no bandwidth of a storage and no queue.

Each assumption makes the time shorter rather than longer: savings are not exaggerated, as far as that is known.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence

from msgspec import Struct

from streamflow_io.graph.io_graph import Delivery
from streamflow_io.grouping import grouped
from streamflow_io.messages.codes import code_of
from streamflow_io.records.files import OFF
from streamflow_io.records.history import History, JobAttempt
from streamflow_io.records.jobs import CAUSES
from streamflow_io.wording import counted, size_text

from .critical_path import PathSpan
from .network import SOON, Network, known

# Share of the cores. Jobs that use this share in the mean use all cores for much of the time.
_ALL = 0.75


class Otherwise(Struct, frozen=True):
    """The run, had each file been delivered when its job ended.

    :ivar seconds: the time of that run. None: unknown
    :ivar is_least: whether that run may have taken longer, because the time of jobs on shared cores is not known
    :ivar unknown: why the time is not known
    """

    seconds: float | None = None
    is_least: bool = False
    unknown: str | None = None


def at_termination(history: History) -> Otherwise:
    """Return the time that a run would have taken, had each file been delivered when its job ended."""
    if history.status != "completed":
        return Otherwise(unknown="the run has not succeeded")
    if not history.run.steps:
        return Otherwise(unknown="the order of the steps was not recorded")
    if any(job.status != "completed" or job.started is None or job.submitted is None for job in history.jobs):
        return Otherwise(unknown="jobs have failed, or were repeated")
    names = [job.name for job in history.jobs]
    if len(names) > len(set(names)):
        return Otherwise(unknown="jobs were repeated")
    again = _started_again(history)
    if any(job.name in again and job.usage is None for job in history.jobs):
        return Otherwise(unknown="jobs were repeated")
    return _Rerun(history, again).otherwise()


class _Rerun:
    def __init__(self, history: History, again: Collection[str]) -> None:
        self._history = history
        self._again = again
        self._jobs = sorted(history.jobs, key=lambda job: (known(job.started), known(job.ended)))
        self._network = Network(history, self._jobs)
        self._read = {source for reading in history.readings for source in reading.sources}
        self._crowded = _crowded(self._jobs)
        self._ends: list[float] = []

    def otherwise(self) -> Otherwise:
        is_least = False
        for index, job in enumerate(self._jobs):
            started = self._starts(index)
            reads = self._reads_early(index)
            is_other = started > known(job.started) or bool(reads)
            # Then no job reads this job's outputs while it runs, and shares its cores.
            is_alone = index in self._crowded and job.name in self._read and job.usage is not None
            is_least |= is_other and index in self._crowded
            took = self._takes(index, reads) if is_other or is_alone else self._ran(job)
            self._ends.append(max(0.0 if is_alone else known(job.ended), started + took))
        end = max((known(job.ended) for job in self._jobs), default=0.0)
        return Otherwise(self._history.seconds + max(0.0, max(self._ends, default=end) - end), is_least)

    def _starts(self, index: int) -> float:
        job = self._jobs[index]
        submitted, started = known(job.submitted), known(job.started)
        delivered = [
            (min(known(self._jobs[other].ended), submitted), self._ends[other]) for other in self._before(index)
        ]
        last = max((then for then, _ in delivered), default=submitted)
        # The time between the last delivery and the submission passes again.
        asks = [now + (submitted - then if then == last else 0.0) for then, now in delivered]
        own = max(0.0, started - submitted - sum(job.waited.values()))
        return max(started, max(asks, default=submitted) + own)

    def _before(self, index: int) -> Iterator[int]:
        """Yield the jobs that had given a job its inputs, or from which it read while they ran."""
        job = self._jobs[index]
        submitted = known(job.submitted)
        read = self._network.read_early(index)
        for other in read | self._network.upstream(index):
            candidate = self._jobs[other]
            is_early = other in read or (candidate.step, job.step) in self._network.early
            if other < index and (is_early or known(candidate.ended) <= submitted + SOON):
                yield other

    def _reads_early(self, index: int) -> list[tuple[str, JobAttempt]]:
        """Return the ways in which a job read outputs while they were written, and the jobs that wrote them."""
        job = self._jobs[index]
        found = (
            (reading.delivery, self._network.attempt(source, index))
            for reading in self._network.readings[job.name]
            for source in reading.sources
        )
        read = [(delivery, self._jobs[source]) for delivery, source in found if source is not None]
        return [(delivery, source) for delivery, source in read if known(source.ended) > known(job.started)]

    def _ran(self, job: JobAttempt) -> float:
        """Return the seconds that a job ran in its last try."""
        # The wait in a queue at another time is not known.
        since, until = known(self._history.begun(job)), known(job.ended)
        if job.name in self._again and (measured := self._history.measured(job)) is not None:
            since = max(since, measured[0])
        return until - since

    def _takes(self, index: int, reads: Sequence[tuple[str, JobAttempt]]) -> float:
        """Return the least seconds that a job takes when all inputs are there and it is alone."""
        job = self._jobs[index]
        took = takes = self._ran(job)
        waits = [stream.waited for stream in self._network.streams[job.name]]
        held = None if job.usage is None else job.usage.held_seconds
        ways = {how for how, _ in reads}
        if ("stream" in ways and (not waits or None in waits)) or ("gate" in ways and held is None):
            # The job may have waited to the end.
            takes = min(took, known(job.ended) - max(known(source.ended) for _, source in reads))
        elif reads:
            waited = sum(wait or 0.0 for wait in waits) + (held or 0.0)
            # A reader that had taken all bytes may have worked on them, and not have waited.
            takes = max(took - waited, min(took, _worked(job)))
        if index in self._crowded:
            takes = min(takes, _worked(job))
        return max(0.0, takes)


def _started_again(history: History) -> set[str]:
    """Return the jobs whose command ran more than once, or that began more than once to read the same input."""
    times = Counter((reading.job, reading.input, reading.output) for reading in history.readings)
    return {job for (job, _, _), count in times.items() if count > 1} | history.tried_again


def _crowded(jobs: Sequence[JobAttempt]) -> set[int]:
    """Return the jobs that ran while the jobs of their location asked for more cores than it has, and used all."""
    found: set[int] = set()
    for of_location in grouped(enumerate(jobs), lambda one: one[1].location).values():
        changes = sorted(
            change
            for index, job in of_location
            for change in ((known(job.started), 1, index), (known(job.ended), 0, index))
        )
        running: dict[int, JobAttempt] = {}
        asked = used = 0.0
        for _, starts, index in changes:
            job, sign = jobs[index], 1 if starts else -1
            asked, used = asked + sign * (job.cores or 0.0), used + sign * _cores_used(job)
            if not starts:
                running.pop(index, None)
                continue
            running[index] = job
            limit = job.location_cores
            if limit is not None and asked > limit + 1e-6 and used > _ALL * limit:
                found.update(running)
    return found


def _cores_used(job: JobAttempt) -> float:
    """Return the mean number of cores that a job used: as measured, or else as declared."""
    if job.usage is None:
        return job.cores or 0.0
    return job.usage.cpu_seconds / max(known(job.ended) - known(job.started), 1e-9)


def _worked(job: JobAttempt) -> float:
    """Return the seconds that a job needs for its work, as far as is known."""
    usage = job.usage
    return 0.0 if usage is None else usage.cpu_seconds / max(1.0, job.cores or 1.0) + (usage.io_seconds or 0.0)


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
        code = code_of(line)
        yield line if code is None else f"{line}; more: streamflow-io explain {code}"
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
    if len(reason) > _LONGEST:
        code = code_of(reason)
        reason = f"{reason[:_LONGEST]}...{'' if code is None else f' [{code}]'}"
    if more := len({name for name, _ in found}) - 1:
        return f"Not delivered as asked: {what} and {counted(more, 'other')}; {what}: {reason}"
    return f"Not delivered as asked: {what}: {reason}"
