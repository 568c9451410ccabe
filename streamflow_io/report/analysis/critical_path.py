"""The critical path of a run: the causes of its duration, from the end back to the start.

At each time one thing is on the path: a job that ran, a cause for which a job waited, or StreamFlow between two jobs.

The path leads from a job to the job that gave the last of its inputs. A job may have waited for bytes for longer than
its producer waited for it, or may have been held at the gate. From such a job the path leads to that producer, at the
last byte or commit.

Which job had a core while another waited for one is not followed: the path stays with the data. StreamFlow submits the
jobs of a step one after the other, each when the one before has a place. So the path also leads from a job that waited
for its turn to the job before it.

Times are seconds since the start of the run.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from typing import Literal

from streamflow_io.records.files import ReadingRecord
from streamflow_io.records.history import History, JobAttempt
from streamflow_io.records.jobs import DelayCause

from .model import AnalysisModel
from .network import SOON, Network

# StreamFlow itself starts a job sooner than that.
_LONG = 2.0
# StreamFlow submits the next job of a step this soon after the one before has a place.
_TURN = 0.5

#: `ran`: a job ran. `tail`: a job went on after the last byte that it had waited for. `waited`: a job waited to be
#: started. `between`: the inputs of a job were there, and the job was not submitted yet. `begin`, `end`: of the run.
What = Literal["ran", "tail", "waited", "between", "begin", "end"]


class PathSpan(AnalysisModel):
    """A part of the path.

    :ivar job: None at the beginning and at the end of the run
    :ivar cause: the cause for which a job waited longest. None: unknown, or StreamFlow itself
    :ivar source: in a `tail`, the job that wrote or committed what the job had waited for
    """

    begin: float
    end: float
    what: What
    job: str | None = None
    step: str | None = None
    cause: DelayCause | None = None
    source: str | None = None

    @property
    def seconds(self) -> float:
        return self.end - self.begin

    @property
    def is_overhead(self) -> bool:
        """Whether the span is StreamFlow's own time, as far as is known."""
        if self.what == "waited":
            return self.cause is None and self.seconds < _LONG
        return self.what in ("between", "begin", "end")


def critical_path(history: History) -> list[PathSpan]:
    """Return the spans of the path, in order, from the start of the run to its end. Empty: no job began."""
    return _Path(history).spans()


