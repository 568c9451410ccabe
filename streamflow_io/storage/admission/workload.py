"""The jobs of one tool on one storage, as its learner sees them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Literal

from .epochs import Epoch, EpochEnded, Grid
from .objective import estimates
from .observations import Crowd, Group
from .registry import ConstraintRegistry

Reason = Literal["first", "learning", "learned", "remembered", "objective", "contradicted", "drifted", "too few jobs"]


@dataclass(frozen=True)
class Chosen:
    """The constraint is another one from now on.

    :ivar outstanding: jobs that run, wait, or are about to be submitted
    :ivar estimates: seconds until all of them have ended, by registered constraint
    """

    constraint: float
    reason: Reason
    outstanding: int
    estimates: dict[float, float]


@dataclass(frozen=True)
class NextStart:
    """How the next job may start.

    :ivar constraint: its storageBW, MB/s
    :ivar epoch: whose job it is then; none: of no epoch
    :ivar location: where it has to run; none: anywhere, if the epoch is full, else where no other job is kept out
    """

    constraint: float
    epoch: Epoch | None = None
    location: str | None = None

    @property
    def is_alone(self) -> bool:
        """Whether it is of a full epoch from which others are kept away."""
        return self.epoch is not None and self.epoch.full and self.epoch.alone


@dataclass
class _Running:
    """:ivar concurrency: how many ran with it when it started
    :ivar job_seconds: of its location, when it started
    """

    turn: NextStart
    location: str
    started: float
    concurrency: int
    job_seconds: float


class Workload:
    """Which jobs wait and run, what is registered of such jobs, and the constraint that was chosen for the next ones.

    :ivar waiting: jobs that wait
    :ivar ready: jobs that will be submitted when the one that waits has started
    :ivar spread: over how many locations the jobs are spread, each with a bandwidth of its own
    :ivar places: how many epochs may be on at the same time, each on a ground that it is given; 0: one, which needs no
        ground
    :ivar arrived: when more jobs came than were known of
    :ivar begun: how many jobs have started
    :ivar group: what has ended since the constraint was chosen
    :ivar events: what has happened, until somebody takes it
    """

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self.registry = ConstraintRegistry()
        self.constraint = 0.0
        self.waiting = self.ready = self.places = 0
        self.spread = 1
        self.arrived = 0.0
        self.begun = self._known = 0
        self.group = Group()
        self.events: list[EpochEnded | Chosen] = []
        self._running: dict[str, _Running] = {}
        self._crowds: defaultdict[str, Crowd] = defaultdict(Crowd)

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def left(self) -> int:
        """Jobs that wait, or are about to be submitted."""
        return self.waiting + self.ready

    @property
    def outstanding(self) -> int:
        """Jobs that run, wait, or are about to be submitted."""
        return self.left + self.running

    @property
    def share(self) -> int:
        """How many of these jobs are for one location."""
        return -(-self.outstanding // self.spread)

    def is_alone(self, epoch: Epoch) -> bool:
        """Whether of these jobs none but those of the epoch run on its ground."""
        return (self._crowds[epoch.ground].running if epoch.ground else self.running) == len(epoch.members)

    def count(self, now: float) -> None:
        """Notice whether more jobs are known of than before."""
        known = self.begun + self.left
        if known > self._known:
            self.arrived = now
        self._known = known

    def choose(self, constraint: float, reason: Reason) -> None:
        """Let the next jobs have another constraint."""
        if constraint == self.constraint and reason == "objective":
            return
        self.constraint = constraint
        self.group = Group()
        times = estimates(max(self.share, 1), self.registry)
        self.events.append(Chosen(constraint, reason, self.outstanding, times))

    def start(self, job: str, turn: NextStart, location: str, now: float) -> None:
        """A job that waited runs."""
        self.waiting -= 1
        self.begun += 1
        crowd = self._crowds[location]
        job_seconds = crowd.enter(now)
        self._running[job] = _Running(turn, location, now, crowd.running, job_seconds)
        if turn.epoch is not None:
            turn.epoch.admitted += 1
            turn.epoch.members.add(job)

    def leave(self, job: str, now: float) -> tuple[NextStart, int, float]:
        """A job does not run any more.

        :return: how it had started; the most that were seen to run at once with it; how many ran on average meanwhile
        """
        one = self._running.pop(job)
        crowd = self._crowds[one.location]
        concurrency = max(one.concurrency, crowd.running)
        if one.turn.epoch is not None:
            one.turn.epoch.members.discard(job)
        return one.turn, concurrency, crowd.leave(now, one.started, one.job_seconds)
