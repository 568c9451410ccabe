"""Adapter: an input of a job is rehearsed: the job runs once more, with that input as a stream.

It does so when the job has ended well, or beside it: then its bounds are narrower, and what it has shown counts when
the job has ended well. Of a large file the first bytes are tried before, which take less long (:mod:`.excerpt_rules`).

It may be ended at any time, but what it lets StreamFlow ask of a location goes to its end (:func:`to_the_end`): all
goes through one shell there, and an answer that nobody has read would be taken for that to the next question.
"""

from __future__ import annotations

import asyncio
import contextlib
import posixpath
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Literal, cast

from streamflow.core.exception import WorkflowException
from streamflow.core.utils import random_name
from streamflow.core.workflow import CommandOutput, Job, Status, Token
from streamflow.cwl.command import CWLCommand
from streamflow.cwl.processor import CWLOutputJSONCommandOutput
from streamflow.workflow.token import ListToken

from streamflow_io._streamflow import prepare_work_dir
from streamflow_io.hints.inheritance import port_path
from streamflow_io.learned.proofs import ProofKey
from streamflow_io.runtime.node_runtime import NodeJob, NodeRuntime
from streamflow_io.runtime.protocol import ExitEvent, InputStream, JobSpec, Mount

from . import excerpt_rules
from .connector import JobConnector, exit_event_of
from .excerpt_rules import next_with_excerpt
from .excerpts import Excerpts, make_excerpts
from .job_spec import job_spec, paths_of
from .output_globs import expression_context
from .paths import NoChecksumsError, job_path
from .performance import Performance, described
from .rehearsal_events import Seen
from .rehearsal_rules import Finding, Manner, Ran, disk_beside, disk_for, next_manner, seconds_for, unknown
from .same_outputs import Places, first_difference, first_unlike
from .shadow import shadow_of
from .steps import StreamingExecuteStep
from .tasks import to_the_end
from .tokens import file_value
from .wants import is_want

_ASK_SECONDS = 60.0
# How long it may take to end one that nobody waits for any more.
_END_SECONDS = 20.0

_Compare = Callable[[Mapping[str, Any]], Awaitable[str | None]]

#: Whether what is done now is part of a rehearsal, of which nobody wants to hear.
rehearsing: ContextVar[bool] = ContextVar("rehearsing", default=False)


class NotApartError(Exception):
    """It cannot run beside its job, but when that has ended."""


