"""Whether a process tree does anything."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

# Threads of a language's runtime wake up now and then, and may write a line, also when its program waits for ever: of
# one processor, and per second. What waits for a slow disk reads and writes more.
_IDLE_SHARE = 0.01
_IDLE_BYTES = 32 * 1024
_TICKS = os.sysconf("SC_CLK_TCK")


class Activity(NamedTuple):
    """What processes have done since they began.

    :ivar ticks: their processor time, in ticks of the kernel
    :ivar transferred: bytes that they have read and written
    """

    processes: frozenset[int]
    ticks: int
    transferred: int


async def wait_until_idle(pid: Callable[[], int | None], seconds: float, interval: float) -> None:
    """Return when the processes below one have done nothing for a while; where there are none, never.

    Sees it no later than two intervals after that while.

    :param pid: gives the process, None as long as there is none
    :param seconds: how long
    :param interval: seconds from one look to the next
    """
    last: Activity | None = None
    idle = 0.0
    while idle < seconds:
        await asyncio.sleep(interval)
        root = pid()
        now = None if root is None else await asyncio.to_thread(activity_below, root)
        idle = idle + interval if last is not None and now is not None and is_idle(last, now, interval) else 0.0
        last = now


def is_idle(before: Activity, now: Activity, seconds: float) -> bool:
    """Whether processes have done nothing in some seconds. Pure."""
    return (
        now.processes == before.processes != frozenset()
        and now.ticks - before.ticks <= max(1, round(_IDLE_SHARE * _TICKS * seconds))
        and now.transferred - before.transferred <= _IDLE_BYTES * seconds
    )


def activity_below(root: int) -> Activity:
    """What the processes below one have done."""
    parents: dict[int, int] = {}
    times: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry.name)] = int(fields[1])
            times[int(entry.name)] = sum(map(int, fields[11:15]))
    found = {root}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    found.discard(root)
    return Activity(frozenset(found), sum(times[pid] for pid in found), sum(map(_transferred, found)))


def _transferred(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    except OSError:
        return 0  # It has ended, or is another user's.
    return sum(int(line.split()[1]) for line in lines if line.startswith(("rchar:", "wchar:")))
