"""Which files of an attempt are committed with all of their secondary files. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from streamflow_io.hints.globs import matches

from .outputs import EarlyOutput


class Whole:
    """The files of one output that are committed in one attempt, each with its secondary files.

    :param globs: of the files themselves, relative to the output directory of the job
    """

    def __init__(self, output: EarlyOutput, globs: Sequence[str]) -> None:
        self._output = output
        self._globs = globs
        self._committed: set[str] = set()
        self._needed_by: dict[str, set[str]] = defaultdict(set)

    def committed(self, path: str) -> list[str]:
        """A file of the output, or a secondary file, is committed; both is possible.

        :return: the files that are whole now, and were not before
        """
        self._committed.add(path)
        if any(matches(glob, path) for glob in self._globs):
            for needed in (path, *self._output.secondary_files(path)):
                self._needed_by[needed].add(path)
        return sorted(file for file in self._needed_by[path] if self._is_whole(file))

    def _is_whole(self, file: str) -> bool:
        return self._committed.issuperset((file, *self._output.secondary_files(file)))
