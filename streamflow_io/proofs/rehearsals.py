"""Rehearses on idle cores the inputs that may stream without a hint, or are declared to, and keeps the results.

:mod:`.rehearsal_rules` decides most of it. Nothing here makes a run fail, or take longer.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from functools import partial

from msgspec import Struct
from msgspec.structs import replace
from streamflow.core.context import StreamFlowContext
from streamflow.core.exception import WorkflowException
from streamflow.core.scheduling import AvailableLocation, Hardware
from streamflow.core.workflow import Job, Token
from streamflow.cwl.command import CWLCommand
from streamflow.log_handler import logger
from streamflow.scheduling.scheduler import JobAllocation
from streamflow.workflow.utils import get_token_value

from streamflow_io.adapters.attempts import ProducerFailedError, StreamingJobs
from streamflow_io.adapters.job_spec import is_whole_file
from streamflow_io.adapters.jobs import JobState, Listener
from streamflow_io.adapters.paths import job_path
from streamflow_io.adapters.steps import StreamingExecuteStep
from streamflow_io.adapters.tokens import (
    StreamToken,
    file_tokens,
    file_value,
    parts_of,
    stream_tokens,
    streams_of,
    with_files,
)
from streamflow_io.graph.candidates import Candidate
from streamflow_io.hints.config import SchedulerConfig
from streamflow_io.hints.inheritance import StepAnnotations
from streamflow_io.jobs.learned_streams import not_as_declared
from streamflow_io.jobs.programs import Programs
from streamflow_io.jobs.proof_key import OtherPrograms, proof_key
from streamflow_io.records.jobs import RehearsedRecord
from streamflow_io.records.learned.extents import Extent, Extents, bound_of, hold_for
from streamflow_io.records.learned.proofs import Proof, ProofKey, RememberedProofs
from streamflow_io.records.records import Record
from streamflow_io.runtime.locations import innermost, stack_of
from streamflow_io.runtime.node_runtime import NodeRuntime
from streamflow_io.runtime.protocol import ExitEvent
from streamflow_io.runtime.wire import cpu_of
from streamflow_io.wording import counted, size_text

from .comparison import Comparison
from .original_job import JobResult, OriginalJob, span_of
from .rehearsal import Rehearsal, rehearsing
from .rehearsal_rules import Finding, FreeRoom, may_start, obstacle_of_work_dir, unknown
from .repeated_job import NotApartError

# Seconds. Jobs that become ready because a job has ended do so meanwhile.
_SETTLING = 0.2
# Seconds for which the end of a run may wait while outputs that exist already are compared.
_COMPARING = 1.0
# The most tries of a rehearsal that has to end each time before it has shown anything.
_MOST_TRIES = 3
# The most rehearsals that wait at a host. Where each job has a value of its own, there may be thousands.
_MOST_WAITING = 64


class _RunningRehearsal(Struct):
    """A rehearsal that runs.

    :ivar is_beside: the rehearsal has begun before its job has ended
    :ivar has_begun: its task runs
    :ivar is_void: its job has failed
    """

    rehearsal: Rehearsal
    place: AvailableLocation
    is_beside: bool
    task: asyncio.Task[None] | None = None
    has_begun: bool = False
    is_ending: bool = False
    is_void: bool = False

    def end(self) -> None:
        """End the rehearsal, but only once: its clean-up must not be cancelled."""
        if not self.is_ending and self.task is not None:
            self.is_ending = True
            # A task that is cancelled before it has begun runs no `finally`.
            if self.has_begun:
                self.task.cancel()


class Rehearsals(Listener):
    """The rehearsals of a run: one at a time at each location, and only while StreamFlow's accounts have a core free.

    :param candidates: the steps that may stream without a hint, or stream because they are declared, by path
    :param is_auto: whether proven inputs are to stream without a hint
    :param hints: of the steps of the workflow, by path
    :param programs: the programs of the candidates that differ where jobs run
    :param streaming_jobs: the jobs that stream to others
    :param jobs: the scheduled jobs, by name
    :param used: the hardware in use, by the name of a location
    :param record: keeps a record for telemetry
    """

    def __init__(
        self,
        candidates: Mapping[str, Candidate],
        is_auto: bool,
        hints: Mapping[str, StepAnnotations],
        config: SchedulerConfig,
        context: StreamFlowContext,
        proofs: RememberedProofs,
        programs: Programs,
        streaming_jobs: StreamingJobs,
        jobs: Mapping[str, JobAllocation],
        used: Mapping[str, Hardware],
        record: Callable[[Record], None],
    ) -> None:
        self._candidates = candidates
        self._is_auto = is_auto
        self._hints = hints
        self._config = config
        self._context = context
        self._proofs = proofs
        self._programs = programs
        self._streaming_jobs = streaming_jobs
        self._jobs = jobs
        self._used = used
        self._record = record
        # The places of the jobs of candidates, by name.
        self._places: dict[str, AvailableLocation] = {}
        # The sizes of the largest files for which a rehearsal was begun.
        self._seen: dict[ProofKey, Extents] = {}
        # The declared inputs that are compared: of each only one job, whatever its options.
        self._compared: set[tuple[str, str]] = set()
        # Tasks that find out what a rehearsal would prove.
        self._adding: set[asyncio.Task[None]] = set()
        self._queues: set[str] = set()
        self._gateless: set[NodeRuntime] = set()
        # The runtimes under which nothing can run beside its job.
        self._open: set[NodeRuntime] = set()
        # The jobs that run, by name.
        self._originals: dict[str, OriginalJob] = {}
        # By name of a job that reads streams: what is to be done when the job has succeeded.
        self._reading: dict[str, Callable[[], Coroutine[None, None, None]]] = {}
        # By name of a declared input that is not read as declared: how it is read.
        self._refuted: dict[str, str] = {}
        # Tasks with a finding, which counts when its job has succeeded.
        self._confirming: dict[asyncio.Task[None], Rehearsal] = {}
        # The number of rehearsals begun, by input.
        self._begun: Counter[str] = Counter()
        # By the name of the host, or of the location nearest to it.
        self._waiting: dict[str, list[tuple[Rehearsal, AvailableLocation]]] = {}
        self._running: dict[str, _RunningRehearsal] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._is_closed = False
        self._is_silent = _NoMessages()
        logger.addFilter(self._is_silent)

    async def close(self, *, waits: bool = False, is_well: bool = True) -> None:
        """End all rehearsals. Returns when nothing of them is left.

        :param waits: whether rehearsals may come to their own end first, because nothing else runs any more
        :param is_well: whether the run has succeeded; then outputs that exist already are compared
        """
        try:
            if waits:
                await self._finish()
            elif is_well and self._is_auto:
                await self._compare()
        finally:
            await self._end()
            for name, how in self._refuted.items():
                logger.warning(not_as_declared(name, f"{how}. The results of this run are those of the stream"))

    def held(self) -> frozenset[str]:
        """The names of the jobs whose files a rehearsal reads, or may read."""
        rehearsals = [each for waiting in self._waiting.values() for each, _ in waiting]
        rehearsals += [each.rehearsal for each in self._running.values()]
        rehearsals += self._confirming.values()
        names = {rehearsal.original.job.name for rehearsal in rehearsals}
        return frozenset(names | {adding.get_name() for adding in self._adding})

    async def _compare(self) -> None:
        """Begin no more rehearsals, and wait for those whose outputs are compared with jobs that have just ended."""
        self._is_closed = True
        deadline = time.monotonic() + _COMPARING
        running = [each.task for each in self._running.values() if each.rehearsal.is_compared]
        if compared := [task for task in running if task is not None]:
            await asyncio.wait(compared, timeout=_COMPARING)
        if self._confirming:
            await asyncio.wait(self._confirming, timeout=max(0.0, deadline - time.monotonic()))

    async def _finish(self) -> None:
        """Wait until there is nothing to rehearse, or no room for a rehearsal."""
        await asyncio.gather(*self._adding, return_exceptions=True)
        if waiting := sum(map(len, self._waiting.values())) + len(self._running):
            logger.info(f"The run waits for {counted(waiting, 'rehearsal')} of inputs that may stream")
        self.look()
        while self._running or self._timers or self._confirming:
            running = [each.task for each in self._running.values() if each.task is not None]
            if running := [*running, *self._confirming]:
                await asyncio.wait(running)
            else:
                await asyncio.sleep(_SETTLING)

    async def _end(self) -> None:
        self._is_closed = True
        for timer in self._timers.values():
            timer.cancel()
        self._waiting.clear()
        for adding in self._adding:
            adding.cancel()
        running = list(self._running.values())
        for each in running:
            each.end()
        tasks = (each.task for each in running if each.task is not None)
        await asyncio.gather(*tasks, *self._adding, return_exceptions=True)
        # A rehearsal that was ended may just have shown something.
        for confirming in self._confirming:
            confirming.cancel()
        await asyncio.gather(*self._confirming, return_exceptions=True)
        logger.removeFilter(self._is_silent)

    def placed(self, job: JobState) -> None:
        if job.step in self._candidates and len(job.places) == 1:
            self._places[job.name] = job.places[0]
        self.look()

    def begins(
        self,
        step: StreamingExecuteStep,
        job: Job,
        runtime: NodeRuntime,
        inputs: Mapping[str, Token],
        streams: Collection[str] = (),
    ) -> None:
        """Note that an attempt of a job is about to run. Never waits, and never fails.

        :param inputs: before an InitialWorkDirRequirement has changed them
        :param streams: the names of the inputs whose bytes the job reads while they are written
        """
        candidate, place = self._candidates.get(step.name), self._places.get(job.name)
        if self._is_closed or candidate is None or place is None:
            return
        if (candidate.once or self._obstacle(step, inputs)) is not None:
            return
        allocation = self._jobs[job.name]
        connector = self._context.deployment_manager.get_connector(allocation.target.deployment.name)
        reads = streams_of(inputs)
        if reads:
            ports = [port for port in candidate.declared if port in streams]
        else:
            ports = [port for port in candidate.inputs if _can_be_rehearsed(inputs.get(port))]
        if reads and not self._can_be_compared(job, inputs, streams):
            return
        if connector is None or not ports:
            return
        if runtime.wrapper == "run":
            self._leave_queue_alone(allocation.target.deployment.name)
        if runtime.wrapper == "run" or runtime in self._gateless:
            return
        attempt = Job(
            job.name, job.workflow_id, job.inputs, job.input_directory, job.output_directory, job.tmp_directory
        )
        hardware = self._context.scheduler.get_hardware(job.name)
        original = OriginalJob(step, attempt, runtime, inputs, hardware, connector)
        self._originals[job.name] = original
        if reads:
            self._reading[job.name] = partial(self._look_for_files, original, place, candidate, ports)
        elif runtime.is_here:
            self._add(original, place, candidate, ports, ())
        else:
            self._start_adding(job.name, self._look_and_add(original, place, candidate, ports))

    def _start_adding(self, job: str, adding: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(adding, name=job)
        self._adding.add(task)
        task.add_done_callback(self._adding.discard)

    def _can_be_compared(self, job: Job, inputs: Mapping[str, Token], streams: Collection[str]) -> bool:
        """Whether a job reads all of its streams as bytes, and their files are where the job runs."""
        names = {name for name, token in inputs.items() if next(stream_tokens(token), None) is not None}
        places = {_places_of(self._jobs[token.source.job]) for token in streams_of(inputs)}
        return names <= {*streams} and places == {_places_of(self._jobs[job.name])}

    def succeeded(self, job: Job, outputs: Mapping[str, Token], exit_event: ExitEvent) -> None:
        """Note that the attempt has succeeded; it still holds its cores. Never waits, and never fails.

        :param outputs: as StreamFlow has made them
        :param exit_event: of the command of the attempt
        """
        self._places.pop(job.name, None)
        if (original := self._originals.pop(job.name, None)) is not None:
            span = span_of(exit_event)
            original.result.set_result(JobResult(outputs, span[1] - span[0], cpu_of(exit_event.usage), span))
            if (reading := self._reading.pop(job.name, None)) is not None:
                self._start_adding(job.name, reading())

    def attempt_ended(self, job: Job) -> None:
        """Note that the attempt has ended; it has failed unless :meth:`succeeded` was called.

        Never waits, and never fails.
        """
        self._reading.pop(job.name, None)
        self._places.pop(job.name, None)
        if (original := self._originals.pop(job.name, None)) is None:
            return
        void: list[Rehearsal] = []
        for host, waiting in self._waiting.items():
            void += [each for each, _ in waiting if each.original is original]
            self._waiting[host] = [each for each in waiting if each[0].original is not original]
        for running in self._running.values():
            if running.rehearsal.original is original:
                void.append(running.rehearsal)
                running.is_void = True
                running.end()
        for task, confirming in self._confirming.items():
            if confirming.original is original:
                void.append(confirming)
                task.cancel()
        # The next attempt is rehearsed anew.
        for each in void:
            self._seen.pop(each.key, None)

    async def _look_for_files(
        self, original: OriginalJob, place: AvailableLocation, candidate: Candidate, ports: Sequence[str]
    ) -> None:
        """Add the rehearsals of a job that has read streams, and has succeeded."""
        try:
            files = {id(token): await self._file(original.job, token) for token in streams_of(original.inputs)}
        except (ProducerFailedError, WorkflowException):
            return
        inputs = {name: with_files(token, files) for name, token in original.inputs.items()}
        if ports := [port for port in ports if _can_be_rehearsed(inputs[port])]:
            await self._look_and_add(replace(original, inputs=inputs), place, candidate, ports)

    async def _file(self, job: Job, stream: StreamToken) -> Token:
        """Return the token of the complete file of a stream.

        The file is at the path that the stream had, or where the producer has made it: standard input has no path.
        """
        final = await self._streaming_jobs.get(stream.source.job).final(stream.source.port, stream.source.path)
        is_there = await job_path(self._context, job, stream.value["path"]).exists()
        file = final.update({**final.value, **(file_value(stream.value["path"]) if is_there else {})})
        file.tag, file.persistent_id = stream.tag, final.persistent_id
        return file

    async def _look_and_add(
        self, original: OriginalJob, place: AvailableLocation, candidate: Candidate, ports: Sequence[str]
    ) -> None:
        programs = await self._programs.of(original.runtime, candidate)
        if programs is not None and not self._is_closed:
            self._add(original, place, candidate, ports, programs)

    def _add(
        self,
        original: OriginalJob,
        place: AvailableLocation,
        candidate: Candidate,
        ports: Sequence[str],
        programs: OtherPrograms,
    ) -> None:
        values = {name: get_token_value(token) for name, token in original.inputs.items()}
        keys = {port: proof_key(candidate, port, values, programs) for port in ports}
        rehearsals = [
            (Comparison if key.kind == "declared" else Rehearsal)(original, port, key, self._config.verify)
            for port, key in keys.items()
        ]
        if not (new := [each for each in rehearsals if self._is_new(each)]):
            return
        waiting = self._waiting.setdefault(str(innermost(place).name), [])
        for rehearsal in new[: max(0, _MOST_WAITING - len(waiting))]:
            # A larger file proves more than a smaller one that waits.
            waiting[:] = [each for each in waiting if each[0].key != rehearsal.key or each[0].spent]
            self._seen[rehearsal.key] = tuple(Extent(size, size) for size in rehearsal.job.sizes)
            if rehearsal.key.kind == "declared":
                self._compared.add((rehearsal.key.tool, rehearsal.key.port))
            waiting.append((rehearsal, place))
        self.look()

    def _is_new(self, rehearsal: Rehearsal) -> bool:
        """Whether a rehearsal may prove something unknown that no other rehearsal is to prove."""
        key, sizes = rehearsal.key, rehearsal.job.sizes
        if key.kind == "declared":
            if key in self._seen or (key.tool, key.port) in self._compared:
                return False
            known = self._proofs.of(key)
            if known is not None and known.is_refused and self._config.declarations == "strict":
                return True
        elif key in self._seen and hold_for(self._seen[key], sizes):
            return False
        return self._proofs.is_wanted(key, sizes)

    def _leave_queue_alone(self, deployment: str) -> None:
        """Log once that nothing is rehearsed on a queue manager.

        Its cores were not granted to rehearsals, and no user wants a rehearsal as a job in the queue.
        """
        if self._is_auto and deployment not in self._queues:
            self._queues.add(deployment)
            logger.info(
                f"Nothing is rehearsed on {deployment}, whose cores are granted to jobs only. Inputs that "
                "were proven elsewhere with the same programs stream there"
            )

    def look(self) -> None:
        """Look at StreamFlow's accounts, which have changed: rehearsals without a core end, others may begin soon."""
        for running in self._running.values():
            if not self._may_start(running.rehearsal, self._rooms(running.place)):
                running.end()
        if self._is_closed:
            return
        for host in self._waiting:
            if host not in self._running and host not in self._timers and any(True for _ in self._able(host)):
                self._timers[host] = asyncio.get_running_loop().call_later(_SETTLING, self._begin, host)

    def _next(self, host: str) -> tuple[Rehearsal, AvailableLocation] | None:
        """The rehearsal to begin next at a host; None: no rehearsal may start.

        The input with the fewest rehearsals comes first, then the shortest rehearsal. A core may be idle for a short
        time only, and a rehearsal that has to end too early is lost. Among equals the largest file comes first, because
        it gains most.
        """

        def rank(waiting: tuple[Rehearsal, AvailableLocation]) -> tuple[int, float, float, int]:
            rehearsal, _ = waiting
            return self._begun[rehearsal.name], rehearsal.seconds, rehearsal.share, -rehearsal.size

        return min(self._able(host), key=rank, default=None)

    def _able(self, host: str) -> Iterator[tuple[Rehearsal, AvailableLocation]]:
        """Yield the rehearsals that may start. Called for each placed job, so the room of a place is found once."""
        rooms: dict[str, list[FreeRoom]] = {}
        for rehearsal, place in self._waiting[host]:
            if (found := rooms.get(place.name)) is None:
                found = rooms[place.name] = self._rooms(place)
            if self._may_start(rehearsal, found):
                yield rehearsal, place

    def _begin(self, host: str) -> None:
        del self._timers[host]
        if self._is_closed or (chosen := self._next(host)) is None:
            return
        self._waiting[host].remove(chosen)
        rehearsal, place = chosen
        self._begun[rehearsal.name] += 1
        # The task does not run before it is entered here.
        self._running[host] = running = _RunningRehearsal(rehearsal, place, not rehearsal.original.has_ended)
        running.task = asyncio.create_task(self._rehearse(host, running))

    async def _rehearse(self, host: str, running: _RunningRehearsal) -> None:
        rehearsal, began = running.rehearsal, time.time()
        running.has_begun = True
        try:
            try:
                if running.is_ending:
                    raise asyncio.CancelledError
                finding = await asyncio.create_task(rehearsal.run())
            finally:
                rehearsal.spent += time.time() - began
            # The result is kept, even if its core is wanted now.
            running.is_ending = True
            self._has_shown(host, running, finding)
        except NotApartError:
            self._open.add(rehearsal.original.runtime)
            self._put_back(host, running)
        except asyncio.CancelledError:
            # Beside its job, a rehearsal may be ended as often as needed.
            rehearsal.killed += not running.is_beside
            if rehearsal.killed == _MOST_TRIES:
                self._tell(rehearsal, unknown("its core was wanted"))
            else:
                self._put_back(host, running)
        finally:
            del self._running[host]
            self.look()

    def _put_back(self, host: str, running: _RunningRehearsal) -> None:
        if not (running.is_void or self._is_closed):
            self._waiting[host].append((running.rehearsal, running.place))

    def _has_shown(self, host: str, running: _RunningRehearsal, finding: Finding | None) -> None:
        rehearsal = running.rehearsal
        if finding is None:
            self._put_back(host, running)
        elif running.is_beside and not finding.is_known and not finding.is_of_place:
            rehearsal.waits_for_its_job = True
            self._put_back(host, running)
        else:
            task = asyncio.create_task(self._confirm(host, running, finding))
            self._confirming[task] = rehearsal
            task.add_done_callback(self._confirming.pop)

    async def _confirm(self, host: str, running: _RunningRehearsal, finding: Finding) -> None:
        """Keep a finding when its job has succeeded."""
        confirmed = await running.rehearsal.confirmed(finding)
        if confirmed is not None:
            await self._found(running.rehearsal, confirmed)
        else:
            self._put_back(host, running)
            self.look()

    async def _found(self, rehearsal: Rehearsal, finding: Finding) -> None:
        known = self._proofs.of(rehearsal.key)
        if finding.is_known and finding.way is None and known is not None and known.is_proven:
            tried, bound = size_text(rehearsal.size), bound_of(known.extents)
            before = "before" if bound is None else f"up to {size_text(bound)}"
            finding = dataclasses.replace(finding, reason=f"{finding.reason} (with {tried}; it was proven {before})")
        self._tell(rehearsal, finding)
        if finding.is_of_place:
            runtime = rehearsal.original.runtime
            self._gateless.add(runtime)
            for host, waiting in self._waiting.items():
                self._waiting[host] = [each for each in waiting if each[0].original.runtime is not runtime]
        if not finding.is_known:
            return
        step = rehearsal.original.step.name
        failures = self._proofs.failures(rehearsal.key)
        if finding.has_failed:
            failures += 1
        elif finding.way is None:
            failures = 0  # the input is refused for good
        way, reason, size, excerpt = finding.way, finding.reason, rehearsal.size, finding.excerpt
        key, now = rehearsal.key, time.time()
        sizes = rehearsal.job.sizes
        # A declared stream is compared as a whole.
        read = sizes if key.kind == "declared" else finding.read
        extents = tuple(map(Extent, read, sizes)) if way else ()
        for host, waiting in self._waiting.items():
            self._waiting[host] = [
                each for each in waiting if each[0].key != key or (extents and not hold_for(extents, each[0].job.sizes))
            ]
        proof = Proof(key, step, now, way, reason, size, failures=failures, excerpt=excerpt, extents=extents)
        await self._proofs.remember(proof)

    def _tell(self, rehearsal: Rehearsal, finding: Finding) -> None:
        original, name = rehearsal.original, rehearsal.name
        if rehearsal.key.kind == "declared" and finding.is_known:
            if finding.way is None:
                self._refuted[name] = finding.reason or "it is read in another way"
            how = f": {finding.reason}" if finding.reason else f", in {rehearsal.spent:.1f} s"
            logger.info(f"{name}, which is declared `streamable`, was compared with the complete file{how}")
        elif finding.way is not None:
            how = "" if finding.excerpt is None else f"with the first {size_text(finding.excerpt)} "
            logger.info(f"{name} may be read while it is written: proven {how}in {rehearsal.spent:.1f} s")
        elif finding.is_known:
            logger.info(f"{name} is not streamed: {finding.reason}")
        else:
            logger.info(f"Whether {name} may be read while it is written is not known yet: {finding.reason}")
        self._record(
            RehearsedRecord(
                time=time.time(),
                job=original.job.name,
                step=original.step.name,
                input=name,
                way=finding.way,
                reason=finding.reason,
                known=finding.is_known,
                seconds=rehearsal.spent,
                bytes=rehearsal.size,
                excerpt=finding.excerpt,
            )
        )

    def _obstacle(self, step: StreamingExecuteStep, inputs: Mapping[str, Token]) -> str | None:
        """Why a job cannot be run once more; None: no obstacle."""
        command, hints = step.command, self._hints.get(step.name)
        if not isinstance(command, CWLCommand) or step.output_connectors:
            return "it is no command, or its outputs are elsewhere"
        if hints is not None and hints.concern_storage:
            return "it has hints about storage"
        if command.inplace_update:
            return "it changes its inputs"
        if parts_of(inputs):
            return "it has read parts"
        return obstacle_of_work_dir(command.initial_work_dir, command.absolute_initial_workdir_allowed)

    def _may_start(self, rehearsal: Rehearsal, rooms: Sequence[FreeRoom]) -> bool:
        original = rehearsal.original
        if not original.has_ended and (rehearsal.waits_for_its_job or original.runtime in self._open):
            return False
        return may_start(rooms, float(original.hardware.memory))

    def _rooms(self, place: AvailableLocation) -> list[FreeRoom]:
        """The free room of a place, and of all that the place is on."""
        return [
            FreeRoom(float(hardware.cores - used.cores), float(hardware.memory - used.memory))
            for each in stack_of(place)
            if (hardware := each.hardware) is not None
            for used in [self._used.get(each.name, Hardware())]
        ]


def _can_be_rehearsed(token: Token | None) -> bool:
    """Whether an input is one or more complete files without secondary files, and not all of them are empty."""
    files = list(file_tokens(token))
    if not files or not all(map(is_whole_file, files)) or any(file.value.get("secondaryFiles") for file in files):
        return False
    return any(file.value.get("size") for file in files)


class _NoMessages(logging.Filter):
    """Drops the messages of rehearsals, which would look like those of jobs."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not rehearsing.get()


def _places_of(allocation: JobAllocation) -> frozenset[tuple[str, str]]:
    return frozenset((location.deployment, location.name) for location in allocation.locations)
