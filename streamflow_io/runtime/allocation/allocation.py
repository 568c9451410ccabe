"""An allocation of a queue manager: its nodes, and programs on them."""

from __future__ import annotations

import ipaddress
from abc import ABC, abstractmethod
from asyncio.subprocess import Process
from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

# The most nodes that have their names in a text, and the most different sizes.
_SHOWN, _SIZES = 8, 3
# A shorter time is shown in seconds.
_SHORT_SECONDS = 120


class Node(Struct, frozen=True):
    """A node of an allocation.

    :ivar address: a name or an address, by which the queue manager reaches it
    :ivar cores: those that the allocation has there; None: all that the node has
    :ivar memory: the memory that the allocation has there, in MiB; None: all that the node has
    """

    name: str
    address: str
    cores: int | None
    memory: int | None

    def __str__(self) -> str:
        cores = "" if self.cores is None else f"{self.cores} core{'' if self.cores == 1 else 's'}"
        memory = "" if self.memory is None else f"{self.memory:,} MiB"
        size = ", ".join(filter(None, (cores, memory)))
        return f"{self.name} ({size})" if size else self.name


def shown_time(seconds: float) -> str:
    """The time until an end, for people."""
    return f"{seconds / 60:,.0f} minutes" if seconds >= _SHORT_SECONDS else f"{max(int(seconds), 0)} s"


def is_address(text: str) -> bool:
    """Whether a text is an address, and no name."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


class Loss(Struct, frozen=True):
    """The loss of a node.

    :ivar answers: whether the node itself is well, so that commands can remove what was left there
    """

    reason: str
    answers: bool = False


class Allocation(ABC):
    """An allocation that runs.

    :ivar over: why none of its nodes can be used any more; None: jobs may start
    """

    over: str | None = None
    nodes: Mapping[str, Node]

    @abstractmethod
    def __str__(self) -> str:
        """The allocation, for people."""

    @property
    def description(self) -> str:
        """The allocation, its nodes, and the time that is left, for people."""
        left = self.seconds_left
        end = "" if left is None else f"; {shown_time(left)} are left"
        return f"{self}: {self.size}{end}"

    @property
    def size(self) -> str:
        """The nodes with their cores and memory, for people."""
        nodes = list(self.nodes.values())
        if len(nodes) <= _SHOWN:
            return ", ".join(map(str, nodes))
        sizes = Counter(str(replace(node, name="each")) for node in nodes).most_common(_SIZES)
        return f"{len(nodes):,} nodes, {nodes[0].name} to {nodes[-1].name}: " + "; ".join(
            f"{count:,} x {size.removeprefix('each').strip(' ()') or 'unknown'}" for size, count in sizes
        )

    @property
    @abstractmethod
    def seconds_left(self) -> float | None:
        """The time until it ends, or the last that may come; None: no limit is known."""

    @abstractmethod
    async def close(self) -> None:
        """Give the allocation back, if it was asked for."""

    @property
    def comes(self) -> bool:
        """Whether other nodes may come."""
        return False

    def seconds_of(self, node: str) -> float | None:
        """The time until a node ends; None: no limit is known."""
        return self.seconds_left

    def lost(self, node: str) -> None:
        """Note that a node is used no more."""
        return

    async def wait(self) -> None:
        """Wait until there are nodes, or there will be none."""
        return

    @abstractmethod
    async def start(self, node: str, words: Sequence[str], stdin: int, stdout: int, stderr: int) -> Process:
        """Start a program on a node. The program ends with the local process, and the reverse.

        :raises WorkflowExecutionException: if the program cannot be started
        """

    @abstractmethod
    async def clear(self, node: str) -> None:
        """End all programs on a node, also those whose local process was killed, as far as possible."""

    @abstractmethod
    async def why(self, node: str, code: int) -> Loss | None:
        """The reason why a program on a node has ended that was to go on. None: the program has ended by itself.

        :param code: the exit code of its local process
        """
