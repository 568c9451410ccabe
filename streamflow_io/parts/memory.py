"""How much is read ahead where the user says nothing of it. Pure."""

from __future__ import annotations

from streamflow_io.runtime.protocol import Memory

_MOST = 2_048_000_000


def default_window(memory: Memory) -> int:
    """Bytes of a read session's window: a quarter of the free memory, half of the cgroup's limit, 2048 MB at most."""
    parts = ((memory.available, 4), (memory.limit, 2))
    return min([_MOST, *(whole // part for whole, part in parts if whole is not None)])
