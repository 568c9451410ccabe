"""Decides which jobs may write to a disk, so that a limit is kept, and what space a job needs."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from math import ceil
from typing import Generic, Literal

from msgspec import Struct

from streamflow_io.graph.gangs import Gang
from streamflow_io.graph.io_graph import Route
from streamflow_io.records.learned.database import size_class_of, size_range
from streamflow_io.storage.admission.demand import J

#: `known`: a job with about as much input has been measured. `estimated`: jobs with more or less input have been.
#: `unknown`: no job of the step has ended.
Certainty = Literal["known", "estimated", "unknown"]
_WORSE: tuple[Certainty, ...] = ("known", "estimated", "unknown")
# The number of steps after a job that count.
_STEPS = 3


class ExpectedSize(Struct, frozen=True):
    """The size of all that a job will write.

    :ivar bytes: of an unknown job: those of its input files
    """

    bytes: int
    certainty: Certainty


class MeasuredSize(Struct, frozen=True):
    """The job of a size class that has written most.

    :ivar inputs: bytes of its input files
    :ivar written: bytes in its directories
    """

    inputs: int
    written: int


class StepSizes:
    """The largest jobs of each step, by the class of their input.

    An expected size is never below that of a job that was measured with as much input, or with more. For more input
    than any measured job had, and more than 1 MiB, the size grows with the input. From a job without input it does not.
    """

    def __init__(self) -> None:
        self._known: dict[str, dict[int, MeasuredSize]] = defaultdict(dict)

    def measured(self, step: str, inputs: int, written: int) -> None:
        """Note what a job has written."""
        of_class, known = size_class_of(inputs), self._known[step]
        if of_class not in known or known[of_class].written < written:
            known[of_class] = MeasuredSize(inputs, written)

    def expect(self, step: str, inputs: int) -> ExpectedSize:
        """Return what a job will write."""
        known, of_class = self._known.get(step), size_class_of(inputs)
        if not known:
            return ExpectedSize(inputs, "unknown")
        if of_class in known:
            return ExpectedSize(_scaled(known[of_class], inputs), "known")
        larger = [each for each in known if each > of_class]
        if larger:
            return ExpectedSize(known[min(larger)].written, "estimated")
        return ExpectedSize(_scaled(known[max(known)], inputs), "estimated")

    def all(self) -> Iterator[tuple[str, int, MeasuredSize]]:
        """Yield what is known: the step, the class of the input, and the largest job."""
        for step, known in self._known.items():
            for of_class, measured in known.items():
                yield step, of_class, measured


def _scaled(measured: MeasuredSize, inputs: int) -> int:
    # Streams of unknown size count nothing. So a job without input says nothing about more input.
    if measured.inputs == 0:
        return measured.written
    # Few bytes are parameters: how much a job writes does not depend on their number.
    least = max(measured.inputs, size_range(0)[1])
    return ceil(measured.written * max(inputs, least) / least)


class DiskDemand(Struct, Generic[J], frozen=True):
    """The space that a job asks for.

    :ivar size: bytes that the job will write, with those of all jobs that run at the same time because of streams
    :ivar certainty: of the size
    :ivar own: bytes that the job alone will write
    :ivar ahead: bytes that have to be free beside the output of the job, so that a job that reads the output can run
    :ivar frees: bytes that can be removed when the job has ended
    """

    job: J
    size: int
    certainty: Certainty = "known"
    own: int = 0
    ahead: int = 0
    frees: int = 0

    @property
    def needs(self) -> int:
        """The bytes that have to be free for a start while others run."""
        return self.size + max(0, self.ahead - self.frees)


class _Reservation(Struct):
    """The space of a running job.

    :ivar bytes: all that is reserved
    :ivar own: the part that no other job of its gang gets
    """

    bytes: int
    own: int


class DiskLedger(Generic[J]):
    """The space of a disk: what lies there, what running jobs may still write, and the jobs that wait for space.

    Any hashable object stands for a job.

    Guarantee: if no job writes more than was expected, the sum of all files stays within the limit. Exceptions: a call
    of :meth:`exceed`, and a gang that has reserved too little.

    Jobs whose end frees more than they write are preferred: other jobs leave them their space.

    :param limit: bytes
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._held = 0
        self._reserved: dict[J, _Reservation] = {}
        # By job: the bytes by which it makes the files more, and a number in the order of arrival.
        self._waiting: dict[J, tuple[int, int, DiskDemand[J]]] = {}
        # The same, best first.
        self._order: list[tuple[int, int, DiskDemand[J]]] = []
        self._arrived = 0
        self._allowed: set[J] = set()
        self._exceeding: set[J] = set()

    @property
    def free(self) -> int:
        """The bytes that no file has, and no job; below 0: the limit is exceeded."""
        return self.limit - self._held - sum(reservation.bytes for reservation in self._reserved.values())

    @property
    def is_idle(self) -> bool:
        """Whether no running job has space."""
        return not self._reserved

    @property
    def waiting(self) -> list[DiskDemand[J]]:
        """The jobs that wait for space, best first."""
        return [demand for _, _, demand in self._order]

    def measured(self, held: int) -> None:
        """Note the bytes of all files of ended jobs."""
        self._held = held

    def may_start(self, demand: DiskDemand[J], spared: int | None = 0) -> bool:
        """Whether a job may start now. If not, the job waits for space.

        :param spared: bytes of the free space that are for others; None: no other job is preferred
        """
        fits = self._fits(demand, spared)
        if not fits:
            self._wait(demand)
        return fits

    def start(self, demand: DiskDemand[J], spared: int = 0) -> None:
        """Reserve the space of a job. A job of unknown size gets all that is free.

        :param spared: bytes of the free space that are for others
        """
        size = demand.size if demand.certainty != "unknown" else max(demand.size, self.free - spared)
        self.withdraw(demand.job)
        self._reserved[demand.job] = _Reservation(size, demand.own)
        self._allowed.clear()

    def join(self, demand: DiskDemand[J], leader: J) -> None:
        """Reserve the space of a job that has to start, because another job of its gang runs.

        :param leader: the job that has reserved the space of the gang
        """
        self.withdraw(demand.job)
        if (reservation := self._reserved.get(leader)) is not None:
            reservation.bytes -= min(demand.own, max(0, reservation.bytes - reservation.own))
        self._reserved[demand.job] = _Reservation(demand.own, demand.own)

    def extend(self, job: J, size: int) -> None:
        """Reserve more space for a running job, also beyond the limit."""
        if (reservation := self._reserved.get(job)) is not None:
            reservation.bytes += size
            reservation.own += size

    def withdraw(self, job: J) -> None:
        """Note that a job does not wait any more."""
        self._forget(job)
        self._allowed.discard(job)
        self._exceeding.discard(job)

    def end(self, job: J) -> int:
        """Take back the space of a job: its files are among the measured ones, or it has none.

        :return: the bytes that the job had reserved
        """
        self.withdraw(job)
        reservation = self._reserved.pop(job, None)
        return 0 if reservation is None else reservation.bytes

    def merge(self, other: DiskLedger[J]) -> None:
        """Add all of another ledger, whose location has the same disk. The other one is not used any more."""
        self._held += other._held
        self._reserved.update(other._reserved)
        for demand in other.waiting:
            self._wait(demand)
        self._allowed |= other._allowed
        self._exceeding |= other._exceeding

    def allow(self, count: int) -> bool:
        """Let waiting jobs start that leave no space for others, because nothing else can go on.

        :param count: the number of jobs, the best ones: first those that leave space for the jobs after them
        :return: whether there are such jobs
        """
        fitting = [demand for demand in self.waiting if self._can_hold(demand)]
        fitting.sort(key=lambda demand: demand.needs > self.free)
        self._allowed.update(demand.job for demand in fitting[:count])
        return bool(fitting)

    def exceed(self) -> DiskDemand[J] | None:
        """Let the best waiting job start whose size is not known, because nothing else can go on.

        :return: the job; None: the limit forbids all waiting jobs
        """
        unsure = [demand for demand in self.waiting if demand.certainty != "known"]
        if not unsure or not self.is_idle or self.free <= 0:
            return None
        self._exceeding.add(unsure[0].job)
        return unsure[0]

    def _fits(self, demand: DiskDemand[J], spared: int | None) -> bool:
        if demand.job in self._exceeding:
            return True
        if demand.job in self._allowed or spared is None:
            return self._can_hold(demand)
        return self._can_hold(demand) and self._leaves_enough(demand, spared)

    def _can_hold(self, demand: DiskDemand[J]) -> bool:
        least = 1 if demand.certainty == "unknown" else 0
        return self.free >= max(demand.size, least)

    def _leaves_enough(self, demand: DiskDemand[J], spared: int) -> bool:
        """Whether a job leaves the space that is for others, and that of the waiting jobs that are preferred to it.

        A job that makes the files more, and cannot start anyway, keeps no space from others.
        """
        free = self.free
        left = free - demand.needs - spared
        known = self._waiting.get(demand.job)
        place = _net(demand), self._arrived if known is None else known[1]
        for net, number, other in self._order:
            # Thousands of jobs may wait, and each of them asks whenever a job has ended.
            if left < 0 or (net, number) >= place:
                break
            if other.job != demand.job and (net < 0 or other.needs <= free):
                left -= other.size
        return left >= 0

    def _wait(self, demand: DiskDemand[J]) -> None:
        known = self._waiting.get(demand.job)
        if known is None:
            number, self._arrived = self._arrived, self._arrived + 1
        elif known[2] != demand:
            number = known[1]
        else:
            return
        self._forget(demand.job)
        self._waiting[demand.job] = waiting = _net(demand), number, demand
        insort(self._order, waiting)

    def _forget(self, job: J) -> None:
        if (known := self._waiting.pop(job, None)) is not None:
            del self._order[bisect_left(self._order, known)]


