"""An allocation that the plugin has asked for, and gives back."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections import deque
from collections.abc import Callable

from streamflow.core.exception import WorkflowExecutionException

from streamflow_io.processes import end_process, ends_within

from . import slurm
from .allocation import Node
from .commands import begin, said, tell_guard
from .managers import Wanted

logger = logging.getLogger("streamflow")

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
                logger.info(f"The deployment {deployment} waits in the queue of Slurm for allocation {job}")
            why = "; ".join(filter(None, last)) or f"exit code {await holder.wait()}"
            raise WorkflowExecutionException(f"Slurm gives no allocation to {deployment}: {why}")
        except BaseException:
            # `salloc` takes an allocation that waits out of the queue when it is asked to end.
            await asyncio.shield(_give_up(holder, job))
            raise

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


async def _give_up(holder: Process, job: str | None) -> None:
    """End `salloc`; if it was killed, give the allocation back."""
    was_killed = holder.returncode is not None and holder.returncode < 0
    await end_process(holder)
    if job is not None and (was_killed or holder.returncode == -9):
        with contextlib.suppress(WorkflowExecutionException):
            await said(["scancel", job])


async def _read_all(stream: asyncio.StreamReader) -> None:
    """Read to the end, so that the program never waits for a reader."""
    while await stream.read(2**16):
        pass
