"""What other runs have written into a shared directory."""

from __future__ import annotations

import errno
import fcntl
import os
import pwd
import re
import stat
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from functools import cache

from pydantic import ValidationError

from streamflow_io.files import NOT_BELIEVED

from .entries import ENTRY_BYTES, Entry
from .locking import SharingError, try_lock

MOST_ENTRIES = 1000
#: Of each other user so many are looked at: they count as one anyway, and to read many takes long.
MOST_OF_OWNER = 100
# So many files take long to list, and each look does so.
_MOST_FILES = 10 * MOST_ENTRIES
#: All users without a name: one of them may be another with a subordinate user id.
NAMELESS = -1
# A process may not have many more files open than those.
_MOST_OPEN = 64
_ENTRY = re.compile(r"[0-9a-f]{32}\.json")


@dataclass(frozen=True)
class Other:
    """Another run's entry.

    :ivar identifier: the name of its file
    :ivar entry: none: it cannot be read, but its run lives
    :ivar owner: the user
    :ivar written: when the file was written, by the clock of the file system
    """

    identifier: str
    entry: Entry | None
    owner: int
    written: float


class _Read:
    """An entry that was read, and is open.

    :ivar text: as it was read last; :ivar other: what it says
    """

    def __init__(self, name: str, descriptor: int) -> None:
        self.descriptor = descriptor
        self.text = b""
        self.other = Other(name, None, 0, 0.0)

    def take(self, text: bytes, found: os.stat_result) -> Other:
        """Another text was read."""
        self.text = text
        try:
            # Without what fills the block.
            entry = Entry.model_validate_json(text[: text.rfind(b"}") + 1])
        except ValidationError:
            entry = None
        self.other = Other(self.other.identifier, entry, found.st_uid, found.st_mtime)
        return self.other


class OtherEntries:
    """The entries of other runs, from look to look; open ones are kept open.

    :param runs: the directory that they are in, open
    :param is_network: it is on a network file system: that looks for what is new when a file is opened
    """

    def __init__(self, runs: int, is_network: bool) -> None:
        self._runs = runs
        self._me = owner_of(os.geteuid())
        self._is_network = is_network
        self._read: dict[str, _Read] = {}
        # What was in the directory, and which of that are entries.
        self._found: tuple[list[str], list[str]] = [], []

    def look(self, own: str) -> list[Other]:
        """The entries of other runs that live; those of dead ones are removed. Under the lock.

        :param own: the name of the entry that is not wanted
        """
        found = os.listdir(self._runs)
        if found != self._found[0]:
            self._found = found, [name for name in self._chosen(found) if name != own]
        living = [each for name in self._found[1] if (each := self._other(name)) is not None]
        for name in self._read.keys() - {each.identifier for each in living}:
            self._forget(name)
        return living

    def _chosen(self, found: list[str]) -> list[str]:
        """The entries that are looked at: nobody keeps out those of others by many of his own."""
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
        """Whose file it is; none: it is gone."""
        try:
            return owner_of(os.stat(name, dir_fd=self._runs, follow_symlinks=False).st_uid)
        except OSError:
            return None

    def close(self) -> None:
        """Let go of them."""
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
            if error.errno in (errno.ENOENT, errno.ELOOP, errno.EACCES, errno.ENXIO):
                return None  # it is gone, or nothing that a run of this version makes
            raise
        self._read[name] = read = _Read(name, descriptor)
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            return None
        if try_lock(descriptor, fcntl.LOCK_SH):
            with suppress(OSError):  # another user's
                os.unlink(name, dir_fd=self._runs)
            return None
        other = read.take(os.pread(descriptor, ENTRY_BYTES, 0), found)
        if len(self._read) > _MOST_OPEN:
            self._forget(name)
        return other

    def _seen_before(self, read: _Read) -> Other | None:
        """An entry that is open already: who has written since the last look lives; of others the lock tells.

        :return: none: it has to be opened anew. A network file system looks for what is new when a file is opened
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
    """The user among those that share: who has several user ids without a name does not count more than once."""
    try:
        pwd.getpwuid(user)
    except KeyError:
        return NAMELESS
    return user


def user_name(user: int) -> str:
    """What a user is called, or the number."""
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)
