"""A job that holds an allocation of a queue manager other than Slurm, which the plugin asks for, and gives back."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shlex
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Awaitable, Callable, Sequence

from streamflow.core.exception import WorkflowExecutionException

from streamflow_io.processes import ends_within

from .commands import begin, said, tell_guard
from .managers import AllocationState, FoundAllocation, Manager, ManagerError, Wanted, filled

logger = logging.getLogger("streamflow")

#: Starts a program on the first node. A guard on another node would not stop one that goes on there.
Start = Callable[[Sequence[str], int, int, int], Awaitable[Process]]

# Submits the job, prints its number, and gives the allocation back at the end of its input, also when the driver was
# killed. Nothing interrupts the words that submit: the number of the job is always known.
_HOLDER = (
    'number=$1; shift; said=$("$@" < /dev/null) || exit; job=$(printf "%s\\n" "$said" | sed -n "$number" | tail -n 1); '
    'test -n "$job" || {{ printf "%s\\n" "$said" >&2; exit 1; }}; echo "$job"; cat > /dev/null; exec {cancel} '
    "> /dev/null 2>&1"
)
# As `slurm.guard`. A driver that lives has started another guard, to whose number the link then leads. A full disk has
# space for a link. Without any link no other guard is known.
_GUARD = (
    'link=${{TMPDIR:-/tmp}}/{name}; ln -sfn $$ "$link"; '
    'while line=$(timeout {seconds} sh -c \'read -r line; echo "$line"\') && test "$line" = alive; do :; done; '
    'if test "$line" != done; then sleep {seconds}; fi; last=$(readlink "$link"); '
    'test "${{last:-$$}}" = $$ || exit; rm -f "$link"; test "$line" = done || exec sh -lc {cancel}'
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
    cancel = " ".join('"$job"' if word == "{job}" else shlex.quote(word) for word in manager.asking.cancel)
    return ["sh", "-c", _HOLDER.format(cancel=cancel), "sh", manager.asking.number, *manager.asking.ask(wanted)]


def guard(cancel: Sequence[str], name: str, seconds: int = _GUARD_SECONDS) -> list[str]:
    """The words of a program on a node that gives the allocation back when its input brings no line for a minute.

    :param name: of the guard, as that of a file
    :param seconds: half of this minute
    """
    return ["sh", "-c", _GUARD.format(name=name, seconds=seconds, cancel=shlex.quote(shlex.join(cancel)))]


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
        asking = self._manager.asking
        try:
            printed = await said(filled(asking.state, self.number))
        except WorkflowExecutionException as error:
            printed = str(error)
        return asking.read_state(printed)

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

    async def _wait(self, deployment: str) -> None:
        pause, failures = _FIRST_PAUSE, 0
        while (state := await self.state()) is not AllocationState.RUNS:
            failures = failures + 1 if state is None else 0
            if state is AllocationState.HAS_ENDED or failures == _MOST_FAILURES:
                why = "it has ended before it ran" if failures == 0 else "its state cannot be read"
                raise WorkflowExecutionException(
                    f"{self._manager.name} gives no allocation to {deployment}: job {self.number}: {why}"
                )
            if pause == _FIRST_PAUSE:
                logger.info(
                    f"The deployment {deployment} waits in the queue of {self._manager.name} for allocation "
                    f"{self.number}"
                )
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, _LONGEST_PAUSE)

    async def _watch(self, on_end: Callable[[], None]) -> None:
        while True:
            if await self.state() is AllocationState.HAS_ENDED:
                return on_end()
            await asyncio.sleep(_WATCH_SECONDS)

    async def _guard(self, start: Start) -> None:
        words = guard(filled(self._manager.asking.cancel_on_node, self.number), self._name)
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
