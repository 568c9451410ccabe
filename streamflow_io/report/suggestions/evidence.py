"""The evidence for and against hints, from the observed jobs of a run."""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterable, Iterator, Sequence
from statistics import fmean

from streamflow_io.graph.io_graph import Delivery, OutputKind
from streamflow_io.grouping import grouped
from streamflow_io.hints.commit import CommitRule
from streamflow_io.installed_features import subclass_of
from streamflow_io.records.files import InputRecord, OutputRecord, RouteRecord
from streamflow_io.records.history import History, JobAttempt
from streamflow_io.report.analysis.network import known
from streamflow_io.wording import counted, how_often

from .proposal import CommitHint, GateHint, IOTaskHint, Proposal, Refusal, StreamHint

# A smaller gain, in seconds, is not worth a hint.
EARLY = 0.2
# A program opens its input some 10 ms after its start, or later where all cores are busy.
_LEAD = 0.5
# A number that could differ with other inputs counts as certain when it was seen this often.
_OFTEN_CLOSED = 2
# A step is bound by I/O if it waited for devices for more than this share of its time, and computed for less.
_IO_BOUND = 0.5
_MEASURABLE = 1.0
# Operations that a reader does where it can; most readers do without them, some fail.
_OPTIONAL = frozenset(("probed",))

_HOW = {
    "opened again": "opens it more than once",
    "mapped": "maps it into memory",
    "sought": "jumps in it",
    "read at a position": "reads it at positions",
    "opened for writing": "opens it for writing",
    "executed": "executes it",
    "asked by path": "asks for its size or kind by path, and would wait for the whole file",
    "probed": "looks at its end, or goes back over what it has read",
    "unknown": "uses it in a way that cannot be seen",
}


class SplitEvidence:
    """Finds splits that could write nothing. A feature has the rules for that; there is none here."""

    def proposals(self, history: History, jobs: Sequence[JobAttempt]) -> Iterator[Proposal | Refusal]:
        """The outputs that jobs have made of parts of an input."""
        return iter(())


def evidence(history: History, jobs: Sequence[JobAttempt]) -> Iterator[Proposal | Refusal]:
    """Yield all hints that were looked for, with the evidence for or against each. The gains are not known yet.

    :param jobs: the jobs that count
    """
    splits = list(subclass_of(SplitEvidence)().proposals(history, jobs))
    yield from splits
    # A part that is not written is neither committed nor streamed.
    virtual = {one.subject for one in splits if isinstance(one, Proposal)}
    routes = [route for route in history.routes if route.output not in virtual]
    yield from _commits(routes, jobs)
    streams = list(_streams(history, routes, jobs))
    yield from streams
    streamed = {one.hint.output for one in streams if isinstance(one, Proposal) and isinstance(one.hint, StreamHint)}
    yield from _gates(history, routes, jobs, streamed)
    yield from _io_tasks(history, jobs, {posixpath.dirname(output) for output in virtual})


def _commits(found: Sequence[RouteRecord], jobs: Sequence[JobAttempt]) -> Iterator[Proposal | Refusal]:
    for output, routes in grouped(found, lambda route: route.output).items():
        step, port = posixpath.split(output)
        written = [record for job in jobs if job.step == step for record in job.outputs if record.port == port]
        is_list = routes[0].kind is OutputKind.FILES and any(route.by_element for route in routes)
        if routes[0].kind is not OutputKind.FILE and not is_list:
            # Such an output is complete with a number of files, which one run does not tell.
            continue
        if (reason := _never_early(routes)) is not None:
            yield Refusal(output, "on_close", reason)
        elif not written:
            yield Refusal(output, "on_close", "nothing was seen of it")
        else:
            yield _by_close(output, written)


def _never_early(routes: Iterable[RouteRecord]) -> str | None:
    """Return why no consumer can have an output before its job ends. None: some consumer can."""
    reasons = []
    for route in routes:
        if route.delivery is not Delivery.TERMINATION:
            reasons.append(f"is delivered early to {route.input} already")
        elif route.not_at_commit is None:
            return None
        else:
            reasons.append(route.not_at_commit)
    return "; ".join(dict.fromkeys(reasons))


def _by_close(output: str, written: Sequence[OutputRecord]) -> Proposal | Refusal:
    files = sum(record.files for record in written)
    least, most = min(record.closes for record in written), max(record.most_closes for record in written)
    if least == 0:
        return Refusal(output, "on_close", "it was not seen to be closed before its job ended")
    leads = [record.ended - record.last_close for record in written if record.last_close is not None]
    if least != most:
        return Refusal(output, "on_close", f"it was closed {least} to {most} times")
    if fmean(leads) < EARLY:
        return Refusal(output, "on_close", "it is closed when its job ends")
    if most > 1 and files < _OFTEN_CLOSED:
        reason = f"it was closed {most} times, by the only job: nothing tells that it always is"
        return Refusal(output, f"on_close:{most}", reason)
    evidence = (
        f"{counted(len({record.job for record in written}), 'job')}, {counted(files, 'file')} ({_names(written)}): "
        f"closed {how_often(most)}, on average {fmean(leads):.1f} s before the job ended"
    )
    return Proposal(CommitHint(output), evidence, CommitRule("on_close", most), lead=max(leads))


