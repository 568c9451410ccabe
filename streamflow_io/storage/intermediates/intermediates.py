"""Removes the files of a run that no job needs any more, while the run goes on."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import posixpath
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec import Struct, field
from streamflow.core.context import StreamFlowContext
from streamflow.core.deployment import ExecutionLocation
from streamflow.core.workflow import Status, Token, Workflow
from streamflow.log_handler import logger
from streamflow.workflow.step import ExecuteStep, InputInjectorStep, ScheduleStep

from streamflow_io._streamflow import copies_in, forget_data, token_value
from streamflow_io.adapters.jobs import JobState, Listener
from streamflow_io.adapters.outputs import is_early_port
from streamflow_io.adapters.steps import StreamingExecuteStep
from streamflow_io.graph.last_readers import LastReaders, Removal
from streamflow_io.messages import Code, coded
from streamflow_io.records.records import DiskRecord, Record, RemovedRecord
from streamflow_io.runtime.locations import node_name
from streamflow_io.runtime.node_runtime import NodeRuntime
from streamflow_io.runtime.protocol import JobSpec

from .directories import DirectoryContents, look, present, remove
from .disk_forecast import DiskForecast, disk_forecasts, free_bytes, warn_of_little_space
from .ledger import Decision, FileLedger, JobOutput, Ref
from .linked_files import FileNumber, LinkedFiles
from .space_watcher import RepeatedJobs, SpaceWatcher, kept_at_each_host

# Seconds. Steps that end because a job has ended do so meanwhile.
_SETTLING = 0.3
# The same where a job waits for space. What such steps free is removed after the longer time.
_HURRIED = 0.03
# Seconds between two looks at what running jobs have, if no job ends meanwhile.
_BETWEEN_LOOKS = 1.0
# The most of its time that the driver spends on these looks.
_SHARE_OF_LOOKS = 0.01
# Seconds for a look at what running jobs have, and for all looks beside a share of the time of the run. Before the
# answer there is no further look.
_MOST_FOR_RUNNING = 1.0
_MOST_FOR_ALL_RUNNING = 3.0
# The most of its time that the driver spends on decisions.
_SHARE = 0.05
# Seconds after which a location that does not answer is left alone.
_PATIENCE = 600.0
# The most that lies on disks for jobs that may run once more, too, as a part of the most without these.
_MORE = 1.1
# The number of directories that a message names.
_SHOWN = 2


class _Submitted(Struct):
    """Says that the ledger knows a job.

    :ivar directories: the names of all its directories, of all attempts
    :ivar temporary: the names of those for temporary files
    """

    directories: set[str] = field(default_factory=set)
    temporary: set[str] = field(default_factory=set)


class Intermediates(Listener):
    """Removes the directories of jobs, and what is in them, when no job needs that any more.

    - Nothing is removed while a job has failed and has not succeeded since.
    - StreamFlow's data manager forgets files before they are removed: its recovery runs their producer again.
    - A location that cannot be asked keeps its files.

    :param removal: what is known before the run
    :param repeated: the jobs that may run once more
    :param record: keeps a record for telemetry
    :param watchers: are told what lies on disk
    """

    def __init__(
        self,
        workflow: Workflow,
        context: StreamFlowContext,
        removal: Removal,
        repeated: RepeatedJobs,
        record: Callable[[Record], None],
        watchers: Sequence[SpaceWatcher] = (),
    ) -> None:
        self._watchers = tuple(watchers)
        self._steps = workflow.steps
        self._context = context
        self._removal = removal
        self._repeated = repeated
        self._record = record
        self._ledger = FileLedger()
        # By the name of a directory: where it is, and the bytes in it.
        self._places: dict[str, tuple[ExecutionLocation, ...]] = {}
        self._bytes: dict[str, int] = {}
        self._linked = LinkedFiles()
        # The jobs that no tool ends: StreamFlow copies results for them.
        self._collecting: dict[str, JobState] = {}
        self._silent: set[str] = set()
        # The directories of silent locations for which another location was asked, with that location.
        self._sought: set[tuple[str, str]] = set()
        # The directories in which something cannot be read: they may have links that are not known.
        self._unreadable: set[str] = set()
        self._peak = 0
        # The directories that only jobs keep which may run once more, and the peak of all others.
        self._kept_only = set[str]()
        self._own_peak = 0
        # By node. Directories that could not be removed count as held, and have no names any more.
        self._removed = Counter[str]()
        # The locations and sizes of directories that could not be removed, by path.
        self._stays: dict[str, tuple[ExecutionLocation, int]] = {}
        self._peaks = dict[str, int]()
        self._foretold = dict[str, DiskForecast]()
        self._recorded = (0, 0)
        self._turning: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[None] | None = None
        self._one_turn = asyncio.Lock()
        self._is_due = self._is_closed = self._is_over = False
        self._hurry = asyncio.Event()
        self._took = 0.0
        # The seconds that looks into the directories of running jobs have taken, and since when.
        self._looked, self._began = 0.0, time.monotonic()
        # The last of these looks, which may have no answer yet.
        self._look: asyncio.Task[dict[str, DirectoryContents]] | None = None
        for watcher in watchers:
            watcher.is_removing, watcher.hurry = self._is_turning, self._hurry.set
            watcher.holders = self._holders

    def begin(self, workflow: str) -> None:
        """Warn if the run may not fit on the disk.

        :param workflow: the CWL file, as records have it
        """
        self._foretold = disk_forecasts(workflow)
        warn_of_little_space(self._foretold, self._context.config)

    def submitted(self, job: JobState) -> None:
        step = self._steps.get(job.step)
        if isinstance(step, InputInjectorStep):
            return
        if not isinstance(step, ExecuteStep):
            self._collecting[job.name] = job
        values = {port: token_value(token) for port, token in job.job.inputs.items()}
        files = {port: self._ledger.files(value) for port, value in values.items()}
        has_failed = self._ledger.has_failed(job.name)
        self._ledger.submitted(job.name, _schedule(job.step), _depth(job), files, job.sources)
        job.keep(_Submitted())
        if has_failed:
            self._look_soon()

    def running(self, job: JobState) -> None:
        self._placed(job, "input_directory", "output_directory", "tmp_directory")
        if self._looking is None:
            self._looking = asyncio.create_task(self._looks())

    def starting(self, job: JobState, spec: JobSpec, runtime: NodeRuntime) -> JobSpec:
        # Each further attempt has new ones.
        self._placed(job, "output_directory", "tmp_directory")
        return spec

    def ended(self, job: JobState) -> None:
        if (submitted := job.kept(_Submitted)) is None:
            return
        self._placed(job, "output_directory", "tmp_directory")
        # Also of a job that has failed: others may have links to its copies.
        self._note_copies(job)
        if job.status is not Status.COMPLETED:
            step = job.executed_by
            delivers_early = isinstance(step, StreamingExecuteStep) and bool(step.early_outputs)
            self._ledger.ended(job.name, None, delivers_early)
            if self._watchers:
                self._look_soon()
            return
        self._ledger.ended(job.name, self._outputs(job, submitted.temporary))
        self._look_soon()

    async def finish(self) -> None:
        """Remove all that is left of a run whose steps have all ended, except its results."""
        self._is_over = True
        self._hurry.set()
        if self._turning is not None:
            await self._turning
        for job in self._collecting.values():
            self._placed(job, "input_directory", "output_directory", "tmp_directory")
            results = frozenset(self._ledger.files([token_value(token) for token in job.job.inputs.values()]))
            self._ledger.ended(job.name, [JobOutput(results, is_kept=True)])
        await self._turn(partial(self._look_and_remove, is_over=True))
        if not self._is_closed:
            self._record_disks()

    async def make_space(self) -> None:
        """Remove at once what no job needs, before a job fails: a full disk may be the reason. Raises nothing.

        When the job has failed, nothing is removed until its next attempt begins.
        """
        await self._turn(self._look_and_remove)

    async def run_closed(self) -> None:
        self._is_closed = True
        tasks = [task for task in (self._turning, self._looking) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _placed(self, job: JobState, *names: str) -> None:
        schedule = self._steps.get(_schedule(job.step))
        submitted = job.kept(_Submitted)
        if not isinstance(schedule, ScheduleStep) or job.allocation is None or submitted is None:
            return
        # A directory that the workflow names may be shared with others.
        paths = [getattr(job.job, name) for name in names if getattr(schedule, name) is None]
        paths = [path for path in paths if path]
        for path in paths:
            self._ledger.placed(job.name, [path], has_streams=path != job.job.input_directory)
        submitted.directories.update(map(posixpath.basename, paths))
        submitted.temporary.update(posixpath.basename(path) for path in paths if path == job.job.tmp_directory)
        for path in paths:
            self._places.setdefault(posixpath.basename(path), tuple(job.allocation.locations))

    def _outputs(self, job: JobState, temporary: Collection[str]) -> list[JobOutput]:
        """The outputs of a job that has succeeded. Where they are not known, all of the job is kept until the end."""
        step, depth = self._steps[job.step], _depth(job)
        directories = [job.job.input_directory, job.job.output_directory, job.job.tmp_directory]
        everything = frozenset(map(self._ledger.ref, filter(None, directories)))
        all_of_it = JobOutput(everything, readers=LastReaders(steps=frozenset({_UNTIL_THE_END})))
        if job.step in self._removal.held or self._ledger.has_run_before(job.name):
            return [all_of_it]
        outputs = []
        for port in (port for port in step.output_ports if not is_early_port(port)):
            token = _last_of(step.get_output_port(port).token_list, job.tag)
            readers = self._removal.readers.get((job.step, port))
            if token is None or readers is None:
                return [all_of_it]
            files = self._ledger.files(token_value(token))
            repeated = frozenset(file for file, count in Counter(files).items() if count > 1)
            is_kept = (job.step, port) in self._removal.kept
            outputs.append(JobOutput(frozenset(files), depth, repeated, readers, is_kept))
        # What jobs have got early may be in the directory of an earlier attempt.
        names = frozenset().union(*(output.readers.names for output in outputs))
        earlier = self._ledger.directories_of(job.name).difference(temporary, (file.directory for file in everything))
        if earlier:
            outputs.append(JobOutput(frozenset(Ref(name, "") for name in earlier), readers=LastReaders(steps=names)))
        return outputs

    def _note_copies(self, job: JobState) -> None:
        """Note which files in the directories of a job StreamFlow takes for the same as others."""
        for name in self._ledger.directories_of(job.name):
            for copy, file in copies_in(self._context.data_manager, self._ledger.path(name)):
                self._ledger.copied(self._ledger.ref(file), self._ledger.ref(copy))

    def _look_soon(self) -> None:
        if self._is_closed:
            return
        self._is_due = True
        if self._is_short:
            self._hurry.set()
        if self._turning is None or self._turning.done():
            self._turning = asyncio.create_task(self._turns())

    @property
    def _is_short(self) -> bool:
        """Whether a job waits for disk space."""
        return any(watcher.is_short for watcher in self._watchers)

    def _is_tight(self) -> bool:
        """Whether less is free on the driver's node than jobs have held at most: they may need as much once more."""
        places = {name: places[0] for name, places in self._places.items() if self._ledger.is_known(name)}
        here = {posixpath.dirname(self._ledger.path(name)): at for name, at in places.items() if at.local}
        return any(free_bytes(path) < self._peaks.get(node_name(at), 0) for path, at in here.items())

    def _is_pressed(self) -> bool:
        """Whether no more files are to be kept for jobs that may run once more, but need not."""
        most = _MORE * self._own_peak
        return self._is_tight() or (not self._repeated.keep_all and sum(self._held_by_node().values()) > most)

    async def _turns(self) -> None:
        # What was known at the last turn: the jobs that run once more, those that wait, and whether they are to end.
        before: tuple[Collection[str], Collection[str], bool] = (), (), False
        # A job that runs once more keeps its files. They are to go when the job has ended.
        while self._is_due or before[0] or before[1]:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._hurry.wait(), max(_SETTLING, self._took / _SHARE))
            if is_hurried := self._hurry.is_set() and not self._is_over:
                await asyncio.sleep(max(_HURRIED, self._took / _SHARE))
                self._hurry.clear()
            if self._is_over:
                return
            waiting = self._repeated.waiting()
            if waiting and self._is_short:
                self._repeated.give_up(waiting)
                self._is_due, waiting = True, {}
            repeated = {*self._repeated.held()}
            now = repeated, {*waiting}, bool(repeated or waiting) and self._is_pressed()
            if self._is_due or now != before:
                self._is_due, before = is_hurried, now
                await self._turn(self._look_and_remove)
            elif now[0] and (now[2] or self._is_short):
                await self._turn(self._end_repeated)

    async def _looks(self) -> None:
        """Measure what jobs have while they run: a temporary file may be gone before any job ends."""
        took = 0.0
        while not self._is_over and not self._is_closed:
            await asyncio.sleep(max(_BETWEEN_LOOKS, took / _SHARE_OF_LOOKS))
            before = self._looked
            await self._turn(self._see_running)
            took = self._looked - before

    async def _turn(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do a part of the work that nothing else may interrupt."""
        try:
            async with self._one_turn:
                if not self._is_closed:
                    await work()
        except Exception as error:
            # The run goes on: files that stay do no harm.
            self._is_closed = True
            kept = f"Intermediate files are kept from now on: {error!r}"
            for watcher in self._watchers:
                watcher.give_up()
            logger.warning(coded(kept, Code.NOT_REMOVED), exc_info=logger.isEnabledFor(logging.DEBUG))

    async def _look_and_remove(self, *, is_over: bool = False) -> None:
        """Look into the directories of jobs that have ended, decide, and remove."""
        await self._see_stays(self._stays)
        # Jobs that end from now on are measured next time, and until then nothing of them is seen, or removed.
        ended = dict.fromkeys(job for watcher in self._watchers for job in watcher.unmeasured())
        unseen = self._ledger.unseen()
        failed = [job for job in ended if job.status is not Status.COMPLETED]
        silent = -1
        while silent < len(self._silent):
            silent = len(self._silent)
            await self._find_elsewhere()
            left = {*self._ledger.unseen()} - self._unreadable
            await self._see([name for name in unseen if name in left])
            await self._see([name for job in failed for name in self._directories_of(job)], measures_only=True)
        await self._see_running()
        written = {job: self._written(job) for job in ended}
        self._record_held()
        began = time.monotonic()
        decision = self._decide(is_over)
        keeps_more = bool(self._repeated.held() or self._repeated.waiting())
        could_go = self._ledger.decide(self._has_ended).whole if keeps_more else ()
        self._kept_only = {*could_go}.difference(decision.whole)
        self._took = time.monotonic() - began
        if decision.whole or decision.parts:
            await self._remove(decision)
        for watcher in self._watchers:
            watcher.measured(self._held_by_node(), written)

    def _decide(self, is_over: bool) -> Decision:
        """Decide what can be removed. Of the jobs that wait to run once more, those that would keep most are given up.

        Nothing may begin between the decision and the removal.
        """

        decide = partial(self._ledger.decide, lambda name: is_over or self._has_ended(name), is_over=is_over)
        held, waiting = self._repeated.held(), self._repeated.waiting()
        decision = decide(held)
        going = {*decision.whole, *decision.parts}
        needs = {job: needed for job in waiting if (needed := self._ledger.needs(job) & going)}
        if not needs:
            return decision
        kept = {job: sum(self._bytes.get(name, 0) for name in needed) for job, needed in needs.items()}
        chosen: Collection[str] = ()
        if not self._is_pressed():
            chosen = kept_at_each_host(waiting, kept, self._repeated.fruitless() if len(kept) > 1 else ())
        self._repeated.keep(chosen)
        self._repeated.give_up(kept.keys() - {*chosen})
        return decide({*held, *chosen})

    async def _end_repeated(self) -> None:
        """Let the jobs end that run once more, and without which more files could be removed."""
        began, held = time.monotonic(), self._repeated.held()
        now, then = (self._ledger.decide(self._has_ended, jobs) for jobs in (held, ()))
        less_left = [name for name, left in then.parts.items() if now.parts.get(name) != left]
        could_go = {*then.whole, *less_left}.difference(now.whole)
        self._repeated.end([job for job in held if self._ledger.needs(job) & could_go])
        self._took = time.monotonic() - began

    def _is_turning(self) -> bool:
        return self._turning is not None and not self._turning.done()

    def _directories_of(self, job: JobState) -> list[str]:
        """The names of the directories of a job that are left. Another job may have its name by now."""
        submitted = job.kept(_Submitted)
        return [] if submitted is None else [*filter(self._ledger.is_known, submitted.directories)]

    def _written(self, job: JobState) -> int | None:
        """The bytes in the directories of a job that has ended; None: some directory could not be read."""
        found = [self._bytes.get(name) for name in self._directories_of(job)]
        return None if None in found else sum(size or 0 for size in found)

    def _held_by_node(self) -> Mapping[str, int]:
        held = Counter[str]()
        for location, size in self._stays.values():
            held[node_name(location)] += size
        for name, size in self._bytes.items():
            held[node_name(self._places[name][0])] += size
        return held

    def _holders(self, nodes: Collection[str]) -> list[tuple[str, int]]:
        """The largest directories on some nodes, by the outputs in them."""
        names = [name for name in self._bytes if node_name(self._places[name][0]) in nodes]
        found = [(self._bytes[name], self._ledger.shown(name)) for name in names]
        found += [(size, path) for path, (at, size) in self._stays.items() if node_name(at) in nodes]
        return [(shown, size) for size, shown in sorted(found, reverse=True)[:_SHOWN] if size]

    def _has_ended(self, name: str) -> bool:
        step = self._steps.get(name)
        return step is not None and bool(step.terminated)

    async def _see(self, names: Collection[str], *, measures_only: bool = False) -> None:
        found: dict[str, list[DirectoryContents]] = defaultdict(list)

        async def ask(location: ExecutionLocation, paths: Mapping[str, str]) -> None:
            with self._asking(location):
                told = await asyncio.wait_for(look(self._context, location, [*paths]), _PATIENCE)
                if not measures_only:
                    self._unreadable.update(paths[path] for path in paths if path not in told)
                for path, seen in told.items():
                    found[paths[path]].append(seen)

        by_location = self._by_location(names)
        await asyncio.gather(*(ask(location, paths) for location, paths in by_location))
        for name, all_seen in found.items():
            if len(all_seen) == len(self._places[name]) and self._ledger.is_known(name):
                if not measures_only:
                    self._ledger.seen(name, {link: text for seen in all_seen for link, text in seen.links.items()})
                linked = {file: size for seen in all_seen for file, size in seen.linked.items()}
                self._bytes[name] = sum(seen.bytes for seen in all_seen) - self._count_linked(name, linked)[0]
        held = self._held_by_node()
        kept_only = sum(self._bytes.get(name, 0) for name in self._kept_only)
        self._own_peak = max(self._own_peak, sum(held.values()) - kept_only)
        self._note_peak(held)

    def _note_peak(self, held: Mapping[str, int]) -> None:
        """:param held: by node: bytes that are there at the same time"""
        self._peak = max(self._peak, sum(held.values()))
        for node, size in held.items():
            self._peaks[node] = max(self._peaks.get(node, 0), size)

    async def _see_running(self) -> None:
        """Measure what jobs have on the driver's node that have not ended: it counts for the peak.

        Large directories are measured rarely: files that go must not wait for that.
        """
        began = time.monotonic()
        is_late = self._look is not None and not self._look.done()
        if is_late or self._looked > _MOST_FOR_ALL_RUNNING + _SHARE * (began - self._began):
            return
        new = [name for name in self._ledger.left() if name not in self._bytes]
        here = [name for name in new if all(location.local for location in self._places[name])]
        if here:
            paths, location = map(self._ledger.path, here), self._places[here[0]][0]
            self._look = asyncio.create_task(look(self._context, location, [*paths]))
            if (await asyncio.wait([self._look], timeout=_MOST_FOR_RUNNING))[0]:
                told = self._look.result().values()
                running = sum(seen.bytes - self._linked.counted(seen.linked) for seen in told)
                held, node = self._held_by_node(), node_name(location)
                self._note_peak({**held, node: held.get(node, 0) + running})
        self._looked += time.monotonic() - began

    def _count_linked(self, name: str, linked: Mapping[FileNumber, int]) -> tuple[int, int]:
        """Count the files once that other directories have, too.

        :param linked: those files of a directory that have several names; none: the directory is gone
        :return: the bytes of those that count for other directories, and the bytes that count there from now on
        """
        elsewhere, changes = self._linked.seen(name, linked)
        for other, change in changes.items():
            self._bytes[other] += change
        less = {self._ledger.path(other): -change for other, change in changes.items() if change < 0}
        for watcher in self._watchers:
            watcher.freed(less)
        return elsewhere, sum(change for change in changes.values() if change > 0)

    async def _find_elsewhere(self) -> None:
        """Let another location answer for the directories of one that does not: the two may share them."""
        if not self._silent:
            return
        known = [at for places in (*self._places.values(), *(w.locations for w in self._watchers)) for at in places]
        others = {str(at): at for at in known if str(at) not in self._silent}
        lost = {
            name: places[0].deployment
            for name, places in self._places.items()
            if self._ledger.is_known(name) and all(str(at) in self._silent for at in places)
        }
        for key, other in others.items():
            paths = {
                self._ledger.path(name): name
                for name, deployment in lost.items()
                if deployment == other.deployment and (name, key) not in self._sought
            }
            if not paths:
                continue
            self._sought.update((name, key) for name in paths.values())
            with self._asking(other):
                for path in await asyncio.wait_for(present(self._context, other, [*paths]), _PATIENCE):
                    self._places[paths[path]] = (other,)
                    del lost[paths[path]]

    async def _see_stays(self, paths: Collection[str]) -> None:
        """Look what is left by now of directories that could not be removed: NFS keeps files that are still open."""
        by_location: dict[str, list[str]] = defaultdict(list)
        for path in paths:
            by_location[str(self._stays[path][0])].append(path)
        for place, there in by_location.items():
            location = self._stays[there[0]][0]
            if place not in self._silent:
                with self._asking(location):
                    told = await asyncio.wait_for(look(self._context, location, there), _PATIENCE)
                    self._stays.update({path: (location, seen.bytes) for path, seen in told.items()})
        self._stays = {path: (at, size) for path, (at, size) in self._stays.items() if size}

    async def _remove(self, decision: Decision) -> None:
        before = self._held_by_node()
        paths = {name: self._ledger.path(name) for name in (*decision.whole, *decision.parts)}
        sizes = {path: self._bytes.get(name, 0) for name, path in paths.items()}
        by_location = self._by_location([*decision.whole, *decision.parts])
        whole = {self._ledger.path(name): name for name in decision.whole}
        partly = {self._ledger.path(name): left for name, left in decision.parts.items()}
        dropped = {self._ledger.path(name): self._ledger.dropped(name, left) for name, left in decision.parts.items()}
        # Nothing may wait between the decision and this: a job must not get a file that is to be removed.
        for name in (*decision.whole, *decision.parts):
            left = decision.parts.get(name)
            forget_data(self._context.data_manager, self._ledger.path(name), left or frozenset())
            self._ledger.removed(name, left)

        stay = set[str]()

        async def ask(location: ExecutionLocation, paths: Mapping[str, str]) -> None:
            with self._asking(location):
                parts = {path: partly[path] for path in paths if path in partly}
                removal = remove(self._context, location, [*paths.keys() - partly.keys()], parts, dropped)
                stay.update(await asyncio.wait_for(removal, _PATIENCE))

        await asyncio.gather(*(ask(location, paths) for location, paths in by_location))
        new = list[str]()
        for path, name in whole.items():
            size, at = self._bytes.pop(name, 0), self._places.pop(name)
            sizes[path] -= self._count_linked(name, {})[1]
            if path in stay or any(str(each) in self._silent for each in at):
                self._stays[path] = at[0], size
                new.append(path)
                stay.add(path)
        await self._see_stays(new)
        await self._see(decision.parts)
        held = {path: size for path, (_, size) in self._stays.items()}
        held |= {paths[name]: self._bytes.get(name, 0) for name in decision.parts}
        freed = {path: max(size - held.get(path, 0), 0) for path, size in sizes.items()}
        for watcher in self._watchers:
            watcher.freed(freed)
            watcher.removed(whole.keys() - stay)
        after = self._held_by_node()
        self._removed.update({node: size - after.get(node, 0) for node, size in before.items()})
        self._record_held()

    def _record_held(self) -> None:
        held = sum(self._held_by_node().values())
        removed = self._removed.total()
        if (removed, held) != self._recorded:
            self._recorded = removed, held
            limit = next((watcher.limit for watcher in self._watchers if watcher.limit is not None), None)
            self._record(RemovedRecord(time.time(), removed, held, self._peak, limit))

    def _record_disks(self) -> None:
        held = self._held_by_node()
        for node, peak in self._peaks.items():
            foretold = self._foretold.get(node)
            expected = (None, None) if foretold is None else (foretold.peak, foretold.written)
            # A copy that StreamFlow has made elsewhere may be nothing but a link.
            if written := self._removed[node] + held.get(node, 0):
                self._record(DiskRecord(time.time(), node, peak, written, *expected))

    def _by_location(self, names: Iterable[str]) -> list[tuple[ExecutionLocation, dict[str, str]]]:
        """The paths of directories, with their names, by location. Locations that do not answer are left out."""
        locations: dict[str, ExecutionLocation] = {}
        paths: dict[str, dict[str, str]] = defaultdict(dict)
        for name in names:
            for location in self._places[name]:
                if str(location) not in self._silent:
                    locations[str(location)] = location
                    paths[str(location)][self._ledger.path(name)] = name
        return [(locations[key], found) for key, found in paths.items()]

    @contextlib.contextmanager
    def _asking(self, location: ExecutionLocation) -> Any:
        try:
            yield
        # Connectors raise what the libraries behind them do.
        except Exception as error:
            self._silent.add(str(location))
            kept = f"Intermediate files on {location} are kept, because it does not answer: {error!r}"
            logger.warning(coded(kept, Code.NOT_REMOVED))


# The name of no step.
_UNTIL_THE_END = ""


def _schedule(step: str) -> str:
    return posixpath.join(step, "__schedule__")


def _depth(job: JobState) -> int:
    return job.tag.count(".") + 1


def _last_of(tokens: Sequence[Token], tag: str) -> Token | None:
    """The last token with a tag."""
    return next((token for token in reversed(tokens) if token.tag == tag), None)
