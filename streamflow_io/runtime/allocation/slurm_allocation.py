"""An allocation of Slurm."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from streamflow.core.exception import WorkflowExecutionException

from streamflow_io.processes import end_process, ends_within
from streamflow_io.runtime.allocation import slurm

from .allocation import Allocation, Loss, Node
from .commands import begin, said, tell_guard
from .managers import MANAGERS, ManagerError, Wanted
from .queue_watch import QueueWatch

# How an allocation has ended is known when its processes have.
_LOOKS, _PAUSE_SECONDS = 20, 0.25
_BOOT_PAUSE_SECONDS = 2.0
# Between looks at an allocation that waits in the queue. Slurm answers all users of a cluster.
_FIRST_LOOK_SECONDS, _LONGEST_LOOK_SECONDS = 1.0, 60.0
_END_SECONDS = 10.0
_LAST_LINES = 5


class Submission:
    """An allocation that `salloc` holds as long as the driver runs.

    A guard on a node gives the allocation back when the driver's node has said nothing for a minute.

    :ivar job: the number of the allocation
    """

    def __init__(self, job: str, holder: Process, reading: asyncio.Task[None]) -> None:
        self.job = job
        self._holder = holder
        self._reading = reading
        self._guarding: asyncio.Task[None] | None = None

    @classmethod
    async def ask(cls, deployment: str, wanted: Wanted) -> Submission:
        """Ask for an allocation, and wait until it is granted.

        :param deployment: its name in messages
        :raises WorkflowExecutionException: if the queue manager refuses
        """
        words = slurm.ask(wanted)
        # An allocation that waits has no command yet, which would see the end of its input.
        holder = await begin(words, PIPE, DEVNULL, PIPE, tied=True)
        job: str | None = None
        watching: asyncio.Task[str] | None = None
        try:
            assert holder.stderr is not None
            last: deque[str] = deque(maxlen=_LAST_LINES)
            async for line in holder.stderr:
                last.append(text := line.decode(errors="replace").strip())
                if (told := slurm.asked(text)) is None:
                    continue
                job, is_granted = told
                if is_granted:
                    return cls(job, holder, asyncio.create_task(_read_all(holder.stderr)))
                if watching is None:
                    watching = asyncio.create_task(_watch(QueueWatch(deployment, "Slurm", job), job, holder))
            if watching is not None and watching.done():
                why = watching.result()
            elif (code := await holder.wait()) < 0:
                why = f"salloc was ended by signal {-code}"
            else:
                why = "; ".join(filter(None, last)) or f"exit code {code}"
            raise WorkflowExecutionException(f"Slurm gives no allocation to {deployment}: {why}")
        except BaseException:
            # `salloc` takes an allocation that waits out of the queue when it is asked to end.
            await asyncio.shield(_give_up(holder, job))
            raise
        finally:
            if watching is not None:
                watching.cancel()
                await asyncio.wait({watching})

    @property
    def is_held(self) -> bool:
        """Whether `salloc` still holds it."""
        return self._holder.returncode is None

    def guard(self, choose: Callable[[], Node]) -> None:
        """Start the guard, on a node that is chosen; start it again if it ends."""
        self._guarding = asyncio.create_task(self._guard(choose))

    async def close(self) -> None:
        """Give the allocation back."""
        if self._guarding is not None:
            self._guarding.cancel()
            await asyncio.wait({self._guarding})
        assert self._holder.stdin is not None
        self._holder.stdin.close()
        await ends_within(self._holder, _END_SECONDS)
        await _give_up(self._holder, self.job)
        self._reading.cancel()

    async def _guard(self, choose: Callable[[], Node]) -> None:
        words = ["sh", "-c", slurm.guard(self.job)]
        while self.is_held:
            node = choose()
            launch = slurm.on_node(self.job, node.name, node.cores or 1, words, slurm.GUARD)
            await tell_guard(await begin(launch, PIPE, DEVNULL, DEVNULL))
            await asyncio.sleep(1)


async def _watch(watch: QueueWatch, job: str, holder: Process) -> str:
    """Look at an allocation that waits. If it will never start, end `salloc`, and return why."""
    pause = _FIRST_LOOK_SECONDS
    while True:
        await asyncio.sleep(pause)
        pause = min(pause * 2, _LONGEST_LOOK_SECONDS)
        reason = None
        with contextlib.suppress(WorkflowExecutionException, ManagerError):
            reason = (await _held(job)).reason
        if (why := watch.looked(reason)) is not None:
            with contextlib.suppress(ProcessLookupError):
                holder.terminate()
            return why


async def _give_up(holder: Process, job: str | None) -> None:
    """End `salloc`; if a signal has ended it, give the allocation back."""
    await end_process(holder)
    if job is not None and holder.returncode is not None and holder.returncode < 0:
        with contextlib.suppress(WorkflowExecutionException):
            await said(["scancel", job])


async def _read_all(stream: asyncio.StreamReader) -> None:
    """Read to the end, so that the program never waits for a reader."""
    while await stream.read(2**16):
        pass


class SlurmAllocation(Allocation):
    """An allocation of Slurm that runs.

    :param end: the time when it ends, in seconds since 1970; None: no limit
    :param asked: None: :meth:`close` does nothing
    """

    def __init__(self, job: str, nodes: Mapping[str, Node], end: float | None, asked: Submission | None = None) -> None:
        self.nodes = nodes
        self._job = job
        self._end = end
        self._asked = asked
        self._lost: set[str] = set()
        self._name = f"sfio-{os.urandom(4).hex()}"  # of its steps

    @classmethod
    async def find(cls, deployment: str, wanted: Wanted | None, job: str | None) -> SlurmAllocation:
        """Return an allocation that runs.

        :param deployment: its name in messages
        :param wanted: the allocation to ask for; None: the one of `job` is used
        :raises WorkflowExecutionException: if there is none, with the reason
        """
        programs = slurm.PROGRAMS if wanted is None else (*slurm.PROGRAMS, "salloc")
        if missing := [name for name in programs if shutil.which(name) is None]:
            raise WorkflowExecutionException(
                f"{deployment} has the type sfio.allocation, and {' and '.join(missing)} of Slurm cannot be found: "
                f"add the directory of the programs to PATH{'' if wanted is None else _other_managers()}"
            )
        if wanted is None:
            assert job is not None
            return await cls._of(job, None)
        asked = await Submission.ask(deployment, wanted)
        try:
            found = await cls._of(asked.job, asked)
            asked.guard(found._first)
            return found
        except BaseException:
            await asyncio.shield(asked.close())
            raise

    @classmethod
    async def _of(cls, job: str, asked: Submission | None) -> SlurmAllocation:
        try:
            held = await _held(job)
            # The nodes boot, or are prepared, after Slurm has granted the allocation.
            while held.state == "CONFIGURING" and asked is not None and asked.is_held:
                await asyncio.sleep(_BOOT_PAUSE_SECONDS)
                held = await _held(job)
            nodes = dict[str, Node]()
            for group in held.groups:
                for known in await _nodes(",".join(await _names(group))):
                    memory = group.memory or known.memory
                    nodes[known.name] = Node(known.name, known.address, group.cores, memory)
        except ManagerError as error:
            raise WorkflowExecutionException(f"allocation {job} of Slurm: {error}") from error
        if not held.runs or not nodes:
            raise WorkflowExecutionException(f"allocation {job} of Slurm has no nodes that can be used: {held.state}")
        return cls(job, nodes, held.end, asked)

    def __str__(self) -> str:
        return f"allocation {self._job} of Slurm"

    @property
    def seconds_left(self) -> float | None:
        return None if self._end is None else self._end - time.time()

    def lost(self, node: str) -> None:
        self._lost.add(node)

    def _first(self) -> Node:
        """The first node that is not lost."""
        nodes = list(self.nodes.values())
        return next((node for node in nodes if node.name not in self._lost), nodes[0])

    async def close(self) -> None:
        if self._asked is not None:
            await self._asked.close()

    async def start(self, node: str, words: Sequence[str], stdin: int, stdout: int, stderr: int) -> Process:
        launch = slurm.on_node(self._job, node, self.nodes[node].cores or 1, words, self._name)
        return await begin(launch, stdin, stdout, stderr)

    async def clear(self, node: str) -> None:
        with contextlib.suppress(WorkflowExecutionException):
            show = ["squeue", "--noheader", "--steps", f"--jobs={self._job}", f"--nodelist={node}", "--format=%i %j"]
            lines = [line.split(None, 1) for line in (await said(show)).splitlines()]
            # A node runtime that is asked to end ends its jobs, and leaves nothing.
            if steps := [words[0] for words in lines if words[1:] == [self._name]]:
                await said(["scancel", "--signal=TERM", *steps])

    async def why(self, node: str, code: int) -> Loss | None:
        try:
            for _ in range(_LOOKS):
                held = await _held(self._job)
                if held.state != "COMPLETING":
                    break
                await asyncio.sleep(_PAUSE_SECONDS)
            if not held.runs:
                is_late = self._end is not None and self._end <= time.time() + 1
                self.over = f"{self} has ended: {'its time is over' if is_late else held.state}"
                return Loss(self.over)
            (known,) = await _nodes(node)
            has_node = node in [name for group in held.groups for name in await _names(group)]
        except (WorkflowExecutionException, ValueError) as error:
            return Loss(f"nothing is known of node {node} of {self}: {error}")
        if known.gone is not None:
            return Loss(f"node {node} of {self} is {known.gone}")
        if not has_node:
            return Loss(f"node {node} has failed: it is no longer in {self}")
        if code < 0:
            return Loss(f"srun to node {node} of {self} was ended by signal {-code}", answers=True)
        if code > 128:
            return Loss(f"the program on node {node} of {self} was ended by signal {code - 128}", answers=True)
        return None


def _other_managers() -> str:
    """Return what to write in `submit` where the commands of other queue managers are found."""
    found = [f"`manager: {each.name.lower()}`" for each in MANAGERS if shutil.which(each.asking.cancel[0])]
    return f", or write {' or '.join(found)} in `submit`" if found else ""


async def _held(job: str) -> slurm.Held:
    return slurm.allocation_of(await said(["scontrol", "show", "job", job, "--details", "--oneliner"]), job)


async def _nodes(names: str) -> list[slurm.SlurmNode]:
    return slurm.nodes_of(await said(["scontrol", "show", "node", names, "--oneliner"]))


async def _names(group: slurm.NodeGroup) -> list[str]:
    return (await said(["scontrol", "show", "hostnames", group.nodes])).split()
