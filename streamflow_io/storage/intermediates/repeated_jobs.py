"""Jobs that may run once more, and what such a job may keep on disk before it begins."""

from __future__ import annotations

from collections.abc import Collection, Mapping


class RepeatedJobs:
    """The jobs that run once more, for a comparison. A run without comparisons has none."""

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
