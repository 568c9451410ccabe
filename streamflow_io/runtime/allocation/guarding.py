"""The driver's part of a guard, which gives an allocation back when the driver's node has said nothing for a minute."""

from __future__ import annotations

import asyncio
import contextlib
from asyncio.subprocess import Process

from .commands import end

# Seconds between two lines of the driver to the guard.
_PAUSE_SECONDS = 10.0
_END_SECONDS = 5.0
# The lines that the driver sends to the guard: it is there; the guard is to end.
_ALIVE, _DONE = b"alive\n", b"done\n"


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
            await asyncio.wait_for(process.wait(), _END_SECONDS)
        await end(process)
