"""Finds the inputs of jobs that can be rehearsed, and makes the rehearsals of a job."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

from msgspec import Struct
from msgspec.structs import replace
from streamflow.core.exception import WorkflowException
from streamflow.core.workflow import Job, Token
from streamflow.cwl.command import CWLCommand
from streamflow.log_handler import logger
from streamflow.scheduling.scheduler import JobAllocation
from streamflow.workflow.step import ExecuteStep
from streamflow.workflow.utils import get_token_value

from streamflow_io.adapters.attempts import ProducerFailedError, StreamingJobs
from streamflow_io.adapters.job_spec import is_whole_file
from streamflow_io.adapters.jobs import JobState
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
from streamflow_io.jobs.programs import Programs
from streamflow_io.jobs.proof_key import OtherPrograms, proof_key
from streamflow_io.nested import parts
from streamflow_io.records.learned.proofs import Way
from streamflow_io.runtime.node_runtime import NodeRuntime

from .original_job import OriginalJob
from .rehearsal import Lend, Rehearsal
from .rehearsal_rules import Finding, Manner, Ran, obstacle_of_work_dir, shows_nothing, unknown
from .repeated_job import NotApartError, RepeatedJob

_VARIES = "the outputs differ from run to run"


class RehearsableJob(Struct, frozen=True, eq=False):
    """A job with inputs that can be rehearsed.

    :ivar ports: these inputs
    :ivar has_streams: the job reads streams; their files are there when the job has succeeded
    """

    original: OriginalJob
    candidate: Candidate
    ports: Sequence[str]
    has_streams: bool

    @property
    def needs_nothing(self) -> bool:
        """Whether its rehearsals can be made at once: :meth:`RehearsableJobs.rehearsals` need not be awaited."""
        return not self.has_streams and self.original.runtime.is_here


class RehearsableJobs:
    """Finds the inputs of jobs that can be rehearsed.

    :param candidates: the steps that may stream without a hint, or stream because they are declared, by path
    :param is_auto: whether proven inputs are to stream without a hint
    :param programs: the programs of the candidates that differ where jobs run
    :param streaming_jobs: the jobs that stream to others
    """

    def __init__(
        self,
        candidates: Mapping[str, Candidate],
        is_auto: bool,
        programs: Programs,
        streaming_jobs: StreamingJobs,
    ) -> None:
        self._candidates = candidates
        self.is_auto = is_auto
        self._programs = programs
        self._streaming_jobs = streaming_jobs
        # The runtimes under which no job is rehearsed, and the queue managers that the user knows of.
        self._excluded: set[NodeRuntime] = set()
        self._queues: set[str] = set()

    def exclude(self, runtime: NodeRuntime) -> None:
        """Let no more jobs be rehearsed under a runtime."""
        self._excluded.add(runtime)

    def find(
        self,
        step: StreamingExecuteStep,
        job: JobState,
        runtime: NodeRuntime,
        inputs: Mapping[str, Token],
        streams: Collection[str],
    ) -> RehearsableJob | None:
        """The job whose attempt is about to run, with the inputs that can be rehearsed; None: no input can be.

        :param inputs: before an InitialWorkDirRequirement has changed them
        :param streams: the names of the inputs whose bytes the job reads while they are written
        """
        candidate = self._candidates.get(step.name)
        if candidate is None or candidate.once or len(job.places) != 1:
            return None
        if job.concerns_storage or not _can_run_again(step, inputs):
            return None
        has_streams = bool(streams_of(inputs))
        ports = [port for port in candidate.declared if port in streams]
        ports += [port for port in candidate.inputs if port not in streams and _can_be_rehearsed(inputs.get(port))]
        if not ports or (has_streams and not _can_be_compared(step, job, inputs, streams)):
            return None
        if runtime.wrapper == "run":
            self._leave_queue_alone(job.target.deployment.name)
            return None
        context = step.workflow.context
        connector = context.deployment_manager.get_connector(job.target.deployment.name)
        if connector is None or runtime in self._excluded:
            return None
        of = job.job
        attempt = Job(of.name, of.workflow_id, of.inputs, of.input_directory, of.output_directory, of.tmp_directory)
        hardware = context.scheduler.get_hardware(job.name)
        original = OriginalJob(step, attempt, runtime, inputs, hardware, connector, job.places[0])
        return RehearsableJob(original, candidate, ports, has_streams)

    async def rehearsals(self, job: RehearsableJob) -> Sequence[Rehearsal]:
        """Make the rehearsals of a job. If it reads streams, it has succeeded.

        :return: no rehearsal, if the location does not tell its programs, or the file of a stream is lost
        """
        if job.has_streams:
            if (found := await self._with_files(job)) is None:
                return ()
            job = found
        programs = await self._programs.of(job.original.runtime, job.candidate.programs)
        return () if programs is None else self.rehearsals_with(job, programs)

    def rehearsals_with(self, job: RehearsableJob, programs: OtherPrograms = ()) -> Sequence[Rehearsal]:
        """Make the rehearsals of a job whose inputs are files.

        :param programs: the programs of the tool that differ at the location of the job
        """
        original = job.original
        values = {name: get_token_value(token) for name, token in original.inputs.items()}
        is_here = original.runtime.is_here
        ports = dict.fromkeys((*job.ports, *job.candidate.inputs, *job.candidate.declared))
        files = [port for port in ports if _can_be_rehearsed(original.inputs.get(port))]
        digests = dict[str, str | None]()
        key_of = partial(proof_key, inputs=values, programs=programs, sees_files=is_here, digests=digests)
        known = {port: key for port in files if (key := key_of(job.candidate, port)) is not None}
        declared = {port: key for port, key in known.items() if key.kind == "declared" and port in job.ports}
        return [
            Comparison(original, port, key, keys=declared)
            if port in declared
            else Rehearsal(original, port, key, keys=known, writers=job.candidate.writers)
            for port, key in known.items()
            if port in job.ports
        ]

    async def _with_files(self, job: RehearsableJob) -> RehearsableJob | None:
        """The job, with the files of its streams as inputs; None: no input can be rehearsed."""
        original = job.original
        try:
            files = {id(token): await self._file(original, token) for token in streams_of(original.inputs)}
        except (ProducerFailedError, WorkflowException):
            return None
        inputs = {name: with_files(token, files) for name, token in original.inputs.items()}
        ports = [port for port in job.ports if _can_be_rehearsed(inputs[port])]
        return replace(job, original=replace(original, inputs=inputs), ports=ports) if ports else None

    async def _file(self, original: OriginalJob, stream: StreamToken) -> Token:
        """Return the token of the complete file of a stream.

        The file is at the path that the stream had, or where the producer has made it: standard input has no path.
        """
        final = await self._streaming_jobs.get(stream.source.job).final(stream.source.port, stream.source.path)
        path = job_path(original.step.workflow.context, original.job, stream.value["path"])
        is_there = await path.exists()
        file = final.update({**final.value, **(file_value(stream.value["path"]) if is_there else {})})
        file.tag, file.persistent_id = stream.tag, final.persistent_id
        return file

    def _leave_queue_alone(self, deployment: str) -> None:
        """Log once that nothing is rehearsed on a queue manager.

        Its cores were not granted to rehearsals, and no user wants a rehearsal as a job in the queue.
        """
        if self.is_auto and deployment not in self._queues:
            self._queues.add(deployment)
            logger.info(
                f"Nothing is rehearsed on {deployment}, whose cores are granted to jobs only. Inputs that "
                "were proven elsewhere with the same programs stream there"
            )


def _can_run_again(step: StreamingExecuteStep, inputs: Mapping[str, Token]) -> bool:
    """Whether a job is a command that changes nothing outside its own directories."""
    return why_once(step) is None and not parts_of(inputs)


def why_once(step: ExecuteStep) -> str | None:
    """Why no job of a step runs a second time, whatever its inputs; None: no obstacle."""
    command = step.command
    if not isinstance(command, CWLCommand):
        return "it runs no command"
    if step.output_connectors:
        return "its outputs are bound to another location, and its jobs do not run twice"
    if command.inplace_update:
        return "the tool has InplaceUpdateRequirement, and does not run twice"
    return obstacle_of_work_dir(command.initial_work_dir, command.absolute_initial_workdir_allowed)


def _can_be_rehearsed(token: Token | None) -> bool:
    """Whether an input is one or more complete files without secondary files, and not all of them are empty."""
    files = list(file_tokens(token))
    if not files or not all(map(is_whole_file, files)) or any(file.value.get("secondaryFiles") for file in files):
        return False
    return any(file.value.get("size") for file in files)


def _can_be_compared(
    step: StreamingExecuteStep, job: JobState, inputs: Mapping[str, Token], streams: Collection[str]
) -> bool:
    """Whether a job reads all of its streams as bytes, and their files are where the job runs."""
    names = {name for name, token in inputs.items() if next(stream_tokens(token), None) is not None}
    find = step.workflow.context.scheduler.get_allocation
    places = {_places_of(find(token.source.job)) for token in streams_of(inputs)}
    return names <= {*streams} and places == {_places_of(find(job.name))}


def _places_of(allocation: JobAllocation) -> frozenset[tuple[str, str]]:
    return frozenset((location.deployment, location.name) for location in allocation.locations)


def next_of_declared(so_far: Sequence[tuple[Manner, Ran]]) -> Manner | Finding:
    """Decide how the job is to be run next, or what is found.

    A finding with a way and a reason says why the outputs cannot be compared.

    :param so_far: the runs in order. The first has the file, and is compared with the job. Four runs with the same
        paths may follow: with a stream, the file, a stream, the file. The second and third of the four are compared
        with the first, the fourth with the second
    """
    if not so_far:
        return "file"
    manner, ran = so_far[-1]
    if shows_nothing(manner, ran):
        return unknown(ran.said or ran.ended)
    if not ran.succeeded:
        return Finding("pipe", f"the tool fails when it runs again: {ran.said}")
    is_equal = ran.difference is None
    match [manner for manner, _ in so_far]:
        case ["file"]:
            return Finding("pipe") if is_equal else "pipe"
        case ["file", "pipe"]:
            return "twin"
        case ["file", "pipe", "twin"]:
            return Finding("pipe") if is_equal else "pipe"
        case ["file", "pipe", "twin", "pipe"]:
            return "again" if is_equal else Finding("pipe", f"{_VARIES}: {ran.difference}")
    if not is_equal:
        return Finding("pipe", f"{_VARIES}: {ran.difference}")
    return Finding(None, so_far[2][1].difference)


def next_short_of_declared(so_far: Sequence[tuple[Manner, Ran]]) -> Manner | Finding | None:
    """Decide how the job is to be run next with a short file, or how that refutes the declaration; None: no refutation.

    :param so_far: the runs in order: with the file, a stream, the file, and a stream. All are compared with the first
        one
    """
    if not so_far:
        return "file"
    manner, ran = so_far[-1]
    if shows_nothing(manner, ran):
        return None
    is_file = manner == "file"
    if len(so_far) == 4:
        return None if ran.is_equal else _refuted(ran)
    if is_file:
        return "pipe" if ran.is_equal else None  # many formats have an end, which is cut off
    return None if ran.is_equal else "file"


def _refuted(ran: Ran) -> Finding:
    return Finding(None, ran.difference if ran.succeeded else f"{ran.said} with a short stream")


class Comparison(Rehearsal):
    """One input that a job has read as a stream, because it is declared `streamable`.

    The job has succeeded, and its file is where the stream was. No user has asked for one more run. So there is none
    where the program could change anything else.
    """

    @cached_property
    def job(self) -> RepeatedJob:
        # The job has read the stream to its end, whatever the program has asked. Only the outputs count.
        return RepeatedJob(self.original, {self.port: "pipe"}, is_declared=True)

    async def run(self, lend: Lend | None = None) -> Finding | None:
        try:
            return await super().run(lend)
        except NotApartError:
            return unknown("the kernel cannot keep it from changing other files, and from TCP")

    @cached_property
    def _most(self) -> tuple[int, ...] | None:
        return None

    async def _tried(self) -> Finding:
        ran: list[tuple[Manner, Ran]] = []
        finding = await self._compared(self.job, ran)
        if finding == Finding("pipe") and len(ran) > 1 and self.beside:
            # The job differs with files, but not for this stream alone.
            together = RepeatedJob(self.original, {self.port: "pipe", **self.beside}, is_declared=True)
            finding = await self._compared(together, ran[:1])
        return await self._with_output(finding)

    async def _compared(self, job: RepeatedJob, ran: list[tuple[Manner, Ran]]) -> Finding:
        """Run a job until it is decided what is found.

        :param ran: the runs so far; gets the others
        """
        while isinstance(following := next_of_declared(ran), str):
            ran.append((following, await self._run(job, following, [each for _, each in ran])))
        return following

    async def _run(self, job: RepeatedJob, manner: Manner, ran: Sequence[Ran]) -> Ran:
        """Run the job once more."""
        if manner == "file":
            return await job.run(manner, None)
        before = None if len(ran) == 1 else ran[2] if manner == "again" else ran[1]
        return await job.run_apart(manner, before)

    async def _refuted_together(self, way: Way) -> None:
        return None  # the job has read all of its streams together

    async def _refuted_by(self, short: Sequence[int], way: Way) -> Finding | None:
        if self._proven is not None and self._proven.reason is not None:
            return None  # the outputs cannot be compared
        found, _ = await self._run_with_excerpts(short, lambda ran, _: next_short_of_declared(ran), look_whole=False)
        return None if found is None else await self._with_output(found)

    async def _with_output(self, finding: Finding) -> Finding:
        """The finding, with the name of the output that differs, if one does."""
        if finding.way is not None or not finding.is_known:
            return finding
        outputs = await self.job.plain_outputs()
        named = (name for name, value in outputs.items() if finding.reason in _names(name, value))
        if (name := next(named, None)) is None:
            return finding
        file = "" if finding.reason == name else f" ({finding.reason})"
        return Finding(None, f"the output `{name}`{file} differs with the complete file")


def _names(output: str, value: Any) -> set[str]:
    files = (part for part in parts(value) if isinstance(part, Mapping))
    return {output, *(str(file["basename"]) for file in files if "basename" in file)}
