"""Rehearses on idle cores the inputs that may stream without a hint, or are declared to stream.

:mod:`.rehearsal_rules` decides most of it. Nothing here makes a run fail. A run delays its end only for rehearsals that
are nearly done, or because the user has asked for that.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct
from streamflow.core.scheduling import AvailableLocation, Hardware
from streamflow.core.workflow import Token
from streamflow.log_handler import logger

from streamflow_io.adapters.jobs import JobState, Listener
from streamflow_io.adapters.steps import StreamingExecuteStep
from streamflow_io.records.learned.extents import hold_for
from streamflow_io.records.learned.proofs import Way
from streamflow_io.runtime.locations import stack_of
from streamflow_io.runtime.node_runtime import NodeRuntime
from streamflow_io.runtime.protocol import ExitEvent
from streamflow_io.runtime.wire import cpu_of
from streamflow_io.storage.intermediates.space_watcher import RepeatedJobs
from streamflow_io.wording import counted

from .clocks import Span
from .findings import Findings
from .original_job import JobResult, span_of
from .rehearsable_jobs import RehearsableJob, RehearsableJobs
from .rehearsal import Rehearsal, rehearsing
from .rehearsal_rules import Finding, FreeRoom, may_start
from .repeated_job import NotApartError

if TYPE_CHECKING:
    from streamflow_io.storage.intermediates.disk_limit import DiskLimit

# Seconds. Jobs that become ready because a job has ended do so meanwhile.
_SETTLING = 0.2
# How long the end of a run may wait for rehearsals that are nearly done: seconds, and a part of the time of the run.
_AT_END_SECONDS, _AT_END_PART = 1.0, 0.01
# A file that was written in a smaller part of the time of its rehearsal saves little as a stream.
_LEAST_GAIN = 0.25
# The most tries of a rehearsal that has to end each time before it has shown anything.
_MOST_TRIES = 3


class _RunningRehearsal(Struct):
    """A rehearsal that runs.

    :ivar began: by a monotonic clock, in seconds
    :ivar is_beside: the rehearsal has begun before its job has ended
    :ivar is_last: the run ends with this rehearsal
    :ivar is_void: its job has failed
    :ivar wanted: what a job needs that it has; empty: nothing
    :ivar yields: the rehearsal ends because another one gains more
    """

    rehearsal: Rehearsal
    began: float
    is_beside: bool
    is_last: bool = False
    task: asyncio.Task[None] | None = None
    has_begun: bool = False
    is_ending: bool = False
    is_void: bool = False
    wanted: str = ""
    yields: bool = False

    def end(self, wanted: str = "core") -> None:
        """End the rehearsal, but only once: its clean-up must not be cancelled.

        :param wanted: what a job needs that it has
        """
        if not self.is_ending and self.task is not None:
            self.is_ending, self.wanted = True, wanted
            # A task that is cancelled before it has begun runs no `finally`.
            if self.has_begun:
                self.task.cancel()


class Rehearsals(Listener, RepeatedJobs):
    """The rehearsals of a run: one at a time at each host, and only while StreamFlow's accounts have a core free.

    :param rehearsable: the jobs with inputs that can be rehearsed
    :param used: the hardware in use, by the name of a location
    :param space: lends the space that a run leaves to its files; None: the run has no limit
    :param waits: whether every rehearsal keeps its files, because the run waits for it at its end
    """

    def __init__(
        self,
        rehearsable: RehearsableJobs,
        findings: Findings,
        used: Mapping[str, Hardware],
        space: DiskLimit | None = None,
        waits: bool = False,
    ) -> None:
        self._space = space
        self._waits = self.keep_all = waits
        self._rehearsable = rehearsable
        self._findings = findings
        self._used = used
        # Tasks that find out what a rehearsal would prove.
        self._adding: set[asyncio.Task[None]] = set()
        self._waiting = WaitingRehearsals()
        # By host: what runs, and what is about to begin.
        self._running: dict[str, _RunningRehearsal] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        # By step: the start of its first job, and the end of its last one, by the clocks of their hosts.
        self._spans: dict[str, Span] = {}
        # Tasks with a finding, which counts when its job has succeeded.
        self._confirming: dict[asyncio.Task[None], Rehearsal] = {}
        # The runtimes under which nothing can run beside its job.
        self._not_apart: set[NodeRuntime] = set()
        self._is_closed = False
        self._began = time.monotonic()
        self._is_silent = _NoMessages()
        logger.addFilter(self._is_silent)

    async def close(self, *, is_well: bool = True) -> None:
        """End all rehearsals. Returns when nothing of them is left.

        :param is_well: whether the run has succeeded. Then a run that waits lets all rehearsals come to their own end,
            and a run with `streaming: auto` those that are nearly done
        """
        try:
            if is_well and self._waits:
                await self._finish()
            elif is_well and self._rehearsable.is_auto:
                await self._finish_what_is_nearly_done()
        finally:
            await self._end(is_well)
            await self._findings.close()

    def held(self) -> frozenset[str]:
        rehearsals = [*(each.rehearsal for each in self._running.values()), *self._confirming.values()]
        names = {rehearsal.original.job.name for rehearsal in rehearsals}
        names |= {adding.get_name() for adding in self._adding}
        return frozenset(names | {rehearsal.original.job.name for rehearsal in self._waiting if self._waits})

    def waiting(self) -> dict[str, str]:
        return {} if self._waits else {each.original.job.name: each.host for each in self._waiting}

    def fruitless(self) -> frozenset[str]:
        may_show = {each.original.job.name for each in self._waiting if not self._findings.is_fruitless(each)}
        return frozenset(self.waiting().keys() - may_show)

    def keep(self, jobs: Collection[str]) -> None:
        self._waiting.keep(jobs)

    def give_up(self, jobs: Collection[str]) -> None:
        """Run these jobs only once. Later jobs with the same inputs may be rehearsed."""
        for rehearsal in self._waiting.remove(lambda each: each.original.job.name in jobs):
            self._findings.give_up(rehearsal, "its files had to go before a core was free")

    def end(self, jobs: Collection[str]) -> None:
        for running in self._running.values():
            if running.rehearsal.original.job.name in jobs:
                running.end("space")

    async def _finish_what_is_nearly_done(self) -> None:
        """Begin no more rehearsals, and wait for those that take little longer than the run.

        Without this, no input of the last job of a run would ever be proven where all cores are busy until then.
        """
        self._is_closed = True
        now = time.monotonic()
        patience = max(_AT_END_SECONDS, _AT_END_PART * (now - self._began))
        for running in self._running.values():
            running.is_last = self._is_nearly_done(running, now + patience)
        if last := [each.task for each in self._running.values() if each.is_last and each.task is not None]:
            await asyncio.wait(last, timeout=patience)
        if self._confirming:
            await asyncio.wait(self._confirming, timeout=max(0.0, now + patience - time.monotonic()))

    def _is_nearly_done(self, running: _RunningRehearsal, deadline: float) -> bool:
        """Whether a rehearsal may end before the deadline, and has not been waited for in vain before."""
        rehearsal = running.rehearsal
        if rehearsal.is_compared:
            return True
        return running.began + rehearsal.seconds < deadline and not self._findings.is_fruitless(rehearsal)

    async def _finish(self) -> None:
        """Wait until there is nothing to rehearse, or no room for a rehearsal."""
        await asyncio.gather(*self._adding, return_exceptions=True)
        if waiting := sum(1 for _ in self._waiting) + len(self._running):
            logger.info(f"The run waits for {counted(waiting, 'rehearsal')} of inputs that may stream")
        self.look()
        while self._running or self._timers or self._confirming:
            running = [each.task for each in self._running.values() if each.task is not None]
            if running := [*running, *self._confirming]:
                await asyncio.wait(running)
            else:
                await asyncio.sleep(_SETTLING)

    async def _end(self, is_well: bool) -> None:
        self._is_closed = True
        for timer in self._timers.values():
            timer.cancel()
        running = list(self._running.values())
        unfinished = [*self._waiting, *(each.rehearsal for each in running)]
        self._waiting.clear()
        for adding in self._adding:
            adding.cancel()
        for each in running:
            each.end()
        tasks = (each.task for each in running if each.task is not None)
        await asyncio.gather(*tasks, *self._adding, return_exceptions=True)
        # A rehearsal that was ended may just have shown something.
        for confirming in self._confirming:
            confirming.cancel()
        await asyncio.gather(*self._confirming, return_exceptions=True)
        for rehearsal in unfinished if is_well else ():
            self._findings.keep(rehearsal)
        logger.removeFilter(self._is_silent)

    def placed(self, job: JobState) -> None:
        self.look()

    def begins(
        self,
        step: StreamingExecuteStep,
        job: JobState,
        runtime: NodeRuntime,
        inputs: Mapping[str, Token],
        streams: Collection[str] = (),
    ) -> None:
        """Note that an attempt of a job is about to run. Never waits, and never fails.

        :param inputs: before an InitialWorkDirRequirement has changed them
        :param streams: the names of the inputs whose bytes the job reads while they are written
        """
        if self._is_closed or (found := self._rehearsable.find(step, job, runtime, inputs, streams)) is None:
            return
        job.keep(found)
        if found.needs_nothing:
            self._add(self._rehearsable.rehearsals_with(found))
        elif not found.has_streams:
            self._start_adding(found)

    def succeeded(self, job: JobState, outputs: Mapping[str, Token], exit_event: ExitEvent) -> None:
        """Note that the attempt has succeeded; it still holds its cores. Never waits, and never fails.

        :param outputs: as StreamFlow has made them
        """
        span = span_of(exit_event)
        first, last = self._spans.get(job.step, span)
        self._spans[job.step] = min(first, span[0]), max(last, span[1])
        if (found := job.drop(RehearsableJob)) is not None:
            found.original.result.set_result(JobResult(outputs, span[1] - span[0], cpu_of(exit_event.usage), span))
            if found.has_streams:
                self._start_adding(found)

    def attempt_ended(self, job: JobState) -> None:
        """Note that the attempt has ended; it has failed unless :meth:`succeeded` was called.

        Never waits, and never fails.
        """
        if (found := job.drop(RehearsableJob)) is None:
            return
        original = found.original
        void = self._waiting.remove(lambda rehearsal: rehearsal.original is original)
        for running in self._running.values():
            if running.rehearsal.original is original:
                void.append(running.rehearsal)
                running.is_void = True
                running.end()
        for task, confirming in self._confirming.items():
            if confirming.original is original:
                void.append(confirming)
                task.cancel()
        for each in void:
            self._findings.expect_no_more(each)

    def _start_adding(self, found: RehearsableJob) -> None:
        task = asyncio.create_task(self._find_and_add(found), name=found.original.job.name)
        self._adding.add(task)
        task.add_done_callback(self._adding.discard)

    async def _find_and_add(self, found: RehearsableJob) -> None:
        rehearsals = await self._rehearsable.rehearsals(found)
        if not self._is_closed:
            self._add(rehearsals)

    def _add(self, rehearsals: Sequence[Rehearsal]) -> None:
        new = [each for each in rehearsals if self._findings.is_new(each) and self._may_succeed(each)]
        for rehearsal in self._waiting.add(new):
            self._findings.expect(rehearsal)
            self._findings.go_on(rehearsal)
        self.look()

    def _may_succeed(self, rehearsal: Rehearsal) -> bool:
        """Whether a rehearsal is worth its time: the same files were not tried in vain in each of the last runs."""
        return self._waits or not self._findings.is_hopeless(rehearsal)

    def look(self) -> None:
        """Look at StreamFlow's accounts, which have changed: rehearsals without a core end, others may begin soon."""
        can_start = self._can_start()
        for running in self._running.values():
            if not can_start(running.rehearsal):
                running.end()
        if self._is_closed:
            return
        for host in self._waiting.hosts():
            now = self._running.get(host)
            if now is not None and self._is_better(host, now, can_start):
                now.yields = True
                now.end()
            is_idle = now is None and host not in self._timers
            if is_idle and any(map(can_start, self._waiting.at(host))):
                self._timers[host] = asyncio.get_running_loop().call_later(_SETTLING, self._begin, host)

    def _can_start(self) -> Callable[[Rehearsal], bool]:
        """Return whether a rehearsal may start now. Called for each placed job, so each place is looked at once."""
        rooms: dict[str, Sequence[FreeRoom]] = {}

        def can_start(rehearsal: Rehearsal) -> bool:
            original = rehearsal.original
            if not original.has_ended and (rehearsal.waits_for_its_job or original.runtime in self._not_apart):
                return False
            name = original.place.name
            if (found := rooms.get(name)) is None:
                found = rooms[name] = free_rooms(original.place, self._used)
            return may_start(found, float(original.hardware.memory))

        return can_start

    def _is_better(self, host: str, running: _RunningRehearsal, can_start: Callable[[Rehearsal], bool]) -> bool:
        """Whether a rehearsal waits that gains more than the one that runs, which is not nearly done."""
        if not self._gains_little(running.rehearsal) or self._is_nearly_done(
            running, time.monotonic() + _AT_END_SECONDS
        ):
            return False
        return any(can_start(each) and not self._gains_little(each) for each in self._waiting.at(host))

    def _gains_little(self, rehearsal: Rehearsal) -> bool:
        """Whether the files of an input were written in little of the time that their rehearsal needs.

        A stream saves no more than the time in which its file is written. While the time of the job is not known, the
        input counts whose files took longest.
        """
        written = {port: self._written(rehearsal.writers.get(port, ())) for port in (*rehearsal.keys, rehearsal.port)}
        takes = rehearsal.original.seconds if rehearsal.original.has_ended else max(written.values())
        return takes < math.inf and written[rehearsal.port] < _LEAST_GAIN * takes * rehearsal.runs

    def _written(self, writers: Collection[str]) -> float:
        """The seconds in which steps have written files; infinite, if that is not known of each of them."""
        if not writers or not all(step in self._spans for step in writers):
            return math.inf
        spans = [self._spans[step] for step in writers]
        return max(last for _, last in spans) - min(first for first, _ in spans)

    def _begin(self, host: str) -> None:
        del self._timers[host]
        following = None if self._is_closed else self._waiting.take(host, self._can_start(), self._gains_little)
        if (rehearsal := following) is None:
            return
        # The task does not run before it is entered here.
        running = _RunningRehearsal(rehearsal, time.monotonic(), not rehearsal.original.has_ended)
        self._running[host] = running
        running.task = asyncio.create_task(self._rehearse(host, running))

    async def _rehearse(self, host: str, running: _RunningRehearsal) -> None:
        rehearsal = running.rehearsal
        running.has_begun = True
        try:
            try:
                if running.is_ending:
                    raise asyncio.CancelledError
                finding = await asyncio.create_task(self._run(running))
            finally:
                rehearsal.spent += time.monotonic() - running.began
            # The result is kept, even if its core is wanted now.
            running.is_ending = True
            self._has_shown(running, finding)
        except NotApartError:
            self._not_apart.add(rehearsal.original.runtime)
            self._put_back(running)
        except asyncio.CancelledError:
            # Beside its job, a rehearsal may be ended as often as needed.
            rehearsal.killed += not (running.is_beside or running.yields)
            if running.is_beside or running.yields:
                self._waiting.lost(rehearsal)
            if running.is_last:
                self._findings.give_up(rehearsal, "the run ended first, which `rehearse: wait` prevents")
            elif rehearsal.killed == _MOST_TRIES:
                self._findings.give_up(rehearsal, f"its {running.wanted} was wanted")
            else:
                self._put_back(running)
        finally:
            del self._running[host]
            self.look()

    async def _run(self, running: _RunningRehearsal) -> Finding | None:
        rehearsal = running.rehearsal
        rehearsal.beside = self._ways_beside(rehearsal)
        if (space := self._space) is None:
            return await rehearsal.run()
        name = f"{rehearsal.original.job.name}:{rehearsal.port}"
        try:
            end = partial(running.end, "space")
            return await rehearsal.run(lambda size: space.lend(name, rehearsal.original.place, size, end))
        finally:
            space.give_back(name)

    def _ways_beside(self, rehearsal: Rehearsal) -> Mapping[str, Way]:
        return self._findings.ways_beside(rehearsal, self._confirming.values())

    def _put_back(self, running: _RunningRehearsal) -> None:
        if not (running.is_void or self._is_closed):
            self._waiting.put_back(running.rehearsal)

    def _has_shown(self, running: _RunningRehearsal, finding: Finding | None) -> None:
        rehearsal = running.rehearsal
        if finding is None:
            self._put_back(running)
        elif running.is_beside and not finding.is_known and not finding.is_of_place:
            rehearsal.waits_for_its_job = True
            self._put_back(running)
        elif finding.way is not None and self._ways_beside(rehearsal).items() - rehearsal.beside.items():
            # Another host has shown meanwhile how the job reads another input. Both are to be tried together.
            self._put_back(running)
        else:
            task = asyncio.create_task(self._confirm(running, finding))
            self._confirming[task] = rehearsal
            task.add_done_callback(self._confirming.pop)

    async def _confirm(self, running: _RunningRehearsal, finding: Finding) -> None:
        """Keep a finding when its job has succeeded."""
        confirmed = await running.rehearsal.confirmed(finding)
        if confirmed is not None and await self._findings.stands(running.rehearsal, confirmed):
            await self._found(running.rehearsal, confirmed)
        else:
            self._put_back(running)
            self.look()

    async def _found(self, rehearsal: Rehearsal, finding: Finding) -> None:
        proof = self._findings.proof_of(rehearsal, finding)
        if finding.is_of_place:
            runtime = rehearsal.original.runtime
            self._rehearsable.exclude(runtime)
            self._waiting.remove(lambda each: each.original.runtime is runtime)
        if proof is not None:
            self._waiting.remove(
                lambda each: (
                    each.key == proof.key and not (proof.extents and not hold_for(proof.extents, each.job.sizes))
                )
            )
            await self._findings.remember(proof)


