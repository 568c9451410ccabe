"""The connector of the deployment type `sfio.allocation`."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import os
import posixpath
import re
import secrets
import shlex
import shutil
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, MutableSequence, Sequence
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct
from streamflow.core.data import DataLocation
from streamflow.core.deployment import Connector, ExecutionLocation
from streamflow.core.exception import WorkflowExecutionException
from streamflow.core.scheduling import AvailableLocation, Hardware, Storage
from streamflow.core.utils import create_command, run_in_shell
from streamflow.deployment.connector.base import FS_TYPES_TO_SKIP

from streamflow_io._streamflow import NOT_WRITTEN, HostJobs, NoHostsError, OwnHosts, quoted
from streamflow_io.processes import end_process, kill_process

from .allocation import Allocation, Node, is_address
from .prefetched_answers import PrefetchedAnswers, script_of
from .seen_files import DRIVER, SeenFiles
from .shared_files import Said, SharedFiles, file_command

logger = logging.getLogger("streamflow")

_T = TypeVar("_T")
# The words of the shells of a node.
# Scripts that go to a node in one round trip, at most.
_MOST_SCRIPTS = 32
_SHELL, _LONG_SHELL = ["sh"], ["sh", "-s"]
_RELEASE_SECONDS = 10.0
# The programs of a thousand nodes that start at once take long.
_ANSWER_SECONDS = 120.0
# The time after which jobs start at other nodes.
_PATIENCE_SECONDS = 5.0


class AllocationConnector(OwnHosts):
    """Runs commands on the nodes of an allocation. Each node is a location.

    A file that two nodes see is not copied between them. Any other file goes from node to node by a link.

    :param submit: the allocation to ask for, as in the schema; None: the one that this process runs in is used
    :param launcher: starts programs on nodes, as in the schema; None: the one of the queue manager
    :param nodes: those of no known queue manager; None: the queue manager tells
    :param environment: the variables of this process that all programs on nodes get, as far as they are set here
    :param interface: the network interface by which nodes reach each other; None: the one by which Slurm or SSH
        reaches them
    """

    def __init__(
        self,
        deployment_name: str,
        config_dir: str,
        submit: Mapping[str, Any] | None = None,
        launcher: str | None = None,
        nodes: Sequence[str] | None = None,
        environment: Sequence[str] = (),
        interface: str | None = None,
        transferBufferSize: int = 2**16,  # noqa: N803
    ) -> None:
        super().__init__(deployment_name, config_dir, transferBufferSize)
        self._submit, self._launcher, self._nodes = submit, launcher, nodes
        variables = [f"{name}={os.environ[name]}" for name in environment if name in os.environ]
        self._before = ["env", *variables] if variables else []
        self._interface = interface
        self._allocation: Allocation | None = None
        self._hardware: dict[str, asyncio.Task[Hardware]] = {}
        # The nodes that have told their hardware, with this and their addresses.
        self._located: dict[str, tuple[Hardware, str]] = {}
        # The nodes for which the scheduler waits no longer.
        self._late: set[str] = set()
        self._addresses: dict[str, asyncio.Task[str]] = {}
        self._lost: dict[str, str] = {}
        # The lost nodes on which commands can still remove what jobs have left.
        self._answering: set[str] = set()
        # Held while the reason is sought why a program of a node has ended.
        self._explaining: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._processes: dict[str, set[Process]] = {}
        self._files = SharedFiles()
        self._prefetched = PrefetchedAnswers()
        self._batches = Batches(self._in_shell)
        self._seen = SeenFiles(self._ran)
        self._closing = False
        self._told_of_copies = self._told_of_interface = False

    @classmethod
    def get_schema(cls) -> str:
        return files(__package__).joinpath("allocation.schema.json").read_text("utf-8")

    async def deploy(self, external: bool) -> None:
        # Runs without a deployment of this type need none of these modules.
        from .find_allocation import AllocationChoice, find_allocation

        choice = AllocationChoice.of(self._submit, self._launcher, self._nodes)
        try:
            self._allocation = await find_allocation(self, choice)
        except WorkflowExecutionException as error:
            # Another attempt would ask for the same again.
            raise NoHostsError(str(error)) from error
        logger.info(f"The deployment {self.deployment_name} has {self.found}")

    async def undeploy(self, external: bool) -> None:
        self._closing = True
        for looking in (*self._hardware.values(), *self._addresses.values()):
            looking.cancel()
        proofs = asyncio.gather(*self._seen.proofs, *self._files.proofs, return_exceptions=True)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(proofs, _RELEASE_SECONDS)
        try:
            await super().undeploy(external)
        finally:
            await asyncio.gather(*map(self.end, [*self._processes]))
            if self._allocation is not None:
                await self._allocation.close()

    @property
    def found(self) -> str:
        return self._deployed().description

    @property
    def seconds_left(self) -> float | None:
        return None if self._allocation is None else self._allocation.seconds_left

    def seconds_of(self, location: str) -> float | None:
        return None if self._allocation is None else self._allocation.seconds_of(location)

    @property
    def losses(self) -> Sequence[str]:
        # A job that is too large for the nodes that are left may start on one that comes.
        return [] if self._deployed().comes or self._silent else [*self._lost.values()]

    async def wait(self) -> None:
        await self._deployed().wait()
        if asked := self._ask():
            await asyncio.wait(asked.values(), return_when=asyncio.FIRST_COMPLETED)

    async def all_known(self) -> None:
        await self._deployed().wait()
        if asked := self._ask():
            await asyncio.wait(asked.values())

    def host_jobs(self) -> HostJobs:
        """The jobs that run on the nodes, and wait for them. Another scheduler than the plugin's does not tell."""
        if self.scheduler is None:
            return HostJobs(frozenset(self._deployed().nodes), waits=False, lacks=False)
        return self.scheduler.host_jobs(self.deployment_name)

    def sees_all_of(self, node: str) -> bool:
        """Whether the driver sees all files of the jobs of a node."""
        return self._files.sees_all_of(node)

    def lose(self, node: str, reason: str) -> None:
        """Use a node no more."""
        if node not in self._lost:
            self._lost[node] = reason
            self._deployed().lost(node)
            self.changed()

    async def release(self, node: str) -> None:
        """End all programs on a node. A node runtime that sees the end of its input leaves nothing."""
        running = [process for process in self._processes.get(node, ()) if process.returncode is None]
        for process in running:
            if process.stdin is not None:
                process.stdin.close()
        if running:
            ends = [asyncio.create_task(process.wait()) for process in running]
            await asyncio.wait(ends, timeout=_RELEASE_SECONDS)
        await self.end(node)

    async def end(self, node: str) -> None:
        """End all programs on a node at once."""
        await asyncio.gather(*map(end_process, [*self._processes.get(node, ())]))

    def changed(self) -> None:
        """Let the scheduler look again: there are other nodes now, or there will be none."""
        if self.scheduler is not None and not self._closing:
            self.scheduler.hosts_changed(self.deployment_name)

    @property
    def left(self) -> MutableMapping[str, Hardware]:
        known = {name: task for name, task in self._hardware.items() if task.done() and not task.cancelled()}
        return {
            name: task.result() for name, task in known.items() if name not in self._lost and task.exception() is None
        }

    async def get_available_locations(self, service: str | None = None) -> MutableMapping[str, AvailableLocation]:
        allocation = self._deployed()
        if self.scheduler is None:
            await allocation.wait()
        if (over := allocation.over) is not None:
            raise NoHostsError(over)
        await self._wait_for_answers()
        silent = self._silent
        nodes = [node for name, node in allocation.nodes.items() if name not in self._lost and name not in silent]
        if new := [node for node in nodes if node.name not in self._located]:
            found = await asyncio.gather(*map(self._hardware_of, new))
            answering = [(node, has) for node, has in zip(new, found, strict=True) if has is not None]
            addresses = await asyncio.gather(*(self._address_of(node) for node, _ in answering))
            for (node, has), address in zip(answering, addresses, strict=True):
                self._located[node.name] = has, address
        # Each job asks: with a thousand nodes, a task for each would take longer than the job.
        locations = {}
        for name in (node.name for node in nodes if node.name in self._located and node.name not in self._lost):
            has, address = self._located[name]
            locations[name] = AvailableLocation(name, self.deployment_name, address, service=service, hardware=has)
        if not locations and not allocation.comes and not self._silent:
            raise NoHostsError(f"no node of {allocation} can be used any more: {'; '.join(self._lost.values())}")
        return locations

    async def run(
        self,
        location: ExecutionLocation,
        command: MutableSequence[str],
        environment: MutableMapping[str, str] | None = None,
        workdir: str | None = None,
        stdin: int | str | None = None,
        stdout: int | str = STDOUT,
        stderr: int | str = STDOUT,
        capture_output: bool = False,
        timeout: int | None = None,
        job_name: str | None = None,
    ) -> tuple[str, int] | None:
        location, is_file = self.own(location), job_name is None and stdin is None
        if is_file:
            command = quoted(command)
        if is_file and location.name in self._lost:
            answer = await self._files.answer_for_lost(location.name, " ".join(command))
            if answer is not None:
                return answer if capture_output else None
        if is_file and location.name not in self._lost:
            if environment is None and workdir is None:
                answer = await self._answer_of_files(location, " ".join(command), timeout)
                if answer is not None:
                    return answer if capture_output else None
            with contextlib.suppress(WorkflowExecutionException):
                shell = await self.get_shell(_LONG_SHELL if _takes_long(" ".join(command)) else _SHELL, location)
                said: tuple[str, int] | None = await run_in_shell(
                    shell, location, command, environment, workdir, capture_output, timeout
                )
                return said
        script = create_command(type(self).__name__, command, environment, workdir, stdin, stdout, stderr)
        process = await self.start(location, ["sh", "-c", f"exec 2>&1; {script}"], DEVNULL, PIPE, PIPE)
        try:
            printed, errors = await asyncio.wait_for(process.communicate(), timeout)
        finally:
            await end_process(process)
        assert process.returncode is not None
        if process.returncode != 0:  # Otherwise srun may say what does not matter.
            printed += errors
        return (printed.decode(errors="replace").strip(), process.returncode) if capture_output else None

    async def _answer_of_files(self, location: ExecutionLocation, text: str, timeout: int | None) -> Said | None:
        """Return the answer to a command about files, with as few commands on the node as possible.

        None: another command, or one that takes long, or the shell has ended.
        """
        node, command = location.name, file_command(text)
        answer = await self._files.answer(node, text, partial(self._said, location))
        if command is None or command.action in ("make directory", "make link"):
            self._prefetched.forget(node, text)
        if command is None:
            return answer
        if answer is not None:
            if command.action == "make directory":
                self._prefetched.made(node, command.path)
            return answer
        if (answer := self._prefetched.take(node, command)) is not None:
            return answer
        if timeout is not None or _takes_long(text):
            return None
        with contextlib.suppress(WorkflowExecutionException):
            return self._prefetched.note(node, command, await self._batches.run(node, script_of(command, text)))
        return None

    async def _in_shell(self, node: str, script: str) -> Said:
        """Run a script in the shell of a node.

        :raises WorkflowExecutionException: if the shell ends
        """
        location = ExecutionLocation(node, self.deployment_name)
        shell = await self.get_shell(_SHELL, location)
        said: Said | None = await run_in_shell(shell, location, [script], None, None, True, None)
        assert said is not None
        return said

    async def start(
        self, location: ExecutionLocation, words: Sequence[str], stdin: int, stdout: int, stderr: int
    ) -> Process:
        name = self.own(location).name
        if name in self._lost and name not in self._answering:
            # The node may answer when all that was left there has ended.
            async with self._explaining[name]:
                self._check(name)
        process = await self._deployed().start(name, [*self._before, *words], stdin, stdout, stderr)
        running = {other for other in self._processes.get(name, ()) if other.returncode is None}
        self._processes[name] = running | {process}
        try:
            self._check(name)  # The node may be lost since.
        except WorkflowExecutionException:
            await kill_process(process)
            raise
        return process

    def _check(self, name: str) -> None:
        if (why := self._lost.get(name)) is not None and name not in self._answering:
            raise WorkflowExecutionException(why)

    async def explain(self, location: ExecutionLocation, process: Process) -> None:
        code = await process.wait()
        name = self.own(location).name
        if self._closing:
            return
        async with self._explaining[name]:
            if name not in self._lost and not await self._is_lost_now(name, code):
                return
        raise WorkflowExecutionException(self._lost[name])

    async def _is_lost_now(self, name: str, code: int) -> bool:
        """Whether a node is lost, after the end of a program there that was to go on."""
        if (loss := await self._deployed().why(name, code)) is None:
            return False
        self._lose(name, loss.reason)
        try:
            await self._deployed().clear(name)
        finally:
            if loss.answers:
                self._answering.add(name)
        return True

    def _lose(self, name: str, reason: str) -> None:
        # All nodes are lost with their allocation: one message is enough.
        is_told = reason == self._deployed().over and reason in self._lost.values()
        self.lose(name, reason)
        if not is_told:
            logger.warning(f"No more jobs start at {self.deployment_name}/{name}: {reason}")

    def is_lost(self, name: str) -> bool:
        return name in self._lost

    async def sees(self, location: ExecutionLocation, path: str) -> bool:
        try:
            return await self._is_same(path, DRIVER, self.own(location).name)
        except WorkflowExecutionException:
            return False  # the node is lost

    async def carry_out(self, location: ExecutionLocation, path: str, call: Callable[[], _T]) -> _T | None:
        return await self._files.carry_out(self.own(location).name, path, call)

    def drop(self, location: ExecutionLocation) -> None:
        name = self.own(location).name
        if not self._closing and name not in self._lost:
            self._lose(name, f"node {name} of {self._deployed()} does not answer")
        for process in self._processes.get(name, ()):
            with contextlib.suppress(ProcessLookupError):
                process.kill()

    def leave(self, location: ExecutionLocation, reason: str) -> None:
        name = self.own(location).name
        if not self._closing and name not in self._lost:
            self._lose(name, reason)
            self._answering.add(name)

    async def copy_local_to_remote(
        self, src: str, dst: str, locations: MutableSequence[ExecutionLocation], read_only: bool = False
    ) -> None:
        own = list({location.name: self.own(location) for location in locations}.values())
        apart = [location for location in own if not await self._copied(src, dst, location, DRIVER, read_only)]
        if apart:
            await super().copy_local_to_remote(src, dst, apart, read_only)

    async def copy_remote_to_local(
        self, src: str, dst: str, location: ExecutionLocation, read_only: bool = False
    ) -> None:
        location = self.own(location)

        async def copy() -> None:
            if await self._is_same(src, location.name, DRIVER):
                await asyncio.to_thread(_copy_here, Path(src), Path(dst), read_only)
            else:
                await self._check_there(src, location)
                await super(AllocationConnector, self).copy_remote_to_local(src, dst, location, read_only)

        async def copy_other(found: DataLocation, connector: Connector) -> None:
            # StreamFlow itself prefers a copy of the driver's.
            await connector.copy_remote_to_local(found.path, dst, found.location, read_only)

        await self._from_any(src, location, copy, copy_other)

    async def copy_remote_to_remote(
        self,
        src: str,
        dst: str,
        locations: MutableSequence[ExecutionLocation],
        source_location: ExecutionLocation,
        source_connector: Connector | None = None,
        read_only: bool = False,
    ) -> None:
        source = source_connector or self
        own = list({location.name: self.own(location) for location in locations}.values())
        if source.deployment_name != self.deployment_name:
            await super().copy_remote_to_remote(src, dst, own, source_location, source, read_only)
            return
        source_location = self.own(source_location)

        async def copy() -> None:
            left = [
                location
                for location in own
                if not await self._copied(src, dst, location, source_location.name, read_only)
                and not await self._copied_by_link(src, dst, location, source_location)
            ]
            if left:
                await super(AllocationConnector, self).copy_remote_to_remote(
                    src, dst, left, source_location, source, read_only
                )

        async def copy_other(found: DataLocation, connector: Connector) -> None:
            if found.location.local:
                await self.copy_local_to_remote(found.path, dst, own, read_only)
            else:
                await self.copy_remote_to_remote(found.path, dst, own, found.location, connector, read_only)

        await self._from_any(src, source_location, copy, copy_other)

    async def _from_any(
        self,
        path: str,
        source: ExecutionLocation,
        copy: Callable[[], Awaitable[None]],
        copy_other: Callable[[DataLocation, Connector], Awaitable[None]],
    ) -> None:
        """Copy a file of a node. If the node is lost, copy the file from another place.

        :raises WorkflowExecutionException: if the file cannot be copied from any place
        """
        try:
            await copy()
        except WorkflowExecutionException as error:
            if (why := self._lost.get(source.name)) is None:
                raise
            for found, connector in [] if self.scheduler is None else self.scheduler.copies(path):
                if found.deployment != self.deployment_name or found.name not in self._lost:
                    with contextlib.suppress(WorkflowExecutionException):
                        return await copy_other(found, connector)
            raise WorkflowExecutionException(f"{path} cannot be copied: it is on {source}, and {why}") from error

    async def _copied(self, src: str, dst: str, location: ExecutionLocation, source: str, read_only: bool) -> bool:
        """Copy on a node, if the node sees the file of another node, or of the driver's; else return False."""
        if not await self._is_same(src, source, location.name):
            return False
        if src != dst:
            copy = ["ln", "-snf"] if read_only else ["cp", "-rLf"]
            said, code = await self._said(location, shlex.join([*copy, src, dst]))
            # StreamFlow may copy the files of a directory that is a link to the directory of the sources.
            if code != 0 and (await self._said(location, shlex.join(["test", src, "-ef", dst])))[1] != 0:
                raise WorkflowExecutionException(f"{src} cannot be copied to {dst} on {location}: {said}")
        return True

    async def _is_same(self, path: str, one: str, other: str) -> bool:
        """Whether two nodes see the same file at a path."""
        if all([await self._files.sees(node, path, node in self._lost) for node in {one, other} - {DRIVER}]):
            return True
        if one in self._lost and await self._files.sees(one, path, True):
            one = DRIVER
        return await self._seen.is_same(path, one, other)

    async def _copied_by_link(self, src: str, dst: str, location: ExecutionLocation, source: ExecutionLocation) -> bool:
        """Copy from another node, without the driver. False: only the driver can copy, and one warning says why.

        :raises WorkflowExecutionException: if the other node is lost, or this one cannot write the file
        """
        if self.copy_by_link is None:
            why: str | None = "no node runtime runs there"
        elif (why := await self.copy_by_link(source, src, location, unpacking(src, dst))) is None:
            return True
        await self._check_there(src, source)
        if not self._told_of_copies:
            self._told_of_copies = True
            logger.warning(
                f"Files go through the driver between nodes of {self.deployment_name}: "
                f"{location} cannot get {src} from {source}: {why}"
            )
        return False

    async def _check_there(self, path: str, location: ExecutionLocation) -> None:
        """Check that a file is on a node: StreamFlow takes the archive of a missing file for an empty directory.

        :raises WorkflowExecutionException: if the file is missing, or the node is lost
        """
        if (await self._said(location, shlex.join(["test", "-e", path])))[1] != 0:
            raise WorkflowExecutionException(f"{path} is missing on {location}, and cannot be copied")

    async def _said(self, location: ExecutionLocation, script: str) -> tuple[str, int]:
        said = await self.run(location, [script], capture_output=True)
        assert said is not None
        return said

    async def _ran(self, node: str, script: str) -> tuple[str, int]:
        return await self._said(ExecutionLocation(node, self.deployment_name), script)

    async def _hardware_of(self, node: Node) -> Hardware | None:
        """The hardware of a node; None: the node does not answer, and counts as lost from now on."""
        name = node.name
        try:
            return await asyncio.shield(self._looking(node))
        except WorkflowExecutionException as error:
            if name not in self._lost:
                self.lose(name, str(error))
                logger.warning(f"No jobs start at {self.deployment_name}/{name}: {error}")
            return None

    def _ask(self) -> dict[str, asyncio.Task[Hardware]]:
        """Ask the nodes for their hardware, each once."""
        nodes = self._deployed().nodes
        return {name: self._looking(node) for name, node in nodes.items() if name not in self._lost}

    def _looking(self, node: Node) -> asyncio.Task[Hardware]:
        if node.name not in self._hardware:
            self._hardware[node.name] = asyncio.create_task(self._look(node))
        return self._hardware[node.name]

    @property
    def _silent(self) -> set[str]:
        """The nodes whose hardware is not known yet, and for which nothing waits."""
        return {name for name in self._late if name not in self._lost and not self._hardware[name].done()}

    async def _wait_for_answers(self) -> None:
        """Wait until all nodes have told their hardware. The scheduler, for which all jobs wait, is patient once.

        A node that answers later lets the scheduler look again.
        """
        asked = {name: each for name, each in self._ask().items() if name not in self._late and not each.done()}
        if self.scheduler is None or not asked:
            return
        _, late = await asyncio.wait(asked.values(), timeout=_PATIENCE_SECONDS)
        for name, looking in asked.items():
            if looking in late:
                self._late.add(name)
                looking.add_done_callback(lambda _: self.changed())

    async def _look(self, node: Node) -> Hardware:
        printed, code = await self._answer(node.name, "df -PTk 2>/dev/null; true")
        if code != 0:
            raise WorkflowExecutionException(f"node {node.name} does not answer: {printed}")
        cores, memory = node.cores, node.memory
        if cores is None or memory is None:
            said, _ = await self._answer(
                node.name, "nproc && awk '/^MemTotal:/ { print int($2 / 1024) }' /proc/meminfo"
            )
            try:
                all_cores, all_memory = map(int, said.split())
            except ValueError:
                raise WorkflowExecutionException(f"node {node.name} does not tell its size: {said}") from None
            cores = all_cores if cores is None else cores
            memory = all_memory if memory is None else memory
        return Hardware(float(cores), float(memory), _storages(printed))

    async def _address_of(self, node: Node) -> str:
        if node.name not in self._addresses:
            self._addresses[node.name] = asyncio.create_task(self._address(node))
        return await asyncio.shield(self._addresses[node.name])

    async def _address(self, node: Node) -> str:
        """The address of a node for other nodes; a name is looked up on another node that answers.

        The own name of a machine often means 127.0.1.1 there. Nodes need not know a name at all, as one that only the
        configuration of SSH has. Such a node tells an address of its own.
        """
        if self._interface is not None and (found := await self._address_at(node.name, self._interface)) is not None:
            return found
        if is_address(node.address):
            return node.address
        for asked in (*(name for name in self.left if name != node.name), node.name):
            with contextlib.suppress(WorkflowExecutionException):
                printed, code = await self._answer(asked, f"getent ahosts {shlex.quote(node.address)} || true")
                if code == 0:
                    found = next(iter(printed.split()), "")
                    if is_address(found) and not ipaddress.ip_address(found).is_loopback:
                        return found
                    break
        return await self._address_at(node.name, None) or node.address

    async def _address_at(self, name: str, interface: str | None) -> str | None:
        """The address of a node at an interface; None: another address is taken, and one warning says so.

        :param interface: None: any that other nodes may reach
        """
        where = "up" if interface is None else f"dev {shlex.quote(interface)}"
        try:
            printed, _ = await self._answer(name, f"ip -o addr show {where} scope global 2>&1")
        except WorkflowExecutionException:
            return None  # the node is lost
        # An address of version 4 comes first.
        if (found := re.search(r"\sinet6? ([0-9a-f.:]+)[/ ]", printed)) is not None:
            return found[1]
        if interface is not None and not self._told_of_interface:
            self._told_of_interface = True
            logger.warning(
                f"Nodes of {self.deployment_name} reach each other without the interface {interface}: {name} has no "
                f"address there{printed and f': {printed}'}"
            )
        return None

    async def _answer(self, name: str, script: str) -> tuple[str, int]:
        """Run a short command on a node. A node that does not answer is lost after two minutes."""
        location = ExecutionLocation(name, self.deployment_name)
        try:
            return await asyncio.wait_for(self._said(location, script), _ANSWER_SECONDS)
        except asyncio.TimeoutError:
            self.drop(location)
            raise WorkflowExecutionException(f"node {name} of {self._deployed()} does not answer") from None

    def _deployed(self) -> Allocation:
        if self._allocation is None:
            raise WorkflowExecutionException(f"{self.deployment_name} is not deployed")
        return self._allocation


