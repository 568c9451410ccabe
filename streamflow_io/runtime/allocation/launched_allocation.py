"""An allocation whose programs are started by a launcher, as `ssh` or `blaunch`."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import time
from asyncio.subprocess import Process
from collections.abc import Mapping, Sequence

from msgspec.structs import replace
from streamflow.core.exception import WorkflowExecutionException

from streamflow_io.processes import end_process

from .allocation import Allocation, Loss, Node
from .commands import begin, said
from .held_job import HeldJob
from .managers import AllocationState, FoundAllocation, FoundNode, Manager, ManagerError, Wanted, filled

# A shell between the launcher and the program would make one space of two.
_PROBE = ["echo", "a  b"]
_LOST_CONNECTION = 255


class LaunchedAllocation(Allocation):
    """The nodes of an allocation in which this process runs, or that was asked for.

    :param name: of the allocation, for people
    :param launcher: the words before a program that start the program on a node, with `{node}` or `{rank}`
    :param held: the job that was asked for; None: :meth:`close` does nothing
    """

    def __init__(self, name: str, found: FoundAllocation, launcher: str, held: HeldJob | None = None) -> None:
        self.nodes = {node.name: Node(node.name, node.name, node.cores, node.memory) for node in found.nodes}
        self._name = name
        self._launchers = {node.name: _words(launcher, node) for node in found.nodes}
        self._end = found.end if found.seconds is None else time.time() + found.seconds
        self._has_shell = False
        self._held = held
        self._started: set[Process] = set()
        self._ending: asyncio.Task[None] | None = None

    @classmethod
    async def of_manager(cls, manager: Manager, job: str, launcher: str | None) -> LaunchedAllocation:
        """Return the allocation of a queue manager.

        :param job: the value of its variable
        :param launcher: None: the one of the queue manager
        :raises WorkflowExecutionException: if nothing is known of it, or no node answers
        """
        name = f"allocation {job} of {manager.name}"
        try:
            found = manager.read(await said(filled(manager.show, job)))
        except (ManagerError, WorkflowExecutionException) as error:
            raise WorkflowExecutionException(f"{name}: {error}") from error
        return await cls._answering(name, found, launcher or manager.launcher)

    @classmethod
    async def asked(cls, deployment: str, manager: Manager, wanted: Wanted, launcher: str | None) -> LaunchedAllocation:
        """Ask for an allocation, and return it when it runs.

        :param deployment: its name in messages
        :param launcher: None: the one of the queue manager; `{job}` in it is the number of the job
        :raises WorkflowExecutionException: if the queue manager refuses, or no node answers
        """
        held = await HeldJob.ask(deployment, manager, wanted)
        try:
            name = f"allocation {held.number} of {manager.name}"
            try:
                found = await held.found()
            except (ManagerError, WorkflowExecutionException) as error:
                raise WorkflowExecutionException(f"{name}: {error}") from error
            if found.seconds is None and found.end is None:
                found = replace(found, seconds=manager.asking.seconds(wanted.limit))
            words = (launcher or manager.asking.launcher).replace("{job}", held.number)
            allocation = await cls._answering(name, found, words, held)
        except BaseException:
            await asyncio.shield(held.close())
            raise
        held.watch(allocation._start_guard, allocation._end_all)
        return allocation

    @classmethod
    async def of_nodes(cls, names: Sequence[str], launcher: str) -> LaunchedAllocation:
        """Return an allocation of nodes that the user names.

        :raises WorkflowExecutionException: if no node answers
        """
        found = FoundAllocation(tuple(FoundNode(name, rank) for rank, name in enumerate(dict.fromkeys(names))))
        return await cls._answering("the list of nodes", found, launcher)

    @classmethod
    async def _answering(
        cls, name: str, found: FoundAllocation, launcher: str, held: HeldJob | None = None
    ) -> LaunchedAllocation:
        """Find out how the launcher takes words."""
        allocation = cls(name, found, launcher, held)
        failed: list[str] = []
        for node, words in allocation._launchers.items():
            if shutil.which(words[0]) is None:
                raise WorkflowExecutionException(f"{name} needs {words[0]}, which cannot be found: set PATH")
            try:
                allocation._has_shell = (await said([*words, *_PROBE])).strip() != _PROBE[1]
                return allocation
            except WorkflowExecutionException as error:
                failed.append(f"node {node} does not answer: {error}")
        raise WorkflowExecutionException(
            f"{name} has no nodes that can be used: {'; '.join(failed) or 'there are none'}"
        )

    def __str__(self) -> str:
        return self._name

    @property
    def seconds_left(self) -> float | None:
        return None if self._end is None else self._end - time.time()

    async def close(self) -> None:
        if self._ending is not None:
            await self._ending
        if self._held is not None:
            await self._held.close()

    async def start(self, node: str, words: Sequence[str], stdin: int, stdout: int, stderr: int) -> Process:
        process = await begin(self._launched(node, words), stdin, stdout, stderr)
        if self._held is not None:
            self._started = {other for other in self._started if other.returncode is None} | {process}
        return process

    async def clear(self, node: str) -> None:
        pass

    async def why(self, node: str, code: int) -> Loss | None:
        if self._held is not None and await self._held.state() is AllocationState.HAS_ENDED:
            self._end_all()
        if self.over is not None:
            return Loss(self.over)
        try:
            await said(self._launched(node, ["true"]))
        except WorkflowExecutionException as error:
            return Loss(f"node {node} of {self} does not answer: {error}")
        launcher = self._launchers[node][0]
        if code < 0:
            return Loss(f"{launcher} to node {node} of {self} was ended by signal {-code}", answers=True)
        if code == _LOST_CONNECTION:
            return Loss(f"{launcher} to node {node} of {self} has lost its connection", answers=True)
        if code > 128:
            return Loss(f"the program on node {node} of {self} was ended by signal {code - 128}", answers=True)
        return None

    async def _start_guard(self, words: Sequence[str], stdin: int, stdout: int, stderr: int) -> Process:
        return await begin(self._launched(next(iter(self.nodes)), words), stdin, stdout, stderr)

    def _end_all(self) -> None:
        """End what runs on the nodes, because they are no longer ours: SSH does not notice the end of the job."""
        if self.over is None:
            left = self.seconds_left
            self.over = f"{self} has ended" + (": its time is over" if left is not None and left <= 1 else "")
            self._ending = asyncio.create_task(self._end_started())

    async def _end_started(self) -> None:
        await asyncio.gather(*map(end_process, self._started))

    def _launched(self, node: str, words: Sequence[str]) -> list[str]:
        return [*self._launchers[node], *([shlex.join(words)] if self._has_shell else words)]


def current_manager(managers: Sequence[Manager], environment: Mapping[str, str] = os.environ) -> Manager | None:
    """The first queue manager in whose job this process runs."""
    return next((manager for manager in managers if environment.get(manager.variable)), None)


def _words(launcher: str, node: FoundNode) -> list[str]:
    return [word.replace("{node}", node.name).replace("{rank}", str(node.rank)) for word in shlex.split(launcher)]
