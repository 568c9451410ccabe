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
# A process may not have many more files open than this.
_MOST_OPEN = 64
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


class _OpenEntry:
    """An open entry that has been read.

    :ivar text: the bytes of the last read
    :ivar other: the parsed entry
    """

    def __init__(self, name: str, descriptor: int) -> None:
        self.descriptor = descriptor
        self.text = b""
        self.other = Other(name, None, 0, 0.0)

    def take(self, text: bytes, found: os.stat_result) -> Other:
        """Parse new bytes of the entry."""
        self.text = text
        try:
            # Leave out the bytes that fill the block.
            entry = Entry.model_validate_json(text[: text.rfind(b"}") + 1])
        except ValidationError:
            entry = None
        self.other = Other(self.other.identifier, entry, found.st_uid, found.st_mtime)
        return self.other


class OtherEntries:
    """The entries of other runs, from look to look. Up to a number of files stays open.

    :param runs: descriptor of their directory
    :param is_network: the directory is on a network file system, which looks for changes only when a file is opened
    """

    def __init__(self, runs: int, is_network: bool) -> None:
        self._runs = runs
        self._me = owner_of(os.geteuid())
        self._is_network = is_network
        self._read: dict[str, _OpenEntry] = {}
        # The names in the directory at the last look, and those of them that are read.
        self._found: tuple[list[str], list[str]] = [], []

    def look(self, own: str) -> list[Other]:
        """Return the entries of other living runs, and remove the entries of dead ones. The lock must be held.

        :param own: the name of this run's entry, which is left out
        """
        found = os.listdir(self._runs)
        if found != self._found[0]:
            self._found = found, [name for name in self._chosen(found) if name != own]
        living = [each for name in self._found[1] if (each := self._other(name)) is not None]
        for name in self._read.keys() - {each.identifier for each in living}:
            self._forget(name)
        return living

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

    def close(self) -> None:
        """Close all entries."""
        for name in [*self._read]:
            self._forget(name)

    def _other(self, name: str) -> Other | None:
        known = self._read.get(name)
        if known is not None and (other := self._seen_before(known)) is not None:
            return other
        self._forget(name)
        try:
            descriptor = os.open(name, os.O_RDONLY | NOT_BELIEVED, dir_fd=self._runs)
        except OSError as error:
            # EAGAIN: its owner has a lease on the file; see fcntl(2).
            if error.errno in (errno.ENOENT, errno.ELOOP, errno.EACCES, errno.ENXIO, errno.EAGAIN):
                return None  # the file is gone, or no run of this version has made it
            raise
        self._read[name] = read = _OpenEntry(name, descriptor)
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            return None
        if try_lock(descriptor, fcntl.LOCK_SH):
            with suppress(OSError):  # the file belongs to another user
                os.unlink(name, dir_fd=self._runs)
            return None
        other = read.take(os.pread(descriptor, ENTRY_BYTES, 0), found)
        if len(self._read) > _MOST_OPEN:
            self._forget(name)
        return other

    def _seen_before(self, read: _OpenEntry) -> Other | None:
        """Return an entry that is open already. A run lives if its entry has changed, or is locked.

        :return: None: the entry has to be opened again, as always on a network file system
        """
        if self._is_network:
            return None
        text = os.pread(read.descriptor, ENTRY_BYTES, 0)
        if text != read.text:
            return read.take(text, os.fstat(read.descriptor))
        return None if try_lock(read.descriptor, fcntl.LOCK_SH) else read.other

    def _forget(self, name: str) -> None:
        if (read := self._read.pop(name, None)) is not None:
            os.close(read.descriptor)


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
