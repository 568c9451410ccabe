"""The writes of compute jobs: bursts, which are measured and predicted, and never limited.

A job waits for its own writes. So its bursts are exposed requests, of a channel of their own. A job that writes in a
rhythm is expected to go on, and its mean bandwidth is not left for others.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

from msgspec import Struct, field

from .phases import IORequest
from .rhythm import rhythm


class Written(Struct, frozen=True):
    """A burst that a job has written.

    :ivar start: when the first byte was written, as far as could be seen
    :ivar last: when the last byte was written, as far as could be seen
    """

    start: float
    last: float
    bytes: int


class Writer(Struct, frozen=True):
    """A job that writes.

    :ivar storage: the storage of its output directory. None: unknown
    :ivar holds: the job holds bandwidth of its storage already
    """

    job: str
    step: str
    storage: str | None
    location: str
    holds: bool


class WriteBursts(Struct, eq=False):
    """The bursts of one attempt of a job. The caller keeps them with the job."""

    writer: Writer
    bursts: list[Written] = field(default_factory=list)

    @property
    def mean(self) -> float:
        """Bytes per second that the job is expected to go on writing. 0: no rhythm."""
        found = rhythm(burst.start for burst in self.bursts)
        if found is None or not found.is_regular:
            return 0.0
        return median(burst.bytes for burst in self.bursts) / found.period


class Writes:
    """The bursts of running jobs."""

    def __init__(self) -> None:
        # An ordered set.
        self._running: dict[WriteBursts, None] = {}

    def started(self, writer: Writer) -> WriteBursts:
        """Begin an attempt of a job."""
        bursts = WriteBursts(writer)
        self._running[bursts] = None
        return bursts

    def expected(self, where: Callable[[Writer], bool]) -> float:
        """Return how many bytes per second jobs without bandwidth are expected to go on writing.

        :param where: whether a job counts
        """
        return sum(one.mean for one in self._running if not one.writer.holds and where(one.writer))

    def ended(self, of: WriteBursts, succeeded: bool) -> list[IORequest]:
        """End an attempt, with or without success.

        :return: its bursts as requests, if the attempt has succeeded
        """
        del self._running[of]
        return [_request(of.writer, number, burst) for number, burst in enumerate(of.bursts)] if succeeded else []


def _request(writer: Writer, number: int, burst: Written) -> IORequest:
    return IORequest(
        job=writer.job,
        step=writer.step,
        channel=writer.job,
        phase=number,
        direction="write",
        bytes=burst.bytes,
        ready=burst.start,
        started=burst.start,
        ended=burst.last,
        required=burst.start,
        rule="exposed",
        storage=writer.storage,
        kind="write",
    )
