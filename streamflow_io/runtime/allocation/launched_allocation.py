"""An allocation whose programs are started by a launcher, as `ssh` or `blaunch`."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import os
import shlex
import shutil
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace
from streamflow.core.exception import WorkflowExecutionException

from streamflow_io.processes import end_process, ends_within, kill_process

from .allocation import Allocation, Loss, Node
from .commands import begin, said, tell_guard
from .managers import (
    AllocationState,
    Asking,
    FoundAllocation,
    FoundNode,
    Manager,
    ManagerError,
    Wanted,
    filled,
    give_back,
)
from .queue_watch import QueueWatch

# A shell between the launcher and the program would make one space of two.
_PROBE = ["echo", "a  b"]
# csh ends a quotation at the end of a line, and fish takes two backslashes in one for one.
_QUOTED = "a  b\n\\\\'"
# Follows what a login shell prints by itself, as a message of the day in a .bashrc.
_BEGIN = b"sfio-begin\n"
_BEGIN_SECONDS = 60.0
_LOST_CONNECTION = 255
logger = logging.getLogger("streamflow")

#: Starts a program on the first node. A guard on another node would not stop one that goes on there.
Start = Callable[[Sequence[str], int, int, int], Awaitable[Process]]

# Submits the job, prints its number, and gives the allocation back at the end of its input, also when the driver was
# killed. Nothing interrupts the words that submit: the number of the job is always known.
_HOLDER = (
    'number=$1; shift; said=$("$@" < /dev/null) || exit; job=$(printf "%s\\n" "$said" | sed -n "$number" | tail -n 1); '
    'test -n "$job" || {{ printf "%s\\n" "$said" >&2; exit 1; }}; echo "$job"; cat > /dev/null; '
    "{give_back}"
)
# As `slurm.guard`. A driver that lives has started another guard, to whose number the link then leads. A full disk has
# space for a link. Without any link no other guard is known.
_GUARD = (
    'link=${{TMPDIR:-/tmp}}/{name}; ln -sfn $$ "$link"; '
    'while line=$(timeout {seconds} sh -c \'read -r line; echo "$line"\') && test "$line" = alive; do :; done; '
    'if test "$line" != done; then sleep {seconds}; fi; last=$(readlink "$link"); '
    'test "${{last:-$$}}" = $$ || exit; rm -f "$link"; test "$line" = done || {give_back}'
)
_GUARD_SECONDS = 30
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 10.0
_WATCH_SECONDS = 30.0
_END_SECONDS = 30.0
_MOST_FAILURES = 5


def holder(manager: Manager, wanted: Wanted) -> list[str]:
    """The words of a local program that asks for an allocation, prints the number of its job, and gives it back.

    :raises ManagerError: if something that the user wants cannot be asked for
    """
    asking = manager.asking
    cancel, state = (
        " ".join('"$job"' if word == "{job}" else shlex.quote(word) for word in words)
        for words in (asking.cancel, asking.state)
    )
    give = give_back(cancel, state, asking.ended)
    return ["sh", "-c", _HOLDER.format(give_back=give), "sh", asking.number, *asking.ask(wanted)]


def guard(asking: Asking, job: str, name: str, seconds: int = _GUARD_SECONDS) -> list[str]:
    """The words of a program on a node that gives the allocation back when its input brings no line for a minute.

    :param job: the number of the job that holds the allocation
    :param name: of the guard, as that of a file
    :param seconds: half of this minute
    """
    cancel, state = (
        f"sh -lc {shlex.quote(shlex.join([first, *asking.on_node, *rest]))}"
        for first, *rest in (filled(asking.cancel, job), filled(asking.state, job))
    )
    give = give_back(cancel, state, asking.ended)
    return ["sh", "-c", _GUARD.format(name=name, seconds=seconds, give_back=give)]


class HeldJob:
    """A job that holds an allocation as long as the driver runs.

    A guard on a node gives the allocation back when the driver's node has said nothing for a minute.
    """

    def __init__(self, manager: Manager, number: str, holding: Process) -> None:
        self.number = number
        self._manager = manager
        self._holding = holding
        self._tasks: list[asyncio.Task[None]] = []
        self._name = f"sfio-guard-{os.urandom(4).hex()}"

    @classmethod
    async def ask(cls, deployment: str, manager: Manager, wanted: Wanted) -> HeldJob:
        """Ask for an allocation, and wait until the job of the queue manager runs.

        :param deployment: its name in messages
        :raises WorkflowExecutionException: if the queue manager refuses, or the job ends before it runs
        """
        try:
            words = holder(manager, wanted)
        except ManagerError as error:
            raise WorkflowExecutionException(f"{deployment}: {error}") from error
        if shutil.which(program := manager.asking.ask(wanted)[0]) is None:
            why = f"{program} cannot be found: add its directory to PATH"
            raise WorkflowExecutionException(f"{manager.name} gives no allocation to {deployment}: {why}")
        # The words that submit may run before the program counts as started.
        starting = asyncio.create_task(begin(words, PIPE, PIPE, PIPE))
        try:
            holding = await asyncio.shield(starting)
            assert holding.stdout is not None
            assert holding.stderr is not None
            number = (await holding.stdout.readline()).decode(errors="replace").strip()
            if not number:
                why = (await holding.stderr.read()).decode(errors="replace").strip()
                why = why or f"exit code {await holding.wait()}"
                raise WorkflowExecutionException(f"{manager.name} gives no allocation to {deployment}: {why}")
            job = cls(manager, number, holding)
            await job._wait(deployment)
            return job
        except BaseException:
            await asyncio.shield(_give_back_started(starting))
            raise

    async def found(self) -> FoundAllocation:
        """The nodes of the allocation. Flux needs a moment until it tells them.

        :raises WorkflowExecutionException: if nothing is known of them
        """
        asking = self._manager.asking
        for last in (*[False] * _MOST_FAILURES, True):
            with contextlib.suppress(*(() if last else (ManagerError, WorkflowExecutionException))):
                return asking.read(await said(filled(asking.show, self.number)))
            await asyncio.sleep(_FIRST_PAUSE * 4)
        raise AssertionError

    async def state(self) -> AllocationState | None:
        """Return the state of the job; None: the queue manager does not tell."""
        return self._manager.asking.read_state(await self._printed_state())

    def watch(self, start: Start, on_end: Callable[[], None]) -> None:
        """Start the guard on a node, and start it again if it ends. Look at the job now and then.

        :param on_end: called once, when the job has ended
        """
        self._tasks = [asyncio.create_task(self._guard(start)), asyncio.create_task(self._watch(on_end))]

    async def close(self) -> None:
        """Give the allocation back."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        was_killed = self._holding.returncode is not None and self._holding.returncode < 0
        await _give_back(self._holding)
        if was_killed:
            with contextlib.suppress(WorkflowExecutionException):
                await said(filled(self._manager.asking.cancel, self.number))

    async def _printed_state(self) -> str:
        try:
            return await said(filled(self._manager.asking.state, self.number))
        except WorkflowExecutionException as error:
            return str(error)

    async def _wait(self, deployment: str) -> None:
        name, asking = self._manager.name, self._manager.asking
        pause, failures = _FIRST_PAUSE, 0
        watch: QueueWatch | None = None
        while (state := asking.read_state(printed := await self._printed_state())) is not AllocationState.RUNS:
            failures = failures + 1 if state is None else 0
            why = None
            if state is AllocationState.HAS_ENDED or failures == _MOST_FAILURES:
                why = f"job {self.number}: "
                why += "it has ended before it ran" if failures == 0 else "its state cannot be read"
            else:
                watch = watch or QueueWatch(deployment, name, self.number)
                why = watch.looked(asking.read_reason(printed))
            if why is not None:
                raise WorkflowExecutionException(f"{name} gives no allocation to {deployment}: {why}")
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, _LONGEST_PAUSE)

    async def _watch(self, on_end: Callable[[], None]) -> None:
        while True:
            if await self.state() is AllocationState.HAS_ENDED:
                return on_end()
            await asyncio.sleep(_WATCH_SECONDS)

    async def _guard(self, start: Start) -> None:
        words = guard(self._manager.asking, self.number, self._name)
        while True:
            with contextlib.suppress(WorkflowExecutionException):
                await tell_guard(await start(words, PIPE, DEVNULL, DEVNULL))
            await asyncio.sleep(1)


