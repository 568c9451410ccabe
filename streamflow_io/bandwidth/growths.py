"""The growth of files that are read while they are written, burst by burst."""

from __future__ import annotations

from collections import defaultdict
from statistics import median
from typing import NamedTuple

from msgspec import Struct, field

from .expectations import Learned
from .phases import is_exposed


class GrowingFile(NamedTuple):
    """A file that is read while it is written, with the job and the output that write it."""

    job: str
    port: str
    path: str


class StreamName(NamedTuple):
    """A byte stream of a reading job. `stream` is unique among the streams of the job."""

    job: str
    stream: str


class StreamBurst(Struct, frozen=True):
    """A burst of a growing file.

    :ivar start: when its first byte was there
    :ivar end: size of the file in bytes when the burst ended
    """

    start: float
    bytes: int
    end: int


class Growth(Struct, eq=False):
    """The growth of a file.

    :ivar committed: when the file was complete. None: the file still grows
    :ivar readers: the streams that read the file now; an ordered set
    :ivar output: the output for which the growth is learned. None: no reader is limited, and nothing is learned
    """

    bursts: list[StreamBurst] = field(default_factory=list)
    committed: float | None = None
    readers: dict[StreamName, None] = field(default_factory=dict)
    output: str | None = None


class Growths:
    """The growing files of a run.

    A file without readers and bursts is not kept. Files of a job that has ended are not kept either: a later reader
    reads a complete file, and no burst.
    """

    def __init__(self) -> None:
        # The growths of each job, by port and path.
        self._of_jobs: defaultdict[str, dict[tuple[str, str], Growth]] = defaultdict(dict)
        # The windows and bytes of the first bursts of each output's files.
        self._firsts: defaultdict[str, list[tuple[float, int]]] = defaultdict(list)

    def read(self, source: GrowingFile, is_complete: bool, now: float) -> Growth:
        """Return the growth of a file that a stream begins to read.

        :param is_complete: the file does not grow any more
        """
        growth = self._known(source)
        if growth is None and is_complete:
            return Growth(committed=now)
        if growth is None:
            growth = self._of_jobs[source.job][source.port, source.path] = Growth()
        if is_complete and growth.committed is None:
            growth.committed = now
        return growth

    def burst(self, source: GrowingFile, burst: StreamBurst) -> Growth:
        """Add a burst of a file that has ended."""
        growth = self._of_jobs[source.job].setdefault((source.port, source.path), Growth())
        growth.bursts.append(burst)
        if growth.output is not None and len(growth.bursts) == 2:
            first = growth.bursts[0]
            window = burst.start - first.start
            if not is_exposed(window, first.bytes):
                self._firsts[growth.output].append((window, first.bytes))
        return growth

    def committed(self, source: GrowingFile, now: float) -> Growth | None:
        """Note that a file is complete.

        :return: None: the file is not kept, and no reader has to be told
        """
        growth = self._known(source)
        if growth is not None and growth.committed is None:
            growth.committed = now
        return growth

    def ended(self, job: str) -> None:
        """Forget the files of a writing job that has ended, with or without success."""
        self._of_jobs.pop(job, None)

    @property
    def learned(self) -> dict[str, Learned]:
        """The facts to be remembered of each output: first bursts of its files that a second burst has followed."""
        return {
            output: Learned(
                median(window for window, _ in firsts), None, len(firsts), median(moved for _, moved in firsts)
            )
            for output, firsts in self._firsts.items()
        }

    def _known(self, source: GrowingFile) -> Growth | None:
        files = self._of_jobs.get(source.job)
        return None if files is None else files.get((source.port, source.path))
