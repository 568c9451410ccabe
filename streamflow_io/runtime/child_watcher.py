"""How an event loop learns that a process has ended: without threads, and though others hold its pipes."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import Process
from collections.abc import Callable

from typing_extensions import TypeVarTuple, Unpack

_Ts = TypeVarTuple("_Ts")
_PAUSE_SECONDS = 0.02
_PIPES_SECONDS = 0.5


async def exit_code_of(process: Process) -> int:
    """Wait until a process has ended, and return its exit code.

    Before Python 3.12.4, `Process.wait` waits for all programs that hold the pipes of the process, too. `srun` has a
    child that goes on for half a minute when `srun` is killed while the queue manager starts its program.
    """
    waiting = asyncio.ensure_future(process.wait())
    try:
        while process.returncode is None:
            await asyncio.wait({waiting}, timeout=_PAUSE_SECONDS)
        if process.stdin is not None:
            process.stdin.close()
        # Its pipes are to be closed before the event loop is, if no other program holds them.
        await asyncio.wait({waiting}, timeout=_PIPES_SECONDS)
    finally:
        waiting.cancel()
    return process.returncode


def watch_children_without_threads() -> None:
    """Wait for processes with pidfds, as Python 3.12 does: before, asyncio starts a thread for each process.

    Does nothing where the kernel has no pidfds, and where asyncio's event loop was replaced, for instance by uvloop's.
    A process that already runs is waited for all the same. May be called again, and in any event loop.
    """
    if sys.version_info >= (3, 12) or not isinstance(asyncio.get_event_loop_policy(), asyncio.DefaultEventLoopPolicy):
        return
    if isinstance(asyncio.get_child_watcher(), _PidfdWatcher):
        return
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError:
        return
    asyncio.set_child_watcher(_PidfdWatcher())


if sys.version_info < (3, 12):

    class _PidfdWatcher(asyncio.AbstractChildWatcher):
        """Waits in the loop that has started the process, like the watcher of Python 3.12.

        The watcher of Python 3.11 waits in a single loop, and forgets its processes when another takes its place.
        """

        def add_child_handler(
            self, pid: int, callback: Callable[[int, int, Unpack[_Ts]], object], *args: Unpack[_Ts]
        ) -> None:
            pidfd = os.pidfd_open(pid)
            loop = asyncio.get_running_loop()
            loop.add_reader(pidfd, self._ended, loop, pid, pidfd, callback, args)

        def _ended(
            self,
            loop: asyncio.AbstractEventLoop,
            pid: int,
            pidfd: int,
            callback: Callable[[int, int, Unpack[_Ts]], object],
            args: tuple[Unpack[_Ts]],
        ) -> None:
            loop.remove_reader(pidfd)
            os.close(pidfd)
            try:
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            except ChildProcessError:
                # Other code has waited for the process: asyncio reports such a process in the same way.
                code = 255
            callback(pid, code, *args)

        def remove_child_handler(self, pid: int) -> bool:
            # asyncio never asks for this.
            return True

        def attach_loop(self, loop: asyncio.AbstractEventLoop | None) -> None:
            pass

        def close(self) -> None:
            pass

        def is_active(self) -> bool:
            return True

        def __enter__(self) -> _PidfdWatcher:
            return self

        def __exit__(self, *_: object) -> None:
            pass
