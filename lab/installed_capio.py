"""CAPIO itself, where CAPIO is installed, and what runs with CAPIO leave in shared memory."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import pytest

SHARED = Path("/dev/shm")
# Tests put a stand-in into these variables.
_ENVIRONMENT = dict(os.environ)
# What a server has is named after its run; what a program has that is about to become another one, after its thread.
_NAME = re.compile(r"sfio-(\d+)-[0-9a-f]{8}|^capio_snapshot_(?:path_)?(\d+)")


def installed_capio() -> Path | None:
    """Find the directory for `CAPIO_HOME`; without CAPIO there is none."""
    home = _ENVIRONMENT.get("CAPIO_HOME")
    return Path(home) if home and Path(home, "bin", "capio_server").is_file() else None


def use_installed_capio(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a test use CAPIO itself; skip the test where CAPIO is not installed."""
    if (home := installed_capio()) is None:
        pytest.skip("CAPIO is not installed: `CAPIO_HOME` is not set")
    monkeypatch.setenv("CAPIO_HOME", str(home))


def shared_memory_of(pid: int) -> list[str]:
    """The entries of the run of a driver."""
    return [entry.name for entry in SHARED.iterdir() if f"sfio-{pid}-" in entry.name]


def left_in_shared_memory(seconds: float = 10.0) -> list[str]:
    """The entries of runs that are over. Other tests run at the same time, and clean up after theirs soon."""
    deadline = time.monotonic() + seconds
    while (left := [name for name in _entries() if _is_over(name)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def _entries() -> list[str]:
    return [entry.name for entry in SHARED.iterdir() if _NAME.search(entry.name)]


def _is_over(name: str) -> bool:
    match = _NAME.search(name)
    assert match is not None
    pid = int(match[1] or match[2])
    return pid == os.getpid() or not Path("/proc", str(pid)).exists()