class _Path:
    def __init__(self, history: History) -> None:
        self._history = history
        self._jobs = history.jobs
        self._network = Network(history, history.jobs)
        # When the jobs of each step got a place.
        self._turns: defaultdict[str, list[tuple[float, int]]] = defaultdict(list)
        for index, job in enumerate(self._jobs):
            placed = job.started if job.admitted is None else job.admitted
            if placed is not None:
                self._turns[job.step].append((placed, index))
        for turns in self._turns.values():
            turns.sort()

    def spans(self) -> list[PathSpan]:
        found: list[PathSpan] = []
        index = self._last()
        if index is None:
            return []
        until = self._end(index)
        if self._history.seconds > until:
            found.append(PathSpan(begin=until, end=self._history.seconds, what="end"))
        seen: set[int] = set()
        while index not in seen:
            seen.add(index)
            job = self._jobs[index]
            if (awaited := self._awaited(index, until)) is not None and awaited[0] not in seen:
                source, came = awaited
                found.append(self._of(job, came, until, "tail", source=self._jobs[source].name))
                index, until = source, came
                continue
            found += self._own(job, until)
            submitted = min(job.submitted or 0.0, until if job.started is None else job.started, until)
            before = self._before(index, submitted, seen)
            if before is None:
                found.append(PathSpan(begin=0.0, end=submitted, what="begin"))
                break
            index, came = before
            found.append(self._of(job, came, submitted, "between"))
            until = came
        return [span for span in reversed(found) if span.end > span.begin]

    def _last(self) -> int | None:
        """Return the job that ended last; where the run failed, the one that failed first."""
        begun = [index for index, job in enumerate(self._jobs) if job.started is not None]
        failed = [index for index in begun if self._jobs[index].status == "failed"]
        if self._history.status == "failed" and failed:
            final = {self._network.attempts(self._jobs[index].name)[-1] for index in failed}
            return min(final & set(failed) or set(failed), key=self._end)
        return max(begun, key=self._end, default=None)

    def _end(self, index: int) -> float:
        ended = self._jobs[index].ended
        return self._history.seconds if ended is None else ended

    def _own(self, job: JobAttempt, until: float) -> Iterator[PathSpan]:
        """Yield the spans of a job until a time that depend on no other job, the last first."""
        started = until if job.started is None else min(job.started, until)
        began = min(self._history.begun(job) or started, until)
        yield self._of(job, began, until, "ran")
        yield self._of(job, started, began, "waited", cause="queue")
        cause = max(job.waited, key=lambda one: job.waited[one], default=None)
        if cause is not None and job.waited[cause] < SOON:
            cause = None
        yield self._of(job, min(job.submitted or 0.0, started), started, "waited", cause=cause)

    def _of(
        self,
        job: JobAttempt,
        begin: float,
        end: float,
        what: What,
        cause: DelayCause | None = None,
        source: str | None = None,
    ) -> PathSpan:
        return PathSpan(begin=begin, end=end, what=what, job=job.name, step=job.step, cause=cause, source=source)

    def _awaited(self, index: int, until: float) -> tuple[int, float] | None:
        """Return the producer for which a job waited last, and until when."""
        job = self._jobs[index]
        if job.started is None:
            return None
        found = []
        for reading in self._network.readings[job.name]:
            for name in reading.sources:
                source = self._network.attempt(name, index)
                if source is None or self._end(source) <= job.started:
                    continue
                came = self._came(job, reading, source)
                if came is not None and job.started < came <= until:
                    found.append((came, source))
        if not found:
            return None
        came, source = max(found)
        return source, min(came, self._end(source))

    def _came(self, job: JobAttempt, reading: ReadingRecord, source: int) -> float | None:
        """Return when a job had read all of a producer's output. None: the job did not wait for the output."""
        if reading.delivery != "gate":
            name = self._jobs[source].name
            for stream in self._network.streams[job.name]:
                if stream.source == name and reading.output in stream.outputs and stream.input in (None, reading.input):
                    if stream.waited is not None and stream.waited < max(SOON, stream.behind or 0.0):
                        return None
                    return self._end(source) if stream.last is None else self._history.since_start(stream.last)
        # Without a stream, a job that was held has waited for the whole file.
        if job.usage is None or job.usage.held_seconds is None:
            has_waited = reading.delivery == "gate"
        else:
            has_waited = job.usage.held_seconds >= SOON
        return self._committed_at(source, reading.output) or self._end(source) if has_waited else None

    def _before(self, index: int, submitted: float, seen: set[int]) -> tuple[int, float] | None:
        """Return the job that gave the last input with which a job was submitted, and when."""
        job = self._jobs[index]
        found = [
            (min(self._end(other), submitted), other)
            for other in self._network.attempts(job.name)
            if other < index and self._end(other) <= submitted + SOON
        ]
        sources = self._network.read_early(index)
        for other in (self._network.upstream(index) | sources) - seen:
            if self._jobs[other].started is None:
                continue
            given = self._gave(other, job, submitted, is_read_early=other in sources)
            if given is not None:
                found.append((min(given, submitted), other))
        if (turn := self._turn(index, submitted, seen)) is not None:
            found.append(turn)
        if not found:
            return None
        given, other = max(found)
        return other, given

    def _turn(self, index: int, submitted: float, seen: set[int]) -> tuple[float, int] | None:
        """Return the job of the same step that was placed just before, and when. None: no job waited for its turn."""
        turns = self._turns[self._jobs[index].step]
        for place in range(bisect_right(turns, (submitted + SOON, len(self._jobs))) - 1, -1, -1):
            placed, other = turns[place]
            if placed < submitted - _TURN:
                break
            begun = self._jobs[other].submitted
            if other != index and other not in seen and begun is not None and begun < min(submitted, placed - SOON):
                return min(placed, submitted), other
        return None

    def _gave(self, other: int, job: JobAttempt, submitted: float, *, is_read_early: bool) -> float | None:
        """Return when a job gave another an input to be submitted with. None: no input before that."""
        if self._end(other) <= submitted + SOON:
            return self._end(other)
        giver = self._jobs[other]
        outputs = self._network.early.get((giver.step, job.step), ())
        at = [self._history.since_start(one.last) for one in self._network.commits[giver.name] if one.output in outputs]
        early = max((time for time in at if time <= submitted + SOON), default=None)
        if early is not None and not is_read_early:
            return early
        # The output was read while the job ran, so the time counts at which the job had begun.
        return giver.started if is_read_early and (giver.started or 0.0) <= submitted + SOON else None

    def _committed_at(self, index: int, output: str) -> float | None:
        times = [one.last for one in self._network.commits[self._jobs[index].name] if one.output == output]
        return self._history.since_start(max(times)) if times else None