def free_rooms(place: AvailableLocation, used: Mapping[str, Hardware]) -> list[FreeRoom]:
    """The free room of a place, and of all that the place is on.

    :param used: the hardware in use, by the name of a location
    """
    return [
        FreeRoom(float(hardware.cores - in_use.cores), float(hardware.memory - in_use.memory))
        for each in stack_of(place)
        if (hardware := each.hardware) is not None
        for in_use in [used.get(each.name, Hardware())]
    ]


class _NoMessages(logging.Filter):
    """Drops the messages of rehearsals, which would look like those of jobs."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not rehearsing.get()


# The most rehearsals that wait at a host, unless further inputs have none yet. Where each job has a value of its own,
# there may be thousands for one input.
_MOST_WAITING = 64


class WaitingRehearsals:
    """The rehearsals that wait for a free core, by the host on which they run."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[Rehearsal]] = {}
        # How many rehearsals were begun, by input, without those that have lost their turn.
        self._begun: Counter[str] = Counter()
        # The names of the jobs whose files are kept for a rehearsal.
        self._kept: frozenset[str] = frozenset()

    def __iter__(self) -> Iterator[Rehearsal]:
        """Yield all of them."""
        return (each for waiting in self._waiting.values() for each in waiting)

    def hosts(self) -> Iterator[str]:
        """Yield the hosts on which rehearsals have waited."""
        return iter(self._waiting)

    def at(self, host: str) -> Sequence[Rehearsal]:
        """The rehearsals that wait at a host."""
        return self._waiting.get(host, ())

    def add(self, rehearsals: Sequence[Rehearsal]) -> Sequence[Rehearsal]:
        """Add the rehearsals of one job, as far as there is a place for them.

        :return: those that were added
        """
        if not rehearsals:
            return ()
        waiting = self._waiting.setdefault(rehearsals[0].host, [])
        added = list[Rehearsal]()
        for rehearsal in rehearsals:
            # A larger file proves more than a smaller one that waits. But files that are kept already take less.
            left = [each for each in waiting if each.key != rehearsal.key or each.spent or self._is_kept(each)]
            if len(left) < _MOST_WAITING or all(each.name != rehearsal.name for each in left):
                waiting[:] = [*left, rehearsal]
                added.append(rehearsal)
        return added

    def keep(self, jobs: Collection[str]) -> None:
        """Note the jobs whose files are kept: no later job takes the place of their rehearsals."""
        self._kept = frozenset(jobs)

    def _is_kept(self, rehearsal: Rehearsal) -> bool:
        return rehearsal.original.job.name in self._kept

    def put_back(self, rehearsal: Rehearsal) -> None:
        """Let a rehearsal wait again, which :meth:`take` has returned."""
        self._waiting.setdefault(rehearsal.host, []).append(rehearsal)

    def take(
        self,
        host: str,
        may_start: Callable[[Rehearsal], bool],
        gains_little: Callable[[Rehearsal], bool] = lambda _: False,
    ) -> Rehearsal | None:
        """Remove the rehearsal that begins next at a host, and return it; None: no rehearsal may start.

        An input that gains little comes last. The input with the fewest rehearsals comes first, or one that is proven
        alone: little is left to be tried. Then the shortest rehearsal comes first. A core may be idle for a short time
        only, and a rehearsal that has to end too early is lost. Among equals the largest file comes first, because it
        gains most.
        """

        def rank(rehearsal: Rehearsal) -> tuple[bool, int, float, float, int]:
            begun = 0 if rehearsal.way is not None else self._begun[rehearsal.name]
            return gains_little(rehearsal), begun, rehearsal.seconds, rehearsal.share, -rehearsal.size

        if (following := min(filter(may_start, self.at(host)), key=rank, default=None)) is not None:
            self._waiting[host].remove(following)
            self._begun[following.name] += 1
        return following

    def lost(self, rehearsal: Rehearsal) -> None:
        """Note that a rehearsal, which :meth:`take` has returned, had to end, and has lost its turn by no fault."""
        self._begun[rehearsal.name] -= 1

    def remove(self, is_void: Callable[[Rehearsal], bool]) -> list[Rehearsal]:
        """Remove the rehearsals for which `is_void` holds, and return them."""
        removed = [each for each in self if is_void(each)]
        for host, waiting in self._waiting.items():
            self._waiting[host] = [each for each in waiting if each not in removed]
        return removed

    def clear(self) -> None:
        """Remove all of them."""
        self._waiting.clear()
