"""How much memory of this machine there is for what may be given back at any time."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

_MB = 1_000_000
_MOST = 2048 * _MB
_MEMORY_INFORMATION = Path("/proc/meminfo")
_CGROUPS = Path("/proc/self/cgroup")
_CGROUP_ROOT = Path("/sys/fs/cgroup")


def default_window() -> int:
    """Bytes of a read session's window: a quarter of the free memory, half of the cgroup's limit, 2048 MB at most."""
    try:
        information = _MEMORY_INFORMATION.read_text()
    except OSError:
        information = ""
    return min([window_of(information), *(limit // 2 for limit in _limits())])


def window_of(information: str) -> int:
    """The same where nothing is known of cgroups.

    :param information: what `/proc/meminfo` says, of whichever machine; empty: nothing is known
    """
    found = re.search(r"^MemAvailable:\s*(\d+) kB", information, re.MULTILINE)
    return _MOST if found is None else min(_MOST, int(found[1]) * 1024 // 4)


def _limits() -> list[int]:
    """The limits of the cgroups that this process is in, of either version; none where nothing tells."""
    limits: list[int] = []
    try:
        lines = _CGROUPS.read_text().splitlines()
    except OSError:
        return []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        root, name = (
            (_CGROUP_ROOT, "memory.max") if not controllers else (_CGROUP_ROOT / "memory", "memory.limit_in_bytes")
        )
        below = PurePosixPath(path.lstrip("/"))
        for group in (below, *below.parents):
            try:
                limits.append(int((root / group / name).read_text()))
            except (OSError, ValueError):
                continue
    return limits
