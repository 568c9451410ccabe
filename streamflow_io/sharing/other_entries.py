"""What other runs have written into a shared directory."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
from contextlib import suppress
from dataclasses import dataclass

from pydantic import ValidationError

from streamflow_io.files import NOT_BELIEVED

from .entries import ENTRY_BYTES, Entry
from .locking import try_lock

MOST_ENTRIES = 1000
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

    :ivar text: as it was read last
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.text = b""
        self.owner = 0
        self._written = 0.0
        self._entry: Entry | None = None

    def take(self, text: bytes) -> None:
        """It was read; what is as it was before is not parsed again."""
        if text != self.text:
            self.text, self._written = text, os.fstat(self.descriptor).st_mtime
            try:
                # Without what fills the block.
                self._entry = Entry.model_validate_json(text[: text.rfind(b"}") + 1])
            except ValidationError:
                self._entry = None

    def other(self, name: str) -> Other:
        return Other(name, self._entry, self.owner, self._written)


class OtherEntries:
    """The entries of other runs, from look to look; open ones are kept open.

    :param runs: the directory that they are in, open
    :param is_network: it is on a network file system: that looks for what is new when a file is opened
    """

    def __init__(self, runs: int, is_network: bool) -> None:
        self._runs = runs
        self._is_network = is_network
        self._read: dict[str, _Read] = {}

    def look(self, own: str) -> list[Other]:
        """The entries of other runs that live; those of dead ones are removed. Under the lock.

        :param own: the name of the entry that is not wanted
        """
        names = sorted(name for name in os.listdir(self._runs) if _ENTRY.fullmatch(name))
        found = [self._other(name) for name in names[:MOST_ENTRIES] if name != own]
        living = [each for each in found if each is not None]
        for name in self._read.keys() - {each.identifier for each in living}:
            self._forget(name)
        return living

    def close(self) -> None:
        """Let go of them."""
        for name in [*self._read]:
            self._forget(name)

    def _other(self, name: str) -> Other | None:
        known = self._read.get(name)
        if known is not None and (other := self._seen_before(name, known)) is not None:
            return other
        self._forget(name)
        try:
            descriptor = os.open(name, os.O_RDONLY | NOT_BELIEVED, dir_fd=self._runs)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ELOOP, errno.EACCES, errno.ENXIO):
                return None  # it is gone, or nothing that a run of this version makes
            raise
        self._read[name] = read = _Read(descriptor)
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            return None
        if try_lock(descriptor, fcntl.LOCK_SH):
            with suppress(OSError):  # another user's
                os.unlink(name, dir_fd=self._runs)
            return None
        read.take(os.pread(descriptor, ENTRY_BYTES, 0))
        read.owner = found.st_uid
        if len(self._read) > _MOST_OPEN:
            self._forget(name)
        return read.other(name)

    def _seen_before(self, name: str, read: _Read) -> Other | None:
        """An entry that is open already: who has written since the last look lives; of others the lock tells.

        :return: none: it has to be opened anew. A network file system looks for what is new when a file is opened
        """
        if self._is_network:
            return None
        text = os.pread(read.descriptor, ENTRY_BYTES, 0)
        if text == read.text and try_lock(read.descriptor, fcntl.LOCK_SH):
            return None
        read.take(text)
        return read.other(name)

    def _forget(self, name: str) -> None:
        if (read := self._read.pop(name, None)) is not None:
            os.close(read.descriptor)
