"""Whether a process tree does anything."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

# Of one processor: threads of a language's runtime wake up now and then, also when its program waits for ever.
_IDLE_SHARE = 0.01
_TICKS = os.sysconf("SC_CLK_TCK")


async def wait_until_idle(pid: Callable[[], int | None], seconds: float, interval: float) -> None:
    """Return when the processes below one have used no processor time for a while; where there are none, never.

    Sees it no later than two intervals after that while.

    :param pid: gives the process, None as long as there is none
    :param seconds: how long
    :param interval: seconds from one look to the next
    """
    most = max(1, round(_IDLE_SHARE * _TICKS * interval))
    last: tuple[int, frozenset[int]] | None = None
    idle = 0.0
    while idle < seconds:
        await asyncio.sleep(interval)
        root = pid()
        now = None if root is None else await asyncio.to_thread(processor_time, root)
        idle = idle + interval if _is_idle(last, now, most) else 0.0
        last = now


def _is_idle(before: tuple[int, frozenset[int]] | None, now: tuple[int, frozenset[int]] | None, most: int) -> bool:
    return before is not None and now is not None and now[1] == before[1] != frozenset() and now[0] - before[0] <= most


def processor_time(root: int) -> tuple[int, frozenset[int]]:
    """The processor time of the processes below one, in ticks of the kernel, and which they are."""
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
    return sum(times[pid] for pid in found), frozenset(found)