def _takes_long(text: str) -> bool:
    """Whether a command reads whole files. Other commands do not wait for the end of such a one."""
    command = file_command(text)
    return text.startswith("cp ") if command is None else command.action in ("size", "checksum")


def _storages(printed: str) -> dict[str, Storage]:
    """The file systems that `df -PTk` has printed, with the space that is free."""
    found = {}
    for line in printed.splitlines()[1:]:
        words = line.split(None, 6)
        if len(words) == 7 and words[4].isdigit() and (words[6] == "/" or words[1] not in FS_TYPES_TO_SKIP):
            found[words[6]] = Storage(words[6], int(words[4]) / 2**10)
    return found


def unpacking(source: str, target: str) -> str:
    """The script that writes a file or directory from its archive; a file or directory that is there is replaced.

    :param source: its path in the archive's node
    :param target: a directory that exists gets the file or directory; any other path becomes its own
    """
    to, part = shlex.quote(target), shlex.quote(f"{target}.{os.urandom(4).hex()}.part")
    name = shlex.quote(posixpath.basename(source))
    # The target appears as a whole.
    return (
        f"if test -d {to}; then tar xpf - -C {to} || exit {NOT_WRITTEN}; exit; fi; "
        f"trap 'rm -rf '{shlex.quote(part)} EXIT; "
        f"{{ mkdir {part} && tar xpf - -C {part} && mv -fT {part}/{name} {to}; }} || exit {NOT_WRITTEN}"
    )


