"""Finds the allocation that a deployment is to use, or the allocations that it asks for when jobs need them."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import replace
from streamflow.core.exception import WorkflowExecutionException

from streamflow_io._streamflow import HostJobs
from streamflow_io.runtime.waiting_deployments import tell

from .allocation import Allocation, Loss, Node
from .launched_allocation import LaunchedAllocation, current_manager
from .managers import MANAGERS, SSH, Wanted
from .slurm_allocation import SlurmAllocation

logger = logging.getLogger("streamflow")

_SLURM = "SLURM_JOB_ID"
_PAUSE_SECONDS = 1.0
_PATIENCE_SECONDS = 10.0


class AskingLimits(Struct, frozen=True):
    """The limits of a deployment that asks for several allocations.

    :ivar most: how many may be asked for in a run
    :ivar idle: the seconds after which an allocation without jobs is given back; None: at the end of the run
    :ivar patience: the seconds for which jobs wait for cores before another allocation is asked for beside one that
        runs
    """

    most: int
    idle: float | None = None
    patience: float = _PATIENCE_SECONDS


class Situation(Struct, frozen=True):
    """The allocations of a deployment, and the jobs that wait for nodes. Moments are in seconds.

    :ivar asked: how many allocations were asked for
    :ivar is_asked: whether one of them waits in the queue
    :ivar idle_since: for each allocation that runs, since when no job needs it; None: a job does, or only its nodes
        see a file
    :ivar waits: whether a job waits for this deployment
    :ivar lacks_since: since when a job lacks cores, memory or time on the nodes; None: no job does
    """

    now: float
    asked: int
    is_asked: bool
    idle_since: tuple[float | None, ...]
    waits: bool
    lacks_since: float | None


def asks(limits: AskingLimits, situation: Situation) -> bool:
    """Whether to ask for another allocation now."""
    if situation.is_asked or situation.asked >= limits.most:
        return False
    if not situation.idle_since:
        return situation.waits
    return situation.lacks_since is not None and situation.now - situation.lacks_since >= limits.patience


def to_give_back(limits: AskingLimits, situation: Situation) -> int | None:
    """Return the place of the allocation to give back now; None: all stay.

    The run keeps one, or may ask for another one.
    """
    if limits.idle is None or situation.waits:
        return None
    if situation.asked >= limits.most and len(situation.idle_since) + situation.is_asked < 2:
        return None
    idle = [
        (since, place)
        for place, since in enumerate(situation.idle_since)
        if since is not None and situation.now - since >= limits.idle
    ]
    return min(idle)[1] if idle else None


class Owner(Protocol):
    """The deployment whose allocations these are."""

    deployment_name: str

    def host_jobs(self) -> HostJobs:
        """The jobs that run on its nodes, and wait for them."""

    def sees_all_of(self, node: str) -> bool:
        """Whether the driver sees all files of the jobs of a node."""

    def lose(self, node: str, reason: str) -> None:
        """Use a node no more."""

    async def release(self, node: str) -> None:
        """End all programs on a node."""

    def changed(self) -> None:
        """There are other nodes now, or there will be none."""


class SeveralAllocations(Allocation):
    """Several allocations of a deployment, which are one to the connector.

    A node of a later allocation that has the name of an earlier one gets another name.

    :param ask: asks for an allocation, and waits until it runs
    """

    def __init__(self, limits: AskingLimits, owner: Owner, ask: Callable[[], Awaitable[Allocation]]) -> None:
        self._limits = limits
        self._owner = owner
        self._ask = ask
        # Each allocation that runs, with the names of its nodes that are left, and the moment when its last job ended.
        self._held: dict[Allocation, dict[str, Node]] = {}
        self._idle_since: dict[Allocation, float] = {}
        self._homes: dict[str, tuple[Allocation, str]] = {}
        self._asked = 0
        self._asking: asyncio.Task[None] | None = None
        self._lacks_since: float | None = None
        self._waiting = 0
        self._refusal: str | None = None
        self._last = "no allocation"
        self._most_seconds: float | None = None
        self._looking: asyncio.Task[None] | None = None
        self._ends = set[asyncio.Task[None]]()
        self._closing = False

    async def begin(self) -> None:
        """Ask for the first allocation.

        :raises WorkflowExecutionException: if the queue manager refuses
        """
        self._asked = 1
        self._take(await self._ask())
        self._looking = asyncio.create_task(self._look_for_ever())

    def __str__(self) -> str:
        return " and ".join(map(str, self._held)) or self._last

    @property
    def nodes(self) -> dict[str, Node]:  # type: ignore[override]
        return {name: node for nodes in self._held.values() for name, node in nodes.items()}

    @property
    def over(self) -> str | None:  # type: ignore[override]
        if self.nodes or self.comes:
            return None
        return self._refusal or f"{self._last}, and no more than {self._limits.most} may be asked for (`max`)"

    @property
    def comes(self) -> bool:
        return self._refusal is None and (self._asking is not None or self._asked < self._limits.most)

    @property
    def seconds_left(self) -> float | None:
        lefts = [allocation.seconds_left for allocation in self._held]
        if self.comes:
            lefts.append(self._most_seconds)
        known = [left for left in lefts if left is not None]
        return max(known) if len(known) == len(lefts) and known else None

    def seconds_of(self, node: str) -> float | None:
        return self._homes[node][0].seconds_left

    async def wait(self) -> None:
        self._waiting += 1
        try:
            while not self.nodes and self.over is None:
                self._look()
                if self._asking is None:
                    await asyncio.sleep(_PAUSE_SECONDS)
                else:
                    await asyncio.wait({self._asking})
        finally:
            self._waiting -= 1

    async def close(self) -> None:
        self._closing = True
        running = [task for task in (self._looking, self._asking) if task is not None]
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)
        for allocation in [*self._held]:
            self._give_back(allocation, f"{allocation} was given back")
        if self._ends:
            await asyncio.wait(self._ends)

    async def start(self, node: str, words: Sequence[str], stdin: int, stdout: int, stderr: int) -> Process:
        allocation, name = self._homes[node]
        return await allocation.start(name, words, stdin, stdout, stderr)

    async def clear(self, node: str) -> None:
        allocation, name = self._homes[node]
        await allocation.clear(name)

    async def why(self, node: str, code: int) -> Loss | None:
        allocation, name = self._homes[node]
        return await allocation.why(name, code)

    def lost(self, node: str) -> None:
        allocation, name = self._homes[node]
        allocation.lost(name)
        if (nodes := self._held.get(allocation)) is not None:
            nodes.pop(node, None)
            # Files may be left on a node that is lost. They can be read until the allocation ends.
            if allocation.over is not None:
                self._give_back(allocation, allocation.over)

    async def _look_for_ever(self) -> None:
        while True:
            await asyncio.sleep(_PAUSE_SECONDS)
            self._look()

    def _look(self) -> None:
        """Ask for another allocation, or give one back, if it is time."""
        for allocation in [*self._held]:
            if allocation.over is not None:
                self._give_back(allocation, allocation.over)
        running = [allocation for allocation, nodes in self._held.items() if nodes]
        jobs, now = self._owner.host_jobs(), time.monotonic()
        self._lacks_since = None if not jobs.lacks else now if self._lacks_since is None else self._lacks_since
        waits = jobs.waits or self._waiting > 0
        situation = Situation(
            now,
            self._asked,
            self._asking is not None,
            tuple(self._idle(allocation, jobs, waits, now) for allocation in running),
            waits,
            self._lacks_since,
        )
        if self._refusal is None and asks(self._limits, situation):
            self._asked += 1
            self._asking = asyncio.create_task(self._ask_for_another())
        if (place := to_give_back(self._limits, situation)) is not None:
            why = f"{running[place]} was given back, because no job has needed it for {self._limits.idle:g} s"
            logger.info(f"{self._owner.deployment_name}: {why}")
            self._give_back(running[place], why)

    def _idle(self, allocation: Allocation, jobs: HostJobs, waits: bool, now: float) -> float | None:
        nodes = self._held[allocation]
        if waits or not jobs.busy.isdisjoint(nodes) or not all(map(self._owner.sees_all_of, nodes)):
            self._idle_since.pop(allocation, None)
            return None
        return self._idle_since.setdefault(allocation, now)

    async def _ask_for_another(self) -> None:
        try:
            self._take(await self._ask())
            (*_, (taken, nodes)) = self._held.items()
            logger.info(
                f"The deployment {self._owner.deployment_name} has {taken}, number {self._asked} of at most "
                f"{self._limits.most}: {', '.join(map(str, nodes.values()))}"
            )
        except WorkflowExecutionException as error:
            self._refusal = f"{self._last}, and there is no other: {error}"
            logger.warning(str(error))
        self._asking = None
        self._owner.changed()

    def _take(self, allocation: Allocation) -> None:
        named = dict[str, Node]()
        for name, node in allocation.nodes.items():
            new, number = name, self._asked
            while new in self._homes:
                new, number = f"{name}-{number}", number + 1
            self._homes[new] = allocation, name
            named[new] = replace(node, name=new)
        self._held[allocation] = named
        self._most_seconds = allocation.seconds_left

    def _give_back(self, allocation: Allocation, why: str) -> None:
        self._last = why
        self._idle_since.pop(allocation, None)
        names = [name for name, (home, _) in self._homes.items() if home is allocation]
        del self._held[allocation]
        if (over := self.over) is not None and not self._closing:
            logger.error(f"The deployment {self._owner.deployment_name} has no nodes any more: {over}")
        for name in names:
            self._owner.lose(name, why)
        self._ends.add(asyncio.create_task(self._end(allocation, names)))

    async def _end(self, allocation: Allocation, names: Sequence[str]) -> None:
        await asyncio.gather(*map(self._owner.release, names))
        await allocation.close()


class AllocationChoice(Struct, frozen=True):
    """The fields of a deployment that say which allocation it has.

    :ivar wanted: the allocation to ask for; None: the one that this process runs in is used
    :ivar launcher: None: the one of the queue manager
    :ivar nodes: those of no known queue manager; None: the queue manager tells
    """

    wanted: Wanted | None = None
    launcher: str | None = None
    nodes: Sequence[str] | None = None
    limits: AskingLimits = AskingLimits(1)

    @classmethod
    def of(
        cls, submit: Mapping[str, Any] | None, launcher: str | None, nodes: Sequence[str] | None
    ) -> AllocationChoice:
        """Return the choice of a deployment whose fields the schema allows."""
        if submit is None:
            return cls(launcher=launcher, nodes=nodes)
        names = {"time": "limit"}
        fields = {names.get(name, name): value for name, value in submit.items() if name not in ("max", "idle")}
        wanted = Wanted(**{**fields, "options": tuple(submit.get("options", ()))})
        return cls(wanted, launcher, nodes, AskingLimits(submit.get("max", 1), submit.get("idle")))


def is_in_allocation() -> bool:
    """Whether this process runs in a job of a known queue manager."""
    return _SLURM in os.environ or current_manager(MANAGERS) is not None


async def find_allocation(owner: Owner, choice: AllocationChoice) -> Allocation:
    """Return an allocation that runs.

    :raises WorkflowExecutionException: if there is none, with the reason
    """
    if choice.wanted is None:
        return await current_allocation(owner.deployment_name, choice)
    ask = partial(_asked, owner.deployment_name, choice, choice.wanted)
    if choice.limits.most == 1:
        return await ask()
    several = SeveralAllocations(choice.limits, owner, ask)
    await several.begin()
    return several


async def current_allocation(deployment: str, choice: AllocationChoice) -> Allocation:
    """Return the allocation that this process runs in, or that the `nodes` of a deployment make.

    :param deployment: its name in messages
    :raises WorkflowExecutionException: if there is none, with the reason
    """
    if choice.nodes is not None:
        return await LaunchedAllocation.of_nodes(choice.nodes, choice.launcher or SSH)
    if (job := os.environ.get(_SLURM)) is not None:
        if choice.launcher is not None:
            raise WorkflowExecutionException(
                f"{deployment} has a `launcher`, and StreamFlow runs in an allocation of Slurm, where srun is the "
                "launcher: remove `launcher`, or list the `nodes` beside it"
            )
        return await SlurmAllocation.find(deployment, None, job)
    if (manager := current_manager(MANAGERS)) is not None:
        return await LaunchedAllocation.of_manager(manager, os.environ[manager.variable], choice.launcher)
    known = ", ".join([_SLURM, *(manager.variable for manager in MANAGERS)])
    raise WorkflowExecutionException(
        f"{deployment} has the type sfio.allocation, and StreamFlow runs in no allocation: none of {known} is set. "
        "Start `streamflow run` in a batch job, as with `sbatch`, or write `submit` or `nodes` in the `config` of the "
        "deployment"
    )


async def _asked(deployment: str, choice: AllocationChoice, wanted: Wanted) -> Allocation:
    if choice.nodes is not None:
        raise WorkflowExecutionException(
            f"{deployment} has `submit` beside `nodes`: an allocation that is asked for has its own nodes"
        )
    manager = next((manager for manager in MANAGERS if manager.name.lower() == wanted.manager), None)
    if manager is None and choice.launcher is not None:
        raise WorkflowExecutionException(
            f"{deployment} has a `launcher` beside `submit`, and Slurm has its own, srun: remove `launcher`"
        )
    try:
        if manager is None:
            return await SlurmAllocation.find(deployment, wanted, None)
        return await LaunchedAllocation.asked(deployment, manager, wanted, choice.launcher)
    finally:
        tell(deployment, None)
