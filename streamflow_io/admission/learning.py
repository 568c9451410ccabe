"""Learning: epochs, each under another constraint, and what follows from the times of their jobs. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from .epochs import Epoch, EpochEnded
from .objective import best_constraint
from .observations import Group
from .registry import RegisteredConstraint
from .workload import Reason, Turn, Workload


class Learning:
    """The epochs of one learning, from the first until no further one is needed.

    Where each location has a storage of its own, several are on at the same time. They are evaluated in the order of
    the plan, so that what is registered is the same as if they had been one after the other.

    :param plan: the constraints to try, in order
    :param number: of the last epoch before these
    :param tries_all: every constraint of the plan, also when fewer jobs at once do not help any more
    """

    def __init__(self, jobs: Workload, plan: Iterable[float], number: int, tries_all: bool) -> None:
        self._jobs = jobs
        self._plan = iter(plan)
        self._number = number
        self._tries_all = tries_all
        # What is registered, and what epochs tell that are over but not evaluated.
        self._known = jobs.registry
        # Those that are open, or not evaluated because one before is open, in the order of the plan.
        self.epochs: list[Epoch] = []

    def next(self, reason: Reason) -> bool:
        """Open the next epoch of the plan, if there is one."""
        constraint = next(self._plan, None)
        if constraint is None:
            return False
        self._number += 1
        self.epochs.append(Epoch(self._number, constraint, self._jobs.grid.concurrency(constraint)))
        self._jobs.choose(constraint, reason)
        return True

    def turns(self) -> Iterator[Turn]:
        """How the next job may start, the best way first; there may be no way now."""
        for epoch in self.epochs:
            if epoch.is_on and epoch.lacks and epoch.ground is not None and self._jobs.is_alone(epoch):
                yield Turn(epoch.constraint, epoch, epoch.ground or None)
        full = [epoch for epoch in self.epochs if epoch.is_on]
        if full and (len(full) >= self._jobs.places or self._jobs.left <= sum(epoch.lacks for epoch in full)):
            return
        if full and self._known:
            yield Turn(best_constraint(self._jobs.share, self._known))
        elif (gathering := self._gathering()) is not None:
            yield Turn(gathering.constraint, gathering)

    def fill(self, now: float) -> None:
        """Let all epochs be full that there are jobs and grounds for."""
        while sum(epoch.is_on for epoch in self.epochs) < max(1, self._jobs.places):
            epoch = self._gathering()
            if epoch is None:
                if not self.next("learning"):
                    return
                continue
            left = self._jobs.left - sum(other.lacks for other in self.epochs) + len(epoch.members)
            if left < epoch.concurrency or self._jobs.share < epoch.concurrency:
                return
            # Those that run started one by one, when fewer ran: they end first, uncounted. Then all start at once.
            ground = None if self._jobs.places else ""
            full = Epoch(epoch.number, epoch.constraint, epoch.concurrency, full=True, ground=ground, started=now)
            self.epochs[self.epochs.index(epoch)] = full

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
        while self.epochs[0].over:
            if self._is_last(self.epochs.pop(0), now):
                return True
        if any(map(self._tell_to_stop, self.epochs, self.epochs[1:])):
            self._plan = iter(())
        self.fill(now)
        return False

    def _gathering(self) -> Epoch | None:
        """The first epoch that is not full yet: there are too few jobs for it."""
        return next((epoch for epoch in self.epochs if not epoch.full and not epoch.over), None)

    def _is_over(self, epoch: Epoch, no_more: bool) -> bool:
        if epoch.members:
            return False
        if not epoch.admitted:
            if epoch.full and self._jobs.left <= 0:
                epoch.full, epoch.ground, epoch.alone = False, None, False
            return False
        complete = epoch.full and epoch.admitted >= epoch.concurrency
        return complete or (self._jobs.left <= 0 and (epoch.full or no_more))

    def _is_last(self, epoch: Epoch, now: float) -> bool:
        """Register what an epoch tells, and open the next one; whether none is needed."""
        jobs, group = self._jobs, epoch.group
        if jobs.registry.job_bytes is None and not jobs.registry:
            jobs.registry = replace(jobs.registry, job_bytes=group.job_bytes)
        mean, enough = group.seconds(jobs.registry.job_bytes), self._is_enough(epoch, group)
        last = jobs.registry.entries[-1].seconds if jobs.registry else None
        stop = not self._tries_all and mean is not None and last is not None and mean > last / 2
        # Its jobs are over before so many run as may: then fewer at once are no better.
        unhindered = not self._tries_all and last is None and epoch.full and not epoch.overlaps
        if registered := enough and not stop:
            jobs.registry = jobs.registry.register(self._entry(epoch, group))
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
                location=epoch.ground or None,
            )
        )
        if not enough:
            self.epochs.insert(0, Epoch(epoch.number, epoch.constraint, epoch.concurrency))
            return False
        return stop or unhindered or not (self.epochs or self.next("learning"))

    def _is_enough(self, epoch: Epoch, group: Group) -> bool:
        """Whether at least half of what fits at once did: fewer have not seen the storage as a full epoch does."""
        if not epoch.full and self._jobs.spread > 1:
            # They were on all locations, and on none as many as fit.
            return False
        at_once = len(group) if epoch.full else min(len(group), group.concurrency)
        return at_once > 0 and 2 * at_once >= epoch.concurrency

    def _entry(self, epoch: Epoch, group: Group) -> RegisteredConstraint:
        seconds = group.seconds(self._jobs.registry.job_bytes)
        assert seconds is not None, "only of what has enough jobs"
        return RegisteredConstraint(epoch.constraint, seconds, epoch.concurrency, len(group))

    def _tell_to_stop(self, before: Epoch, after: Epoch) -> bool:
        """Whether learning will end with the later of two epochs, at the latest: no further one is needed."""
        if self._tries_all or not (before.over and after.over):
            return False
        groups = before.group, after.group
        job_bytes = groups[0].job_bytes
        first, second = (group.seconds(job_bytes) for group in groups)
        if first is None or second is None or not self._is_enough(after, groups[1]):
            return False
        return second > first / 2
