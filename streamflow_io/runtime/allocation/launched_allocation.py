"""An allocation whose programs are started by a launcher, as `ssh` or `blaunch`."""

from __future__ import annotations

import os
import shlex
import shutil
import time
from asyncio.subprocess import Process
from collections.abc import Mapping, Sequence

from streamflow.core.exception import WorkflowExecutionException

from .allocation import Allocation, Loss, Node
from .commands import begin, said
from .managers import FoundAllocation, FoundNode, Manager, ManagerError

# A shell between the launcher and the program would make one space of two.
_PROBE = ["echo", "a  b"]
_LOST_CONNECTION = 255


class LaunchedAllocation(Allocation):
    """The nodes of an allocation in which this process runs.

    :param name: of the allocation, for people
    :param launcher: the words before a program that start the program on a node, with `{node}` or `{rank}`
    """

    def __init__(self, name: str, found: FoundAllocation, launcher: str) -> None:
        self.nodes = {node.name: Node(node.name, node.name, node.cores, node.memory) for node in found.nodes}
        self._name = name
        self._launchers = {node.name: _words(launcher, node) for node in found.nodes}
        self._end = found.end if found.seconds is None else time.time() + found.seconds
        self._has_shell = False

    @classmethod
    async def of_manager(cls, manager: Manager, job: str, launcher: str | None) -> LaunchedAllocation:
        """Return the allocation of a queue manager.

        :param job: the value of its variable
        :param launcher: None: the one of the queue manager
        :raises WorkflowExecutionException: if nothing is known of it, or no node answers
        """
        name = f"allocation {job} of {manager.name}"
        try:
            found = manager.read(await said([word.format(job=job) for word in manager.show]))
        except (ManagerError, WorkflowExecutionException) as error:
            raise WorkflowExecutionException(f"{name}: {error}") from error
        return await cls._answering(name, found, launcher or manager.launcher)

    @classmethod
    async def of_nodes(cls, names: Sequence[str], launcher: str) -> LaunchedAllocation:
        """Return an allocation of nodes that the user names.

        :raises WorkflowExecutionException: if no node answers
        """
        found = FoundAllocation(tuple(FoundNode(name, rank) for rank, name in enumerate(dict.fromkeys(names))))
        return await cls._answering("the list of nodes", found, launcher)

    @classmethod
    async def _answering(cls, name: str, found: FoundAllocation, launcher: str) -> LaunchedAllocation:
        """Find out how the launcher takes words."""
        allocation = cls(name, found, launcher)
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
        pass

    async def start(self, node: str, words: Sequence[str], stdin: int, stdout: int, stderr: int) -> Process:
        return await begin(self._launched(node, words), stdin, stdout, stderr)

    async def clear(self, node: str) -> None:
        pass

    async def why(self, node: str, code: int) -> Loss | None:
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

    def _launched(self, node: str, words: Sequence[str]) -> list[str]:
        return [*self._launchers[node], *([shlex.join(words)] if self._has_shell else words)]


def current_manager(managers: Sequence[Manager], environment: Mapping[str, str] = os.environ) -> Manager | None:
    """The first queue manager in whose job this process runs."""
    return next((manager for manager in managers if environment.get(manager.variable)), None)


def _words(launcher: str, node: FoundNode) -> list[str]:
    return [word.replace("{node}", node.name).replace("{rank}", str(node.rank)) for word in shlex.split(launcher)]
