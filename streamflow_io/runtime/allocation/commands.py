"""Commands of a queue manager, as local processes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Sequence

from streamflow.core.exception import WorkflowExecutionException

from streamflow_io.runtime.child_watcher import exit_code_of, watch_children_without_threads

from .slurm import environment

_SECONDS = 60.0
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
        await end(process)
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
    watch_children_without_threads()
    tie = ["setpriv", "--pdeathsig", "TERM"] if (tied or stdin == DEVNULL) and shutil.which("setpriv") else []
    try:
        return await asyncio.create_subprocess_exec(
            *tie, *words, stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=True,
            env=environment(os.environ),
        )  # fmt: skip
    except OSError as error:
        raise WorkflowExecutionException(f"{words[0]} cannot be started: {error.strerror}") from error


async def end(process: Process) -> None:
    """End a process that may still run."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            await asyncio.wait_for(exit_code_of(process), _END_SECONDS)
        except asyncio.TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await exit_code_of(process)


async def tell_guard(process: Process) -> None:
    """Tell a guard that the driver is there, until the guard ends. The guard ends when this is cancelled."""
    assert process.stdin is not None
    try:
        with contextlib.suppress(ConnectionError):
            while process.returncode is None:
                process.stdin.write(_ALIVE)
                await process.stdin.drain()
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(process.wait(), _PAUSE_SECONDS)
    finally:
        # A step of Slurm that is killed while Slurm starts it may stay for a while.
        with contextlib.suppress(ConnectionError, asyncio.TimeoutError):
            process.stdin.write(_DONE)
            await asyncio.wait_for(exit_code_of(process), _END_SECONDS)
        await end(process)
