"""How the event loop learns that a process has ended."""

from __future__ import annotations

import asyncio
import os
import sys


def watch_children_without_threads() -> None:
    """Wait for processes with pidfds, as Python 3.12 does: before, asyncio starts a thread for each process.

    Does nothing where the kernel has no pidfds. Call it in the event loop that starts the processes, as often as you
    like: a watcher stays, because one that is replaced forgets the processes that it waits for.
    """
    if sys.version_info < (3, 12):
        loop = asyncio.get_running_loop()
        if getattr(asyncio.get_child_watcher(), "watched", None) is loop:
            return
        try:
            os.close(os.pidfd_open(os.getpid()))
        except OSError:  # Linux before 5.3
            return
        watcher = _PidfdWatcher()
        watcher.attach_loop(loop)
        asyncio.set_child_watcher(watcher)


if sys.version_info < (3, 12):

    class _PidfdWatcher(asyncio.PidfdChildWatcher):
        """Says which loop it watches for."""

        def attach_loop(self, loop: asyncio.AbstractEventLoop | None) -> None:
            super().attach_loop(loop)
            self.watched = loop
