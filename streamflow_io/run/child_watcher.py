"""How the event loop learns that a process has ended."""

from __future__ import annotations

import asyncio
import os
import sys


def watch_children_without_threads() -> None:
    """Wait for processes with pidfds, as Python 3.12 does: before, asyncio starts a thread for each process.

    Does nothing where the kernel has no pidfds. Call it in the event loop that starts the processes.
    """
    if sys.version_info >= (3, 12):
        return
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError:
        return
    watcher = asyncio.PidfdChildWatcher()
    watcher.attach_loop(asyncio.get_running_loop())
    asyncio.set_child_watcher(watcher)
