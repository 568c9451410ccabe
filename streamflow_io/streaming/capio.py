"""CAPIO in a run: what of a translated workflow it can serve, and its part in one attempt of a job."""

from __future__ import annotations

import asyncio
import glob
import posixpath
import shlex
import shutil
from collections.abc import Coroutine, Iterable, Iterator, Mapping, MutableSequence, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from streamflow.core.exception import UnrecoverableWorkflowException, WorkflowException
from streamflow.core.processor import CommandOutputProcessor
from streamflow.core.workflow import CommandOutput, Token, Workflow
from streamflow.cwl.command import CWLCommand
from streamflow.cwl.step import CWLExecuteStep
from streamflow.cwl.utils import is_expression
from streamflow.log_handler import logger
from streamflow.workflow.token import ListToken

from streamflow_io.coordination.capio_mapping import (
    COMMIT_CLOSES,
    CapioOutput,
    CapioStep,
    capio_configuration,
    map_to_capio,
)
from streamflow_io.coordination.graph import StreamEdge
from streamflow_io.coordination.names import application_name
from streamflow_io.runtime import NodeJob, NodeRuntimeError
from streamflow_io.runtime.activity import wait_until_idle
from streamflow_io.runtime.capio import CapioError, CapioRuntime, CapioServer, check_capio, find_capio

from .globs import file_processor
from .jobs import Attempt
from .outputs import is_early_port
from .publisher import Publisher
from .token import StreamToken

if TYPE_CHECKING:
    from .step import StreamingExecuteStep

_JSON = "cwl.output.json"
# A program that hangs under CAPIO uses no processor; one that is only slow loses no more than a start.
_IDLE_SECONDS = 300.0
_COLLECT_SECONDS = 24 * 3600.0


class CapioLostError(Exception):
    """An attempt of a job was in vain because CAPIO failed, and not the job."""


def choose_capio(
    workflow: Workflow, edges: Sequence[StreamEdge]
) -> tuple[CapioRuntime | None, frozenset[tuple[str, str]]]:
    """Decide what CAPIO does in a run, and warn of each edge that was to be early and that it does not serve.

    Tries CAPIO when there is something for it, which takes about a second.

    :return: CAPIO, and the outputs that it holds: step and port; none and nothing where it cannot be used
    """
    from .translator import edge_name

    tools = {step.name: step for step in workflow.steps.values() if isinstance(step, CWLExecuteStep)}
    mapping = map_to_capio(edges, {path: _capio_step(step) for path, step in tools.items()})
    try:
        installation = find_capio()
        for edge, reason in mapping.refused.items():
            logger.warning(f"{edge_name(edge)} is served by the embedded node runtime: {reason}")
        if not mapping.served:
            return None, frozenset()
        version = check_capio(installation)
    except CapioError as error:
        logger.warning(f"`runtime: capio`: the embedded node runtime is used for all: {error}")
        return None, frozenset()
    logger.info(f"CAPIO {version or 'of unknown version'} serves {', '.join(map(edge_name, mapping.served))}")
    configure = partial(capio_configuration, mapping=mapping)
    return CapioRuntime(installation, configure), mapping.outputs


