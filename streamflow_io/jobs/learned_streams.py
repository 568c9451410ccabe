"""The byte streams that jobs read because of a proof or a declaration, and what follows if such a job fails."""

from __future__ import annotations

import os
import textwrap
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager

from msgspec import Struct, field
from msgspec.structs import replace
from streamflow.core.exception import ProcessorTypeError, UnrecoverableWorkflowException, WorkflowException
from streamflow.core.utils import get_job_step_name
from streamflow.core.workflow import Step, Token
from streamflow.cwl.command import CWLCommand
from streamflow.cwl.step import CWLExecuteStep
from streamflow.log_handler import logger
from streamflow.workflow.utils import get_token_value

from streamflow_io.adapters.attempts import Attempt, StreamingJobs
from streamflow_io.adapters.inputs import Producers, written_to
from streamflow_io.adapters.jobs import JobState
from streamflow_io.adapters.tokens import StreamSource, StreamToken, file_tokens, parts_of, stream_tokens, streams_of
from streamflow_io.graph.candidates import Candidate, Reader
from streamflow_io.hints.inheritance import port_path
from streamflow_io.messages import Code, coded
from streamflow_io.records.learned.extents import ENOUGH, Extent, Extents, bound_of, extents_of
from streamflow_io.records.learned.proofs import Proof, ProofKey, RememberedProofs, Way, streams_at_once
from streamflow_io.runtime.node_runtime import NodeRuntime
from streamflow_io.runtime.protocol import ClosedEvent, Event, ExitEvent, WarningEvent, WatchedOutput
from streamflow_io.wording import counted, size_text

from .ending import JobFailedError, OutgrownError, ReplacedError, RewrittenError, is_want, with_finals
from .job_logs import LastWords
from .programs import Programs
from .proof_key import OtherPrograms, proof_key
from .reach import Reach

# The most characters that are kept of the message of a failed job.
_REASON = 400
# Why a declared input is not streamed again: its job holds cores, and gains nothing.
_WAITED = "the command asks by path for more than its bytes, and then waited longer for the whole file than it had run"
# Why an output is not streamed again on whose name something depends.
_CHANGED = "the output had another name, or was another file, when its job had ended"
# The least gain for readers: seconds, and a part of the time of the job.
_LEAST_SECONDS = 2.0
_LEAST_PART = 0.1


class LearnedStreams(Struct, frozen=True):
    """The proofs about the steps of a run, and the streams that follow from them.

    :ivar candidates: the steps that may read streams without a hint
    :ivar tools: digests of all that is known of the tools before they run, by step
    :ivar streamed: the outputs that are streamed without a hint, by name
    :ivar proofs: the proofs of this run and earlier ones
    :ivar programs: the programs that differ at the locations of jobs
    :ivar awaited: by the name of an output that streams only after a proof: the readers that the proof is about
    :ivar recovers: whether a job that fails with a declared stream is tried with the file
    :ivar told: the declared inputs, by name, for which a warning was logged that they are not read as declared
    """

    candidates: Mapping[str, Candidate]
    tools: Mapping[str, str]
    streamed: Collection[str]
    proofs: RememberedProofs
    programs: Programs
    awaited: Mapping[str, Collection[Reader]] = field(default_factory=dict)
    recovers: bool = True
    told: set[str] = field(default_factory=set)

    def is_learned(self, token: StreamToken) -> bool:
        """Whether no hint has asked for a stream."""
        name = _output(token)
        return name in self.streamed or name in self.awaited

    def is_awaited(self, token: StreamToken) -> bool:
        """Whether a stream needs a proof in this run that its readers can read it."""
        return _output(token) in self.awaited

    def is_streamed(self, step: str, port: str) -> bool:
        """Whether an output of a step is streamed without a hint."""
        name = port_path(step, port)
        return name in self.streamed or (name in self.awaited and self.may_stream(step, port))

    def may_stream(self, step: str, port: str) -> bool:
        """Whether proofs allow by now that an awaited output of a step is streamed."""
        written, readers = self.proofs.of(self.written(step, port)), self.awaited[port_path(step, port)]
        return (written is None or not written.is_refused) and all(
            self.proofs.is_read(self.candidates[reader].tool, of) for reader, of in readers
        )

    def closes(self, token: StreamToken) -> int | None:
        """The number of closes at which a stream without a hint counts as complete; None: the end of its job."""
        if not self.is_learned(token):
            return None
        known = self.proofs.of(self.written(get_job_step_name(token.source.job), token.source.port))
        return None if known is None else known.closes or None

    def written(self, step: str, port: str) -> ProofKey:
        """The key for proofs about how the jobs of a step, and similar ones, write an output."""
        return ProofKey(self.tools[step], "writes", port)

    async def refuse(self, token: StreamToken, how: str, was_closed: bool) -> None:
        """Let an output not be streamed again without a hint: the file is not written front to back.

        :param how: the reason, in a sentence about `it` or its path
        :param was_closed: whether the file counted as complete at a close; then only that will not be done again
        """
        step, port = get_job_step_name(token.source.job), token.source.port
        key, name = self.written(step, port), port_path(step, port)
        known, how = self.proofs.of(key), _without_path(how, token.source.path)
        if was_closed:
            if known is None or known.closes:
                logger.info(f"{name} counts as complete only when its job has ended: {how}")
                await self.proofs.remember(Proof(key, step, time.time(), closes=0))
        elif known is None or not known.is_refused:
            logger.info(f"{name} is not streamed any more without a hint: {how}")
            await self.proofs.remember(Proof(key, step, time.time(), reason=how))


