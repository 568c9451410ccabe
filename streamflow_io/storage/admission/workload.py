"""The jobs of one tool on one storage, as its learner sees them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from typing import Literal

from msgspec import Struct

from .epochs import Crowd, Epoch, EpochEnded, Grid, Group
from .registry import ConstraintRegistry

Reason = Literal["first", "learning", "learned", "remembered", "objective", "contradicted", "too few jobs"]


class Chosen(Struct, frozen=True):
    """A change of the constraint."""

    constraint: float
    reason: Reason


class NextStart(Struct, frozen=True):
    """How the next job may start.

    :ivar constraint: the storageBW, in MB/s
    :ivar epoch: the epoch that the job belongs to then. None: no epoch
    :ivar location: where the job has to run. None: anywhere, if the epoch is full; otherwise where no other job is kept
        out
    """

    constraint: float
    epoch: Epoch | None = None
    location: str | None = None

    @property
    def is_alone(self) -> bool:
        """Whether the job belongs to a full epoch that keeps other jobs away."""
        return self.epoch is not None and self.epoch.full and self.epoch.alone


class _StartedJob(Struct):
    """A running job.

    :ivar concurrency: how many jobs ran at the location when the job had started, itself included
    :ivar job_seconds: the :meth:`Crowd.job_seconds` of the location at the start of the job
    """

    turn: NextStart
    location: str
    started: float
    concurrency: int
    job_seconds: float


class Workload:
    """The waiting and running jobs, their registry, and the constraint that was chosen for the next jobs.

    :ivar waiting: number of jobs that wait
    :ivar ready: number of jobs that will be submitted when the waiting one has started
    :ivar lacking: the waiting jobs that have given back their start, because they lack something else
    :ivar spread: how many locations with a bandwidth of their own the jobs are spread over
    :ivar places: how many epochs may be on at the same time, each on an assigned location. 0: one epoch, without a
        location
    :ivar arrived: when the number of known jobs last grew
    :ivar begun: how many jobs have started
    :ivar group: observations since the constraint was chosen
    :ivar events: events that have not been taken yet
    """

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self.registry = ConstraintRegistry()
        self.constraint = 0.0
        self.waiting = self.ready = self.places = 0
        self.lacking: set[Hashable] = set()
        self.spread = 1
        self.arrived = 0.0
        self.begun = self._known = 0
        self.group = Group()
        self.events: list[EpochEnded | Chosen] = []
        self._running: dict[Hashable, _StartedJob] = {}
        self._crowds: defaultdict[str, Crowd] = defaultdict(Crowd)

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def left(self) -> int:
        """How many jobs wait, or are about to be submitted."""
        return self.waiting + self.ready

    @property
    def are_all_lacking(self) -> bool:
        """Whether all waiting jobs lack something else than bandwidth. Perhaps only jobs of other tools free that."""
        return bool(self.lacking) and self.waiting <= len(self.lacking)

    @property
    def outstanding(self) -> int:
        """How many jobs run, wait, or are about to be submitted."""
        return self.left + self.running

    @property
    def share(self) -> int:
        """The number of outstanding jobs per location, rounded up."""
        return -(-self.outstanding // self.spread)

    def is_alone(self, epoch: Epoch) -> bool:
        """Whether no job of this tool but those of the epoch runs on its location."""
        return (self._crowds[epoch.location].running if epoch.location else self.running) == len(epoch.members)

    def count(self, now: float) -> None:
        """Note the time if the number of known jobs has grown."""
        known = self.begun + self.left
        if known > self._known:
            self.arrived = now
        self._known = known

    def choose(self, constraint: float, reason: Reason) -> None:
        """Set the constraint of the next jobs."""
        if constraint == self.constraint and reason == "objective":
            return
        self.constraint = constraint
        self.group = Group()
        self.events.append(Chosen(constraint, reason))

    def start(self, job: Hashable, turn: NextStart, location: str, now: float) -> None:
        """Start a waiting job."""
        self.withdraw(job)
        self.begun += 1
        crowd = self._crowds[location]
        job_seconds = crowd.enter(now)
        self._running[job] = _StartedJob(turn, location, now, crowd.running, job_seconds)
        if turn.epoch is not None:
            turn.epoch.admitted += 1
            turn.epoch.members.add(job)

    def withdraw(self, job: Hashable) -> None:
        """Remove a waiting job."""
        self.waiting -= 1
        self.lacking.discard(job)

    def give_back(self, job: Hashable, now: float) -> None:
        """Let a job wait again, because it lacks something else than bandwidth."""
        self.waiting += 1
        self.lacking.add(job)
        if job in self._running:
            turn, _, _ = self.leave(job, now)
            self.begun -= 1
            if turn.epoch is not None:
                turn.epoch.admitted -= 1

    def leave(self, job: Hashable, now: float) -> tuple[NextStart, int, float]:
        """Remove a running job.

        :return: how the job had started; the most jobs that were seen to run at once with it; their mean number
            meanwhile
        """
        one = self._running.pop(job)
        crowd = self._crowds[one.location]
        concurrency = max(one.concurrency, crowd.running)
        if one.turn.epoch is not None:
            one.turn.epoch.members.discard(job)
        return one.turn, concurrency, crowd.leave(now, one.started, one.job_seconds)
