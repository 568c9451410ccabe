"""Locks of a shared directory, made with flock(2)."""

from __future__ import annotations

import fcntl
from pathlib import Path

from streamflow_io.storage.probe.mounted import mount_of

_LOCKS = Path("/proc/locks")


class SharingError(Exception):
    """Runs cannot share a storage here. The message says why."""


def try_lock(descriptor: int, how: int) -> bool:
    """Lock a file, unless another process has it locked.

    :param how: LOCK_SH or LOCK_EX
    :return: whether this process has the lock
    :raises SharingError: if there are no locks
    """
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise SharingError(f"locks do not work there: {error.strerror}") from error
    return True


def lock_holder(lock: Path) -> int | None:
    """Return the process on this machine that has a lock; see proc_locks(5). None: no such process."""
    try:
        major, minor = map(int, mount_of(lock).device.split(":"))
        file = f"{major:02x}:{minor:02x}:{lock.stat().st_ino}"
        lines = _LOCKS.read_text().splitlines()
    except (OSError, ValueError):
        return None
    for words in (line.split() for line in lines):
        if len(words) > 5 and words[1] == "FLOCK" and words[5] == file and words[4].isdigit():
            return int(words[4])
    return None