class CapioJob:
    """One attempt of a job that writes into CAPIO, reads from it, or both.

    :ivar directory: where its command is started, if it writes into CAPIO
    :ivar lost: why CAPIO can no longer be used, once that is known

    :param outputs: those that CAPIO holds, by port: their names
    :param collected: the names of all files that have to be copied into the job's output directory
    """

    def __init__(
        self,
        runtime: CapioRuntime,
        server: CapioServer,
        step: str,
        directory: Path | None,
        outputs: Mapping[str, str],
        collected: Iterable[str],
    ) -> None:
        self.directory = directory
        self.lost: str | None = None
        self._runtime = runtime
        self._server = server
        self._step = step
        self._application = application_name(step)
        self._outputs = outputs
        self._collected = tuple(collected)

    @property
    def prefix(self) -> list[str]:
        """The words to put before the command, as a shell reads them."""
        return [shlex.quote(word) for word in self._server.application(self._application)]

    def holds(self, path: str) -> bool:
        """Whether a path is one in CAPIO."""
        return Path(path).is_relative_to(self._server.directory)

    async def follow(
        self,
        execution: Coroutine[object, object, CommandOutput],
        node_job: NodeJob,
        publisher: Publisher,
        output_directory: str,
        producers: Sequence[Attempt],
    ) -> CommandOutput:
        """Execute the job: deliver its outputs as soon as they can be read, end it when CAPIO is of no use any more.

        :param producers: those that it reads from
        :raises CapioLostError: if what it wrote cannot be collected
        """
        executing = asyncio.ensure_future(execution)
        following = {
            asyncio.ensure_future(self._announce(publisher, port, f"{output_directory}/{name}", name))
            for port, name in self._outputs.items()
        }
        following.add(asyncio.ensure_future(self._watch_server()))
        following.add(asyncio.ensure_future(self._watch_activity(node_job, producers)))
        try:
            while not executing.done():
                done, _ = await asyncio.wait({executing, *following}, return_when=asyncio.FIRST_COMPLETED)
                for future in done & following:
                    following.remove(future)
                    if (error := future.exception()) is not None:
                        await self._lose(node_job, error)
            return await executing
        finally:
            for future in (executing, *following):
                future.cancel()
            await asyncio.gather(executing, *following, return_exceptions=True)

    async def collect(self, output_directory: str) -> None:
        """The job has succeeded: let its readers see the end of its files, and copy these into the file system.

        :raises CapioLostError: if that fails
        """
        if self.directory is None:
            return
        pairs = [p for name in self._collected for p in (str(self.directory / name), f"{output_directory}/{name}")]
        try:
            await self._server.client(
                "collect", str(COMMIT_CLOSES), *pairs, application=self._application, seconds=_COLLECT_SECONDS
            )
        except NodeRuntimeError as error:
            self._give_up(str(error))
            raise CapioLostError(str(error)) from None

    def blame(self, failure: str) -> None:
        """Do not use CAPIO for further attempts."""
        self._runtime.give_up_step(self._step, failure)

    async def _announce(self, publisher: Publisher, port: str, path: str, name: str) -> None:
        assert self.directory is not None
        await self._server.client("wait", str(self.directory / name), application=self._application, seconds=None)
        await publisher.opened(port, path)

    async def _watch_server(self) -> None:
        await self._server.wait_for_end()
        raise CapioError(self._server.why_ended())

    async def _watch_activity(self, node_job: NodeJob, producers: Sequence[Attempt]) -> None:
        # Until then it may rightly wait for them.
        for attempt in producers:
            await asyncio.shield(attempt.succeeded)
        await wait_until_idle(lambda: node_job.pid, _IDLE_SECONDS)
        raise CapioError(f"a job has used no processor for {_IDLE_SECONDS:.0f} s, as if its program hung under CAPIO")

    async def _lose(self, node_job: NodeJob, error: BaseException) -> None:
        if not isinstance(error, NodeRuntimeError):
            raise error
        self._give_up(str(error))
        await node_job.cancel()

    def _give_up(self, reason: str) -> None:
        self.lost = reason
        self._runtime.give_up(reason)


@contextmanager
def blaming(capio: CapioJob | None) -> Iterator[None]:
    """Let a job that fails with CAPIO start again without: its program may do what CAPIO does not know.

    :raises CapioLostError: instead of an error of the job
    """
    try:
        yield
    except UnrecoverableWorkflowException:
        raise
    except WorkflowException as error:
        if capio is None:
            raise
        capio.blame(str(error))
        raise CapioLostError(str(error)) from None


async def begin_capio_job(
    step: StreamingExecuteStep,
    runtime: CapioRuntime | None,
    server: CapioServer | None,
    producers: Sequence[tuple[StreamToken, Attempt]],
) -> CapioJob | None:
    """CAPIO's part in an attempt of a job; None if it has none, or CAPIO is not to be used any more."""
    outputs = {output.port: output for output in step.early_outputs if output.runtime == "capio"}
    reads = any(is_read_from_capio(*producer) for producer in producers)
    if runtime is None or server is None or not (outputs or reads) or not runtime.serves(step.name):
        return None
    known = {port: output.path for port, output in _capio_step(step).outputs.items() if not output.redirected}
    directory = None
    if outputs:
        try:
            directory = await server.new_directory(application_name(step.name))
        except NodeRuntimeError as error:
            runtime.give_up_step(step.name, str(error))
            return None
    names = {port: name for port in outputs if (name := known.get(port)) is not None}
    collected = dict.fromkeys(path for path in (*known.values(), _JSON) if path is not None)
    return CapioJob(runtime, server, step.name, directory, names, collected)


