"""Which jobs of a step give another something, as their tags tell. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from streamflow_io.records.history import Job


def tag(job: Job) -> str:
    """Of a job, as `0.3` of `/step/0.3`."""
    return job.name.rpartition("/")[2]


class RelatedJobs:
    """The jobs of a run by step and tag.

    :param jobs: what is found are their indexes
    """

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._tagged: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        self._below: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        for index, job in enumerate(jobs):
            self._tagged[job.step, tag(job)].append(index)
            for above in _above(tag(job)):
                self._below[job.step, above].append(index)

    def of(self, step: str, job: Job) -> Iterator[int]:
        """The jobs of a step that have the tag of a job, or one above or below it."""
        own = tag(job)
        for one in (own, *_above(own)):
            yield from self._tagged[step, one]
        yield from self._below[step, own]


def _above(tag: str) -> Iterator[str]:
    """The tags above one, as `0` and `0.3` of `0.3.1`."""
    while "." in tag:
        tag = tag.rpartition(".")[0]
        yield tag