def _copy_here(source: Path, target: Path, read_only: bool) -> None:
    if target.is_dir():
        target = target / source.name
    if read_only:
        with contextlib.suppress(FileExistsError):
            target.symlink_to(source)
    elif source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True)
    elif not (target.exists() and target.samefile(source)):
        shutil.copy(source, target)


class _Script(Struct):
    text: str
    answer: asyncio.Future[Said]


class Batches:
    """Runs scripts on nodes. Those that wait for the shell of a node go there together, in one round trip.

    :param run: runs a script in the shell of a node, and returns its output and exit code
    """

    def __init__(self, run: Callable[[str, str], Awaitable[Said]]) -> None:
        self._run = run
        # By node, if a task runs its scripts.
        self._waiting: dict[str, list[_Script]] = {}
        self._running: set[asyncio.Task[None]] = set()

    async def run(self, node: str, text: str) -> Said:
        """Run a script. It has no input, and changes nothing in the shell.

        :raises WorkflowExecutionException: if the shell ends
        """
        script = _Script(text, asyncio.get_running_loop().create_future())
        if (waiting := self._waiting.get(node)) is not None:
            waiting.append(script)
        else:
            self._waiting[node] = [script]
            task = asyncio.create_task(self._run_all(node))
            self._running.add(task)
            task.add_done_callback(self._running.discard)
        return await script.answer

    async def _run_all(self, node: str) -> None:
        # Tasks that are ready now may ask, too.
        await asyncio.sleep(0)
        waiting = self._waiting[node]
        try:
            while waiting:
                batch = [script for script in waiting[:_MOST_SCRIPTS] if not script.answer.done()]
                del waiting[:_MOST_SCRIPTS]
                if batch:
                    await self._run_batch(node, batch)
        finally:
            del self._waiting[node]
            for script in waiting:
                script.answer.cancel()

    async def _run_batch(self, node: str, batch: Sequence[_Script]) -> None:
        mark = secrets.token_hex(8)
        parts = [f"({script.text}\n); printf '\\n%s %s\\n' {mark} $?" for script in batch]
        try:
            printed, _ = await self._run(node, "\n".join(parts))
            answers = answers_of(printed, mark)
            if len(answers) != len(batch):
                raise WorkflowExecutionException(f"a shell of {node} has answered something else: {printed[:200]}")
            for script, answer in zip(batch, answers, strict=True):
                if not script.answer.done():
                    script.answer.set_result(answer)
        except WorkflowExecutionException as error:
            for script in batch:
                if not script.answer.done():
                    script.answer.set_exception(WorkflowExecutionException(str(error)))
        finally:
            for script in batch:
                script.answer.cancel()


def answers_of(printed: str, mark: str) -> list[Said]:
    """Return the output and the exit code of each script of a batch.

    :param mark: is printed after each script, with its exit code
    """
    *parts, _ = re.split(rf"(?:^|\n){mark} (\d+)(?:\n|$)", printed)
    return [(said.strip(), int(code)) for said, code in zip(parts[::2], parts[1::2], strict=True)]
