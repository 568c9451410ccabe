"""CAPIO's part in one attempt of a job."""

from __future__ import annotations

import asyncio
import os
import posixpath
import shlex
import shutil
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from streamflow.core.exception import UnrecoverableWorkflowException, WorkflowException
from streamflow.core.workflow import CommandOutput, Token
from streamflow.workflow.token import ListToken

from streamflow_io.capio_cl.names import application_name
from streamflow_io.capio_cl.supported import COMMIT_CLOSES
from streamflow_io.runtime import NodeJob, NodeRuntimeError, WatchedOutput
from streamflow_io.runtime.activity import wait_until_idle
from streamflow_io.runtime.capio import CapioRuntime, CapioServer
from streamflow_io.runtime.capio_installation import CapioError, UnfitPathError
from streamflow_io.translation.capio import capio_step

from .attempts import Attempt
from .publisher import Publisher
from .tokens import StreamToken

if TYPE_CHECKING:
    from .steps import StreamingExecuteStep

_JSON = "cwl.output.json"
# A program that hangs under CAPIO uses no processor; one that only waits for something else loses no more than a start.
# With two looks, and the time that they take, it is seen in 20 seconds.
_IDLE_SECONDS = 14.0
_LOOK_SECONDS = 2.0
_COLLECT_SECONDS = 24 * 3600.0


class CapioLostError(Exception):
    """An attempt of a job was in vain because CAPIO failed, and not the job."""


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
        await asyncio.to_thread(_copy_what_is_not_in_capio, pairs)

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
        await wait_until_idle(lambda: node_job.pid, _IDLE_SECONDS, _LOOK_SECONDS)
        raise CapioError(
            f"a job of {self._step} has used no processor for {_IDLE_SECONDS:.0f} s, as if its program hung under CAPIO"
        )

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
    known = {port: output.path for port, output in capio_step(step).outputs.items() if not output.redirected}
    directory = None
    if outputs:
        try:
            directory = await server.new_directory(application_name(step.name))
        except UnfitPathError as error:
            runtime.give_up_step(step.name, str(error))
            return None
        except NodeRuntimeError as error:
            runtime.give_up(str(error))
            return None
    names = {port: name for port in outputs if (name := known.get(port)) is not None}
    collected = dict.fromkeys(path for path in (*known.values(), _JSON) if path is not None)
    return CapioJob(runtime, server, step.name, directory, names, collected)


def is_read_from_capio(token: StreamToken, attempt: Attempt) -> bool:
    """Whether what a token stands for is to be read from CAPIO: it is there, and nowhere else yet."""
    return token.source.runtime == "capio" and attempt.capio is not None and not attempt.succeeded.done()


def outputs_in_file_system(step: StreamingExecuteStep, outputs: Iterable[WatchedOutput]) -> tuple[WatchedOutput, ...]:
    """Those outputs of a step that can be watched: CAPIO does not have them."""
    in_capio = {output.port for output in step.early_outputs if output.runtime == "capio"}
    return tuple(output for output in outputs if output.port not in in_capio)


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


def _copy_what_is_not_in_capio(pairs: Sequence[str]) -> None:
    """A program that does not load libraries has written past CAPIO, into what is a directory for the kernel, too."""
    for source, target in zip(pairs[::2], pairs[1::2], strict=True):
        if os.path.isfile(source) and not os.path.exists(target):
            shutil.copy2(source, target)


def _placed(token: Token, paths: Mapping[int, str]) -> Token:
    value: object
    if id(token) in paths:
        path = paths[id(token)]
        value = {**token.value, "path": path, "location": f"file://{path}", "dirname": posixpath.dirname(path)}
    elif isinstance(token, ListToken):
        value = [_placed(element, paths) for element in token.value]
    else:
        return token
    placed = token.update(value)
    placed.persistent_id = token.persistent_id
    return placed
