"""How files grow that are read while they are written: burst by burst, as long as somebody may read them so."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

from .expectations import Learned
from .phases import is_exposed


class GrowingFile(NamedTuple):
    """A file that is read while it is written: of which job and output, and its path."""

    job: str
    port: str
    path: str


class StreamName(NamedTuple):
    """A byte stream of a job that reads; `stream` is unique among those of the job."""

    job: str
    stream: str


@dataclass(frozen=True, slots=True)
class StreamBurst:
    """What a file has grown by at once.

    :ivar start: when its first byte was there
    :ivar end: bytes of the file when it ended
    """

    start: float
    bytes: int
    end: int


@dataclass(eq=False, slots=True)
class Growth:
    """How a file has grown.

    :ivar committed: when it was complete
    :ivar readers: who reads it now; an ordered set
    :ivar output: what it is learned for; None: nobody who reads it is limited
    """

    bursts: list[StreamBurst] = field(default_factory=list)
    committed: float | None = None
    readers: dict[StreamName, None] = field(default_factory=dict)
    output: str | None = None


class Growths:
    """The files of a run. What nobody reads, and has not grown by a burst, is not kept; nor is what a job has written
    that has ended: who begins to read it then reads a complete file, and no burst."""

    def __init__(self) -> None:
        # By job, and by port and path.
        self._of_jobs: defaultdict[str, dict[tuple[str, str], Growth]] = defaultdict(dict)
        # By output, the windows and bytes of the first bursts of its files.
        self._firsts: defaultdict[str, list[tuple[float, int]]] = defaultdict(list)

    def read(self, source: GrowingFile, is_complete: bool, now: float) -> Growth:
        """Somebody begins to read a file.

        :param is_complete: it does not grow any more
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
        """A burst of a file has ended."""
        growth = self._of_jobs[source.job].setdefault((source.port, source.path), Growth())
        growth.bursts.append(burst)
        if growth.output is not None and len(growth.bursts) == 2:
            first = growth.bursts[0]
            window = burst.start - first.start
            if not is_exposed(window, first.bytes):
                self._firsts[growth.output].append((window, first.bytes))
        return growth

    def committed(self, source: GrowingFile, now: float) -> Growth | None:
        """A file is complete.

        :return: None: nobody reads it, and nobody has to be told who begins to
        """
        growth = self._known(source)
        if growth is not None and growth.committed is None:
            growth.committed = now
        return growth

    def ended(self, job: str) -> None:
        """A job that writes has ended, however."""
        self._of_jobs.pop(job, None)

    @property
    def learned(self) -> dict[str, Learned]:
        """What is to be remembered, by output: of the first bursts of its files, as far as others have followed."""
        return {
            output: Learned(
                median(window for window, _ in firsts), None, len(firsts), median(moved for _, moved in firsts)
            )
            for output, firsts in self._firsts.items()
        }

    def _known(self, source: GrowingFile) -> Growth | None:
        files = self._of_jobs.get(source.job)
        return None if files is None else files.get((source.port, source.path))
