"""Which jobs are so short that no stream between them gains anything.

A job under the node runtime costs a process and some events. Where no hint asks for streams, a job that ends after a
few milliseconds runs as with plain StreamFlow instead: its output is there at once anyway.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field

#: A command that takes less seconds is short.
SHORT = 0.1
#: If of so many jobs all but one were short, the next ones of the step are taken to be short, too.
ENOUGH = 8
#: One of so many is measured nevertheless.
SAMPLED = 50
# After a job that takes so many seconds, with what the driver needs for it, all begins anew. On a busy machine a short
# job may take longer now and then.
_LONG = 1.0
# A job may read so many times the bytes that short jobs have read, and always so many.
_MORE, _FEW_BYTES = 2, 2**16


@dataclass
class _Seen:
    """
    :ivar seconds: that the commands of the last measured jobs took
    :ivar plain: jobs that were not measured since the last one that was
    :ivar bytes: the most that a short job has read
    """

    seconds: deque[float] = field(default_factory=lambda: deque(maxlen=ENOUGH))
    plain: int = 0
    bytes: int = 0

    @property
    def are_short(self) -> bool:
        return len(self.seconds) == ENOUGH and sum(each >= SHORT for each in self.seconds) <= 1


class ShortJobs:
    """What is known of the jobs of each step.

    :param steps: those for which no hint asks that anything be streamed or measured
    """

    def __init__(self, steps: Collection[str]) -> None:
        self._seen = {step: _Seen() for step in steps}

    def is_short(self, step: str, read: int) -> bool:
        """Whether the next job of a step is to run as with plain StreamFlow.

        :param read: bytes of its input files
        """
        seen = self._seen.get(step)
        if seen is None or not seen.are_short or read > max(_FEW_BYTES, _MORE * seen.bytes):
            return False
        seen.plain = (seen.plain + 1) % SAMPLED
        return seen.plain != 0

    def measured(self, step: str, read: int, seconds: float) -> None:
        """A job has succeeded, and its command took so many seconds."""
        if (seen := self._seen.get(step)) is None:
            return
        if seconds >= _LONG:
            self._seen[step] = _Seen()
            return
        seen.seconds.append(seconds)
        if seconds < SHORT:
            seen.bytes = max(seen.bytes, read)

    def ran_plainly(self, step: str, seconds: float) -> None:
        """A job has run as with plain StreamFlow; it took so many seconds, with what the driver needs for it."""
        if step in self._seen and seconds >= _LONG:
            self._seen[step] = _Seen()