def has_stdin(step: Step | None) -> bool:
    """Whether a file is the standard input of the command of a step."""
    return isinstance(step, CWLExecuteStep) and isinstance(step.command, CWLCommand) and step.command.stdin is not None


def not_as_declared(path: str, how: str) -> str:
    """The message about an input that is declared `streamable`, and is not read front to back.

    :param path: the input, as /step/port
    :param how: what its program does
    """
    advice = f"Later runs do not stream this input. Remove `streamable` from {path}"
    return coded(f"{path} is declared `streamable`, but {how}. {advice}", Code.NOT_AS_DECLARED)


def _output(token: StreamToken) -> str:
    """The output that a stream is of, as /step/port."""
    return port_path(get_job_step_name(token.source.job), token.source.port)


def _without_path(how: str, path: str) -> str:
    """The change of a file in words that later runs can use, in which the file has another path.

    :param path: in the output directory
    """
    _, found, rest = how.partition(f"/{path} ")
    return f"it {rest}" if found else how


def written_by_now(token: StreamToken, attempt: Attempt) -> int:
    """The present size of a file that is being written; 0 where the size is not known."""
    try:
        is_here = attempt.node_job is not None and attempt.node_job.runtime.is_here
        return os.path.getsize(written_to(token, attempt)) if is_here else 0
    except OSError:
        return 0


def _why(port: str, extents: Extents, error: OutgrownError, others: str) -> str:
    """Why a proof does not hold for a file of another job.

    :param others: the other streams of the job, in words
    """
    if error.asks:
        most = size_text(min(each.read for each in extents))
        return f"{port} is proven for the first {most}{others}, and the job asks for more"
    bound = bound_of(extents)
    return f"{port} is proven{'' if bound is None else f' up to {size_text(bound)}'}{others}, and this file is larger"


def _not_proven(
    where: str, programs: OtherPrograms | None, key: ProofKey | None, proof: Proof | None, here: Proof | None
) -> str:
    """Why no proof holds for an input of a job that does not run on the driver's node.

    :param here: the proof that would hold with the programs of the driver's node
    """
    if programs is None:
        return f"the programs of the tool are not known on {where}"
    if key is None:
        return f"what a Directory or a script of the job has is not known on {where}"
    if proof is not None and proof.reason is not None:
        return proof.reason
    if here is not None and here.is_proven:
        return f"it is proven with other programs than those on {where}"
    return "it is proven with other values, files or programs than those of the job"


