"""The process that has a lock is found among all locks of the machine."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from streamflow_io.storage.sharing import other_entries
from streamflow_io.storage.sharing.other_entries import lock_holder


def test_a_held_lock_has_a_holder(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with lock.open("w") as file:
        assert lock_holder(lock) is None
        fcntl.flock(file, fcntl.LOCK_EX)
        assert lock_holder(lock) == os.getpid()


def test_a_file_with_the_same_inode_on_another_device_is_another_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, locks = tmp_path / "lock", tmp_path / "locks"
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        held = (line for line in Path("/proc/locks").read_text().splitlines() if f" {os.getpid()} " in line)
        own = next(line for line in held if line.split()[5].endswith(f":{lock.stat().st_ino}"))
        other = f"1: FLOCK  ADVISORY  WRITE 7 ffff:ff:{lock.stat().st_ino} 0 EOF"
        locks.write_text(f"{other}\n2: FLOCK  ADVISORY  WRITE 8 <none>:0 0 EOF\n{own}\n")
        monkeypatch.setattr(other_entries, "_LOCKS", locks)
        assert lock_holder(lock) == os.getpid()


def test_without_a_list_of_locks_there_is_no_holder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = tmp_path / "lock"
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        monkeypatch.setattr(other_entries, "_LOCKS", tmp_path / "missing")
        assert lock_holder(lock) is None