def is_read_from_capio(token: StreamToken, attempt: Attempt) -> bool:
    """Whether what a token stands for is to be read from CAPIO: it is there, and nowhere else yet."""
    return token.source.runtime == "capio" and attempt.capio is not None and not attempt.succeeded.done()


async def place_inputs(
    inputs: Mapping[str, Token], producers: Sequence[tuple[StreamToken, Attempt]], uses_capio: bool
) -> dict[str, Token] | None:
    """The inputs of an attempt, with the paths where what CAPIO held is now: in CAPIO, or in the file system.

    Waits for producers that write without CAPIO.

    :return: None if such a producer has failed
    """
    paths: dict[int, str] = {}
    for token, attempt in producers:
        if token.source.runtime != "capio":
            continue
        if uses_capio and is_read_from_capio(token, attempt):
            assert attempt.capio is not None
            paths[id(token)] = str(attempt.capio / token.source.path)
        elif await asyncio.shield(attempt.succeeded):
            paths[id(token)] = str(attempt.output_directory / token.source.path)
        else:
            return None
    return {name: _placed(token, paths) for name, token in inputs.items()}


def _placed(token: Token, paths: Mapping[int, str]) -> Token:
    if id(token) in paths:
        path = paths[id(token)]
        value = {**token.value, "path": path, "location": f"file://{path}", "dirname": posixpath.dirname(path)}
        return token.update(value)
    if isinstance(token, ListToken):
        return token.update([_placed(element, paths) for element in token.value])
    return token


def _capio_step(step: CWLExecuteStep) -> CapioStep:
    command = step.command
    if not isinstance(command, CWLCommand):
        return CapioStep(obstacle=f"{step.name} is an ExpressionTool")
    obstacle = None
    if command.initial_work_dir is not None:
        obstacle = f"{step.name} has an InitialWorkDirRequirement: CAPIO does not know what is put into the directory"
    elif command.is_shell_command:
        obstacle = (
            f"{step.name} has a ShellCommandRequirement: a shell's processes share open files, CAPIO mixes them up"
        )
    elif "LD_PRELOAD" in command.environment:
        obstacle = f"{step.name} sets LD_PRELOAD itself"
    redirections = {stream for stream in (command.stdout, command.stderr) if stream is not None}
    outputs = {
        port: output
        for port, processor in step.output_processors.items()
        if not is_early_port(port) and (output := _capio_output(processor, redirections)) is not None
    }
    return CapioStep(_program(command), obstacle, outputs)


def _program(command: CWLCommand) -> str | None:
    """The name of the program, or of the interpreter of the script, that a command runs."""
    word = next(iter(command.base_command), None)
    if not isinstance(word, str) or is_expression(word):
        return None
    try:
        with Path(shutil.which(word) or word).open("rb") as file:
            line = file.read(256).partition(b"\n")[0].decode(errors="replace")
    except OSError:
        line = ""
    words = line.removeprefix("#!").split() if line.startswith("#!") else [word]
    names = [posixpath.basename(word) for word in words if not word.startswith("-")]
    return next((name for name in names if name != "env"), None)


def _capio_output(processor: CommandOutputProcessor, redirections: set[str]) -> CapioOutput | None:
    """None: it looks at no file."""
    collector = file_processor(processor)
    if collector is None:
        return CapioOutput(None)  # It is not known what it looks at.
    if collector.glob is None:
        return None
    if isinstance(collector.glob, str) and collector.glob in redirections:
        return CapioOutput(collector.glob, redirected=True)
    kinds = collector.token_type if isinstance(collector.token_type, MutableSequence) else [collector.token_type]
    certain = (
        isinstance(collector.glob, str) and not is_expression(collector.glob) and not glob.has_magic(collector.glob)
    )
    simple = "Directory" not in kinds and not collector.secondary_files and collector.target is None
    return CapioOutput(posixpath.normpath(collector.glob) if certain and simple else None)