def _streams(
    history: History, routes: Sequence[RouteRecord], jobs: Sequence[JobAttempt]
) -> Iterator[Proposal | Refusal]:
    for route in routes:
        if route.kind is OutputKind.OTHER or route.delivery is not Delivery.TERMINATION:
            continue
        subject = f"{route.output} -> {route.input}"
        step, port = posixpath.split(route.output)
        consumer, name = posixpath.split(route.input)
        written = [record for job in jobs if job.step == step for record in job.outputs if record.port == port]
        used = [record for job in jobs if job.step == consumer for record in job.inputs if record.input == name]
        reason = _never_streamed(route, written, used)
        if reason is not None:
            yield Refusal(subject, "streamable", reason)
            continue
        readers = counted(len({record.job for record in used if record.opens}), "job")
        evidence = f"{readers} read it once, front to back"
        hint, is_sure = StreamHint(route.output, route.input), route.standard_output
        if optional := {reason for record in used for reason in record.reasons}:
            how = " and ".join(_HOW[reason] for reason in sorted(optional))
            evidence, is_sure = f"{evidence}, but {consumer} {how}, where it can", False
        elif is_sure:
            evidence += "; it is a standard output"
        if not route.standard_output:
            evidence += "; how it is written was not seen"
        leads = [_streamed_seconds(history, job, name) for job in jobs if job.step == consumer]
        if fmean(leads) < EARLY:
            yield Refusal(subject, "streamable", f"{evidence}, but no job would have ended earlier")
        else:
            yield Proposal(hint, evidence, is_sure=is_sure, lead=max(leads))


def _streamed_seconds(history: History, job: JobAttempt, name: str) -> float:
    """Return the seconds of a job, less those after it had read all of an input, if it began to write only then.

    A job that wrote before, as `sed` does, works as it reads. A file that is read in one go does not show how long the
    job works on it afterwards.
    """
    records = [record for record in job.inputs if record.input == name]
    reads = [history.since_start(record.read) for record in records if record.read is not None and record.whole]
    is_seen = reads and len(reads) == len(records)
    return min(known(job.ended), max(reads) if is_seen else known(job.ended)) - known(job.started)


def _never_streamed(route: RouteRecord, written: Sequence[OutputRecord], used: Sequence[InputRecord]) -> str | None:
    if route.not_streamed is not None:
        return route.not_streamed
    consumer = posixpath.dirname(route.input)
    if not used or not written:
        return "nothing was seen of it"
    reasons = {reason for record in used for reason in record.reasons} - _OPTIONAL
    # Another operation of a program says more than that the program reads again.
    if more := reasons - {"opened again"}:
        return f"{consumer} " + " and ".join(_HOW.get(reason, reason) for reason in sorted(more))
    opens = max(record.opens for record in used)
    if opens > 1 or reasons:
        return f"{consumer} reads it twice" if opens == 2 else f"{consumer} reads it {opens} times"
    if opens == 0:
        return f"{consumer} was not seen to open it"
    if not all(record.sequential or record.reasons for record in used if record.opens):
        return f"{consumer} does not read it front to back"
    if max(record.most_closes for record in written) > 1:
        return f"{posixpath.dirname(route.output)} writes it in several goes"
    return None


def _gates(
    history: History, found: Sequence[RouteRecord], jobs: Sequence[JobAttempt], streamed: Collection[str]
) -> Iterator[Proposal]:
    """Yield proposals of gates. A gate suits every program; the time before readers open their inputs decides."""
    for output, routes in grouped(found, lambda route: route.output).items():
        if output in streamed or not all(map(_can_be_gated, routes)):
            continue
        leads = [
            lead
            for consumer, name in dict.fromkeys(posixpath.split(route.input) for route in routes)
            for job in jobs
            if job.step == consumer
            and job.started is not None
            and (lead := _untouched(history, [record for record in job.inputs if record.input == name], job.started))
            is not None
        ]
        if leads and fmean(leads) >= _LEAD:
            evidence = f"{counted(len(leads), 'reader')} worked {fmean(leads):.1f} s on average before touching it"
            yield Proposal(GateHint(output), evidence, lead=max(leads))


def _untouched(history: History, records: Sequence[InputRecord], started: float) -> float | None:
    """Return the seconds that a job worked before it would have waited for a file at the gate. None: unknown."""
    times = [record.first if record.touched is None else record.touched for record in records]
    known = [history.since_start(time) for time in times if time is not None]
    return max(min(known) - started, 0.0) if known else None


def _can_be_gated(route: RouteRecord) -> bool:
    early = route.delivery is not Delivery.TERMINATION
    # The elements of a list are gated one by one.
    fits = route.kind in (OutputKind.FILE, OutputKind.DIRECTORY) or route.by_element
    return fits and not early and route.not_at_commit is None and route.not_at_gate is None


def _io_tasks(history: History, jobs: Sequence[JobAttempt], splits: Collection[str]) -> Iterator[Proposal | Refusal]:
    for step in dict.fromkeys(job.step for job in jobs):
        usages = [job.usage for job in jobs if job.step == step and job.usage is not None]
        waits = [usage.io_seconds for usage in usages if usage.io_seconds is not None]
        seconds = sum(usage.ended - usage.started for usage in usages)
        if step in splits or history.is_io_task(step) or not waits or len(waits) < len(usages):
            continue
        share, computed = sum(waits) / max(seconds, 1e-9), sum(usage.cpu_seconds for usage in usages)
        if share < _IO_BOUND:
            continue
        what = f"{sum(waits):.1f} of {seconds:.1f} s in I/O"
        if seconds < _MEASURABLE:
            yield Refusal(step, "IOTask", f"{what}: too short to measure")
        elif computed / seconds >= _IO_BOUND:
            yield Refusal(step, "IOTask", f"{what}, but it computes as well: {computed:.1f} s")
        else:
            evidence = f"{counted(len(usages), 'job')}: {what}, {computed:.1f} s of computing"
            yield Proposal(IOTaskHint(step), evidence)


def _names(written: Sequence[OutputRecord]) -> str:
    names = list(dict.fromkeys(record.path for record in written))
    return ", ".join(names[:2]) + (", ..." if len(names) > 2 else "")