class LearnedReads:
    """The byte streams that one job reads because of a proof or a declaration, over all of its attempts.

    :ivar state: the job at its present place
    """

    def __init__(self, learned: LearnedStreams, step: CWLExecuteStep, job: JobState) -> None:
        self._learned = learned
        self._step = step
        self.state = job
        self._job = job.job
        # The way in which each stream is read.
        self._ways: dict[str, Way] = {}
        # The number of first bytes for which the proof of an input holds, if it does not hold for all.
        self._excerpts: dict[str, int] = {}
        self._keys: dict[str, ProofKey] = {}
        # The inputs that hints declare `streamable`, or let stream.
        self._declared: set[str] = set()
        # The sizes of files for which the proof of an input holds.
        self._extents: dict[str, Extents] = {}
        # The inputs that are read as complete files: nothing is proven with these options, or a stream has failed.
        self._as_files: set[str] = set()
        # The streams that may be to blame for the last failure.
        self._blamed: frozenset[str] = frozenset()
        # The outputs that count as complete when they are closed, by job and port.
        self._closed: set[tuple[str, str]] = set()
        # When the command asked for more than the bytes of a stream, by the job and the port that write it.
        self._asked: dict[tuple[str, str], float] = {}
        self._why = ""
        self._has_begun = False

    def moved(self, job: JobState) -> None:
        """Note that the job has another place, where its programs may be others. The next attempt begins anew.

        What is read as a file stays so.
        """
        self.state, self._has_begun = job, False

    async def begin(self, reach: Reach) -> None:
        """Find out how the scheduled job reads its streams; to be called before all other methods."""
        streams = {name: list(stream_tokens(token)) for name, token in self._job.inputs.items()}
        parts = {name for name, _ in parts_of(self._job.inputs) if name in self._step.streamable}
        if self._has_begun or not (parts or any(streams.values())):
            return
        self._has_begun = True
        candidate = self._learned.candidates.get(self._step.name)
        needs_proof = () if candidate is None else candidate.inputs
        self._excerpts, self._extents = {}, {}
        self._declared |= {
            name
            for name, tokens in streams.items()
            if name not in needs_proof and (name in parts or any(token.source.gate is None for token in tokens))
        }
        self._ways = dict.fromkeys(self._declared, "pipe")
        if candidate is not None:
            known = {*candidate.inputs, *candidate.declared}
            await self._look_up(candidate, [name for name in streams if name in known and self._reads(name)], reach)

    def _reads(self, name: str) -> bool:
        return name in self._declared or next(stream_tokens(self._job.inputs[name]), None) is not None

    async def _look_up(self, candidate: Candidate, inputs: Collection[str], reach: Reach) -> None:
        """Look up the proofs for some inputs."""
        if not inputs:
            return
        runtime = await reach.runtime(self.state)
        programs = None if runtime is None else await self._learned.programs.of(runtime, candidate.programs)
        values = {name: get_token_value(token) for name, token in self._job.inputs.items()}
        is_complete = all(token.source.gate != "directory" for token in streams_of(self._job.inputs))
        sees_files = runtime is not None and runtime.is_here and is_complete
        digests, proven = dict[str, str | None](), dict[str, Proof]()
        for name in inputs:
            key = None
            if programs is not None:
                key = proof_key(candidate, name, values, programs, sees_files=sees_files, digests=digests)
            proof = None if key is None else self._learned.proofs.of(key)
            if key is not None:
                self._keys[name] = key
            if name in self._declared:
                if key is not None and self._learned.recovers and not self._learned.proofs.is_believed(key):
                    self._as_files.add(name)
            elif proof is None or proof.way is None or not proof.extents:
                self._as_files.add(name)
                if runtime is not None and not runtime.is_here:
                    with_programs_here = None if programs is None else proof_key(candidate, name, values)
                    here = None if with_programs_here is None else self._learned.proofs.of(with_programs_here)
                    self._read_late(reach, name, _not_proven(str(runtime.location), programs, key, proof, here))
            else:
                proven[name] = proof
                self._ways[name] = proof.way
                if proof.excerpt is not None:
                    self._excerpts[name] = proof.excerpt
        files = {name: len(list(file_tokens(self._job.inputs[name]))) for name in proven}
        self._extents |= streams_at_once(proven, files, self._declared - self._as_files)
        self._as_files |= proven.keys() - self._extents.keys()

    def _read_late(self, reach: Reach, name: str, why: str) -> None:
        """Record that the job gets the files of an input when they are complete, and why."""
        for source in {(token.source.job, token.source.port) for token in stream_tokens(self._job.inputs[name])}:
            reach.fell_back(self.state, source, coded(why, Code.NOT_PROVEN))

    @property
    def streams(self) -> frozenset[str]:
        """The inputs that are read as streams."""
        return frozenset(self._ways.keys() - self._as_files)

    @property
    def suspects(self) -> frozenset[str]:
        """The streams without which the job is tried if it fails."""
        return self.streams if self._learned.recovers else self.streams - self._declared

    def parts(self) -> tuple[str, ...]:
        """The inputs that are read front to back if they are parts of files."""
        return tuple(name for name in self._step.streamable if name not in self._as_files)

    async def take(self, inputs: Mapping[str, Token], jobs: StreamingJobs) -> Mapping[str, Token]:
        """Return the inputs for the next attempt, in which files replace streams that must not be read as such.

        Waits until these files are final.

        :raises ProducerFailedError: if a file never will be final
        """
        if any(True for name in self._as_files for _ in stream_tokens(inputs[name])):
            return await with_finals(self._step, self._job, inputs, jobs, self._as_files)
        return inputs

    def under_net(self, inputs: Mapping[str, Token]) -> dict[int, int]:
        """The streams under the net, by the identity of their tokens, with the number of bytes before the net begins.

        The bytes that were tried are known to be read rightly from a pipe. After them, the command must not see that
        its input is no file.
        """
        nets = {name: 0 for name in self.streams if self._ways[name] == "net"}
        nets |= {name: self._excerpts[name] for name in (self.streams & self._excerpts.keys()) - nets.keys()}
        return {id(token): bytes_ for name, bytes_ in nets.items() for token in stream_tokens(inputs[name])}

    def most(self, inputs: Mapping[str, Token]) -> dict[int, int]:
        """The most bytes that a stream may feed, by the identity of its token. All other streams have no limit."""
        bounds = {id(token): extent.most for token, extent in self._bounded(inputs)}
        return {token: most for token, most in bounds.items() if most is not None}

    def largest(self, inputs: Mapping[str, Token]) -> dict[int, int]:
        """The largest size of the file of a stream, by the identity of its token. Other files have no limit."""
        return {id(token): extent.size for token, extent in self._bounded(inputs) if extent.size < ENOUGH}

    def _bounded(self, inputs: Mapping[str, Token]) -> Iterator[tuple[StreamToken, Extent]]:
        for name in self.streams & self._extents.keys():
            tokens = list(file_tokens(inputs[name]))
            # The complete files of a list count in the order of the list, too.
            for token, extent in zip(tokens, extents_of(self._extents[name], len(tokens)), strict=True):
                if isinstance(token, StreamToken):
                    yield token, extent

    def are_too_large(self, inputs: Mapping[str, Token], producers: Producers) -> bool:
        """Whether a file is larger by now than its proof allows; the streams are read as files then.

        The size is known only on the driver's node. Elsewhere it is seen while the file is read.
        """
        largest = self.largest(inputs)
        for token, attempt in producers:
            if id(token) in largest and written_by_now(token, attempt) > largest[id(token)]:
                self.outgrown(inputs, OutgrownError(token.source.job))
                return True
        return False

    def outgrown(self, inputs: Mapping[str, Token], error: OutgrownError) -> None:
        """Note that a proof does not hold for a file of another job.

        All streams that need a proof are read as files from now on, so that they can be rehearsed with these files.
        """
        others = " together with the other streams of the job" if len(self.streams) > 1 else ""
        for name in sorted(self.streams & self._extents.keys()):
            if any(token.source.job == error.job for token in stream_tokens(inputs[name])):
                self._learned.proofs.outgrown(self._keys[name])
                port = port_path(self._step.name, name)
                why = _why(port, self._extents[name], error, others)
                logger.info(f"Job {self._job.name} reads the complete file: {why}")
        self._as_files |= self.streams - self._declared

    def read_as_files(self, inputs: Mapping[str, Token], job: str | None) -> list[StreamSource]:
        """Let the following attempts read all files of another job when they are complete.

        :return: the outputs of that job
        """
        found = [(name, token.source) for name in inputs for token in stream_tokens(inputs[name])]
        self._as_files |= {name for name, source in found if source.job == job}
        return [source for _, source in found if source.job == job]

    def closes(self, token: StreamToken) -> int | None:
        """Return :meth:`LearnedStreams.closes` of a stream that the job is about to read."""
        closes = self._learned.closes(token)
        if closes is not None:
            self._closed.add((token.source.job, token.source.port))
        return closes

    def are_out_of_reach(
        self, inputs: Mapping[str, Token], runtime: NodeRuntime, producers: Producers, reach: Reach
    ) -> bool:
        """Whether a stream under the net may be a standard input, and has its file on another host.

        Such streams are read as files then: the complete file, if the command asks for that, has no place.
        """
        if not has_stdin(self._step):
            return False
        nets = self.under_net(inputs)
        far = {
            id(token)
            for token, attempt in producers
            if id(token) in nets and attempt.node_job is not None and attempt.node_job.link_to(runtime) is not None
        }
        names = {name for name in self.streams if any(id(token) in far for token in stream_tokens(inputs[name]))}
        for name in sorted(names):
            self._read_late(reach, name, "a tool with `stdin` is proven for a file that is on its own host")
        self._as_files |= names
        return bool(names)

    async def rewritten(self, inputs: Mapping[str, Token], error: RewrittenError) -> bool:
        """Whether the file that was written again is a stream without a hint; it is read as a file then."""
        found = {
            name: token
            for name in inputs
            for token in stream_tokens(inputs[name])
            if token.source.job == error.job and self._learned.is_learned(token)
        }
        for token in found.values():
            was_closed = (token.source.job, token.source.port) in self._closed
            await self._learned.refuse(token, error.how or "it was written again", was_closed)
        self._as_files |= found.keys()
        return bool(found)

    async def replaced(self, error: ReplacedError) -> bool:
        """Whether an output that is another file in the end was streamed without a hint."""
        if not self._learned.is_learned(error.token):
            return False
        await self._learned.refuse(error.token, f"it {error.how}", was_closed=False)
        return True

    def blamed(self, error: JobFailedError) -> bool:
        """Whether a stream may be to blame for the failure of the job.

        Then the job is tried with files. If the stream was not to blame, the job fails as with plain StreamFlow. A
        failure from outside has nothing to do with streams that hints declare.
        """
        words = self.state.kept(LastWords)
        found_full = words is not None and bool(words.full)
        is_own = not (error.is_from_outside or found_full or is_want(str(error)))
        suspects = self.suspects if is_own else frozenset(filter(self._is_unasked, self.streams))
        self._blamed = suspects if is_own else frozenset()
        if not suspects:
            return False
        said = str(error).removeprefix(f"FAILED Job {self._job.name}: ")
        self._why = textwrap.shorten(said.partition("with error:")[2] or said, _REASON, placeholder=" ...")
        self._as_files |= suspects
        logger.info(f"Job {self._job.name} has failed with a stream, and is tried with the file: {self._why}")
        return True

    @property
    def given_up(self) -> frozenset[str]:
        """The inputs that are declared `streamable`, and whose streams the last failure is blamed on."""
        return self._blamed & frozenset(self._declared)

    @contextmanager
    def suspecting(self) -> Iterator[None]:
        """Let a job that has ended without its outputs be tried again, with files if a stream may be to blame.

        :raises JobFailedError: instead of StreamFlow's exception
        """
        try:
            yield
        except (WorkflowException, ProcessorTypeError) as error:
            if isinstance(error, UnrecoverableWorkflowException) and not self.suspects:
                raise
            raise JobFailedError(f"FAILED Job {self._job.name} with error:\n\t{error}") from error

    async def told(self, events: AsyncIterator[Event]) -> AsyncIterator[Event]:
        """Pass on the events of an attempt, and note when its command asked for more than bytes."""
        self._asked = {}
        async for event in events:
            if isinstance(event, WarningEvent) and event.input is not None and event.port is not None:
                self._asked.setdefault((event.input, event.port), event.time)
            yield event

    def _is_unasked(self, name: str) -> bool:
        """Whether an input has a stream that no hint has asked for."""
        return any(map(self._learned.is_learned, stream_tokens(self._job.inputs[name])))

    def _waited(self, exit_event: ExitEvent) -> Iterator[str]:
        """The declared inputs for which the command has waited longer than it had run before."""
        started, waited = exit_event.started, exit_event.usage.held
        if not self._learned.recovers or started is None or waited is None:
            return
        if any(token.source.gate is not None for token in streams_of(self._job.inputs)):
            return  # the job may have waited for these files
        for name in sorted(self.streams & self._declared & self._keys.keys()):
            sources = (token.source for token in stream_tokens(self._job.inputs[name]))
            asked = [self._asked[at] for at in ((each.job, each.port) for each in sources) if at in self._asked]
            if asked and min(asked) - started < waited:
                yield name

    async def succeeded(self, exit_event: ExitEvent) -> None:
        """Remember what the success of the job says about its streams."""
        step, proofs = self._step.name, self._learned.proofs
        for name in sorted(self._blamed):
            reason = f"the tool fails with a stream, and not with the file: {self._why}"
            path, key = port_path(step, name), self._keys.get(name)
            if name not in self._declared:
                logger.info(f"{path} is not streamed any more: {reason}")
            elif path not in self._learned.told:
                self._learned.told.add(path)
                logger.warning(not_as_declared(path, reason))
            else:
                continue
            if key is not None:
                failures = 0 if name in self._declared else proofs.failures(key) + 1
                await proofs.remember(Proof(key, step, time.time(), reason=reason, failures=failures))
        for name in self._waited(exit_event):
            logger.info(f"{port_path(step, name)} is not streamed in later runs: {_WAITED}")
            proofs.remember_later(Proof(self._keys[name], step, time.time(), reason=_WAITED))
        proofs.streamed(self._keys[name] for name in self.streams if name in self._keys)