def _net(demand: DiskDemand[J]) -> int:
    """The bytes by which a job makes the files more."""
    return demand.size - demand.frees


class SpaceGraph:
    """The steps of a workflow, as far as they matter for space.

    :param routes: how outputs reach inputs
    :param gangs: steps that run at the same time because of streams
    :param read_once: the outputs whose files go, each when the only job that reads the file has ended
    """

    def __init__(
        self,
        routes: Iterable[Route],
        gangs: Sequence[Gang],
        sizes: StepSizes,
        read_once: Collection[tuple[str, str]] = (),
    ) -> None:
        self._sizes = sizes
        self._gangs = {step: (number, gang) for number, gang in enumerate(gangs) for step in gang.steps}
        # By step: the steps that read its outputs. Loops lead back.
        self._after: dict[str, dict[str, None]] = defaultdict(dict)
        # By step: the steps whose outputs it reads.
        self._before: dict[str, dict[str, None]] = defaultdict(dict)
        # By step: whether the files that reach an input go with the job that reads them.
        self._goes: dict[str, dict[str, bool]] = defaultdict(dict)
        for route in routes:
            if (reader := route.consumer) is not None:
                self._after[route.output.step][reader.step] = None
                self._before[reader.step][route.output.step] = None
                goes = route.output.whole in read_once
                self._goes[reader.step][reader.port] = self._goes[reader.step].get(reader.port, True) and goes

    def gang(self, step: str) -> int | None:
        """The number of the gang of a step; None: the step is in no gang."""
        found = self._gangs.get(step)
        return None if found is None else found[0]

    def goes(self, step: str, port: str) -> bool:
        """Whether the files of an input go when the job that reads them has ended."""
        return self._goes[step].get(port, False)

    def together(self, step: str, has_ended: Callable[[str], bool]) -> set[str]:
        """Return the steps whose jobs have to start together with a job, because of streams.

        The jobs that this job reads from run, or have ended: they are not among them. Neither are the other readers
        of these jobs, unless another job reads from both.

        :param has_ended: whether the job of a step of the gang has ended
        """
        if step not in self._gangs:
            return set()
        members = {other for other in self._gangs[step][1].steps if not has_ended(other)}
        before = self._reached(step, self._before)
        found: set[str] = set()
        waiting = [*self._after.get(step, ())]
        while waiting:
            other = waiting.pop()
            if other in members and other not in before and other not in found and other != step:
                found.add(other)
                waiting += [*self._after.get(other, ()), *self._before.get(other, ())]
        return found

    @staticmethod
    def _reached(step: str, ways: Mapping[str, Iterable[str]]) -> set[str]:
        found: set[str] = set()
        waiting = [step]
        while waiting:
            new = set(ways.get(waiting.pop(), ())) - found
            found |= new
            waiting += new
        return found

    def demand(self, job: J, step: str, inputs: int, together: Iterable[str] = (), frees: int = 0) -> DiskDemand[J]:
        """Return the space that a job needs.

        :param inputs: bytes of its input files
        :param frees: bytes of those that go when the job has ended
        :param together: the steps whose jobs start with this one
        """
        own = self._sizes.expect(step, inputs)
        size, certainty = own.bytes, own.certainty
        for member in together:
            expected = self._sizes.expect(member, own.bytes)
            size += expected.bytes
            certainty = max(certainty, expected.certainty, key=_WORSE.index)
        ahead = self._ahead(step, own.bytes, _STEPS)
        return DiskDemand(job, size, certainty, own.bytes, ahead, frees)

    def _ahead(self, step: str, written: int, steps: int) -> int:
        """The bytes that have to be free for the jobs after one."""
        if not steps:
            return 0
        return max((self._passing(reader, written, steps - 1) for reader in self._after.get(step, ())), default=0)

    def _passing(self, step: str, inputs: int, steps: int) -> int:
        size = self._sizes.expect(step, inputs).bytes
        frees = inputs if all(self._goes[step].values()) else 0
        return max(size, size - frees + self._ahead(step, size, steps))
