"""Counts a file once that has names in the directories of several jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

#: A node, a device of the node, and an inode of the device. The driver's node has no name here.
FileNumber = tuple[str, int, int]


class LinkedFiles:
    """The files that have several names. Each counts for one directory: of those that have it, the last one seen."""

    def __init__(self) -> None:
        self._sizes: dict[FileNumber, int] = {}
        # By file: its directories in the order in which they were seen. The last one counts.
        self._holders: dict[FileNumber, dict[str, None]] = {}
        self._files: dict[str, frozenset[FileNumber]] = {}

    def seen(self, directory: str, files: Mapping[FileNumber, int]) -> tuple[int, Counter[str]]:
        """Note the files of a directory that have several names.

        :param files: their bytes; none: the directory is gone
        :return: the bytes of those that count for other directories, and by how many bytes more other directories count
            now, or fewer
        """
        elsewhere, changes = 0, Counter[str]()
        for file in self._files.pop(directory, frozenset()).difference(files):
            counts = self._counting(file)
            holders = self._holders[file]
            del holders[directory]
            if not holders:
                del self._holders[file], self._sizes[file]
            elif counts == directory:
                changes[self._counting(file)] += self._sizes[file]
        for file, size in files.items():
            holders = self._holders.setdefault(file, {})
            self._sizes[file] = size
            if directory in holders:
                elsewhere += size if self._counting(file) != directory else 0
                continue
            if holders:
                changes[self._counting(file)] -= size
            holders[directory] = None
        if files:
            self._files[directory] = frozenset(files)
        return elsewhere, changes

    def counted(self, files: Mapping[FileNumber, int]) -> int:
        """The bytes of those files that count for a directory."""
        return sum(size for file, size in files.items() if file in self._holders)

    def _counting(self, file: FileNumber) -> str:
        """The directory for which a file counts."""
        return next(reversed(self._holders[file]))
