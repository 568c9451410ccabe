"""Finds steps whose jobs are so short that no stream between them gains anything.

A job under the node runtime costs a process and some events. If no hint asks for streams, a job of a few milliseconds
runs as with plain StreamFlow: its output is there at once anyway.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection

from msgspec import Struct, field

#: A command that takes fewer seconds is short.
SHORT = 0.1
#: The number of jobs that are looked at. If all but one were short, the next jobs of the step count as short.
ENOUGH = 8
#: Of this many short jobs, one is measured nevertheless.
SAMPLED = 50
# A job that takes this many seconds, with the driver's work for it, lets the step be measured anew. On a busy machine a
# short job may take longer now and then.
_LONG = 1.0
# A short job may read this many times the bytes of earlier short jobs, and in any case this many bytes.
_MORE, _FEW_BYTES = 2, 2**16


class _MeasuredJobs(Struct):
    """The measured jobs of a step.

    :ivar seconds: the times of the last measured commands
    :ivar plain: the number of short jobs since the last measured one
    :ivar bytes: the most that a short job has read
    """

    seconds: deque[float] = field(default_factory=lambda: deque(maxlen=ENOUGH))
    plain: int = 0
    bytes: int = 0

    @property
    def are_short(self) -> bool:
        return len(self.seconds) == ENOUGH and sum(each >= SHORT for each in self.seconds) <= 1


class ShortJobs:
    """Knows whether the jobs of a step are short.

    :param steps: those for which no hint asks that anything be streamed or measured
    """

    def __init__(self, steps: Collection[str]) -> None:
        self._seen = {step: _MeasuredJobs() for step in steps}

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
        """Note that a job has succeeded.

        :param read: bytes of its input files
        :param seconds: the time of its command
        """
        if (seen := self._seen.get(step)) is None:
            return
        if seconds >= _LONG:
            self._seen[step] = _MeasuredJobs()
            return
        seen.seconds.append(seconds)
        if seconds < SHORT:
            seen.bytes = max(seen.bytes, read)

    def ran_plainly(self, step: str, seconds: float) -> None:
        """Note that a job has run as with plain StreamFlow.

        :param seconds: its time, with the driver's work for it
        """
        if step in self._seen and seconds >= _LONG:
            self._seen[step] = _MeasuredJobs()
