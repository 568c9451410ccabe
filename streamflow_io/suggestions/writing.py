"""What compute jobs wait for while they write in a rhythm: I/O tasks could move it beside them. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from streamflow_io.bandwidth.pacing import SMALL
from streamflow_io.bandwidth.rhythm import rhythm
from streamflow_io.grouping import grouped
from streamflow_io.records.history import History, Job
from streamflow_io.records.records import RequestRecord
from streamflow_io.wording import counted

from .hiding import HIDDEN, rate_text

_MB = 1e6
# Of the time of a job: who waits for less gains little by a step more.
_WORTH = 0.05
_LEAST_SECONDS = 1.0


@dataclass(frozen=True)
class Change:
    """A change of the workflow, which no annotation can make.

    :ivar subject: the path of the step
    :ivar saved: by how many seconds a job would have been shorter, at most
    """

    subject: str
    evidence: str
    saved: float

    @property
    def text(self) -> str:
        """The change in few words."""
        return "write to the node's storage, commit each file, and copy it by an I/O task with storageBW: required"


@dataclass(frozen=True)
class _WriteRhythm:
    """What a job writes.

    :ivar bytes: of a burst, the median
    :ivar moved: bytes of all of them
    :ivar waited: for how many seconds it waited for all of them
    """

    bytes: float
    moved: float
    period: float
    waited: float
    ran: float


def changes(history: History, jobs: Sequence[Job]) -> Iterator[Change]:
    """Steps that compute, of whose jobs at least half write in a rhythm, and wait for that for 5 percent of their time.

    What is so small that no I/O task is held to a rate for it, or was written at once because it went to memory only,
    gives no reason; nor does what would have to be moved nearly as fast as it was written.

    :param jobs: those that count
    """
    written = [one for one in history.requests if one.kind == "write" and one.direction == "write"]
    of_jobs = grouped(written, lambda one: one.job)
    for step, some in grouped(jobs, lambda job: job.step).items():
        if history.is_io_task(step):
            continue
        found = [one for job in some if (one := _rhythm(job, of_jobs.get(job.name, ()))) is not None]
        if len(found) >= len(some) / 2:
            yield from _change(step, found)


def _rhythm(job: Job, bursts: Collection[RequestRecord]) -> _WriteRhythm | None:
    regular = rhythm(one.ready for one in bursts)
    if job.usage is None or regular is None or not regular.is_regular:
        return None
    waited = sum(one.ended - one.started for one in bursts)
    size, moved = median(one.bytes for one in bursts), sum(one.bytes for one in bursts)
    return _WriteRhythm(size, moved, regular.period, waited, job.usage.ended - job.usage.started)


def _change(step: str, found: Sequence[_WriteRhythm]) -> Iterator[Change]:
    size, period = median(one.bytes for one in found), median(one.period for one in found)
    waited, ran = median(one.waited for one in found), median(one.ran for one in found)
    if size < SMALL or waited < max(_LEAST_SECONDS, _WORTH * ran):
        return
    required, reached = size / period, median(one.moved for one in found) / waited
    if required <= HIDDEN * reached:
        writes = f"{counted(len(found), 'job')}: {size / _MB:.0f} MB each {period:.1f} s"
        rates = f"{rate_text(required / _MB)} would do, {rate_text(reached / _MB)} were reached"
        yield Change(step, f"{writes}, for which a job waited {waited:.1f} of {ran:.1f} s: {rates}", waited)
