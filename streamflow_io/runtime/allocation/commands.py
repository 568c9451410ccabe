"""Commands of a queue manager, as local processes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Sequence

from streamflow.core.exception import WorkflowExecutionException

from streamflow_io.processes import end_process, ends_within, start_process

from .slurm import environment

_SECONDS = 60.0
# A step of Slurm that is killed while Slurm starts it may stay for a while.
_END_SECONDS = 5.0
# Seconds between two lines of the driver to a guard, which gives an allocation back after a minute without a line.
_PAUSE_SECONDS = 10.0
# The lines that the driver sends to the guard: it is there; the guard is to end.
_ALIVE, _DONE = b"alive\n", b"done\n"


async def said(words: Sequence[str]) -> str:
    """Run a command, and return what it prints.

    :raises WorkflowExecutionException: if the command fails, with its output
    """
    process = await begin(words, DEVNULL, PIPE, PIPE)
    try:
        printed, errors = await asyncio.wait_for(process.communicate(), _SECONDS)
    except asyncio.TimeoutError as error:
        raise WorkflowExecutionException(f"{' '.join(words)} does not end within {_SECONDS:.0f} s") from error
    finally:
        await end_process(process)
    if process.returncode != 0:
        why = errors.decode(errors="replace").strip() or f"exit code {process.returncode}"
        raise WorkflowExecutionException(f"{' '.join(words)}: {why}")
    return printed.decode(errors="replace")


async def begin(words: Sequence[str], stdin: int, stdout: int, stderr: int, tied: bool = False) -> Process:
    """Start a command in a session of its own: an interrupt at the terminal does not reach it.

    :param tied: whether it gets SIGTERM when this process ends, however this process ends; a command without an input
        of ours gets SIGTERM in any case. Any other command sees the end of its input
    :raises WorkflowExecutionException: if the command cannot be started
    """
    tie = ["setpriv", "--pdeathsig", "TERM"] if (tied or stdin == DEVNULL) and shutil.which("setpriv") else []
    try:
        return await start_process(
            [*tie, *words], stdin, stdout, stderr, env=environment(os.environ), start_new_session=True
        )
    except OSError as error:
        raise WorkflowExecutionException(f"{words[0]} cannot be started: {error.strerror}") from error


async def tell_guard(process: Process) -> None:
    """Tell a guard that the driver is there, until the guard ends. The guard ends when this is cancelled."""
    assert process.stdin is not None
    try:
        with contextlib.suppress(ConnectionError):
            while process.returncode is None:
                process.stdin.write(_ALIVE)
                await process.stdin.drain()
                await ends_within(process, _PAUSE_SECONDS)
    finally:
        with contextlib.suppress(ConnectionError):
            process.stdin.write(_DONE)
        await end_process(process, _END_SECONDS)
