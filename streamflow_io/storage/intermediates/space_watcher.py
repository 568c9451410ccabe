"""Parts of a run that the removal of files tells and asks: of the space of files, and of jobs that run once more."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from streamflow.core.deployment import ExecutionLocation

from streamflow_io.adapters.jobs import JobState, Listener


class SpaceWatcher(Listener):
    """Hears how much lies in the directories of jobs.

    :ivar limit: the most bytes on a disk; None: no limit
    :ivar is_removing: returns whether files of ended jobs are about to be measured or removed
    :ivar hurry: lets the removal of files happen soon
    :ivar holders: returns the largest files and directories on some nodes, with their bytes
    """

    limit: int | None = None

    def __init__(self) -> None:
        self.is_removing: Callable[[], bool] = lambda: False
        self.hurry: Callable[[], None] = lambda: None
        self.holders: Callable[[Collection[str]], Sequence[tuple[str, int]]] = lambda nodes: ()

    @property
    def is_short(self) -> bool:
        """Whether a job waits for space."""
        return False

    @property
    def locations(self) -> Collection[ExecutionLocation]:
        """Where jobs could start, as far as the watcher has to know that."""
        return ()

    def unmeasured(self) -> list[JobState]:
        """The jobs that have ended, and whose files are to be measured."""
        return []

    def measured(self, held: Mapping[str, int], written: Mapping[JobState, int | None]) -> None:
        """Note what lies on the nodes, after all was removed that could be.

        :param held: by node: the bytes of all files of jobs that have ended
        :param written: by job that has ended: the bytes in its directories; None: some directory could not be read
        """

    def freed(self, sizes: Mapping[str, int]) -> None:
        """Note how many bytes were removed from directories of jobs, by path."""

    def removed(self, directories: Collection[str]) -> None:
        """Note that directories of jobs were removed, each as a whole."""

    def give_up(self) -> None:
        """Nothing is measured any more."""


class RepeatedJobs:
    """The jobs that run once more, for a comparison. A run without comparisons has none.

    :ivar keep_all: whether all of them keep their files, however many these are: the user has asked for that
    """

    keep_all: bool = False

    def held(self) -> Collection[str]:
        """The names of the jobs that run once more now, or are about to."""
        return ()

    def waiting(self) -> Mapping[str, str]:
        """The jobs that run once more if their files may stay: their names, and the host."""
        return {}

    def fruitless(self) -> Collection[str]:
        """The names of the jobs that wait, and of whose inputs the last trials have shown nothing."""
        return ()

    def keep(self, jobs: Collection[str]) -> None:
        """Note that the files of these jobs are kept, and of no others that wait."""

    def give_up(self, jobs: Collection[str]) -> None:
        """Do not run these jobs once more."""

    def end(self, jobs: Collection[str]) -> None:
        """Let these jobs end soon that run once more: another job waits for the space of their files."""


def kept_at_each_host(
    waiting: Mapping[str, str], kept: Mapping[str, int], fruitless: Collection[str] = ()
) -> frozenset[str]:
    """Choose the jobs that keep their files until they run once more: at each host the one that keeps the least.

    One is enough for each run to prove something, so that no input has to wait for ever.

    :param waiting: the names of jobs, and the host of each
    :param kept: the bytes that a job keeps, and that could be removed without the job
    :param fruitless: the jobs that others go before
    """

    def rank(job: str) -> tuple[bool, int]:
        return job in fruitless, kept[job]

    smallest: dict[str, str] = {}
    for job in kept:
        host = waiting[job]
        if host not in smallest or rank(job) < rank(smallest[host]):
            smallest[host] = job
    return frozenset(smallest.values())
