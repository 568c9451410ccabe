"""What compute jobs write themselves: bursts, which are measured and foretold, and never limited.

A job waits for what it writes: its bursts are exposed requests, of a channel of its own. What a job writes in a
rhythm it is expected to go on writing: so much of the bandwidth of its storage is not for others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median

from .phases import Request
from .rhythm import rhythm


@dataclass(frozen=True)
class Written:
    """What a job has written at once.

    :ivar start: when its first byte was written, as far as could be seen
    :ivar last: the same of its last one
    """

    start: float
    last: float
    bytes: int


@dataclass(frozen=True)
class Writer:
    """A job that writes.

    :ivar storage: that of its output directory, if it is known
    :ivar holds: it holds bandwidth of its storage already
    """

    job: str
    step: str
    storage: str | None
    location: str
    holds: bool


@dataclass
class _Channel:
    writer: Writer
    bursts: list[Written] = field(default_factory=list)

    @property
    def mean(self) -> float:
        """Bytes per second that it is expected to go on writing; 0: it has no rhythm."""
        found = rhythm(burst.start for burst in self.bursts)
        if found is None or not found.is_regular:
            return 0.0
        return median(burst.bytes for burst in self.bursts) / found.period


class Writes:
    """The bursts of the jobs that run."""

    def __init__(self) -> None:
        self._channels: dict[str, _Channel] = {}

    def started(self, writer: Writer) -> None:
        """A job begins an attempt: what an earlier one has written does not count."""
        self._channels[writer.job] = _Channel(writer)

    def burst(self, job: str, written: Written) -> None:
        """A job has written something; nothing happens for one that does not run."""
        if (channel := self._channels.get(job)) is not None:
            channel.bursts.append(written)

    def expected(self, where: Callable[[Writer], bool]) -> float:
        """How many bytes per second jobs are expected to go on writing that hold no bandwidth.

        :param where: whether a job counts
        """
        channels = self._channels.values()
        return sum(one.mean for one in channels if not one.writer.holds and where(one.writer))

    def ended(self, job: str, succeeded: bool) -> list[Request]:
        """A job has ended, however.

        :return: what it has written, if it has succeeded
        """
        channel = self._channels.pop(job, None)
        if channel is None or not succeeded:
            return []
        return [_request(channel.writer, number, burst) for number, burst in enumerate(channel.bursts)]


def _request(writer: Writer, number: int, burst: Written) -> Request:
    return Request(
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