@dataclass(eq=False)
class Rehearsal:
    """One input of a job, which is to be read as a stream.

    :ivar verify: as of the streams of the run
    :ivar killed: how often it was ended before it had shown anything
    :ivar waits_for_its_job: it does not run beside it
    :ivar is_compared: it has run, and what it has made is compared
    """

    performance: Performance
    port: str
    key: ProofKey
    verify: Literal["full", "samples"]
    killed: int = 0
    waits_for_its_job: bool = False
    is_compared: bool = False
    _has_tried_excerpts: bool = False
    _made_of_excerpts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The input, as /step/port."""
        return port_path(self.performance.step.name, self.port)

    @property
    def size(self) -> int:
        """Bytes of its files."""
        return sum(self._sizes)

    @property
    def _sizes(self) -> list[int]:
        return [int(file.value.get("size") or 0) for file in self._files]

    @cached_property
    def _most(self) -> tuple[int, ...] | None:
        """How many bytes of each file are tried first, at most; None: it is tried as a whole at once."""
        return excerpt_rules.SIZES.excerpts(self._sizes)

    @property
    def share(self) -> float:
        """Which part of its files is read, the next time that it runs once."""
        if self._most is None or self._has_tried_excerpts:
            return 1.0
        return sum(self._most) / self.size

    @property
    def seconds(self) -> float:
        """About so long it takes to run once, the next time; infinite as long as nobody knows."""
        return self.performance.seconds * self.share

    @cached_property
    def _files(self) -> list[Token]:
        return self.performance.files(self.port)

    async def run(self) -> Finding | None:
        """What it shows. When it is cancelled, nothing of it is left, neither processes nor files.

        :return: None: the first bytes of its files have shown nothing, and it is to be run once more, with all of them
        :raises NotApartError: if it cannot run before its job has ended
        """
        rehearsing.set(True)
        try:
            if (lack := await self._lack_of_room()) is not None:
                return unknown(lack)
            if self._most is not None and not self._has_tried_excerpts:
                finding = await self._try_excerpts(self._most)
                self._has_tried_excerpts = True
                return finding
            return await self._run_until_known()
        except NotApartError:
            raise
        except (_ExhaustedError, NoChecksumsError) as error:
            return unknown(str(error))
        except _NoGateError as error:
            return Finding(None, str(error), is_known=False, is_of_place=True)
        except Exception as error:
            # It must not matter to the run, whatever it is.
            return unknown(f"{type(error).__name__}: {error}")

    async def confirmed(self, finding: Finding) -> Finding | None:
        """Wait until the job itself has ended well, whatever it has shown before.

        :return: None: the first bytes of its files have shown nothing, and it is to be run once more, with all of them
        """
        await self.performance.ended()
        if finding.excerpt is None:
            return finding
        try:
            is_like = first_unlike(await self._plain_outputs(), self._made_of_excerpts) is None
        except Exception:
            is_like = False
        return finding if is_like else None

    async def _run_until_known(self) -> Finding:
        ran: list[tuple[Manner, Ran]] = []
        while not isinstance(following := next_manner(ran, self.size, self.performance.cpu), Finding):
            before = ran[-1][1].made if following in ("twin", "again") else None
            ran.append((following, await self._run_once(following, before)))
        # What has failed for want of space says nothing of the program.
        if following.way is None and following.is_known and (lack := await self._lack_of_room()) is not None:
            return unknown(lack)
        return following

    async def _try_excerpts(self, most: Sequence[int]) -> Finding | None:
        """What the first bytes of its files prove; None: nothing."""
        directory = posixpath.join(posixpath.dirname(self.performance.job.input_directory), random_name())
        try:
            excerpts = await self._make_excerpts(directory, most)
            files, ran = len(self._files), list[tuple[Manner, Ran]]()
            while isinstance(following := next_with_excerpt(ran, excerpts.bytes, self.size, files), str):
                if ran and not ran[-1][1].succeeded:
                    # Nothing is left of a job that has failed, but all of one that had ended well when it was given up.
                    await to_the_end(_remove(self.performance.step, self.performance.job, (directory,)))
                    excerpts = await self._make_excerpts(directory, most)
                before = ran[0][1].made if ran else None
                ran.append((following, await self._run_at(following, before, is_disguised=False, excerpts=excerpts)))
            self._made_of_excerpts = ran[0][1].made or {}
            return following
        except (_NoGateError, NotApartError):
            raise
        except Exception:
            # Whatever it is, all of the file decides.
            return None
        finally:
            await to_the_end(_remove(self.performance.step, self.performance.job, (directory,)))

    async def _make_excerpts(self, directory: str, most: Sequence[int]) -> Excerpts:
        path = job_path(self.performance.step.workflow.context, self.performance.job, directory)
        await to_the_end(path.mkdir(mode=0o777, parents=True, exist_ok=True))
        return await make_excerpts(self.performance.runtime, directory, await self._find_files(), most)

    async def _find_files(self) -> list[str]:
        """The files themselves, to which the inputs of the job lead."""
        return [str((await self.performance.runtime.find(file.value["path"])).path) for file in self._files]

    async def _lack_of_room(self) -> str | None:
        runtime, directory = self.performance.runtime, self.performance.job.output_directory
        used, _ = await runtime.run(["du", "-sk", directory], _ASK_SECONDS)
        try:
            outputs = int(used.split()[0]) << 10
            needed = disk_for(outputs) if self.performance.has_ended else disk_beside(outputs, self.size)
            there = await self._free()
        except (IndexError, ValueError):
            return "how much space is free is not told"
        return None if there >= needed + sum(self._most or ()) else "there is too little space"

    async def _free(self) -> int:
        """Bytes.

        :raises ValueError, IndexError: if nobody says how many
        """
        directory = self.performance.job.output_directory
        free, _ = await self.performance.runtime.run(["df", "-Pk", directory], _ASK_SECONDS)
        return int(free.splitlines()[-1].split()[3]) << 10

    async def _run_once(self, manner: Manner, before: Mapping[str, Any] | None) -> Ran:
        """Run the job once more, where the paths are those of before if that can be had, and then does no harm.

        :param before: what the run before has made, if it had the same paths
        """
        if before is not None:
            return await self._run_at(manner, before, is_disguised=False)
        try:
            return await self._run_at(manner, None, is_disguised=True)
        except _NotDisguisedError:
            return await self._run_at(manner, None, is_disguised=False)

    @cached_property
    def _names(self) -> Mapping[str, str]:
        """The directories of each run, by those of the job."""
        return {path: posixpath.join(posixpath.dirname(path), random_name()) for path in self.performance.directories}

    @cached_property
    def _streams(self) -> tuple[str, ...]:
        """The paths of the files in each run with streams."""
        place = self._names[self.performance.job.input_directory]
        return tuple(posixpath.join(place, random_name(), file.value["basename"]) for file in self._files)

    async def _run_at(
        self,
        manner: Manner,
        before: Mapping[str, Any] | None,
        *,
        is_disguised: bool,
        excerpts: Excerpts | None = None,
    ) -> Ran:
        """
        :param before: what the run before has made, if it had the same paths
        :param excerpts: what it reads instead of its files; the first run with them is compared with nothing
        """
        step, plain, names, streams = self.performance.step, self.performance.job, self._names, self._streams
        directories = tuple(names[path] for path in self.performance.directories)
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
                spec = spec.model_copy(update={"excerpts": excerpts.as_wholes(streams)})
            if is_disguised:
                spec = spec.model_copy(update={"mounts": self._mounts(job, manner, files, streams)})
            compare: _Compare = partial(self._differs_from_the_job, there)
            if before is not None:
                compare = partial(_differs, before, there)
            elif excerpts is not None:
                compare = _no_difference
            return await self._perform(job, spec, self.size if excerpts is None else excerpts.bytes, compare)
        finally:
            await to_the_end(_remove(step, plain, directories))

    async def _link(self, files: Sequence[str]) -> None:
        """Put files at the paths of the streams."""
        for file, stream in zip(files, self._streams, strict=True):
            said, code = await self.performance.runtime.run(["ln", "-s", file, stream], _ASK_SECONDS)
            if code != 0:
                raise OSError(said)

    async def _perform(self, job: Job, spec: JobSpec, size: int, compare: _Compare) -> Ran:
        """
        :param size: bytes of what it reads as a stream
        :param compare: says what differs of its outputs, which are given as in CWL
        """
        performance = self.performance
        node_job = await performance.runtime.create_job(f"{job.name} rehearsal")
        connector = JobConnector(performance.connector, job.name, node_job, spec)
        step = shadow_of(performance.step, job, connector, performance.hardware)
        seen = Seen(size if len(spec.inputs) == 1 else None)
        following = asyncio.create_task(seen.follow(node_job))
        execution = asyncio.create_task(_execute(step, job))
        try:
            if await self._is_given_up(execution, seen):
                return seen.given_up()
            try:
                output = execution.result()
            except WorkflowException as error:
                if not spec.inputs:
                    raise
                # What StreamFlow does with a file before the command, it cannot do with a stream.
                return Ran(False, "exited", str(error).splitlines()[0] if str(error) else type(error).__name__)
            exit_event = await exit_event_of(node_job)
            await following
            if seen.no_gate is not None:
                raise _NoGateError(seen.no_gate)
            self._check(exit_event)
            said = _said(exit_event)
            if not exit_event.success or output.status is not Status.COMPLETED:
                ran = seen.ran(exit_event, False, said)
                return replace(ran, is_from_outside=ran.is_from_outside or is_want(str(output.value or "")))
            is_elsewhere = spec.mounts is None or seen.is_elsewhere
            if not is_elsewhere and await _names_paths(performance.runtime, job, output):
                raise _NotDisguisedError
            try:
                tokens = await to_the_end(step.collect(job, output, {}, {}))
            except WorkflowException:
                return seen.ran(exit_event, False, "its outputs are not complete")
            its = await to_the_end(described(step, job, tokens))
            self.is_compared = True
            ran = seen.ran(exit_event, True, said, await compare(its))
            return replace(ran, is_elsewhere=is_elsewhere, made=its)
        finally:
            self.is_compared = False
            await to_the_end(_end(node_job, execution, following))

    async def _is_given_up(self, execution: asyncio.Task[CommandOutput], seen: Seen) -> bool:
        """Wait until it has ended, or until it is known that its end says nothing more.

        :raises _ExhaustedError: if it has had its time
        """
        decided, exhausted = asyncio.create_task(seen.is_decided.wait()), asyncio.create_task(self._exhausted())
        try:
            await asyncio.wait([execution, decided, exhausted], return_when=asyncio.FIRST_COMPLETED)
            if execution.done():
                return False
            if decided.done():
                return True
            raise _ExhaustedError(self._too_long)
        finally:
            decided.cancel()
            exhausted.cancel()

    async def _exhausted(self) -> None:
        """Wait until one has had its time that has begun beside its job; for ever, if it has not."""
        if self.performance.has_ended:
            await asyncio.get_running_loop().create_future()  # The node runtime ends it.
        await asyncio.sleep(seconds_for((await self.performance.ended()).seconds))

    @property
    def _too_long(self) -> str:
        return f"it has not ended after {seconds_for(self.performance.seconds)} s"

    def _check(self, exit_event: ExitEvent) -> None:
        """Look whether it has ended by itself."""
        if exit_event.reason == "overtime":
            raise _ExhaustedError(self._too_long)
        if exit_event.reason == "space":
            raise _ExhaustedError("there is too little space")
        if exit_event.is_not_apart:
            raise NotApartError

    async def _differs_from_the_job(self, there: Places, its: Mapping[str, Any]) -> str | None:
        """What differs first of what the job itself makes, when it has ended well."""
        return first_difference(await self._plain_outputs(), self._here, its, there)

    async def _plain_outputs(self) -> Mapping[str, Any]:
        return await to_the_end(self.performance.described())

    @property
    def _here(self) -> Places:
        return self.performance.places(self.port)

    def _mounts(self, job: Job, manner: Manner, files: Sequence[str], streams: Sequence[str]) -> tuple[Mount, ...]:
        """What lets the program find all where the job had it: many write their command lines into what they make."""
        plain = self.performance.job
        pairs = [(job.output_directory, plain.output_directory), (job.tmp_directory, plain.tmp_directory)]
        if manner != "file":
            used = [*paths_of(self.performance.inputs.values()), *files]
            for file, stream in zip(self._files, streams, strict=True):
                directory = posixpath.dirname(file.value["path"])
                # What is covered is not seen any more, also by who feeds the stream.
                is_alone = sum(other.startswith(f"{directory}/") for other in used) == 1
                if is_alone and posixpath.dirname(directory) == plain.input_directory:
                    pairs.append((posixpath.dirname(stream), directory))
        return tuple(Mount(path=path, at=at) for path, at in pairs)

    def _inputs(self, paths: Sequence[str], *, is_stream: bool) -> dict[str, Token]:
        """The inputs of the job, the files of one of them at these paths, if there are any.

        :param is_stream: nothing is known of them but their paths
        """
        inputs = self.performance.copied_inputs()
        if paths:
            inputs[self.port] = _moved(inputs[self.port], iter(paths), is_stream)
        return inputs

    async def _spec(
        self, job: Job, manner: Manner, files: Sequence[str], streams: Sequence[str], scratch: tuple[str, ...]
    ) -> JobSpec:
        inputs: tuple[InputStream, ...] = ()
        if manner in ("net", "pipe"):
            inputs = tuple(
                InputStream(
                    name=str(number),
                    port=self.port,
                    path=file,
                    target={"fifo": stream},
                    verify=self.verify,
                    net=True if manner == "net" else None,
                    replay=True,
                )
                for number, (file, stream) in enumerate(zip(files, streams, strict=True))
            )
        bounds: dict[str, int | bool]
        if self.performance.has_ended:
            bounds = {"seconds": seconds_for(self.performance.seconds)}
        else:
            bounds = {"apart": True, "spare": await self._free() // 2}
        ways = {"idle": True, "confined": True, "scratch": scratch, "inputs": inputs, **bounds}
        return job_spec(self.performance.step, job).model_copy(update=ways)


def _moved(token: Token, paths: Iterator[str], is_stream: bool) -> Token:
    """The same files at other paths."""
    if isinstance(token, ListToken):
        moved = token.update([_moved(element, paths, is_stream) for element in token.value])
    elif is_stream:
        value = file_value(next(paths)) | {name: token.value[name] for name in ("format",) if name in token.value}
        moved = Token(value, tag=token.tag)
    else:
        moved = token.update({**token.value, **file_value(next(paths))})
    moved.persistent_id = token.persistent_id
    return moved


async def _differs(before: Mapping[str, Any], places: Places, its: Mapping[str, Any]) -> str | None:
    return first_difference(before, places, its, places)


async def _no_difference(its: Mapping[str, Any]) -> None:
    return None


class _NoGateError(Exception):
    """What the program does is not told: it has read the file."""


class _ExhaustedError(Exception):
    """It has had all that it was given, of time or of space."""


class _NotDisguisedError(Exception):
    """What has been made names paths, which lead to what the job itself has made."""


async def _names_paths(runtime: NodeRuntime, job: Job, output: CommandOutput) -> bool:
    """Whether something in the output directory of a job leads to other places by their paths."""
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
    # Who starts a process and does not wait for it leaves it to an event loop that may be closed by then.
    await asyncio.wait([execution], timeout=_END_SECONDS)
    execution.cancel()
    following.cancel()
    node_job.abandon()
    await asyncio.gather(execution, following, return_exceptions=True)


async def _remove(step: StreamingExecuteStep, job: Job, directories: tuple[str, ...]) -> None:
    for directory in directories:
        with contextlib.suppress(OSError, WorkflowException):
            await job_path(step.workflow.context, job, directory).rmtree()


def _said(exit_event: ExitEvent) -> str:
    if exit_event.message:
        return exit_event.message
    if exit_event.signal is not None:
        return f"signal {exit_event.signal}"
    return f"exit code {exit_event.code}"
