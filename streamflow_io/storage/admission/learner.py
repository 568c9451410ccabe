"""The learner: finds the storageBW of a tool's jobs while they run.

Source: H. Elshazly et al., "Towards enabling I/O awareness in task-based programming models" (2021), 4.2.3. Jobs run in
epochs, concurrently under one constraint, and the constraint grows from epoch to epoch. The mean times go into a
constraint registry, and an objective function chooses from this registry.

Additions to the paper: epochs of several locations at the same time; times proportional to bytes; remembered
registries.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from msgspec.structs import replace

from streamflow_io.hints.bandwidth import Bounds

from .epochs import Epoch, EpochEnded, Grid, Group, Observation
from .learning import Learning
from .registry import ConstraintRegistry, best_constraint
from .workload import Chosen, NextStart, Reason, Workload

# Remembered times that are wrong by more than this factor are forgotten.
CONTRADICTION = 2.0
# The number of jobs that show whether remembered times still hold, and the least number. Fewer may be exceptions.
_FIRST_JOBS, _LEAST_JOBS = 8, 3


class Learner:
    """The constraint of one tool's jobs on one storage.

    Report every job: :meth:`submitted`, then :meth:`started` and :meth:`ended`, or :meth:`withdrawn`. A job starts by
    one of the :meth:`turns`.

    While fewer jobs are outstanding than fit at once on all locations, jobs run anywhere, and nothing is learned. The
    storage does not limit so few jobs. When there are enough jobs, the epoch is full and nothing should disturb it
    (:attr:`is_exclusive`). If no more jobs arrive, or all that wait lack something else, the epoch ends with the jobs
    that it has.

    :param bandwidth: bandwidth of the storage, in MB/s
    :param executors: the most jobs that may run at once
    :param bounds: the bounds of `auto(min,max,delta)`. None: `auto`
    :param remembered: registry of earlier runs. If the registry is not complete, learning continues where it ended
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
        # The first jobs are to show whether what is remembered still holds.
        self._is_proving = False
        self._begin()

    def _begin(self) -> None:
        self._jobs.events.clear()
        registry = self._jobs.registry = self._usable(self._remembered)
        if registry and registry.is_complete:
            self._is_proving, self._learning = True, None
            self._jobs.choose(best_constraint(1, registry), "remembered")
        else:
            self._learn("remembered" if registry else "first")

    @property
    def registry(self) -> ConstraintRegistry:
        """The constraint registry as it is now."""
        return self._jobs.registry

    @property
    def is_learning(self) -> bool:
        return self._learning is not None

    @property
    def is_exclusive(self) -> bool:
        """Whether a full epoch is on, which other I/O tasks would disturb."""
        return any(epoch.is_on for epoch in self._epochs)

    @property
    def outstanding(self) -> int:
        """The number of jobs that run, wait, or are about to be submitted."""
        return self._jobs.outstanding

    @property
    def constraint(self) -> float:
        """The storageBW of the next job, in MB/s. If no job may start now, the storageBW of the last one."""
        return next(self.turns(), NextStart(self._jobs.constraint)).constraint

    def turns(self) -> Iterator[NextStart]:
        """Return how the next job may start, best way first. Empty: no job may start now."""
        return iter((NextStart(self._jobs.constraint),)) if self._learning is None else self._learning.turns()

    def unplaced(self) -> Iterator[Epoch]:
        """Return the full epochs without a location.

        The caller assigns each epoch a location, and keeps other I/O tasks away from there.
        """
        return (epoch for epoch in self._epochs if epoch.is_on and epoch.location is None)

    def holds(self, epoch: Epoch) -> bool:
        """Whether an epoch is still full and needs its location."""
        return epoch.is_on and epoch in self._epochs

    def submitted(self, now: float, ready: int = 0) -> None:
        """Count one more waiting job.

        :param ready: how many further jobs will be submitted when this job has started
        """
        self._has_jobs = True
        self._jobs.waiting += 1
        self._jobs.ready = ready
        if self._learning is not None:
            self._learning.fill(now)
        else:
            self._jobs.choose(best_constraint(self._jobs.share, self.registry), "objective")

    def expect(self, ready: int) -> None:
        """Set how many further jobs will be submitted when the waiting job has started."""
        self._jobs.ready = ready

    def resized(
        self, executors: int, spread: int = 1, places: int = 0, first: int = 0, bandwidth: float | None = None
    ) -> None:
        """Take over a change of the jobs' locations, or of their storage.

        :param executors: the most jobs that may run at once
        :param spread: over how many locations the jobs are spread, each with a bandwidth of its own
        :param places: how many epochs may be on at the same time, each on an assigned location. 0: one epoch, without a
            location
        :param first: how many jobs run at once in the first epoch of `auto`. 0: as many as there are executors
        :param bandwidth: bandwidth of the storage, in MB/s. None: the bandwidth stays
        """
        before = self._jobs.grid
        bandwidth = before.bandwidth if bandwidth is None else bandwidth
        if before.bounds is not None:
            # The lowest constraint is tried in any case: one job may have more than the runs share.
            bandwidth = max(bandwidth, before.bounds.minimum)
        self._jobs.grid = replace(before, executors=executors, first=first, bandwidth=bandwidth)
        self._jobs.spread, self._jobs.places = spread, places
        if is_known := self.registry.is_complete:
            self._jobs.registry = self._usable(self.registry)
        if self._learning is not None:
            self._learning.resized()
        elif self.registry and self.registry.get(self._jobs.constraint) is None:
            self._jobs.choose(best_constraint(self._jobs.share, self.registry), "objective")
        if not self._has_jobs:
            self._begin()
        elif bandwidth != before.bandwidth and not self.registry and (is_known or not self._jobs.running):
            # The constraints of epochs follow from the bandwidth.
            self._begin()
            if self._learning is not None:
                self._learning.fill(self._jobs.arrived)

    def withdrawn(self, job: Hashable, now: float) -> None:
        """Remove a waiting job that will not start."""
        self._jobs.withdraw(job)
        self._settle(now)

    def started(self, job: Hashable, now: float, location: str = "", turn: NextStart | None = None) -> None:
        """Record the start of a waiting job.

        :param location: the location whose bandwidth the job uses. Always the same for a storage that all locations
            share
        :param turn: how the job has started. None: by the first of the turns
        """
        turn = turn or next(self.turns(), NextStart(self._jobs.constraint))
        self._jobs.start(job, turn, location, now)

    def returned(self, job: Hashable, now: float) -> None:
        """Take back the start of a job, also on another storage. The job waits again, for something else."""
        self._jobs.give_back(job, now)
        self._settle(now)

    def no_more(self, now: float) -> None:
        """Note that no further job will be submitted."""
        self._jobs.ready = 0
        self._settle(now, no_more=True)
        if self._learning is not None and not self.outstanding and not self._says_too_few:
            self._says_too_few = True
            self._jobs.choose(self._jobs.constraint, "too few jobs")

    def ended(self, job: Hashable, observation: Observation | None, now: float) -> None:
        """Record the end of a job.

        :param observation: time and bytes. None: the job has failed and does not count. A disturbed job contradicts
            nothing
        """
        turn, concurrency, mean = self._jobs.leave(job, now)
        if observation is None:
            pass
        elif turn.epoch is not None:
            turn.epoch.add(observation, mean, concurrency)
        elif self._is_compared(turn) and not observation.is_disturbed:
            self._jobs.group.add(observation, concurrency)
            self._compare()
        self._settle(now)

    def drain(self) -> list[EpochEnded | Chosen]:
        """Return the events since the last call."""
        events, self._jobs.events = self._jobs.events, []
        return events

    @property
    def _epochs(self) -> list[Epoch]:
        return [] if self._learning is None else self._learning.epochs

    # Phases

    def _learn(self, reason: Reason) -> None:
        """Begin the epochs of growing constraints. Known constraints of an earlier run are not tried again."""
        grid, number = self._jobs.grid, len(self.registry.entries)
        climb = grid.climb()
        if number:
            lowest, *others = self.registry.entries
            # Where more jobs at once were better than the first number, fewer are not tried.
            has_climbed = not others and lowest.constraint in climb
            plan = () if has_climbed else grid.growing(above=self.registry.constraints[-1])
            climb = [] if others else [constraint for constraint in climb if constraint < lowest.constraint]
        else:
            plan = grid.growing(above=max(climb, default=0.0))
            self._jobs.registry = ConstraintRegistry(is_complete=False)
        self._is_proving = number > 0
        self._learning = Learning(self._jobs, plan, climb, number)
        if not self._learning.begin(reason):
            self._learned()

    def _learned(self) -> None:
        self._learning = None
        self._jobs.registry = replace(self.registry, is_complete=True)
        self._jobs.choose(best_constraint(self._jobs.share, self.registry), "learned")

    def _settle(self, now: float, no_more: bool = False) -> None:
        if self._learning is not None and self._learning.settle(now, no_more):
            self._learned()

    def _is_compared(self, turn: NextStart) -> bool:
        return self._is_proving and self._learning is None and turn.constraint == self._jobs.constraint

    def _compare(self) -> None:
        """Compare the first jobs that have ended with the remembered time, once they are enough."""
        jobs, entry = self._jobs, self.registry.get(self._jobs.constraint)
        assert entry is not None, "without an epoch the constraint is a registered one"
        if len(jobs.group) < max(min(entry.concurrency, _FIRST_JOBS), _LEAST_JOBS):
            return
        group, jobs.group = jobs.group, Group()
        # A single job may be slow for any reason, so the slowest is left out.
        mean, usual = (each.seconds(self.registry.job_bytes) for each in (group, group.without_slowest()))
        assert mean is not None
        assert usual is not None
        # Jobs that run with fewer others than fit may be faster than registered, which shows nothing.
        expected = self.registry.seconds_at(group.concurrency)
        whole = group.concurrency >= entry.concurrency
        self._is_proving = False
        if usual > expected * CONTRADICTION or (whole and mean < expected / CONTRADICTION):
            jobs.registry = ConstraintRegistry()
            self._learn("contradicted")

    def _usable(self, registry: ConstraintRegistry) -> ConstraintRegistry:
        """Return the entries that are valid for this bandwidth and this number of executors."""
        grid = self._jobs.grid
        entries = [replace(entry, concurrency=grid.concurrency(entry.constraint)) for entry in registry.entries]
        entries = [entry for entry in entries if entry.concurrency > 0]
        # An entry from the end of a run with too few jobs was the best guess then. Now there may be enough jobs.
        while entries and not registry.is_complete and entries[-1].jobs < entries[-1].concurrency:
            entries.pop()
        return replace(registry, entries=tuple(entries))
