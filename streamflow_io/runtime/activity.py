"""Whether a process tree does anything."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

_INTERVAL = 5.0


async def wait_until_idle(pid: Callable[[], int | None], seconds: float, interval: float = _INTERVAL) -> None:
    """Return when the processes below one have used no processor time for a while; where there are none, never.

    :param pid: gives the process, None as long as there is none
    :param seconds: how long
    :param interval: seconds from one look to the next
    """
    last: tuple[int, frozenset[int]] | None = None
    idle = 0.0
    while idle < seconds:
        await asyncio.sleep(interval)
        root = pid()
        now = None if root is None else await asyncio.to_thread(processor_time, root)
        idle = idle + interval if now is not None and now[1] and now == last else 0.0
        last = now


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
