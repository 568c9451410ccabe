"""Locks of a shared directory: those of flock(2)."""

from __future__ import annotations

import fcntl


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
