"""Locks of a shared directory: those of flock(2)."""

from __future__ import annotations

import fcntl
from pathlib import Path

_LOCKS = Path("/proc/locks")


class SharingError(Exception):
    """Runs cannot share a storage here; the message says why."""


def try_lock(descriptor: int, how: int) -> bool:
    """Lock a file if nobody else has it locked.

    :param how: LOCK_SH or LOCK_EX
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
    """The process that has the lock, if it is on this machine; proc_locks(5)."""
    try:
        inode = str(lock.stat().st_ino)
        lines = _LOCKS.read_text().splitlines()
    except OSError:
        return None
    for words in (line.split() for line in lines):
        if len(words) > 5 and words[1] == "FLOCK" and words[5].rpartition(":")[2] == inode and words[4].isdigit():
            return int(words[4])
    return None