class LearnedWrites:
    """The closes of one job's outputs that stream without a hint."""

    def __init__(self, learned: LearnedStreams, step: str) -> None:
        self._learned = learned
        self._step = step
        # By output and file: the last close in the last attempt.
        self._closed: dict[str, dict[str, ClosedEvent]] = {}

    def watched(self, output: WatchedOutput) -> WatchedOutput:
        """An output as it is to be watched. If it streams without a hint, its closes are reported, too."""
        if not self._learned.is_streamed(self._step, output.port):
            return output
        return replace(output, closes=True)

    async def told(self, events: AsyncIterator[Event]) -> AsyncIterator[Event]:
        """Pass on the events of an attempt, and note its closes."""
        self._closed = defaultdict(dict)
        async for event in events:
            if isinstance(event, ClosedEvent) and self._learned.is_streamed(self._step, event.port):
                self._closed[event.port][str(event.path)] = event
            yield event

    async def succeeded(self, exit_event: ExitEvent) -> None:
        """Remember the last close of an output that was complete long before the end, unless one is known."""
        ended, started = exit_event.ended or 0.0, exit_event.started or 0.0
        least = max(_LEAST_SECONDS, _LEAST_PART * (ended - started))
        for port, files in self._closed.items():
            (last, *others) = files.values()
            key = self._learned.written(self._step, port)
            if others or ended - last.time < least or self._learned.proofs.of(key) is not None:
                continue
            name, times = port_path(self._step, port), counted(last.closes, "time")
            logger.info(
                f"{name} was complete {ended - last.time:.1f} s before its job ended, when it was closed {times}"
            )
            await self._learned.proofs.remember(Proof(key, self._step, time.time(), closes=last.closes))

    async def changed(self, ports: Iterable[str]) -> None:
        """Let outputs not be streamed again without a hint: the job has failed with one that is another in the end."""
        for port in ports:
            if self._learned.is_streamed(self._step, port):
                key = self._learned.written(self._step, port)
                await self._learned.proofs.remember(Proof(key, self._step, time.time(), reason=_CHANGED))
