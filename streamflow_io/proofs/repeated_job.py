"""Runs a job once more, in directories of its own, with some of its inputs as streams, or as files.

The run may be ended at any time. A question to a location goes to its end, however (:func:`to_the_end`). StreamFlow
asks through one shell there, and would take an unread answer for the answer to its next question.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import posixpath
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from copy import copy, deepcopy
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, cast

from msgspec import Struct, field, structs
from streamflow.core.data import DataLocation
from streamflow.core.deployment import Connector
from streamflow.core.exception import WorkflowException
from streamflow.core.scheduling import Hardware
from streamflow.core.utils import random_name
from streamflow.core.workflow import CommandOutput, Job, Status, Token
from streamflow.cwl.command import CWLCommand
from streamflow.cwl.processor import CWLOutputJSONCommandOutput
from streamflow.data.manager import DefaultDataManager

from streamflow_io._streamflow import OwnPaths, is_separate_standard_error, prepare_work_dir
from streamflow_io.adapters.connector import JobConnector, exit_event_of
from streamflow_io.adapters.job_spec import job_spec, paths_of
from streamflow_io.adapters.output_globs import expression_context
from streamflow_io.adapters.paths import CHECKSUM, job_path
from streamflow_io.adapters.steps import StreamingExecuteStep
from streamflow_io.adapters.tokens import file_value, inner_tokens, with_inner_tokens
from streamflow_io.jobs.ending import is_want
from streamflow_io.records.learned.proofs import Way
from streamflow_io.runtime.node_commands import NodeRuntimeError
from streamflow_io.runtime.node_runtime import NodeJob, NodeRuntime
from streamflow_io.runtime.protocol import (
    AskedEvent,
    Event,
    Excerpt,
    ExitEvent,
    HeldEvent,
    InputStream,
    JobSpec,
    Mount,
    StreamEvent,
    WarningEvent,
)
from streamflow_io.runtime.wire import (
    cpu_of,
    is_from_outside,
    is_not_apart,
    is_without_gate,
    is_without_mounts,
    with_rehearsal,
)
from streamflow_io.tasks import to_the_end

from .clocks import Line, Span, Unlike
from .original_job import OriginalJob, described, file_sizes, span_of
from .rehearsal_rules import GIVEN_UP, Manner, Ran, is_older, is_worthless, seconds_for
from .same_outputs import Places, first_difference, unlike_files

_ASK_SECONDS = 60.0
# The most seconds to wait for the end of a run that is not needed any more.
_END_SECONDS = 20.0

# With more differing files than this, their lines are not compared.
_MOST_FILES = 16

# The first difference of outputs, and the lines that differ, if nothing else does. The span is that of the run.
_Compared = tuple[str | None, Unlike | None]
_Compare = Callable[[Mapping[str, Any], Span], Awaitable[_Compared]]
# The most seconds that it may take to make an excerpt.
_SECONDS = 600.0


class Excerpts(Struct, frozen=True):
    """The first bytes of some files, as files in one directory.

    :ivar of: the paths of those files
    :ivar bytes: the size of all excerpts together
    :ivar look_whole: whether a program that reads an excerpt as a file has to find it like the whole file
    """

    directory: str
    paths: tuple[str, ...]
    of: tuple[str, ...]
    bytes: int
    look_whole: bool

    @property
    def first_outputs(self) -> str:
        """The directory with the outputs of the first run with the excerpts."""
        return posixpath.join(self.directory, "made")

    def as_wholes(self, paths: Sequence[str]) -> tuple[Excerpt, ...]:
        """The excerpts that have to look like their whole files to the program, which finds them at these paths."""
        if not self.look_whole:
            return ()
        pairs = enumerate(zip(paths, self.of, strict=True))
        return tuple(Excerpt(name=str(number), path=path, of=file) for number, (path, file) in pairs)


async def make_excerpts(
    runtime: NodeRuntime, directory: str, files: Sequence[str], most: Sequence[int], *, look_whole: bool
) -> Excerpts:
    """Make the excerpts of some files.

    :param directory: an existing one, for the excerpts
    :param most: the most bytes of each excerpt
    :param look_whole: see :class:`Excerpts`
    :raises OSError: if an excerpt cannot be made
    """
    paths = tuple(posixpath.join(directory, str(number)) for number in range(len(files)))
    bytes_ = 0
    for file, path, most_bytes in zip(files, paths, most, strict=True):
        words = [runtime.binary, "excerpt", "--of", file, "--to", path, "--bytes", str(most_bytes)]
        said, code = await runtime.run(words, _SECONDS)
        if code != 0:
            raise OSError(said)
        bytes_ += int(json.loads(said)["bytes"])
    return Excerpts(directory, paths, tuple(files), bytes_, look_whole)


class NoGateError(Exception):
    """The node runtime does not see what the program does, and the program has read the whole file."""


class ExhaustedError(Exception):
    """The run has used up its time or its space."""


class NotApartError(Exception):
    """The kernel cannot keep the run from changing other files, so it must not run now."""


class RepeatedJob(Struct, eq=False, dict=True):
    """A job that runs once more.

    :ivar ways: the inputs that the job reads as streams, each with its way if that is known
    :ivar is_declared: the stream is declared, and only the outputs count. The job goes to its end. The job does not run
        where the kernel cannot keep it from changing other files, and from TCP
    :ivar is_compared: the job has run, and its outputs are compared
    """

    original: OriginalJob
    ways: Mapping[str, Way | None]
    is_declared: bool = False
    is_compared: bool = False

    @cached_property
    def files(self) -> list[Token]:
        """The files of the inputs."""
        return [file for port in self.ways for file in self.original.files(port)]

    @property
    def sizes(self) -> list[int]:
        """The sizes of the files of the inputs, in bytes."""
        return [*file_sizes(self.files)]

    async def used(self) -> int:
        """Return the bytes that the outputs of the original job take.

        :raises ValueError, IndexError: if the location does not tell
        """
        directory = self.original.job.output_directory
        used, _ = await self.original.runtime.run(["du", "-sk", directory], _ASK_SECONDS)
        return int(used.split()[0]) << 10

    async def free(self) -> int:
        """Return the bytes that are free where the outputs of the original job are.

        :raises ValueError, IndexError: if the location does not tell
        """
        directory = self.original.job.output_directory
        free, _ = await self.original.runtime.run(["df", "-Pk", directory], _ASK_SECONDS)
        return int(free.splitlines()[-1].split()[3]) << 10

    async def run(self, manner: Manner, before: Ran | None) -> Ran:
        """Run the job once more. If possible and harmless, the program finds the paths of the original job.

        :param before: the run before, which had the same paths, to compare with; None: the original job
        """
        if before is not None:
            return await self._run_at(manner, before, is_disguised=False)
        try:
            return await self._run_at(manner, None, is_disguised=True)
        except _NotDisguisedError:
            return await self._run_at(manner, None, is_disguised=False)

    async def run_apart(self, manner: Manner, before: Ran | None) -> Ran:
        """Run the job once more, at paths that are the same for all such runs.

        :param before: the run to compare with; None: the original job
        """
        return await self._run_at(manner, before, is_disguised=False)

    async def run_with(self, excerpts: Excerpts, manner: Manner, before: Ran | None) -> Ran:
        """Run the job once more, with excerpts of its files.

        :param before: the first such run, to compare with; None: the run is the first, and is compared with nothing
        """
        return await self._run_at(manner, before, is_disguised=False, excerpts=excerpts)

    def new_directory(self) -> str:
        """The path of a new directory, beside the directories of the job."""
        return str(posixpath.join(posixpath.dirname(self.original.job.input_directory), random_name()))

    async def make_excerpts(self, directory: str, most: Sequence[int], *, look_whole: bool) -> Excerpts:
        """Make the excerpts of the files of the inputs.

        :param directory: is made
        :raises OSError: if an excerpt cannot be made
        """
        path = job_path(self.original.step.workflow.context, self.original.job, directory)
        await to_the_end(path.mkdir(mode=0o777, parents=True, exist_ok=True))
        files = await self._find_files()
        return await make_excerpts(self.original.runtime, directory, files, most, look_whole=look_whole)

    async def remove(self, directories: Sequence[str]) -> None:
        """Remove directories, as far as they exist."""
        await to_the_end(self._remove(directories))

    async def _remove(self, directories: Sequence[str]) -> None:
        for directory in directories:
            with contextlib.suppress(OSError, WorkflowException):
                await job_path(self.original.step.workflow.context, self.original.job, directory).rmtree()

    async def has_changed_files(self) -> bool:
        """Return whether the job, which has succeeded, has changed files of the inputs: it has not read what is there.

        Some programs write a new file in the place of their input, as `sed -i` does. Reads files that are new.

        :raises NodeRuntimeError: if a file is not there any more
        """
        original = self.original
        started, _ = (await original.ended()).span
        for file in self.files:
            path, checksum = file.value["path"], str(file.value.get("checksum"))
            identity = (await original.runtime.find(path)).identity
            if identity.size != file.value.get("size"):
                return True
            if is_older(identity.mtime / 1e9, started) or CHECKSUM.fullmatch(checksum) is None:
                continue
            now = await to_the_end(job_path(original.step.workflow.context, original.job, path).checksum())
            if checksum != f"sha1${now}":
                return True
        return False

    async def _find_files(self) -> list[str]:
        """Return the real paths of the files of the inputs."""
        return [str((await self.original.runtime.find(file.value["path"])).path) for file in self.files]

    @cached_property
    def _names(self) -> Mapping[str, str]:
        """The directories of each run, by the directories of the job."""
        return {path: posixpath.join(posixpath.dirname(path), random_name()) for path in self.original.directories}

    @cached_property
    def _streams(self) -> tuple[str, ...]:
        """The paths of the files of the inputs in each run with streams."""
        place = self._names[self.original.job.input_directory]
        return tuple(posixpath.join(place, random_name(), file.value["basename"]) for file in self.files)

    async def _run_at(
        self,
        manner: Manner,
        before: Ran | None,
        *,
        is_disguised: bool,
        excerpts: Excerpts | None = None,
    ) -> Ran:
        """Run the job once more.

        :param before: the run to compare with, which had the same paths; None: the original job
        :param is_disguised: whether the program is to find its files at the paths of the job
        :param excerpts: what the program reads in place of its files. The first such run is compared with nothing
        """
        step, plain, names, streams = self.original.step, self.original.job, self._names, self._streams
        directories = tuple(names[path] for path in self.original.directories)
        context = step.workflow.context
        is_moved = manner != "file" or excerpts is not None
        try:
            for directory in (*directories, *map(posixpath.dirname, streams)):
                path = job_path(context, plain, directory)
                await to_the_end(path.mkdir(mode=0o777, parents=True, exist_ok=True))
            job = Job(
                name=plain.name,
                workflow_id=plain.workflow_id,
                inputs=self._inputs(streams if is_moved else (), is_stream=manner in ("net", "pipe")),
                input_directory=names[plain.input_directory],
                output_directory=names[plain.output_directory],
                tmp_directory=names[plain.tmp_directory],
            )
            there = Places(directories, streams, self._here)
            files = await self._find_files()
            read = files if excerpts is None else excerpts.paths
            if is_moved and manner not in ("net", "pipe"):
                await self._link(read)
            scratch = directories if excerpts is None else (*directories, excerpts.directory)
            spec = await self._spec(job, manner, read, streams, scratch)
            if excerpts is not None and manner == "file":
                spec = with_rehearsal(spec, excerpts=excerpts.as_wholes(streams))
            if is_disguised:
                spec = with_rehearsal(spec, mounts=self._mounts(job, manner, files, streams))
            compare: _Compare = partial(self._differs_from_the_job, there)
            if before is not None:
                compare = partial(self._differs_from, before, there, excerpts)
            elif excerpts is not None:
                compare = _no_difference
            # How much of a short file the program reads as a stream does not matter.
            size = sum(self.sizes) if excerpts is None else excerpts.bytes if excerpts.look_whole else None
            ran = await self._run_command(job, spec, None if self.is_declared else size, compare)
            if excerpts is not None and not excerpts.look_whole and before is None and ran.succeeded:
                await self._keep(job.output_directory, excerpts.first_outputs)
            return ran
        finally:
            await self.remove(directories)

    async def _link(self, files: Sequence[str]) -> None:
        """Put links to files at the paths of the streams."""
        for file, stream in zip(files, self._streams, strict=True):
            said, code = await self.original.runtime.run(["ln", "-s", file, stream], _ASK_SECONDS)
            if code != 0:
                raise OSError(said)

    async def _run_command(self, job: Job, spec: JobSpec, size: int | None, compare: _Compare) -> Ran:
        """Run the command, and compare its outputs.

        :param size: bytes that are read as a stream; None: the end is waited for, however little is read
        :param compare: returns the differences of the outputs, which it gets as CWL objects
        """
        original = self.original
        node_job = await original.runtime.create_job(f"{job.name} rehearsal")
        tells_paths = original.step.tells_paths
        connector = JobConnector(original.connector, node_job, spec, tells_paths=tells_paths)
        step = shadow_of(original.step, job, connector, original.hardware)
        seen = SeenEvents(size if len(spec.streams) == 1 else None, len(spec.streams))
        following = asyncio.create_task(seen.follow(node_job))
        execution = asyncio.create_task(_execute(step, job))
        try:
            if await self._is_given_up(execution, seen):
                return seen.given_up()
            try:
                output = execution.result()
            except WorkflowException as error:
                if not spec.streams:
                    raise
                # StreamFlow cannot do with a stream what it does with a file before the command.
                return Ran(False, "exited", str(error).splitlines()[0] if str(error) else type(error).__name__)
            exit_event = await exit_event_of(node_job)
            await following
            if seen.no_gate is not None:
                raise NoGateError(seen.no_gate)
            self._check(exit_event)
            said = _said(exit_event)
            if not exit_event.success or output.status is not Status.COMPLETED:
                ran = seen.ran(exit_event, False, said)
                return replace(ran, is_from_outside=ran.is_from_outside or is_want(str(output.value or "")))
            is_elsewhere = spec.rehearsal is None or not spec.rehearsal.mounts or seen.is_elsewhere
            if not is_elsewhere and await _names_paths(original.runtime, job, output):
                raise _NotDisguisedError
            try:
                tokens = await to_the_end(step.collect(job, output, {}, {}))
            except WorkflowException:
                return seen.ran(exit_event, False, "its outputs are not complete")
            its = await to_the_end(described(step, job, tokens))
            self.is_compared = True
            span = span_of(exit_event)
            difference, unlike = await compare(its, span)
            ran = seen.ran(exit_event, True, said, difference)
            return replace(ran, is_elsewhere=is_elsewhere, made=its, unlike=unlike, span=span)
        finally:
            self.is_compared = False
            await to_the_end(_end(node_job, execution, following))

    async def _is_given_up(self, execution: asyncio.Task[CommandOutput], seen: SeenEvents) -> bool:
        """Wait until the run has ended, or until its end would say nothing more.

        :return: whether the run has not ended
        :raises ExhaustedError: if the run has used up its time
        """
        decided, exhausted = asyncio.create_task(seen.is_decided.wait()), asyncio.create_task(self._exhausted())
        try:
            await asyncio.wait([execution, decided, exhausted], return_when=asyncio.FIRST_COMPLETED)
            if execution.done():
                return False
            if decided.done():
                return True
            raise ExhaustedError(self._too_long)
        finally:
            decided.cancel()
            exhausted.cancel()

    async def _exhausted(self) -> None:
        """Wait until a run that has begun beside its job has used up its time. Waits for ever for a later run."""
        if self.original.has_ended:
            await asyncio.get_running_loop().create_future()  # the node runtime ends such a run
        await asyncio.sleep(seconds_for((await self.original.ended()).seconds))

    @property
    def _too_long(self) -> str:
        return f"it has not ended after {seconds_for(self.original.seconds)} s"

    def _check(self, exit_event: ExitEvent) -> None:
        """Check that the run has ended by itself.

        :raises ExhaustedError: if it has used up its time or its space
        :raises NotApartError: if it has not started because it could not be kept apart
        """
        if exit_event.reason == "overtime":
            raise ExhaustedError(self._too_long)
        if exit_event.reason == "space":
            raise ExhaustedError("there is too little space")
        if is_not_apart(exit_event):
            raise NotApartError

    async def _differs_from_the_job(self, there: Places, its: Mapping[str, Any], span: Span) -> _Compared:
        """Return the differences from the outputs of the original job, when this job has succeeded."""
        plain, ended = await self.plain_outputs(), await self.original.ended()
        if (difference := first_difference(plain, self._here, its, there)) is None:
            return None, None
        return difference, await self._unlike(unlike_files(plain, self._here, its, there), ended.span, span)

    async def _differs_from(
        self, before: Ran, places: Places, excerpts: Excerpts | None, its: Mapping[str, Any], span: Span
    ) -> _Compared:
        """Return the differences from the outputs of a run before, which had the same paths.

        :param excerpts: what both runs have read in place of their files
        """
        made = before.made or {}
        if (difference := first_difference(made, places, its, places)) is None:
            return None, None
        if excerpts is None or excerpts.look_whole:
            return difference, None
        outputs = self._names[self.original.job.output_directory]
        pairs = unlike_files(made, places, its, places) or ()
        kept = [(path.replace(outputs, excerpts.first_outputs, 1), other) for path, other in pairs]
        return difference, await self._unlike(kept or None, before.span, span)

    async def _unlike(self, pairs: Sequence[tuple[str, str]] | None, job: Span, span: Span) -> Unlike | None:
        """Return the lines in which files differ; None: something else differs, or the lines cannot be compared.

        :param pairs: the path of a file of the job, and the path of the same file of another run
        """
        if pairs is None or len(pairs) > _MOST_FILES:
            return None
        lines: dict[str, Sequence[Line]] = {}
        for path, other in pairs:
            try:
                found = await self.original.runtime.unlike(path, other)
            except (NodeRuntimeError, ValueError):
                return None
            if found is None:
                return None
            lines[path] = found
        return Unlike(lines, job, span, tuple({0, time.localtime(span[1]).tm_gmtoff}))

    async def _keep(self, directory: str, at: str) -> None:
        """Put the outputs of a run aside, so that later runs can be compared with it."""
        said, code = await self.original.runtime.run(["mv", directory, at], _ASK_SECONDS)
        if code != 0:
            raise OSError(said)

    async def plain_outputs(self) -> Mapping[str, Any]:
        return await to_the_end(self.original.described())

    @property
    def _here(self) -> Places:
        return Places(self.original.directories, tuple(file.value["path"] for file in self.files))

    def _mounts(self, job: Job, manner: Manner, files: Sequence[str], streams: Sequence[str]) -> tuple[Mount, ...]:
        """The mounts that let the program find everything where the job had it.

        Many programs write their command lines into their outputs.
        """
        plain = self.original.job
        pairs = [(job.output_directory, plain.output_directory), (job.tmp_directory, plain.tmp_directory)]
        if manner != "file":
            used = [*paths_of(self.original.inputs.values()), *files]
            for file, stream in zip(self.files, streams, strict=True):
                directory = posixpath.dirname(file.value["path"])
                # Files below a mount are hidden, also from the process that feeds the stream.
                is_alone = sum(other.startswith(f"{directory}/") for other in used) == 1
                if is_alone and posixpath.dirname(directory) == plain.input_directory:
                    pairs.append((posixpath.dirname(stream), directory))
        return tuple(Mount(path=path, at=at) for path, at in pairs)

    def _inputs(self, paths: Sequence[str], *, is_stream: bool) -> dict[str, Token]:
        """The inputs of the job, with the files of the rehearsed ones at these paths, if there are any.

        :param is_stream: nothing is known of the files but their paths
        """
        inputs = self.original.copied_inputs()
        if paths:
            left = iter(paths)
            inputs |= {port: _moved(inputs[port], left, is_stream) for port in self.ways}
        return inputs

    async def _spec(
        self, job: Job, manner: Manner, files: Sequence[str], streams: Sequence[str], scratch: tuple[str, ...]
    ) -> JobSpec:
        inputs: tuple[InputStream, ...] = ()
        if manner in ("net", "pipe"):
            ports = [(port, way or manner) for port, way in self.ways.items() for _ in self.original.files(port)]
            inputs = tuple(
                InputStream(
                    name=str(number),
                    port=port,
                    path=file,
                    target={"fifo": stream},
                    net=way == "net",
                    replay=True,
                )
                for number, (file, stream, (port, way)) in enumerate(zip(files, streams, ports, strict=True))
            )
        bounds: dict[str, int | bool]
        if self.original.has_ended:
            bounds = {"seconds": seconds_for(self.original.seconds)} | ({"apart": True} if self.is_declared else {})
        else:
            bounds = {"apart": True, "spare": await self.free() // 2}
        spec = structs.replace(job_spec(self.original.step, job), streams=inputs)
        return with_rehearsal(spec, idle=True, confined=True, scratch=scratch, **bounds)


def _moved(token: Token, paths: Iterator[str], is_stream: bool) -> Token:
    """The same files at other paths."""
    if inner_tokens(token):
        moved = with_inner_tokens(token, lambda inner: _moved(inner, paths, is_stream))
    elif not isinstance(token.value, Mapping) or token.value.get("class") not in ("File", "Directory"):
        return token
    elif is_stream:
        value = file_value(next(paths)) | {name: token.value[name] for name in ("format",) if name in token.value}
        moved = Token(value, tag=token.tag)
    else:
        moved = token.update({**token.value, **file_value(next(paths))})
    moved.persistent_id = token.persistent_id
    return moved


async def _no_difference(its: Mapping[str, Any], span: Span) -> _Compared:
    return None, None


class _NotDisguisedError(Exception):
    """The outputs name paths, which lead to the outputs of the job itself."""


async def _names_paths(runtime: NodeRuntime, job: Job, output: CommandOutput) -> bool:
    """Whether outputs of a job name other files by their paths."""
    if isinstance(output, CWLOutputJSONCommandOutput):
        return True
    links, code = await runtime.run(["find", job.output_directory, "-type", "l"], _ASK_SECONDS)
    return bool(links.strip()) or code != 0


async def _execute(step: StreamingExecuteStep, job: Job) -> CommandOutput:
    command = cast(CWLCommand, step.command)
    if command.initial_work_dir is not None:
        try:
            command = await to_the_end(prepare_work_dir(command, job, expression_context(step, job)))
        except WorkflowException as error:
            raise WorkflowException("its InitialWorkDirRequirement finds no file") from error
    return cast(CommandOutput, await command.execute(job))


async def _end(node_job: NodeJob, execution: asyncio.Task[CommandOutput], following: asyncio.Task[None]) -> None:
    await node_job.cancel()
    # A process that is not waited for is left to an event loop, which may be closed by then.
    await asyncio.wait([execution], timeout=_END_SECONDS)
    execution.cancel()
    following.cancel()
    node_job.abandon()
    await asyncio.gather(execution, following, return_exceptions=True)


def _said(exit_event: ExitEvent) -> str:
    if exit_event.message:
        return exit_event.message
    if exit_event.signal is not None:
        return f"signal {exit_event.signal}"
    return f"exit code {exit_event.code}"


class SeenEvents(Struct):
    """The events of a job with streams, by the names of the streams.

    :ivar size: bytes of the only file that is read as a stream; None: no file is, or several are
    :ivar files: the number of files that are read as streams, with the names 0, 1, ...
    :ivar is_decided: set when the end of the job would say nothing more
    :ivar is_elsewhere: directories are not where the original job has them
    :ivar no_gate: why the runtime does not see what the program does; None: the runtime sees it
    """

    size: int | None
    files: int = 1
    is_decided: asyncio.Event = field(default_factory=asyncio.Event)
    is_elsewhere: bool = False
    no_gate: str | None = None
    _asked: bool = False
    # The system call that has asked, if it is known.
    _asked_by: str = ""
    _streams: dict[str, StreamEvent] = field(default_factory=dict)
    _held: dict[str, HeldEvent] = field(default_factory=dict)

    async def follow(self, node_job: NodeJob) -> None:
        """Collect the events of the job to its end."""
        async for event in node_job.events():
            self._take(event)
            if self.no_gate is None and self.size is not None and is_worthless(self._held_at, self._asked, self.size):
                self.is_decided.set()

    def _take(self, event: Event) -> None:
        if isinstance(event, StreamEvent):
            self._streams[event.name] = event
        elif isinstance(event, HeldEvent):
            self._held[event.name] = event
        elif isinstance(event, AskedEvent):
            self._asked, self._asked_by = True, event.call
        elif isinstance(event, WarningEvent) and event.input is not None:
            self._asked = True
        elif isinstance(event, WarningEvent) and is_without_gate(event):
            self.no_gate = event.message
        elif isinstance(event, WarningEvent) and is_without_mounts(event):
            self.is_elsewhere = True

    @property
    def _held_at(self) -> int | None:
        """The bytes that the program had read when it waited for a whole file; None: the program has not waited."""
        read = {name: event.bytes for name, event in (self._streams | self._held).items()}
        return sum(read.values()) if self._held else None

    @property
    def _read(self) -> tuple[int, ...]:
        streams = (self._streams.get(str(number)) for number in range(self.files))
        return tuple(0 if stream is None else stream.bytes for stream in streams)

    def ran(self, exit_event: ExitEvent, succeeded: bool, said: str, difference: str | None = None) -> Ran:
        """The outcome of a run that has ended."""
        return Ran(
            succeeded,
            exit_event.reason,
            said,
            self._read,
            self._held_at,
            self._call,
            self._asked,
            difference,
            is_from_outside(exit_event),
            cpu_of(exit_event.usage),
        )

    def given_up(self) -> Ran:
        """The outcome of a run whose end is not waited for."""
        return Ran(False, GIVEN_UP, held_at=self._held_at, call=self._call, asked=self._asked)

    @property
    def _call(self) -> str:
        return next((event.call for event in self._held.values()), self._asked_by)


class NoShadowError(Exception):
    """StreamFlow is configured with a part that has no stand-in."""


def shadow_of(step: StreamingExecuteStep, job: Job, connector: Connector, hardware: Hardware) -> StreamingExecuteStep:
    """A step that runs one job, and collects its outputs, without a trace.

    A job leaves rows in the database, locations of data, and checkpoints. Stand-ins take and forget them. Everything
    else is StreamFlow's own, so that this run is like the job's own run. `tests/integration/test_rehearsals.py` fails
    when a trace is left.

    :param job: with directories of its own
    :raises NoShadowError: if the data manager is not StreamFlow's own
    """
    context = copy(step.workflow.context)
    if not isinstance(context.data_manager, DefaultDataManager):
        raise NoShadowError(f"the data manager is {type(context.data_manager).__name__}")
    context.database = _NoDatabase()
    context.checkpoint_manager = _NoCheckpoints()
    context.scheduler = _Scheduler(context.scheduler, job, connector, hardware)
    data_manager = copy(context.data_manager)
    data_manager.context = context
    data_manager.path_mapper = OwnPaths(context.data_manager.path_mapper, context)
    context.data_manager = data_manager
    workflow = copy(step.workflow)
    workflow.context = context
    shadow = copy(step)
    shadow.workflow = workflow
    shadow.command = copy(step.command)
    shadow.command.step = shadow
    if is_separate_standard_error(shadow.command.stderr):
        shadow.command.stderr = "/dev/null"
    shadow.output_processors = deepcopy(step.output_processors, {id(step.workflow): workflow})
    location = context.scheduler.get_locations(job.name)[0]
    for directory in (job.input_directory, job.output_directory, job.tmp_directory):
        data_manager.register_path(location=location, path=directory, relpath=directory)
    return shadow


class _NoDatabase:
    async def add_execution(self, step_id: int, job_token_id: int, cmd: str) -> int:
        return 0

    async def update_execution(self, execution_id: int, updates: dict[str, Any]) -> int:
        return 0


class _NoCheckpoints:
    def register(self, data_location: DataLocation) -> None:
        pass


class _Scheduler:
    """StreamFlow's scheduler, with another connector and hardware for one job."""

    def __init__(self, inner: Any, job: Job, connector: Connector, hardware: Hardware) -> None:
        self._inner = inner
        self._job = job
        self._connector = connector
        self._hardware = hardware

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def get_connector(self, job_name: str) -> Connector:
        return self._connector if job_name == self._job.name else self._inner.get_connector(job_name)

    def get_hardware(self, job_name: str) -> Hardware:
        return self._hardware if job_name == self._job.name else self._inner.get_hardware(job_name)
