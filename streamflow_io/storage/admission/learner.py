"""The learner: finds the storageBW of a tool's jobs while they run.

H. Elshazly et al., "Towards enabling I/O awareness in task-based programming models" (2021), 4.2.3: epochs of jobs
that run concurrently under one constraint; the constraint grows from epoch to epoch; the mean times go into a
constraint registry, over which an objective function chooses. Beyond the paper: epochs of several locations at the same
time, times proportional to bytes, registries that are remembered, and learning that is re-opened when the storage
drifts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from enum import Enum
from typing import Literal

from streamflow_io.hints.bandwidth import Bounds

from .epochs import Epoch, EpochEnded, Grid
from .learning import Learning
from .objective import best_constraint
from .observations import Group, Observation
from .registry import ConstraintRegistry
from .workload import Chosen, NextStart, Reason, Workload

# Remembered times that are wrong by more than this factor are forgotten.
CONTRADICTION = 2.0
# A mean time that departs from the registered one by more than this part re-opens learning.
DRIFT = 0.5
# So many jobs tell whether what is remembered still holds; fewer than the least tell nothing: one may be an exception.
_FIRST_JOBS, _LEAST_JOBS = 8, 3


class LearningPhase(Enum):
    """What a learner does; jobs run in each phase."""

    LEARNING = "epochs of growing constraints, with an empty registry"
    CONTINUING = "the same, from where an earlier run had no more jobs"
    PROVING = "nothing, until the first jobs show whether what is remembered still holds"
    WATCHING = "compares jobs with what is registered, group by group"
    RELEARNING = "epochs of the neighbours of a constraint whose time has drifted"


_Outcome = Literal["learned", "proved", "contradicted", "drifted"]
_NEXT: dict[tuple[LearningPhase, _Outcome], LearningPhase] = {
    (LearningPhase.LEARNING, "learned"): LearningPhase.WATCHING,
    (LearningPhase.CONTINUING, "learned"): LearningPhase.PROVING,
    (LearningPhase.PROVING, "proved"): LearningPhase.WATCHING,
    (LearningPhase.PROVING, "contradicted"): LearningPhase.LEARNING,
    (LearningPhase.WATCHING, "drifted"): LearningPhase.RELEARNING,
    (LearningPhase.RELEARNING, "learned"): LearningPhase.WATCHING,
}


class Learner:
    """The constraint of one tool's jobs on one storage.

    Tell it of every job: :meth:`submitted`, then :meth:`started` and :meth:`ended`, or :meth:`withdrawn`. A job starts
    by one of the :meth:`turns`.

    As long as fewer jobs are outstanding than fit at once on all locations, they run anywhere, and nothing is learned:
    the storage is not what they wait for. When there are enough, the epoch is full and nothing should disturb it
    (:attr:`is_exclusive`). If no more jobs come than there were, the epoch ends with those.

    :param bandwidth: of the storage, MB/s
    :param executors: the most jobs that may run at once
    :param bounds: of `auto(min,max,delta)`; none: `auto`
    :param remembered: what was learned in earlier runs; if that is not complete, learning goes on where it ended
    """

    def __init__(
        self,
        bandwidth: float,
        executors: int,
        bounds: Bounds | None = None,
        remembered: ConstraintRegistry | None = None,
    ) -> None:
        self._jobs = Workload(Grid(bandwidth, executors, bounds))
        self._learning: Learning | None = None
        self._remembered = remembered or ConstraintRegistry()
        self._has_jobs = self._says_too_few = False
        self._begin()

    def _begin(self) -> None:
        self._jobs.events.clear()
        registry = self._jobs.registry = self._usable(self._remembered)
        if not registry:
            self._learn(LearningPhase.LEARNING, "first")
        elif not registry.is_complete:
            self._learn(LearningPhase.CONTINUING, "remembered")
        else:
            self._phase = LearningPhase.PROVING
            self._jobs.choose(best_constraint(1, registry), "remembered")

    @property
    def registry(self) -> ConstraintRegistry:
        """What is known now."""
        return self._jobs.registry

    @property
    def is_learning(self) -> bool:
        return self._learning is not None

    @property
    def is_exclusive(self) -> bool:
        """Whether a full epoch is on: other I/O tasks would disturb it."""
        return any(epoch.is_on for epoch in self._epochs)

    @property
    def outstanding(self) -> int:
        """Jobs that run, wait, or are about to be submitted."""
        return self._jobs.outstanding

    @property
    def constraint(self) -> float:
        """The storageBW of the next job, MB/s; if none may start now, that of the last one."""
        return next(self.turns(), NextStart(self._jobs.constraint)).constraint

    def turns(self) -> Iterator[NextStart]:
        """How the next job may start, the best way first; there may be no way now."""
        return iter((NextStart(self._jobs.constraint),)) if self._learning is None else self._learning.turns()

    def unplaced(self) -> Iterator[Epoch]:
        """Full epochs that have no ground yet: somebody has to give them one, and to keep others away from it."""
        return (epoch for epoch in self._epochs if epoch.is_on and epoch.ground is None)

    def holds(self, epoch: Epoch) -> bool:
        """Whether an epoch still is full, and needs its ground."""
        return epoch.is_on and epoch in self._epochs

    def submitted(self, now: float, ready: int = 0) -> None:
        """One more job waits.

        :param ready: how many jobs more will be submitted when this one has started
        """
        self._has_jobs = True
        self._jobs.waiting += 1
        self._jobs.ready = ready
        if self._learning is not None:
            self._learning.fill(now)
        else:
            self._jobs.choose(best_constraint(self._jobs.share, self.registry), "objective")

    def expect(self, ready: int) -> None:
        """So many jobs more will be submitted when the one that waits has started."""
        self._jobs.ready = ready

    def resized(self, executors: int, spread: int = 1, places: int = 0, first: int = 0) -> None:
        """The locations of the jobs are others than before.

        :param executors: the most jobs that may run at once
        :param spread: over how many locations the jobs are spread, each with a bandwidth of its own
        :param places: how many epochs may be on at the same time, each on a ground that it is given; 0: one, which
            needs no ground
        :param first: how many jobs run at once in the first epoch of `auto`; 0: as many as there are executors
        """
        self._jobs.grid = replace(self._jobs.grid, executors=executors, first=first)
        self._jobs.spread, self._jobs.places = spread, places
        if not self._has_jobs:
            self._begin()
        if self.registry.is_complete:
            self._jobs.registry = self._usable(self.registry)

    def withdrawn(self, now: float) -> None:
        """A job that waited will not start."""
        self._jobs.waiting -= 1
        self._settle(now)

    def started(self, job: str, now: float, location: str = "", turn: NextStart | None = None) -> None:
        """A job that waited has started.

        :param location: whose bandwidth it uses; of a storage that all locations share, always the same
        :param turn: how; none: by the first of the turns
        """
        turn = turn or next(self.turns(), NextStart(self._jobs.constraint))
        self._jobs.start(job, turn, location, now)

    def returned(self, job: str, now: float) -> None:
        """A job has not started after all, and waits again."""
        turn, _, _ = self._jobs.leave(job, now)
        self._jobs.waiting += 1
        self._jobs.begun -= 1
        if turn.epoch is not None:
            turn.epoch.admitted -= 1
        self._settle(now)

    def no_more(self, now: float) -> None:
        """No further job will be submitted."""
        self._jobs.ready = 0
        self._settle(now, no_more=True)
        if self._learning is not None and not self.outstanding and not self._says_too_few:
            self._says_too_few = True
            self._jobs.choose(self._jobs.constraint, "too few jobs")

    def ended(self, job: str, observation: Observation | None, now: float) -> None:
        """A job has ended.

        :param observation: none if it failed: it does not count. One that was disturbed contradicts nothing
        """
        turn, concurrency, mean = self._jobs.leave(job, now)
        if observation is None:
            pass
        elif turn.epoch is not None:
            turn.epoch.add(observation, mean, concurrency)
        elif self._learning is None and turn.constraint == self._jobs.constraint and not observation.is_disturbed:
            self._jobs.group.add(observation, concurrency)
            self._compare()
        self._settle(now)

    def drain(self) -> list[EpochEnded | Chosen]:
        """What has happened since the last call."""
        events, self._jobs.events = self._jobs.events, []
        return events

    @property
    def _epochs(self) -> list[Epoch]:
        return [] if self._learning is None else self._learning.epochs

    # Phases

    def _go(self, outcome: _Outcome) -> None:
        """Go from one phase to the next."""
        phase = _NEXT[self._phase, outcome]
        if outcome == "contradicted" or outcome == "drifted":
            self._learn(phase, outcome)
            return
        self._phase, self._learning = phase, None
        if outcome == "learned":
            self._jobs.registry = replace(self.registry, is_complete=True)
            self._jobs.choose(best_constraint(self._jobs.share, self.registry), "learned")

    def _learn(self, phase: LearningPhase, reason: Reason) -> None:
        """Begin with the epochs of a phase."""
        self._phase = phase
        grid, number = self._jobs.grid, 0
        climb: Sequence[float] = ()
        if phase is LearningPhase.RELEARNING:
            plan: Iterable[float] = grid.neighbours(self._jobs.constraint)
        elif phase is LearningPhase.CONTINUING:
            lowest, *others = self.registry.entries
            if not others:
                climb = [constraint for constraint in grid.climb() if constraint < lowest.constraint]
            # Where more jobs at once were better than the first number, fewer are not tried.
            has_climbed = not others and lowest.constraint in grid.climb()
            plan = () if has_climbed else grid.growing(above=self.registry.constraints[-1])
            number = len(self.registry.entries)
        else:
            climb = grid.climb()
            plan, self._jobs.registry = (
                grid.growing(above=max(climb, default=0.0)),
                ConstraintRegistry(is_complete=False),
            )
        tries_all = phase is LearningPhase.RELEARNING or grid.bounds is not None
        self._learning = Learning(self._jobs, plan, climb, number, tries_all)
        if not self._learning.begin(reason):
            self._go("learned")

    def _settle(self, now: float, no_more: bool = False) -> None:
        if self._learning is not None and self._learning.settle(now, no_more):
            self._go("learned")

    def _compare(self) -> None:
        """Compare the jobs that have ended with what is registered of them, when they are a group."""
        jobs, entry = self._jobs, self.registry.get(self._jobs.constraint)
        assert entry is not None, "without an epoch the constraint is a registered one"
        proving = self._phase is LearningPhase.PROVING
        if len(jobs.group) < max(min(entry.concurrency, _FIRST_JOBS) if proving else entry.concurrency, _LEAST_JOBS):
            return
        if jobs.group.is_brief:
            return
        group, jobs.group = jobs.group, Group()
        # One job may be slow for any reason.
        mean, usual = (each.seconds(self.registry.job_bytes) for each in (group, group.without_slowest()))
        assert mean is not None
        assert usual is not None
        # With fewer at once than fit, jobs may be faster than registered, and that says nothing.
        expected = self.registry.seconds_at(group.concurrency)
        whole = group.concurrency >= entry.concurrency
        if proving:
            wrong = usual > expected * CONTRADICTION or (whole and mean < expected / CONTRADICTION)
            self._go("contradicted" if wrong else "proved")
        elif usual > expected * (1 + DRIFT) or (whole and mean < expected * (1 - DRIFT)):
            # What is far away has probably drifted as far; what is near is learned again.
            found = usual if usual > expected else mean
            jobs.registry = self.registry.scaled(found / expected, self.registry.constraints)
            self._go("drifted")

    def _usable(self, registry: ConstraintRegistry) -> ConstraintRegistry:
        """What holds for this bandwidth and so many executors."""
        grid = self._jobs.grid
        entries = [replace(entry, concurrency=grid.concurrency(entry.constraint)) for entry in registry.entries]
        entries = [entry for entry in entries if entry.concurrency > 0]
        # With the fewer jobs that there were at its end it was the best guess; now there may be enough.
        while entries and not registry.is_complete and entries[-1].jobs < entries[-1].concurrency:
            entries.pop()
        return replace(registry, entries=tuple(entries))