async def _give_back_started(starting: asyncio.Task[Process]) -> None:
    with contextlib.suppress(WorkflowExecutionException):
        await _give_back(await starting)


async def _give_back(holding: Process) -> None:
    """Let the local program give the allocation back, and wait until it has."""
    assert holding.stdin is not None
    holding.stdin.close()
    if not await ends_within(holding, _END_SECONDS):
        # The program goes on. If it was ended, the allocation could stay.
        logger.warning("A queue manager takes long to take an allocation back: look at your jobs there")


class RemoteShell(Struct, frozen=True):
    """The shell of a node, which reads the words that a launcher sends.

    :ivar kind: a shell of POSIX, or another one; both read the words as one text. None: no shell reads them
    :ivar prints: whether the shell prints a text of its own first
    """

    kind: Literal["posix", "other"] | None = None
    prints: bool = False

    @classmethod
    async def of(cls, launcher: Sequence[str]) -> RemoteShell:
        """Find out which shell a launcher reaches.

        :raises WorkflowExecutionException: if the node does not answer
        """
        (_, text), told = _PROBE, (await said([*launcher, *_PROBE])).rstrip("\n")
        if told.endswith(text):
            return cls(None, told != text)
        prints = told != " ".join(text.split())
        with contextlib.suppress(WorkflowExecutionException):
            if (await said([*launcher, shlex.join(["printf", "%s", _QUOTED])])).endswith(_QUOTED):
                return cls("posix", prints)
        return cls("other", prints)

    def launched(self, words: Sequence[str]) -> list[str]:
        """Return the words that follow those of the launcher."""
        if self.prints:
            words = ["sh", "-c", f'echo {_BEGIN.decode().strip()}; exec "$@"', "sh", *words]
        if self.kind is None:
            return [*words]
        text = shlex.join(words)
        if self.kind == "posix":
            return [text]
        encoded = base64.b64encode(text.encode(errors="surrogateescape")).decode()
        return [f"sh -c 'eval \"exec $(echo {encoded} | base64 -d)\"'"]


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
        self._remote_shell = RemoteShell()
        self._held = held
        self._started: set[Process] = set()
        self._ending: asyncio.Task[None] | None = None

    @classmethod
    async def of_manager(cls, manager: Manager, job: str, launcher: str | None) -> LaunchedAllocation:
        """Return the allocation of a queue manager.

        :param job: the value of its variable
        :param launcher: None: the one of the queue manager; `{job}` in it is that value
        :raises WorkflowExecutionException: if nothing is known of it, or no node answers
        """
        name = f"allocation {job} of {manager.name}"
        try:
            found = manager.read(await said(filled(manager.show, job)))
        except (ManagerError, WorkflowExecutionException) as error:
            raise WorkflowExecutionException(f"{name}: {error}") from error
        return await cls._answering(name, found, (launcher or manager.launcher).replace("{job}", job))

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
                allocation._remote_shell = await RemoteShell.of(words)
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
        if self._remote_shell.prints and process.stdout is not None:
            try:
                with contextlib.suppress(asyncio.IncompleteReadError):  # The program has ended.
                    await asyncio.wait_for(process.stdout.readuntil(_BEGIN), _BEGIN_SECONDS)
            except BaseException as error:
                await kill_process(process)
                if isinstance(error, asyncio.TimeoutError | asyncio.LimitOverrunError):
                    raise WorkflowExecutionException(f"no program begins on node {node} of {self}") from error
                raise
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
        return [*self._launchers[node], *self._remote_shell.launched(words)]


def current_manager(managers: Sequence[Manager], environment: Mapping[str, str] = os.environ) -> Manager | None:
    """The first queue manager in whose job this process runs."""
    return next((manager for manager in managers if environment.get(manager.variable)), None)


def _words(launcher: str, node: FoundNode) -> list[str]:
    return [word.replace("{node}", node.name).replace("{rank}", str(node.rank)) for word in shlex.split(launcher)]
