"""A listener that is told how much space the files of jobs take."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from streamflow_io.adapters.jobs import JobState, Listener


class SpaceWatcher(Listener):
    """Hears how much lies in the directories of jobs.

    :ivar limit: the most bytes on the disk of a location; None: no limit
    """

    limit: int | None = None

    @property
    def is_short(self) -> bool:
        """Whether a job waits for space."""
        return False

    def removes(self, is_removing: Callable[[], bool], holders: Callable[[str], Sequence[tuple[str, int]]]) -> None:
        """Set the functions that tell about files.

        :param is_removing: whether files of ended jobs are about to be measured or removed
        :param holders: returns the largest files and directories on a node, with their bytes
        """

    def unmeasured(self) -> list[JobState]:
        """The jobs that have ended, and whose files are to be measured."""
        return []

    def measured(self, held: Mapping[str, int], written: Mapping[JobState, int | None]) -> None:
        """Note what lies on the nodes, after all was removed that could be.

        :param held: by node: the bytes of all files of jobs that have ended
        :param written: by job that has ended: the bytes in its directories; None: some directory could not be read
        """

    def removed(self, directories: Collection[str]) -> None:
        """Note that directories of jobs were removed, each as a whole."""

    def give_up(self) -> None:
        """Nothing is measured any more."""
