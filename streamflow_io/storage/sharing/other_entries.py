"""Entries of other runs in a shared directory, and its locks, made with flock(2)."""

from __future__ import annotations

import errno
import fcntl
import os
import pwd
import re
import stat
from collections import Counter
from contextlib import suppress
from functools import cache
from pathlib import Path

from msgspec import Struct
from pydantic import ValidationError

from streamflow_io.files import NOT_BELIEVED
from streamflow_io.storage.probe.mounts import mount_of

from .entries import ENTRY_BYTES, Entry

MOST_ENTRIES = 1000
#: The most entries read of each other user. The runs of a user count as one anyway, and many entries take long to
#: read.
MOST_OF_OWNER = 100
# More files take too long to list, which each look does.
_MOST_FILES = 10 * MOST_ENTRIES
#: Stands for all users without a name. One of them may be another one with a subordinate user id.
NAMELESS = -1
_ENTRY = re.compile(r"[0-9a-f]{32}\.json")
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


class Other(Struct, frozen=True):
    """The entry of another run.

    :ivar identifier: the name of the file
    :ivar entry: None: the entry cannot be read, but its run lives
    :ivar owner: the user
    :ivar written: when the file was written, by the clock of the file system
    """

    identifier: str
    entry: Entry | None
    owner: int
    written: float


class OtherEntries:
    """The entries of other runs, from look to look.

    Each look opens the files again: a network file system looks for changes only then.

    :param runs: descriptor of their directory
    """

    def __init__(self, runs: int) -> None:
        self._runs = runs
        self._me = owner_of(os.geteuid())
        # What was read in the last look, with its bytes: most entries have not changed since.
        self._read: dict[str, tuple[bytes, Other]] = {}
        # The names in the directory at the last look, and those of them that are read.
        self._found: tuple[list[str], list[str]] = [], []

    def look(self, own: str) -> list[Other]:
        """Return the entries of other living runs, and remove the entries of dead ones. The lock must be held.

        :param own: the name of this run's entry, which is left out
        """
        found = os.listdir(self._runs)
        if found != self._found[0]:
            self._found = found, [name for name in self._chosen(found) if name != own]
        self._read = {name: read for name in self._found[1] if (read := self._look_at(name)) is not None}
        return [other for _, other in self._read.values()]

    def _chosen(self, found: list[str]) -> list[str]:
        """Choose the entries to read. No user keeps out the entries of others by many of its own."""
        if len(found) > _MOST_FILES:
            users = Counter(owner for name in found[:MOST_ENTRIES] if (owner := self._owner(name)) is not None)
            most = f", most of user {user_name(users.most_common(1)[0][0])}" if users else ""
            raise SharingError(f"its directory has {len(found)} files{most}; allowed: {_MOST_FILES}")
        names = sorted(name for name in found if _ENTRY.fullmatch(name))
        if len(names) <= MOST_OF_OWNER:
            return names
        places: Counter[int] = Counter()
        ranked = []
        for name in names:
            if (owner := self._owner(name)) is not None:
                places[owner] += 1
                if owner == self._me or places[owner] <= MOST_OF_OWNER:
                    ranked.append((places[owner], name))
        return [name for _, name in sorted(ranked)[:MOST_ENTRIES]]

    def _owner(self, name: str) -> int | None:
        """Return the owner of a file. None: the file is gone."""
        try:
            return owner_of(os.stat(name, dir_fd=self._runs, follow_symlinks=False).st_uid)
        except OSError:
            return None

    def _look_at(self, name: str) -> tuple[bytes, Other] | None:
        """Return the bytes of an entry, and what they mean. None: no living run has the entry."""
        try:
            descriptor = os.open(name, os.O_RDONLY | NOT_BELIEVED, dir_fd=self._runs)
        except OSError as error:
            # EAGAIN: its owner has a lease on the file; see fcntl(2).
            if error.errno in (errno.ENOENT, errno.ELOOP, errno.EACCES, errno.ENXIO, errno.EAGAIN):
                return None  # the file is gone, or no run of this version has made it
            raise
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                return None
            if try_lock(descriptor, fcntl.LOCK_SH):
                with suppress(OSError):  # the file belongs to another user
                    os.unlink(name, dir_fd=self._runs)
                return None
            text = os.pread(descriptor, ENTRY_BYTES, 0)
        finally:
            os.close(descriptor)
        before = self._read.get(name)
        if before is not None and before[0] == text:
            return before
        try:
            # Leave out the bytes that fill the block.
            entry = Entry.model_validate_json(text[: text.rfind(b"}") + 1])
        except ValidationError:
            entry = None
        return text, Other(name, entry, found.st_uid, found.st_mtime)


@cache
def owner_of(user: int) -> int:
    """Return the user that counts for sharing. All users without a name count as one."""
    try:
        pwd.getpwuid(user)
    except KeyError:
        return NAMELESS
    return user


def user_name(user: int) -> str:
    """Return the name of a user, or the number if there is none."""
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)
