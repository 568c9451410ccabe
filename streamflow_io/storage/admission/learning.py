"""Learning: epochs under different constraints, and the conclusions from the times of their jobs."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from .epochs import Epoch, EpochEnded, Group
from .registry import RegisteredConstraint, best_constraint
from .workload import NextStart, Reason, Workload

# More jobs at once pay if the storage keeps at least this part of its jobs per second.
_AS_FAST = 0.95
# More jobs at once are tried if the remaining jobs fill the epoch this many times, in all and for each location.
_EPOCHS_LEFT, _EPOCHS_LEFT_EACH = 4, 2
# No further jobs are expected when none have come for this fraction of a job's time.
_QUIET = 0.9


class Learning:
    """The epochs of one learning, from the first until no further one is needed.

    Where each location has a storage of its own, and jobs are enough, several epochs are on at the same time. Until the
    first one has ended, jobs on other locations run as they do in this epoch. Epochs are evaluated in the
    order of the plan, so that the registry is the same as after one epoch at a time.

    With a climb, one location runs the first epoch, and the first constraint of the plan holds everywhere. Then more
    jobs at once are tried, one constraint after the other, while the storage serves as many jobs per second. If the
    first of these serves fewer, the plan goes on with fewer jobs at once.

    :param plan: the constraints to try, in order
    :param climb: lower constraints, in descending order
    :param number: the number of the last epoch before these
    :ivar epochs: open epochs, and epochs that wait for an earlier one before they are evaluated, in the order of the
        plan
    """

    def __init__(self, jobs: Workload, plan: Iterable[float], climb: Iterable[float], number: int) -> None:
        self._jobs = jobs
        self._plan = deque(plan)
        self._climb = deque(climb)
        self._number = number
        # `auto(min,max,delta)` tries each of its constraints, even when fewer jobs at once do not help any more.
        self._tries_all = jobs.grid.bounds is not None
        # The registry, with the results of epochs that are over but not evaluated.
        self._known = jobs.registry
        self._now = 0.0
        # More jobs at once were better than the first number: fewer are not tried.
        self._has_climbed = bool(self._climb) and not self._plan
        self.epochs: list[Epoch] = []

    def begin(self, reason: Reason) -> bool:
        """Open the first epoch, unless more jobs at once are to be tried.

        :return: whether there is anything to try
        """
        if self._climb and self._known:
            self._jobs.choose(self._limit(), reason)
            return True
        return self._next(reason)

    def resized(self) -> None:
        """Try no constraints above the bandwidth that the storage has now."""
        concurrency = self._jobs.grid.concurrency
        self._plan, self._climb = (deque(filter(concurrency, tried)) for tried in (self._plan, self._climb))

    def turns(self) -> Iterator[NextStart]:
        """Yield how the next job may start, best way first. Nothing: no job may start now."""
        for epoch in self.epochs:
            if epoch.is_on and epoch.lacks and epoch.location is not None and self._jobs.is_alone(epoch):
                yield NextStart(epoch.constraint, epoch, epoch.location or None)
        full = [epoch for epoch in self.epochs if epoch.is_on]
        if full and (max(1, self._jobs.places) <= len(full) or self._jobs.left <= sum(epoch.lacks for epoch in full)):
            return
        gathering = self._gathering()
        if self._known and (full or gathering is None or gathering.is_climb):
            yield NextStart(self._limit())
        elif full:
            # Nothing is known yet: on other locations jobs run as they do in the first epoch.
            yield NextStart(full[0].constraint)
        elif gathering is not None and self._climb and (limit := self._limit()) != gathering.constraint:
            yield NextStart(limit)
        elif gathering is not None:
            yield NextStart(gathering.constraint, gathering)

    def fill(self, now: float) -> None:
        """Mark all epochs as full that have enough jobs and locations."""
        self._now = now
        self._jobs.count(now)
        while sum(epoch.is_on for epoch in self.epochs) < max(1, self._jobs.places):
            epoch = self._gathering()
            if epoch is None:
                if not self._has_jobs_for_several or not self._next("learning"):
                    break
                continue
            left = self._jobs.left - sum(other.lacks for other in self.epochs) + len(epoch.members)
            if left < epoch.concurrency or self._jobs.share < epoch.concurrency or self._jobs.are_all_lacking:
                break
            if self._climb and not self._known and not self._pays(self._climb[0]):
                break
            # Running jobs started one by one, when fewer ran. These jobs end first, and do not count. Then all jobs
            # start at once.
            location = None if self._jobs.places else ""
            self.epochs[self.epochs.index(epoch)] = replace(_anew(epoch), full=True, location=location, started=now)
        if self._known and not self.epochs:
            self._jobs.choose(self._limit(), "objective")

    def settle(self, now: float, no_more: bool) -> bool:
        """End the epochs whose jobs have all ended, and begin the next ones.

        :param no_more: no further job will be submitted
        :return: whether learning has ended
        """
        for epoch in self.epochs:
            if not epoch.over and self._is_over(epoch, no_more):
                epoch.over = True
                if self._is_enough(epoch, group := epoch.group):
                    self._known = self._known.register(self._entry(epoch, group))
        while self.epochs and self.epochs[0].over:
            if self._is_last(self.epochs.pop(0), now):
                return True
        if any(map(self._tell_to_stop, self.epochs, self.epochs[1:])):
            self._plan.clear()
        self.fill(now)
        return False

    def _next(self, reason: Reason) -> bool:
        """Open the next epoch, if there is one that pays now."""
        is_climb = bool(self._climb and self._known)
        if is_climb and not self._pays(self._climb[0]):
            return False
        # The result of the first epoch decides which one is next.
        plan = self._climb if is_climb else self._plan
        if not plan or (self._climb and self.epochs):
            return False
        constraint = plan.popleft()
        self._number += 1
        self.epochs.append(Epoch(self._number, constraint, self._jobs.grid.concurrency(constraint), is_climb))
        self._jobs.choose(constraint, reason)
        return True

    @property
    def _has_jobs_for_several(self) -> bool:
        """Whether enough jobs are left for several epochs at once, which keep locations from running more jobs."""
        if not self.epochs:
            return True
        known = max((entry.concurrency for entry in self._known.entries), default=0)
        jobs, most = self._jobs, max(known, *(epoch.concurrency for epoch in self.epochs))
        return jobs.left - sum(epoch.lacks for epoch in self.epochs) >= _EPOCHS_LEFT_EACH * most * jobs.spread

    def _pays(self, constraint: float) -> bool:
        """Whether enough jobs are left for an epoch that may slow the storage down."""
        jobs, concurrency = self._jobs, self._jobs.grid.concurrency(constraint)
        # While jobs still arrive, expect as many more as have begun.
        expected = jobs.left + (jobs.begun if self._is_arriving else 0)
        each = 1 if self._has_climbed else _EPOCHS_LEFT_EACH
        least = 1 if self._has_climbed else _EPOCHS_LEFT
        return jobs.left >= concurrency and expected >= concurrency * max(least, each * jobs.spread)

    def _limit(self) -> float:
        """Return the constraint of jobs outside full epochs, by what is known.

        The last jobs start together if no more come and no epoch has shown this many at once. Divided, they would be
        less than two groups, and the second group might be small. Two whole groups are no gamble.
        """
        jobs, most = self._jobs, self.epochs[0] if self.epochs and not self._known else self._known.entries[0]
        best = best_constraint(jobs.share, self._known) if self._known else most.constraint
        more = next((epoch.constraint for epoch in self.epochs if epoch.is_climb), next(iter(self._climb), None))
        if more is None or most.constraint != best or jobs.grid.concurrency(more) <= jobs.share or self._is_arriving:
            return best
        return more

    @property
    def _is_arriving(self) -> bool:
        """Whether jobs have arrived within about the time of one job, or this time is not known."""
        seconds = self._known.entries[0].seconds if self._known else self.epochs[0].group.seconds(None)
        return seconds is None or self._now - self._jobs.arrived < _QUIET * seconds

    def _gathering(self) -> Epoch | None:
        """Return the first epoch that is not full yet, because there are too few jobs."""
        return next((epoch for epoch in self.epochs if not epoch.full and not epoch.over), None)

    def _is_over(self, epoch: Epoch, no_more: bool) -> bool:
        if epoch.members:
            return False
        # Jobs that the epoch keeps away may free what its own jobs lack.
        is_short = self._jobs.left <= 0 or (epoch.full and self._jobs.are_all_lacking)
        if not epoch.admitted:
            if epoch.full and is_short:
                epoch.full, epoch.location, epoch.alone = False, None, False
            return False
        complete = epoch.full and epoch.admitted >= epoch.concurrency
        return complete or (is_short and (epoch.full or no_more))

    def _is_last(self, epoch: Epoch, now: float) -> bool:
        """Register the result of an epoch, and open the next one.

        :return: whether no further epoch is needed
        """
        jobs, group = self._jobs, epoch.group
        if jobs.registry.job_bytes is None and not jobs.registry:
            jobs.registry = replace(jobs.registry, job_bytes=group.job_bytes)
        mean, enough = group.seconds(jobs.registry.job_bytes), self._is_enough(epoch, group)
        tries_fewer = not self._tries_all and not epoch.is_climb
        last = jobs.registry.entries[-1].seconds if jobs.registry else None
        stop = tries_fewer and mean is not None and last is not None and mean > last / 2
        # The jobs end before as many run as may: then fewer at once are no better.
        unhindered = tries_fewer and last is None and epoch.full and not epoch.overlaps
        if registered := enough and not stop:
            entry = self._entry(epoch, group)
            if epoch.is_climb:
                self._climbed(entry)
            elif unhindered and self._climb:
                most = self._climb[-1]
                entry = replace(entry, constraint=most, concurrency=jobs.grid.concurrency(most))
            jobs.registry = jobs.registry.register(entry)
            if epoch.is_climb:
                self._known = jobs.registry
        jobs.events.append(
            EpochEnded(
                number=epoch.number,
                constraint=epoch.constraint,
                concurrency=epoch.concurrency,
                jobs=len(group),
                mean_seconds=mean,
                job_bytes=jobs.registry.job_bytes,
                uneven=group.is_uneven,
                registered=registered,
                started=now if epoch.started is None else epoch.started,
                location=epoch.location or None,
            )
        )
        if not enough:
            self.epochs.insert(0, _anew(epoch))
            return False
        return stop or unhindered or not (self.epochs or self._climb or self._next("learning"))

    def _climbed(self, entry: RegisteredConstraint) -> None:
        """Evaluate an epoch with more jobs at once than before. If the storage is as fast, fewer are not tried."""
        before = self._jobs.registry.entries[0]
        if entry.concurrency / entry.seconds >= _AS_FAST * before.concurrency / before.seconds:
            self._jobs.registry = self._jobs.registry.without(before.constraint)
            self._has_climbed = True
            self._plan.clear()
        else:
            self._climb.clear()

    def _is_enough(self, epoch: Epoch, group: Group) -> bool:
        """Whether at least half of the jobs that fit at once ran at once. Fewer show less than a full epoch does."""
        if not epoch.full and self._jobs.spread > 1:
            # The jobs were on all locations, and on none as many as fit.
            return False
        at_once = len(group) if epoch.full else min(len(group), group.concurrency)
        return at_once > 0 and 2 * at_once >= epoch.concurrency

    def _entry(self, epoch: Epoch, group: Group) -> RegisteredConstraint:
        seconds = group.seconds(self._jobs.registry.job_bytes)
        assert seconds is not None, "the group has enough jobs"
        return RegisteredConstraint(epoch.constraint, seconds, epoch.concurrency, len(group))

    def _tell_to_stop(self, before: Epoch, after: Epoch) -> bool:
        """Whether learning ends with the later of two epochs at the latest, so that no further epoch is needed."""
        if self._tries_all or not (before.over and after.over):
            return False
        groups = before.group, after.group
        job_bytes = groups[0].job_bytes
        first, second = (group.seconds(job_bytes) for group in groups)
        if first is None or second is None or not self._is_enough(after, groups[1]):
            return False
        return second > first / 2


def _anew(epoch: Epoch) -> Epoch:
    """Return the same epoch without jobs."""
    return Epoch(epoch.number, epoch.constraint, epoch.concurrency, epoch.is_climb)
