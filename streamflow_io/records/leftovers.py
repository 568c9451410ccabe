"""Finds the directories that runs have left, from the records of the runs."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable

from msgspec import Struct

from .jobs import DirectoriesRecord, EndedRecord, SubmittedRecord
from .records import Record, ResultsRecord, RunRecord

#: The random names of the directories of jobs. Further attempts have directories with a number behind the first name.
JOB_DIRECTORY = re.compile(r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(-[0-9]+)?")


class Leftover(Struct, frozen=True):
    """A directory of a job.

    :ivar deployment: as in the StreamFlow file; None: the directory is on the driver's node
    :ivar location: of the deployment
    """

    deployment: str | None
    location: str
    path: str


class RunLeftovers(Struct, frozen=True):
    """The directories of the jobs of a run. Some of them may be gone.

    :ivar run: how the run has begun
    :ivar removable: the directories that nothing needs
    :ivar results: those that results need
    :ivar open: those of jobs whose end was not recorded: such a job may go on when its driver was killed
    :ivar knows_results: whether it was recorded which directories results need
    """

    run: RunRecord
    removable: tuple[Leftover, ...] = ()
    results: tuple[Leftover, ...] = ()
    open: tuple[Leftover, ...] = ()
    knows_results: bool = False


def leftovers(records: Iterable[Record]) -> RunLeftovers | None:
    """Find the directories of the jobs of a run. None: the records are those of no run.

    Only absolute paths with a random name at their end count, so that no record can mean anything else.
    """
    run: RunRecord | None = None
    made: dict[tuple[str, Leftover], None] = {}
    ended: set[str] = set()
    needed: set[str] | None = None
    for record in records:
        if isinstance(record, RunRecord):
            run = record
        elif isinstance(record, DirectoriesRecord):
            for path in filter(_is_of_a_job, record.paths):
                made[record.job, Leftover(record.deployment, record.location, path)] = None
        elif isinstance(record, SubmittedRecord):
            ended.discard(record.job)
        elif isinstance(record, EndedRecord):
            ended.add(record.job)
        elif isinstance(record, ResultsRecord):
            needed = {*(needed or ()), *record.directories}
    if run is None:
        return None
    removable, results, still_open = list[Leftover](), list[Leftover](), list[Leftover]()
    for job, left in made:
        is_needed = needed is not None and posixpath.basename(left.path) in needed
        (results if is_needed else removable if job in ended else still_open).append(left)
    return RunLeftovers(run, tuple(removable), tuple(results), tuple(still_open), needed is not None)


def _is_of_a_job(path: str) -> bool:
    return (
        path == posixpath.normpath(path)
        and path.startswith("/")
        and JOB_DIRECTORY.fullmatch(posixpath.basename(path)) is not None
    )
