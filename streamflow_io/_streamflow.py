"""The seam: every use of members that StreamFlow does not promise to keep, in one place.

`tests/integration/test_translation.py` breaks when one of them changes. The same test checks these protected methods:

- steps override `ExecuteStep._execute_command`, `ExecuteStep._check_inputs`, `BaseStep._get_status`,
  `GatherStep._gather`, `TransferStep._run_transfer`;
- steps call `CWLExecuteStep._is_recoverable`, `ExecuteStep._run_job`, `BaseStep._get_inputs`,
  `BaseStep._persist_token`, `ScatterStep._scatter`, `DefaultRetagTransformer._get_next_token`; a job that moves
  calls `ScheduleStep._set_job_directories`; a step overrides `ScheduleStep._schedule`;
- the translator overrides `CWLTranslator._handle_inner_inputs`;
- the scheduler overrides `DefaultScheduler._is_valid`, `._get_locations`, `._allocate_job`, `._process_target` and
  `._free_resources`, and calls `._get_binding_filter`;
- the executor overrides `StreamFlowExecutor._wait_outputs`, and calls `._cancel`;
- connectors of hosts override `BaseConnector._create_shell`; their shells call `BaseShell._read_with_output`.
- `BaseShell.execute` and `DefaultDataManager.transfer_data` are replaced, and the lock of a shell is used;
- `RollbackFailureManager._retry_requests` is read.

StreamFlow runs `DefaultScheduler._process_target` in a task of its own for each target. The method calls the first
three, one after the other, while the task holds the lock of `wait_queue`.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import posixpath
import re
import shlex
import sys
import weakref
from abc import ABC, abstractmethod
from asyncio.subprocess import STDOUT, Process
from collections.abc import (
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
    MutableSequence,
    Sequence,
)
from contextlib import contextmanager
from copy import copy, deepcopy
from functools import lru_cache, partial
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any, Literal, Protocol, TypeVar

import cwl_utils.parser
import cwl_utils.parser.utils
import streamflow.core.utils
import streamflow.cwl.command
import streamflow.cwl.main
import streamflow.cwl.processor
import streamflow.cwl.step
import streamflow.cwl.translator
import streamflow.cwl.utils
import streamflow.data.manager
import streamflow.provenance
import streamflow.workflow.step
from aiohttp import WSMsgType
from cwl_utils.types import CWLParameterContext
from kubernetes_asyncio.stream import ws_client
from msgspec import Struct
from schema_salad.utils import yaml_no_ts
from streamflow.config.config import WorkflowConfig
from streamflow.core.context import StreamFlowContext
from streamflow.core.data import DataLocation, DataManager, DataType, StreamWrapper
from streamflow.core.deployment import Connector, ExecutionLocation, Shell
from streamflow.core.exception import WorkflowExecutionException
from streamflow.core.persistence import Database
from streamflow.core.provenance import ProvenanceManager
from streamflow.core.recovery import FailureManager, RecoveryRequest
from streamflow.core.scheduling import AvailableLocation, Hardware
from streamflow.core.utils import flatten_list, random_name
from streamflow.core.workflow import Job, Port, Status, Token, Workflow
from streamflow.cwl.command import CWLCommand, InitialWorkDirOptions, _prepare_work_dir
from streamflow.cwl.expression import DependencyResolver
from streamflow.cwl.step import CWLInputInjectorStep
from streamflow.cwl.translator import CWLTranslator
from streamflow.data.manager import DefaultDataManager, _RemotePathMapper, _RemotePathNode
from streamflow.deployment.connector.base import (
    BaseConnector,
    SubprocessShell,
    SubprocessStreamReaderWrapper,
    SubprocessStreamReaderWrapperContextManager,
    SubprocessStreamWriterWrapper,
    SubprocessStreamWriterWrapperContextManager,
)
from streamflow.deployment.connector.container import ContainerConnector
from streamflow.deployment.connector.kubernetes import STREAM_CLOSE, KubernetesBaseConnector, KubernetesShell
from streamflow.deployment.connector.queue_manager import QueueManagerConnector
from streamflow.deployment.connector.ssh import SSHConnector
from streamflow.deployment.future import FutureConnector
from streamflow.deployment.shell import BaseShell
from streamflow.deployment.stream import BaseStreamWrapper
from streamflow.deployment.wrapper import ConnectorWrapper, get_inner_location
from streamflow.persistence.sqlite import IN_MEMORY_SQLITE_CONNECTION, SqliteConnection, SqliteDatabase
from streamflow.recovery.failure_manager import RollbackFailureManager
from streamflow.workflow.executor import StreamFlowExecutor
from streamflow.workflow.port import JobPort
from streamflow.workflow.step import ScheduleStep
from streamflow.workflow.token import JobToken, ListToken
from streamflow.workflow.utils import get_job_token, get_token_value

from streamflow_io.files import parents
from streamflow_io.loop_connection import LoopConnection
from streamflow_io.processes import end_process, ends_within

logger = logging.getLogger("streamflow")


def install_translator(translator: type[CWLTranslator]) -> None:
    """Make `streamflow run` and `cwl-runner` translate with our class, for want of an extension point."""
    streamflow.cwl.main.CWLTranslator = translator


def install_provenance(manager: Callable[..., ProvenanceManager]) -> None:
    """Make `streamflow prov` write RO-Crates of CWL workflows with what this makes, for want of an extension point.

    :param manager: called as StreamFlow calls its own class
    """
    streamflow.provenance.prov_classes["run_crate"]["cwl"] = manager


@contextmanager
def sizes_of_nested_lists_made_once() -> Iterator[None]:
    """Let all outputs of a `nested_crossproduct` be gathered by the same sizes of their lists.

    StreamFlow 0.2.0rc3 makes steps that tell the sizes for each output of a step, under the same names. So only the
    steps of the last output run. The other outputs get an empty list too many, and their readers run once too often:
    as a job without a tag, or beside a job of the same name.
    """
    make = streamflow.cwl.translator._create_nested_size_tag
    made: dict[tuple[str, ...], MutableSequence[Port]] = {}

    def make_once(
        sizes: MutableMapping[str, Port], replicas: MutableMapping[str, Port], step: str, workflow: Workflow
    ) -> MutableSequence[Port]:
        # The function calls itself for the inner lists of a step, and extends what it gets.
        key = (step, *sizes, *replicas)
        if key not in made:
            made[key] = make(sizes, replicas, step, workflow)
        return list(made[key])

    streamflow.cwl.translator._create_nested_size_tag = make_once
    try:
        yield
    finally:
        streamflow.cwl.translator._create_nested_size_tag = make


@contextmanager
def documents_read_once() -> Iterator[None]:
    """Let a packed document be parsed once, and each process that a step runs be loaded once to check types.

    cwl_utils 0.42 checks the types of a workflow before StreamFlow translates it. For each input and output of a step,
    it reads the file again that the step runs. Of a packed document, this is the whole document.
    """
    load_step, load_text = cwl_utils.parser.utils.load_step, cwl_utils.parser.load_document_by_string
    loaded: dict[int, tuple[Any, Any]] = {}

    @lru_cache(maxsize=1)
    def parse(text: str) -> Any:
        return yaml_no_ts().load(text)

    def load_step_once(step: Any) -> Any:
        if id(step) not in loaded:
            loaded[id(step)] = (step, load_step(step))  # The step lives on, so that no other one gets its number.
        return loaded[id(step)][1]

    def load_one(string: str, *rest: Any, **named: Any) -> Any:
        match rest:
            case uri, options, name, False if "$graph" in string and "$graph" in (document := parse(string)):
                # As cwl_utils finds the process. StreamFlow may change values in the process.
                found = [deepcopy(each) for each in document["$graph"] if each["id"].lstrip("#") == (name or "main")]
                chosen = {**document, "$graph": found or document["$graph"]}
                return cwl_utils.parser.load_document_by_yaml(chosen, uri, options, name, **named)
        return load_text(string, *rest, **named)

    cwl_utils.parser.utils.load_step, cwl_utils.parser.load_document_by_string = load_step_once, load_one
    try:
        yield
    finally:
        cwl_utils.parser.utils.load_step, cwl_utils.parser.load_document_by_string = load_step, load_text


def execute_statements_in_the_loop(database: Database, locked: Callable[[], None]) -> None:
    """Let StreamFlow's own database execute its statements in the thread of the event loop.

    Other databases, and one in memory, are left alone.

    :param locked: called if another process keeps the file locked for a long time
    """
    if type(database) is not SqliteDatabase or isinstance(database.connection, LoopConnection):
        return
    inner = database.connection
    if inner.connection == IN_MEMORY_SQLITE_CONNECTION:
        return

    async def create_schema() -> None:
        # Also if the file is there: another run may have made it just now, and no tables yet.
        connection = SqliteConnection(inner.connection, inner.mmap_size, inner.timeout, init_db=True)
        try:
            async with connection:
                pass
        finally:
            # The thread of an open connection would keep the driver from ending.
            await connection.close()

    database.connection = LoopConnection(inner.connection, inner.timeout, create_schema, locked)


class JobTokens(list[Token]):
    """The tokens of a port of jobs, which :func:`find_job_token` need not look through one by one."""

    def __init__(self, tokens: Sequence[Token] = ()) -> None:
        super().__init__()
        self.by_job: dict[str, JobToken] = {}
        for token in tokens:
            self.append(token)

    def append(self, token: Token) -> None:
        super().append(token)
        if isinstance(token, JobToken):
            self.by_job.setdefault(token.value.name, token)


def find_job_token(job_name: str, token_list: Sequence[Token]) -> JobToken:
    """Find the first token of a job, as `get_job_token` does.

    :raises WorkflowExecutionException: if there is none
    """
    if isinstance(token_list, JobTokens) and (token := token_list.by_job.get(job_name)) is not None:
        return token
    return get_job_token(job_name, token_list)


_SHORT = 32
_last_list: tuple[ListToken, list[Any]] | None = None


def token_value(token: Token) -> Any:
    """The value of a token, as `get_token_value` makes it. The value of the last long list is kept."""
    global _last_list
    if not isinstance(token, ListToken) or len(token.value) < _SHORT:
        return get_token_value(token)
    if _last_list is None or _last_list[0] is not token:
        _last_list = token, get_token_value(token)
    # A copy: StreamFlow may change a list that it puts into the context of a job.
    return [*_last_list[1]]


def look_up_in_constant_time(workflow: Workflow) -> None:
    """Let the cost of a job not grow with the number of jobs of its step.

    StreamFlow 0.2.0rc3 searches the tokens of all jobs twice for each job. For each file in a list, it makes the value
    of the whole list.
    """
    for module in (streamflow.workflow.step, streamflow.cwl.step, streamflow.cwl.command):
        module.get_job_token = find_job_token
    streamflow.cwl.utils.get_token_value = token_value
    for port in workflow.ports.values():
        if isinstance(port, JobPort):
            port.token_list = JobTokens(port.token_list)


# Spaces, a text without quotes, or a quoted text. A backslash is left to `shlex`.
_PIECE = re.compile(r"""[ \t\r\n]+|([^ \t\r\n'"\\]+)|'([^']*)'|"([^"\\]*)\"""")


def split_words(text: str) -> list[str]:
    """Split a command as `shlex.split` does, which looks at each character."""
    words: list[str] = []
    at, is_within = 0, False
    for piece in _PIECE.finditer(text):
        if piece.start() != at:
            break
        at, group = piece.end(), piece.lastindex
        if group is not None and is_within:
            words[-1] += piece[group]
        elif group is not None:
            words.append(piece[group])
        is_within = group is not None
    return words if at == len(text) else shlex.split(text)


def split_commands_by_pieces() -> None:
    """Let StreamFlow, from now on in this process, split the command of each job in a tenth of the time."""
    streamflow.core.utils.shlex = SimpleNamespace(**{**vars(shlex), "split": split_words})


class _RememberingResolver(DependencyResolver):  # type: ignore[misc]
    def eval(self, scan: str, jslib: str = "", **_: Any) -> None:
        self.deps |= _inputs_used(scan, jslib)


@lru_cache(maxsize=4096)
def _inputs_used(expression: str, library: str) -> frozenset[str]:
    resolver = DependencyResolver("inputs")
    resolver.eval(expression, library)
    return frozenset(resolver.deps)


def parse_expressions_once() -> None:
    """Let StreamFlow, from now on in this process, parse each JavaScript expression once.

    Its parser takes 0.1 to 1 s for an expression. StreamFlow parses the expressions of a step when it translates the
    workflow, and those of outputs again for each job.
    """
    streamflow.cwl.utils.DependencyResolver = _RememberingResolver


def cwl_files(workflow: WorkflowConfig, context: StreamFlowContext) -> tuple[str, str | None]:
    """Read the `config` of a CWL workflow as `streamflow run` does: what it says of containers is noted in `workflow`.

    :return: the CWL file, and the file with its inputs, if there is one
    """
    file, *settings = streamflow.cwl.main._parse_args(workflow, context)
    return file, settings[0] if settings else None


class RetryPolicy(Struct):
    """How often a job may be tried again, under the failure manager that the user configured.

    :ivar delay: seconds to wait before a job is tried again
    """

    delay: float
    _maximum: int | None
    _request: RecoveryRequest | None

    def take(self) -> bool:
        """Count one more attempt. False if it is not allowed."""
        if self._request is None or (self._maximum is not None and self._request.version >= self._maximum):
            return False
        self._request.version += 1
        return True


def retry_policy(manager: FailureManager, job: str) -> RetryPolicy:
    """The policy for a job. Attempts are counted where `RollbackFailureManager` counts its own."""
    if isinstance(manager, RollbackFailureManager):
        return RetryPolicy(manager.retry_delay or 0, manager.max_retries, manager.get_request(job))
    return RetryPolicy(0, 0, None)


def last_recovery(manager: FailureManager, job: str) -> Workflow | None:
    """The workflow in which a job has run, or runs, once more; None: the job did not have to."""
    requests = manager._retry_requests if isinstance(manager, RollbackFailureManager) else {}
    return None if (request := requests.get(job)) is None else request.workflow


def end_with_the_last_step(all_ended: Callable[[], Awaitable[None]]) -> None:
    """Let a run, from now on in this process, end when all its steps have ended or one has failed.

    StreamFlow 0.2.0rc3 ends a run with the last output of the workflow. It cancels the steps that still run then, and
    fails because it has cancelled them.

    :param all_ended: awaited when all steps have succeeded, while the locations can still be reached
    """
    _ExecutorOfAllSteps.all_ended = staticmethod(all_ended)
    streamflow.cwl.main.StreamFlowExecutor = _ExecutorOfAllSteps


class _ExecutorOfAllSteps(StreamFlowExecutor):  # type: ignore[misc]
    all_ended: Callable[[], Awaitable[None]]

    async def run(self) -> MutableMapping[str, Any]:
        tokens: MutableMapping[str, Any] = await super().run()
        await type(self).all_ended()
        return tokens

    async def _wait_outputs(
        self, output_consumer: str, output_tokens: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        if await self._have_all_ended():
            tokens: MutableMapping[str, Any] = await super()._wait_outputs(output_consumer, output_tokens)
            return tokens
        await self._cancel(self.output_tasks.values())
        return output_tokens

    async def _have_all_ended(self) -> bool:
        """Wait until all steps have ended, or one has failed: then it is False."""
        steps = self.workflow.steps
        ended: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def settle(all_ended: bool) -> None:
            if not ended.done():
                ended.set_result(all_ended)

        def look(execution: asyncio.Task[None]) -> None:
            if steps[execution.get_name()].status in (Status.FAILED, Status.CANCELLED):
                settle(False)

        for execution in self.executions:
            execution.add_done_callback(look)
        asyncio.gather(*self.executions, return_exceptions=True).add_done_callback(lambda _: settle(True))
        return await ended


async def prepare_work_dir(command: CWLCommand, job: Job, context: CWLParameterContext) -> CWLCommand:
    """Put into the output directory of a job what its InitialWorkDirRequirement lists, as `CWLCommand.execute` does.

    That looks afterwards at all files among the inputs again, also at those that are not there yet. As there, the
    values of the inputs are changed in place: what was put into the directory is there now.

    :param context: what expressions of the job can use
    :return: the same command with nothing left to prepare
    """
    await _prepare_work_dir(
        element=command.initial_work_dir,
        options=InitialWorkDirOptions(
            absolute_initial_workdir_allowed=command.absolute_initial_workdir_allowed,
            context=context,
            expression_lib=command.expression_lib,
            full_js=command.full_js,
            inplace_update=command.inplace_update,
            job=job,
            step=command.step,
        ),
    )
    prepared = copy(command)
    prepared.initial_work_dir = None
    return prepared


def forget_data(manager: DataManager, path: str, left: frozenset[str]) -> None:
    """Let a data manager forget a directory with a random name, and all that is in it, at all locations.

    `DataManager.invalidate_location` also forgets what links in the directory lead to.

    :param left: relative paths that are not forgotten, nor what is below them
    """
    name, above = posixpath.basename(path), {parent for each in left for parent in parents(each)}
    for below, node in _nodes_below(manager, path):
        is_left = below in above or below in left or any(parent in left for parent in parents(below))
        for location in () if is_left else _locations_at(node):
            # The same file has other paths where a container, or a job, sees it.
            if f"/{name}/" in location.path + "/":
                location.data_type = DataType.INVALID


def forget_path(manager: DataManager, path: str) -> None:
    """Let a data manager forget what is at a path, but not what is below the path.

    StreamFlow knows a directory that an InitialWorkDirRequirement has made, and would list that directory.
    """
    _, node = next(_nodes_below(manager, path), ("", None))
    if node is not None:
        for location in _locations_at(node):
            if location.path == path:
                location.data_type = DataType.INVALID
        node.locations.clear()
        node.valid_paths.clear()


def copies_in(manager: DataManager, path: str) -> Iterator[tuple[str, str]]:
    """Yield what a data manager takes for copies of other files, in a directory with a random name.

    :return: the path of each copy, with the path of each file that the data manager takes for the same
    """
    name = posixpath.basename(path)
    for _, node in _nodes_below(manager, path):
        primary = [each.path for each in _locations_at(node) if each.data_type is DataType.PRIMARY]
        own = [each for each in primary if f"/{name}/" in each + "/"]
        yield from ((each, other) for each in own for other in primary if other not in own)


def register_copy(manager: DataManager, path: str, copy: str) -> None:
    """Let a data manager take another file for the one at a path, where it knows the other file."""
    if copy != path and isinstance(mapper := getattr(manager, "path_mapper", None), _RemotePathMapper):
        for location in manager.get_data_locations(copy, data_type=DataType.PRIMARY):
            mapper.put(path, location)


def _nodes_below(manager: DataManager, path: str) -> Iterator[tuple[str, _RemotePathNode]]:
    """Yield all that a data manager knows in a directory, with relative paths. The directory itself is the first."""
    mapper = getattr(manager, "path_mapper", None)
    if not isinstance(mapper, _RemotePathMapper):
        return
    node = mapper._filesystem
    for part in Path(path).parts:
        if (child := node.children.get(part)) is None:
            return
        node = child
    ahead = [("", node)]
    while ahead:
        below, node = ahead.pop()
        yield below, node
        ahead += ((f"{below}/{part}".lstrip("/"), child) for part, child in node.children.items())


def _locations_at(node: _RemotePathNode) -> Iterator[DataLocation]:
    for of_deployment in node.locations.values():
        for of_name in of_deployment.values():
            yield from of_name


_transfer_data = DefaultDataManager.transfer_data


def mend_copies() -> None:
    """Let no job, from now on in this process, wait for the end of a copy that has failed.

    In StreamFlow 0.2.0rc3, a job that needs the same file at the same location waits for ever. The next attempt of the
    same job does so, too.
    """
    streamflow.data.manager.DataLocation = _CopiedLocation
    DefaultDataManager.transfer_data = _transfer


class _Copied(asyncio.Event):
    """Is set when a copy is complete, or has failed.

    :ivar failure: why it has failed; None: the copy is complete
    """

    failure: str | None = None

    async def wait(self) -> Literal[True]:
        await super().wait()
        if self.failure is not None:
            raise WorkflowExecutionException(self.failure)
        return True


class _CopiedLocation(DataLocation):  # type: ignore[misc]
    def __init__(self, *words: Any, available: bool = False, **fields: Any) -> None:
        super().__init__(*words, **fields)
        self.available = _Copied()
        if available:
            self.available.set()


async def _transfer(
    self: DefaultDataManager,
    src_location: ExecutionLocation,
    src_path: str,
    dst_locations: MutableSequence[ExecutionLocation],
    dst_path: str,
    writable: bool = False,
) -> None:
    try:
        await _transfer_data(self, src_location, src_path, dst_locations, dst_path, writable)
    except BaseException as error:
        for location in (each for _, node in _nodes_below(self, dst_path) for each in _locations_at(node)):
            is_of_copy = PurePosixPath(location.path).is_relative_to(dst_path)
            if is_of_copy and isinstance(copied := location.available, _Copied) and not copied.is_set():
                location.data_type = DataType.INVALID
                copied.failure = f"{src_path} was not copied to {dst_path} on {location.location}: {error!r}"
                copied.set()
        raise


class OwnPaths(_RemotePathMapper):  # type: ignore[misc]
    """The paths of a data manager, and further paths that the data manager does not see.

    :param inner: the `path_mapper` of StreamFlow's own data manager
    """

    def __init__(self, inner: _RemotePathMapper, context: StreamFlowContext) -> None:
        super().__init__(context)
        self._inner = inner

    def get(
        self, path: str, data_type: DataType | None = None, deployment: str | None = None, name: str | None = None
    ) -> MutableSequence[DataLocation]:
        own = super().get(path, data_type, deployment, name)
        known = {(location.deployment, location.name, location.path) for location in own}
        others = self._inner.get(path, data_type, deployment, name)
        return [*own, *(each for each in others if (each.deployment, each.name, each.path) not in known)]

    def invalidate_location(self, location: ExecutionLocation, path: str) -> None:
        pass

    def remove_location(self, location: DataLocation) -> None:
        pass


def _deployed(connector: Connector | None) -> Connector | None:
    """The connector behind one that StreamFlow deploys at its first use; before that use there is none."""
    return connector._connector if isinstance(connector, FutureConnector) else connector


async def remove_jobs(connector: Connector) -> None:
    """Remove the jobs of this run that a queue manager still has, also those that wait in its queue.

    From now on the queue manager gets no jobs of this run: their commands end as if their callers were cancelled.

    StreamFlow 0.2.0rc3 means to when it undeploys, but asks in the location that is inside the right one, and fails.
    """
    connector = _deployed(connector)
    if not isinstance(connector, QueueManagerConnector):
        return
    _CLOSED.add(connector)
    submissions = dict(_SUBMISSIONS.get(connector, {}))
    jobs, connector._scheduled_jobs = connector._scheduled_jobs, {}
    await _remove_known_jobs(connector, jobs)
    if submissions:
        await asyncio.wait(submissions)
        answered = {task: at for task, at in submissions.items() if not task.cancelled() and task.exception() is None}
        late = {task.result(): at for task, at in answered.items()}
        await _remove_known_jobs(connector, {job: at for job, at in late.items() if job not in jobs})


async def _remove_known_jobs(connector: QueueManagerConnector, jobs: Mapping[str, ExecutionLocation]) -> None:
    for location in {location.name: location for location in jobs.values()}.values():
        await connector._remove_jobs(location, [job for job, other in jobs.items() if other.name == location.name])


_T = TypeVar("_T")
#: Lets a script at a location read the archive of a file or directory of another location, as `tar` makes it: source,
#: path, target, script. Returns why it has failed; None: success. Raises an error if the script cannot write.
CopyByLink = Callable[[ExecutionLocation, str, ExecutionLocation, str], Awaitable[str | None]]
#: The exit code of such a script that cannot write the files.
NOT_WRITTEN = 74


# StreamFlow 0.2.0rc3 quotes the paths of all other commands.
_UNQUOTED = frozenset(("ln", "cp", "/bin/cp", "cat", "head", "mkdir", "rm", "chmod", "tar", "tee"))
_OPERATORS = frozenset((">", "|", "&&"))


def quoted(command: Sequence[str]) -> list[str]:
    """Quote the arguments of a command that StreamFlow 0.2.0rc3 does not quote."""
    first, *rest = command
    if first not in _UNQUOTED:
        return [*command]
    return [first, *(word if word in _OPERATORS else shlex.quote(word) for word in rest)]


class HostJobs(Struct, frozen=True):
    """The jobs of a deployment.

    :ivar busy: the names of the locations where jobs run, or from which they read
    :ivar waits: whether jobs wait for a location
    :ivar lacks: whether they lack cores, memory or time on all locations
    """

    busy: frozenset[str]
    waits: bool
    lacks: bool


class HostScheduler(Protocol):
    """A scheduler that knows the jobs of hosts."""

    def hosts_changed(self, deployment: str) -> None:
        """Let all waiting jobs look again: a deployment has other hosts now, or there will be none."""

    def host_jobs(self, deployment: str) -> HostJobs:
        """The jobs of a deployment."""

    def copies(self, path: str) -> Sequence[tuple[DataLocation, Connector]]:
        """The places where a file is, each with its connector."""


class NoHostsError(WorkflowExecutionException):  # type: ignore[misc]
    """A deployment has no hosts any more that can be used."""


class OwnHosts(BaseConnector, ABC):  # type: ignore[misc]
    """A connector of the plugin whose locations are hosts, as those of SSH.

    All that runs on a host is a local process of :meth:`start`, whose standard input and output are those there.

    :ivar copy_by_link: copies between hosts; None: no node runtime runs there yet
    :ivar scheduler: places jobs on the hosts; None: another one than the plugin's
    """

    copy_by_link: CopyByLink | None = None
    scheduler: HostScheduler | None = None

    @abstractmethod
    async def start(
        self, location: ExecutionLocation, words: Sequence[str], stdin: int, stdout: int, stderr: int
    ) -> Process:
        """Start a program on a host. The standard streams are those of `asyncio.subprocess`.

        :raises WorkflowExecutionException: if no program can be started there
        """

    @abstractmethod
    async def explain(self, location: ExecutionLocation, process: Process) -> None:
        """Raise the reason why a process has ended whose input is open. Return: the program has ended by itself.

        :raises WorkflowExecutionException: with the reason
        """

    @property
    @abstractmethod
    def found(self) -> str:
        """The hosts that were found, for people."""

    @property
    @abstractmethod
    def seconds_left(self) -> float | None:
        """The longest time for which a host can be used, now or later; None: no limit is known."""

    @abstractmethod
    def seconds_of(self, location: str) -> float | None:
        """The time for which a host can be used; None: no limit is known."""

    @abstractmethod
    async def wait(self) -> None:
        """Wait until there are hosts, or there will be none."""

    @abstractmethod
    async def all_known(self) -> None:
        """Wait until all hosts have told their size, or are lost."""

    @property
    @abstractmethod
    def losses(self) -> Sequence[str]:
        """The reasons why hosts are lost."""

    @property
    @abstractmethod
    def left(self) -> MutableMapping[str, Hardware]:
        """The hosts that are not lost, as far as their sizes are known."""

    @abstractmethod
    def is_lost(self, name: str) -> bool:
        """Whether a host is used no more."""

    @abstractmethod
    async def sees(self, location: ExecutionLocation, path: str) -> bool:
        """Whether a host sees the same file at a path as the driver: the file is not copied then."""

    async def carry_out(self, location: ExecutionLocation, path: str, call: Callable[[], _T]) -> _T | None:
        """Let the driver itself do something with a file of a job, where it sees at once what the host has written.

        :param call: may raise :class:`OSError`, and does not take long
        :return: what the call returns; None: the host is to do this
        """
        return None

    @abstractmethod
    def drop(self, location: ExecutionLocation) -> None:
        """Count a host that does not answer as lost, and end all processes here that wait for it."""

    @abstractmethod
    def leave(self, location: ExecutionLocation, reason: str) -> None:
        """Start no more jobs on a host whose node runtime has ended, though the host may answer."""

    async def _create_shell(self, command: MutableSequence[str], location: ExecutionLocation) -> Shell:
        pipe = asyncio.subprocess.PIPE
        process = await self.start(location, command, pipe, pipe, asyncio.subprocess.DEVNULL)
        return _HostShell(command, self.transferBufferSize, process, lambda: self.explain(location, process))

    async def get_stream_reader(
        self, command: MutableSequence[str], location: ExecutionLocation
    ) -> SubprocessStreamReaderWrapperContextManager:
        null, pipe = asyncio.subprocess.DEVNULL, asyncio.subprocess.PIPE
        text, mark = " ".join(quoted(command)), random_name()
        words = ["sh", "-c", f"{{ {text}\n}} < /dev/null; printf %s {mark}; exec cat > /dev/null"]
        return _HostOutput(self.start(location, words, pipe, pipe, null), mark.encode(), f"{text!r} on {location}")

    async def get_stream_writer(
        self, command: MutableSequence[str], location: ExecutionLocation
    ) -> SubprocessStreamWriterWrapperContextManager:
        null, pipe = asyncio.subprocess.DEVNULL, asyncio.subprocess.PIPE
        words = ["sh", "-c", " ".join(quoted(command))]
        return _HostInput(self.start(location, words, pipe, null, null), f"{words[2]!r} on {location}")

    def own(self, location: ExecutionLocation) -> ExecutionLocation:
        """The host of a location: StreamFlow may hand the location of a container on it to this connector."""
        return _own_location(self, location)


# For a launcher whose program on a host is over.
_END_SECONDS = 10.0


class _HostOutput(SubprocessStreamReaderWrapperContextManager):  # type: ignore[misc]
    """The output of a program on a host, to its last byte.

    A launcher may lose the end of the output when the program ends, and still have the exit code 0. `srun` of Slurm
    22.05 loses it in one of ten copies of 200 kB. StreamFlow would take the rest for a shorter file. So a mark follows
    the output, and the program stays until the mark has arrived.

    :param mark: what the program prints last
    :param name: of the program in messages
    """

    def __init__(self, coro: Awaitable[Process], mark: bytes, name: str) -> None:
        super().__init__(coro)
        self._mark = mark
        self._name = name

    async def __aenter__(self) -> StreamWrapper:
        self.proc = await self.coro
        self.stream = _MarkedStream(self.proc.stdout, self._mark, self._name)
        return self.stream

    async def __aexit__(self, *error: Any) -> None:
        try:
            if error[0] is None:
                while await self.stream.read(self.stream.BLOCK):
                    pass
        finally:
            self.proc.stdin.close()
            # A program that prints does not end while its output is not read.
            draining = asyncio.ensure_future(self.proc.stdout.read())
            try:
                await end_process(self.proc, _END_SECONDS if self.stream.has_ended else 0.0)
            finally:
                draining.cancel()
            await self.stream.close()


class _MarkedStream(SubprocessStreamReaderWrapper):  # type: ignore[misc]
    """A stream after which a mark follows.

    :ivar has_ended: the mark has arrived
    """

    BLOCK = 2**16

    def __init__(self, stream: asyncio.StreamReader, mark: bytes, name: str) -> None:
        super().__init__(stream)
        self.has_ended = False
        self._mark = mark
        self._name = name
        # What has arrived, and was not read.
        self._ahead = b""

    async def read(self, size: int | None = None) -> bytes:
        """:raises WorkflowExecutionException: if the stream ends without the mark"""
        while not self.has_ended and (size is None or len(self._ahead) <= len(self._mark)):
            content = await self.stream.read(self.BLOCK)
            if not content:
                raise WorkflowExecutionException(f"The end of the output of {self._name} is lost")
            self._ahead += content
            if self._ahead.endswith(self._mark):
                self._ahead = self._ahead.removesuffix(self._mark)
                self.has_ended = True
        most = len(self._ahead) if self.has_ended else len(self._ahead) - len(self._mark)
        content = self._ahead[: most if size is None else min(size, most)]
        self._ahead = self._ahead[len(content) :]
        return content


class _HostInput(SubprocessStreamWriterWrapperContextManager):  # type: ignore[misc]
    """The input of a program on a host. StreamFlow would not notice that the program fails.

    :param name: of the program in messages
    """

    def __init__(self, coro: Awaitable[Process], name: str) -> None:
        super().__init__(coro)
        self._name = name

    async def __aexit__(self, *error: Any) -> None:
        assert self.proc is not None
        if error[0] is not None:
            assert self.proc.stdin is not None
            self.proc.stdin.close()
            await end_process(self.proc, _END_SECONDS)
            return
        await super().__aexit__(*error)
        if self.proc.returncode != 0:
            raise WorkflowExecutionException(f"{self._name} has failed: exit code {self.proc.returncode}")


#: What has hosts as locations: a node runtime runs on each of them, and streams go between them by the network.
HOSTS = (SSHConnector, OwnHosts)


_execute = BaseShell.execute
# By the lock of a shell, because StreamFlow's shells themselves can be no keys.
_TURNS = weakref.WeakKeyDictionary[asyncio.Lock, asyncio.Lock]()


def mend_shells() -> None:
    """Let a command in a shell, from now on in this process, run to its end also when its caller is cancelled.

    StreamFlow 0.2.0rc3 leaves the output of such a command in the shell, and takes it for that of the next command.
    """
    BaseShell.execute = _execute_to_the_end


async def _execute_to_the_end(self: BaseShell, *words: Any, **options: Any) -> tuple[str, int] | None:
    # A command that has not begun does not run any more.
    await (turn := _TURNS.setdefault(self._lock, asyncio.Lock())).acquire()
    return await _to_the_end(turn, _execute(self, *words, **options))


async def _to_the_end(turn: asyncio.Lock, executing: Awaitable[tuple[str, int] | None]) -> tuple[str, int] | None:
    """Let a command run to its end, and its shell be free then, also when the caller is cancelled."""

    async def execute() -> tuple[str, int] | None:
        try:
            return await executing
        finally:
            turn.release()

    task = asyncio.create_task(execute())
    # Without its caller, nothing asks for the error of a command.
    task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
    return await asyncio.shield(task)


class _HostShell(SubprocessShell):  # type: ignore[misc]
    """A shell on a host, whose end has a reason.

    :param explain: raises the reason for an end that was not wanted
    """

    def __init__(
        self, command: MutableSequence[str], buffer_size: int, process: Process, explain: Callable[[], Awaitable[None]]
    ) -> None:
        super().__init__(command, buffer_size, process)
        assert process.stdout is not None
        self._reader: StreamWrapper = _ShellOutput(process.stdout, self._writer, explain)
        self._explain = explain

    async def execute(
        self,
        command: MutableSequence[str],
        environment: MutableMapping[str, str] | None = None,
        workdir: str | None = None,
        capture_output: bool = False,
        timeout: int | None = None,
    ) -> tuple[str, int] | None:
        # As in `mend_shells`.
        await (turn := self._lock).acquire()
        executing = self._execute(command, environment, workdir, capture_output, timeout)
        return await _to_the_end(turn, executing)

    async def _close(self) -> None:
        # The caller of a command that still runs was cancelled. StreamFlow would wait 5 s for the end of the command.
        if self._lock.locked():
            await end_process(self._proc)
        await super()._close()

    async def _execute(
        self,
        command: MutableSequence[str],
        environment: MutableMapping[str, str] | None,
        workdir: str | None,
        capture_output: bool,
        timeout: int | None,
    ) -> tuple[str, int] | None:
        """Run a command as StreamFlow's shell does, but print its output and the mark of its end at once.

        A launcher sends what is printed next only when the first has arrived, and TCP confirms that after 40 ms.
        """
        mark = f"SF_CMD_END_{random_name()}"
        variables = [f"export {name}={shlex.quote(value)}" for name, value in (environment or {}).items()]
        before = [*([f"cd {shlex.quote(workdir)}"] if workdir else []), *variables]
        script = "; ".join([*before, " ".join(command)])
        # A quote that is not closed is an error. Without `eval`, the shell would wait for its end for ever.
        line = f"said=$(exec 2>&1; eval {shlex.quote(script)}\n); printf '%s\\n%s:%s\\n' \"$said\" {mark} $?\n"
        if self._closed:
            raise WorkflowExecutionException("Shell process is terminated")
        try:
            await self._writer.write(line.encode())
            result: tuple[str, int] = await self._read_with_output(mark, timeout)
        except (BrokenPipeError, ConnectionResetError) as error:
            try:
                if await ends_within(self._proc, _END_SECONDS):
                    await self._explain()
            finally:
                await self.close()
            raise WorkflowExecutionException(f"Shell pipe broken: {error}") from error
        return result if capture_output else None


class _ShellOutput(SubprocessStreamReaderWrapper):  # type: ignore[misc]
    def __init__(
        self,
        stream: asyncio.StreamReader,
        writer: SubprocessStreamWriterWrapper,
        explain: Callable[[], Awaitable[None]],
    ) -> None:
        super().__init__(stream)
        self._input = writer
        self._explain = explain

    async def read(self, size: int | None = None) -> bytes:
        content: bytes = await self.stream.read(-1 if size is None else size)
        if not content and not self._input.closed and self._input._closing is None:
            await self._explain()
        return content


def own_hosts(connector: Connector | None) -> OwnHosts | None:
    """The connector of the plugin; None: another connector."""
    deployed = _deployed(connector)
    return deployed if isinstance(deployed, OwnHosts) else None


async def sees_file_here(context: StreamFlowContext, location: ExecutionLocation, path: str) -> bool:
    """Whether a location is a host of the plugin that sees the same file at a path as the driver."""
    hosts = own_hosts(context.deployment_manager.get_connector(location.deployment))
    return hosts is not None and await hosts.sees(location, path)


async def carried_out_here(
    context: StreamFlowContext, location: ExecutionLocation, path: str, call: Callable[[], _T]
) -> _T | None:
    """Let the driver do something with a file of a job on a host of the plugin; see :meth:`OwnHosts.carry_out`."""
    hosts = own_hosts(context.deployment_manager.get_connector(location.deployment))
    return None if hosts is None else await hosts.carry_out(location, path, call)


def hosts_left(
    connector: Connector, scheduler: HostScheduler
) -> tuple[MutableMapping[str, Hardware], Sequence[str]] | None:
    """The hosts of a connector of the plugin that are left, and the reasons why others are lost.

    :param scheduler: serves the connector from now on, also where it was not deployed in `wait_for_hosts`
    :return: None: no host is lost, others may come, or another connector
    """
    if (hosts := own_hosts(connector)) is None:
        return None
    hosts.scheduler = scheduler
    return (hosts.left, losses) if (losses := hosts.losses) else None


async def wait_for_hosts(connectors: Iterable[Connector], scheduler: HostScheduler) -> None:
    """Wait until one of some connectors has hosts, or none of them will have any.

    Nothing is waited for where one is no connector of the plugin.

    :param scheduler: serves the connectors from now on
    """
    found = [own_hosts(connector) for connector in connectors]
    own = [hosts for hosts in found if hosts is not None]
    for hosts in own:
        hosts.scheduler = scheduler
    if not own or len(own) < len(found):
        return
    waits = [asyncio.create_task(hosts.wait()) for hosts in own]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for waiting in waits:
            waiting.cancel()


def seconds_left(connector: Connector, location: AvailableLocation) -> tuple[float | None, float | None]:
    """The time for which a location can be used, and the longest for which any of the connector can.

    None: no limit is known.
    """
    connector = _deployed(connector)
    if isinstance(connector, ConnectorWrapper):
        return (None, None) if location.wraps is None else seconds_left(connector.connector, location.wraps)
    if not isinstance(connector, OwnHosts):
        return None, None
    return connector.seconds_of(location.name), connector.seconds_left


#: Gives a job of a :class:`ScheduleStep` a place. No failure manager hears of a failure.
schedule_once: Callable[[ScheduleStep, Job], Awaitable[None]] = inspect.unwrap(ScheduleStep._schedule)


def forget_directories(schedule: ScheduleStep, job: Job) -> None:
    """Let a job that has given up its place have no directories, as before the job had the place."""
    for kind in ("input_directory", "output_directory", "tmp_directory"):
        setattr(job, kind, getattr(schedule, kind))


async def schedule_again(schedule: ScheduleStep, job: Job) -> None:
    """Give a job another place, and new directories there. The job has given up its place."""
    context = schedule.workflow.context
    forget_directories(schedule, job)
    await context.scheduler.schedule(job, schedule.binding_config, schedule.hardware_requirement)
    locations = context.scheduler.get_locations(job.name)
    await schedule._set_job_directories(context.scheduler.get_connector(job.name), locations, job)
    for location in locations:
        for path in (job.input_directory, job.output_directory, job.tmp_directory):
            context.data_manager.register_path(location=location, path=path, relpath=path)


def has_lost_place(context: StreamFlowContext, job: str) -> bool:
    """Whether a host of the plugin at which a job is placed is lost."""
    connector = context.deployment_manager.get_connector
    found = ((own_hosts(connector(at.deployment)), at.name) for at in context.scheduler.get_locations(job))
    return any(hosts is not None and hosts.is_lost(name) for hosts, name in found)


_process_input = CWLInputInjectorStep.process_input


def mend_inputs_of_lost_hosts() -> None:
    """Let a failure manager, from now on in this process, look elsewhere at an input of the workflow of a lost host.

    In StreamFlow 0.2.0rc3 no failure manager hears of a failure there, and the run ends.
    """
    CWLInputInjectorStep.process_input = _process_input_anywhere


async def _process_input_anywhere(self: CWLInputInjectorStep, job: Job, token_value: Any) -> Token:
    context = self.workflow.context
    while True:
        try:
            return await _process_input(self, job, token_value)
        except WorkflowExecutionException as error:
            policy = retry_policy(context.failure_manager, job.name)
            if not has_lost_place(context, job.name) or not policy.take():
                raise
            logger.warning(f"{error}\nThe input {self.name.removesuffix('-injector')} is looked at on another location")
            await asyncio.sleep(policy.delay)
        await context.scheduler.notify_status(job.name, Status.ROLLBACK)
        (schedule,) = self.get_input_port("__job__").get_input_steps()
        await schedule_again(schedule, job)
        await context.scheduler.notify_status(job.name, Status.RUNNING)


def abandon(connector: Connector, location: ExecutionLocation) -> None:
    """Drop the connections to a host that does not answer.

    StreamFlow 0.2.0rc3 waits, when it undeploys, until they are closed: a quarter of an hour, until TCP gives up.
    """
    connector = _deployed(connector)
    if isinstance(connector, OwnHosts):
        connector.drop(location)
    if not isinstance(connector, SSHConnector):
        return
    for factories in (connector.ssh_context_factories, connector.data_transfer_context_factories):
        if (factory := factories.get(location.name)) is not None:
            for connection in (context._ssh_connection for context in factory._contexts):
                if connection is not None:
                    connection.abort()


_run, _copy_there, _copy_here = SSHConnector.run, SSHConnector.copy_local_to_remote, SSHConnector.copy_remote_to_local


def mend_containers_on_ssh_hosts() -> None:
    """Let an SSH host, from now on in this process, take the location of a container on it for its own.

    StreamFlow 0.2.0rc3 hands such a location to the host, which fails with `KeyError`. This happens each time that
    Singularity is deployed there. It also happens when files of a volume are copied, and the user of the container is
    the user of the login.
    """
    SSHConnector.run = _run_on_host
    SSHConnector.copy_local_to_remote = _copy_to_host
    SSHConnector.copy_remote_to_local = _copy_from_host


async def _run_on_host(
    self: SSHConnector, location: ExecutionLocation, *words: Any, **options: Any
) -> tuple[str, int] | None:
    result: tuple[str, int] | None = await _run(self, _own_location(self, location), *words, **options)
    return result


async def _copy_to_host(
    self: SSHConnector, src: str, dst: str, locations: Sequence[ExecutionLocation], read_only: bool = False
) -> None:
    own = {location.name: location for location in (_own_location(self, location) for location in locations)}
    await _copy_there(self, src, dst, [*own.values()], read_only)


async def _copy_from_host(
    self: SSHConnector, src: str, dst: str, location: ExecutionLocation, read_only: bool = False
) -> None:
    await _copy_here(self, src, dst, _own_location(self, location), read_only)


def _own_location(host: Connector, location: ExecutionLocation) -> ExecutionLocation:
    own: ExecutionLocation | None = location
    while own is not None and own.deployment != host.deployment_name:
        own = own.wraps
    return own or location


def collect_shared_outputs_once() -> None:
    """Let a file be one output, from now on in this process, also if several locations of its job see the file.

    StreamFlow 0.2.0rc3 looks for the outputs of a job at each of its locations. The same file in a shared directory is
    an output for each of them, and a File fails as a list.
    """
    streamflow.cwl.processor.flatten_list = _flat_without_repeated_paths


def _flat_without_repeated_paths(lists: Iterable[Any]) -> list[Any]:
    found: dict[object, Any] = {}
    for each in flatten_list(lists):
        found.setdefault(each["path"] if isinstance(each, dict) else each, each)
    return [*found.values()]


#: What is put behind the path of a job's temporary directory. No glob looks beside the directories of a job.
STANDARD_ERROR = ".streamflow-io-stderr"


def give_input(tool: Any, name_prefix: str) -> None:
    """Give a tool without inputs one, which is null: its jobs then depend on the `when` of their step.

    StreamFlow 0.2.0rc3 runs a job without inputs whatever the condition says, and has two values for each output.

    :param tool: as loaded by `cwl_utils.parser`
    :param name_prefix: of the names in the tool
    """
    if not tool.inputs and tool.class_ in ("CommandLineTool", "ExpressionTool"):
        parameter = sys.modules[type(tool).__module__].CommandInputParameter
        tool.inputs.append(parameter(id=f"#{posixpath.join(name_prefix, '__when__')}", type_=["null", "Any"]))


def separate_standard_error(workflow: Workflow) -> None:
    """Give the jobs of each tool with a `stdout` and without a `stderr` a file of their own for standard error.

    StreamFlow 0.2.0rc3 writes both into the file of the `stdout`. CWL says that they are apart.
    """
    for step in workflow.steps.values():
        command = getattr(step, "command", None)
        if isinstance(command, CWLCommand) and command.stdout is not None and command.stderr is None:
            # An expression: StreamFlow evaluates it for each job.
            command.stderr = f"$(runtime.tmpdir){STANDARD_ERROR}"


def is_separate_standard_error(path: object) -> bool:
    """Whether a file is one of those that :func:`separate_standard_error` names: no other reader exists."""
    return isinstance(path, str) and path.endswith(STANDARD_ERROR)


_run_queued = QueueManagerConnector.run

#: The submissions whose jobs StreamFlow does not know yet, or will never know, and their locations.
_SUBMISSIONS = weakref.WeakKeyDictionary[QueueManagerConnector, dict["asyncio.Task[str]", ExecutionLocation]]()
#: The queue managers that get no more jobs of this run. StreamFlow cancels its jobs only after all else has ended.
_CLOSED = weakref.WeakSet[QueueManagerConnector]()


# What `squeue` says of a job that has ended so long ago that Slurm has forgotten the job.
_FORGOTTEN = "Invalid job id"
# How often the exit code of a job is asked for before the job fails.
_EXIT_CODE_LOOKS = 30
_LOOK_SECONDS = 1.0


#: Why a job of a queue manager may have left nothing at all.
UNSEEN = "perhaps its node does not see the `workdir`, which login node and compute nodes have to share"
# What StreamFlow takes for the output of a job of Slurm that has none.
_NO_OUTPUT = re.compile(r"cat: (\S*/slurm-\d+\.out): No such file or directory")


def mend_queue_managers() -> None:
    """Let queue managers, from now on in this process, keep the standard error of a job out of its `stdout` file.

    StreamFlow 0.2.0rc3 ends the command of each job with `2>&1`, also where the tool names a `stderr`. When Slurm does
    not answer, StreamFlow takes all jobs for ended, and those that run for successes. So Slurm is asked again.
    """
    QueueManagerConnector.run = _run_queued_apart


async def _run_queued_apart(
    self: QueueManagerConnector,
    location: ExecutionLocation,
    command: MutableSequence[str],
    *words: Any,
    workdir: str | None = None,
    stdout: int | str = STDOUT,
    stderr: int | str = STDOUT,
    job_name: str | None = None,
    **options: Any,
) -> tuple[str, int] | None:
    if job_name is not None and isinstance(stderr, str) and stderr != stdout:
        # The command opens it itself: what comes after the braces does not concern it.
        command = ["{", *command, f"2>{shlex.quote(posixpath.join(workdir or '', stderr))}", ";", "}"]
        stderr = stdout
    if job_name is not None and "_run_batch_command" not in vars(self):
        self._run_batch_command = partial(_submit, self, self._run_batch_command)
    run = partial(_run_queued, self, location, command, *words, workdir=workdir, stdout=stdout, stderr=stderr)
    result: tuple[str, int] | None = await run(job_name=job_name, **options)
    looks = 1
    while job_name is None and result is not None and _is_to_be_asked_again(command, *result, looks):
        if looks == 1:
            logger.warning(f"{self.deployment_name}: {command[0]} has failed, and is tried again: {result[0]}")
        looks += 1
        await asyncio.sleep(_LOOK_SECONDS)
        result = await run(job_name=job_name, **options)
    if job_name is not None and result is not None and (missing := _NO_OUTPUT.fullmatch(result[0] or "")) is not None:
        return f"the job has not written {missing[1]}: {UNSEEN}", result[1]
    return result


def _is_to_be_asked_again(command: Sequence[str], said: str, code: int, looks: int) -> bool:
    """Whether a command of Slurm about jobs has failed for another reason than that the jobs are gone.

    :param looks: how often the command has run
    """
    if command[0] == "squeue":
        return code != 0 and _FORGOTTEN not in said
    # The exit code of `scontrol` is lost in a pipe. The text that is looked for may be missing for other reasons, too.
    return command[0] == "scontrol" and "ExitCode" in command[-1] and not said and looks < _EXIT_CODE_LOOKS


async def _submit(
    self: QueueManagerConnector,
    submit: Callable[..., Coroutine[None, None, str]],
    *,
    location: ExecutionLocation,
    **options: Any,
) -> str:
    """Submit a job and return its name.

    A submission goes on when its caller is cancelled, because :func:`remove_jobs` needs the name of each job.

    :raises CancelledError: also if the run ends
    """
    if self in _CLOSED:
        raise asyncio.CancelledError
    submission = asyncio.create_task(submit(location=location, **options))
    submissions = _SUBMISSIONS.setdefault(self, {})
    submissions[submission] = location
    try:
        job = await asyncio.shield(submission)
    except Exception:  # each queue manager raises errors of its own; a cancelled caller is no error
        del submissions[submission]
        raise
    del submissions[submission]
    return job


def container_command(connector: Connector, location: ExecutionLocation, words: Sequence[str]) -> list[str] | None:
    """The words that run a program with its standard input in a container, on the host of its engine.

    None: the location is no container of an engine.
    """
    connector = _deployed(connector)
    if not isinstance(connector, ContainerConnector):
        return None
    return shlex.split(" ".join(connector._get_run_command(f"exec {shlex.join(words)}", location, interactive=True)))


async def own_shell(
    connector: Connector, location: ExecutionLocation, name: str
) -> tuple[Shell, StreamWrapper, StreamWrapper]:
    """Start a shell like those that connectors keep, for the caller alone.

    :param name: of this one only, because a connector finds its shells again by their words; without special characters
    :return: what closes it, its output, its input
    """
    connector = _deployed(connector) or connector
    # StreamFlow 0.2.0rc3 asks the connection of a queue manager for a shell at the location of the queue manager.
    while isinstance(connector, QueueManagerConnector):
        connector, location = connector.connector, get_inner_location(location)
    shell = await connector.get_shell(["sh", "-s", name], location)
    if isinstance(shell, KubernetesShell):
        return shell, _PodOutput(shell._reader.stream), _PodInput(shell._writer.stream)
    return shell, shell._reader, shell._writer


class _PodOutput(BaseStreamWrapper):  # type: ignore[misc]
    """The output of a program in a pod, as it arrives.

    StreamFlow's reader keeps surplus bytes until more bytes arrive, and does not report a lost connection.
    """

    async def read(self, size: int | None = None) -> bytes:
        while True:
            message = await self.stream.receive()
            if message.type is WSMsgType.ERROR:
                raise message.data
            if message.type is not WSMsgType.BINARY:
                return b""
            if message.data[0] == ws_client.STDOUT_CHANNEL and len(message.data) > 1:
                return bytes(message.data[1:])


class _PodInput(BaseStreamWrapper):  # type: ignore[misc]
    """The input of a program in a pod, which may be ended while its output is read.

    That of StreamFlow reads itself what is said of the end.
    """

    async def write(self, data: bytes) -> None:
        await self.stream.send_bytes(bytes((ws_client.STDIN_CHANNEL,)) + data)

    async def _close(self) -> None:
        await self.stream.send_bytes(STREAM_CLOSE + bytes((ws_client.STDIN_CHANNEL,)))


class PodLocation(Struct, frozen=True):
    """The container of a pod that a location is.

    :ivar server: the API of its cluster
    :ivar spec: of the pod, as in JSON
    :ivar uid: of the pod
    """

    server: str
    namespace: str
    uid: str
    container: str
    spec: dict[str, Any]


async def pod_location(connector: Connector, location: ExecutionLocation) -> PodLocation:
    """Return what Kubernetes says of the pod of a location.

    :raises Exception: any, if it does not
    """
    connector = _deployed(connector)
    assert isinstance(connector, KubernetesBaseConnector)
    name, container = location.name.split(":")
    namespace = connector.namespace or "default"
    pod = await connector.client.read_namespaced_pod(name=name, namespace=namespace)
    api = connector.client.api_client
    spec = api.sanitize_for_serialization(pod.spec)
    return PodLocation(api.configuration.host, namespace, str(pod.metadata.uid), container, spec)


async def running_containers(connector: Connector) -> list[str]:
    """The names of the containers in the pods of a deployment of Kubernetes, which is deployed first if need be.

    StreamFlow 0.2.0rc3 gives no locations of Kubernetes without one of them.
    """
    if isinstance(connector, FutureConnector):
        await connector.get_available_locations(service="")
        connector = connector._connector
    assert isinstance(connector, KubernetesBaseConnector)
    pods = await connector._get_running_pods()
    return sorted({container.name for pod in pods.items for container in pod.spec.containers})
