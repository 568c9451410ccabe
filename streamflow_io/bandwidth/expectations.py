"""The expected bytes, window and limit of the next request of a step.

The window of the previous phase of the channel is carried over. The first phase has none: its window is the value that
the user has given (`within`). Without this value, the newest window of another channel of the step counts, or else the
window that an earlier run has learned. The expected bytes are in proportion to the input of the job, as in the last
request.
"""

from __future__ import annotations

from collections import deque
from math import inf
from statistics import median

from msgspec import Struct, field

from streamflow_io.hints.bandwidth import RequiredConstraint

from .windows import LEAST_BYTES, SHORTEST_WINDOW, is_exposed

# StreamFlow's own time before a command, in seconds, until it is measured. The same after a command.
_OVERHEAD = 0.25
# How many of the last commands count.
_COMMANDS = 8
# The length of a window that StreamFlow's own time has used up, in seconds.
SHORTEST = 0.05
# Rates that differ by a smaller fraction count as the same.
_SAME = 0.05


def next_limit(before: float | None, tolerance: float, window: float, moved: float, overhead: float = 0.0) -> float:
    """Return the limit of the next phase of a channel, in bytes per second.

    :param before: the limit of the previous phase. None: no limit
    :param tolerance: factor on the required bandwidth; at least 1
    :param window: the window of the previous phase, in seconds
    :param moved: the bytes of the next phase, as far as they are known
    :param overhead: StreamFlow's own time around a job, in seconds, in which nothing can be moved
    """
    required = tolerance * moved / max(window - overhead, SHORTEST)
    return required if before is None else max(required, (required + before) / 2)


def differs(rate: float | None, before: float | None) -> bool:
    """Whether a job has to be told of a rate, because the rate before differs much. None: no limit."""
    if rate is None or before is None:
        return rate is not before
    return abs(rate - before) > _SAME * before


class Learned(Struct, frozen=True):
    """Properties of the phases of a step.

    :ivar window: seconds: the median of the first phases of its channels
    :ivar ratio: bytes that a job moves for each byte of its input. None: no input had a known size
    :ivar phases: how many phases the window covers
    """

    window: float
    ratio: float | None
    phases: int


class Expected(Struct, frozen=True):
    """The expectations for a request.

    :ivar bytes: expected size. None: the size is unknown
    :ivar limit: the limit of the strategy, in bytes per second. None: no limit
    :ivar required: when a job will wait for the request. inf: not known
    """

    bytes: float | None = None
    limit: float | None = None
    required: float = inf


class _ChannelHistory(Struct):
    """The last request and the limits of a channel.

    :ivar before: the limit of the previous phase, in bytes per second. None: no limit
    :ivar limit: that of the current phase
    :ivar ratio: as in :class:`Learned`, of the last request
    :ivar bytes: size of the last request
    """

    before: float | None = None
    limit: float | None = None
    phase: int = -1
    window: float | None = None
    ratio: float | None = None
    bytes: float | None = None


class Expectations(Struct):
    """The known facts about the requests of a step.

    :ivar within: seconds after which a job waits, as the user has said. None: learned from phases
    """

    constraint: RequiredConstraint
    within: float | None = None
    _window: float | None = None
    _ratio: float | None = None
    _bytes: float | None = None
    _channels: dict[str, _ChannelHistory] = field(default_factory=dict)
    # StreamFlow's own time before commands, and after them.
    _starting: deque[float] = field(default_factory=lambda: deque((_OVERHEAD,), _COMMANDS))
    _ending: deque[float] = field(default_factory=lambda: deque((_OVERHEAD,), _COMMANDS))
    _throughputs: deque[float] = field(default_factory=lambda: deque(maxlen=_COMMANDS))
    # The windows of first phases, and the ratios of all requests, to be learned.
    _windows: list[float] = field(default_factory=list)
    _ratios: list[float] = field(default_factory=list)

    def remember(self, learned: Learned) -> None:
        """Take over what an earlier run has learned, where this run knows nothing yet."""
        self._window = learned.window if self._window is None else self._window
        self._ratio = learned.ratio if self._ratio is None else self._ratio

    @property
    def throughput(self) -> float | None:
        """How fast requests without a limit move, in bytes per second. None: no such request has moved yet."""
        return median(self._throughputs) if self._throughputs else None

    @property
    def overhead(self) -> float:
        """StreamFlow's own time around a command, in seconds, in which nothing can be moved."""
        return median(self._starting) + median(self._ending)

    @property
    def learned(self) -> Learned | None:
        """The facts to be remembered. None: nothing to remember."""
        if not self._windows:
            return None
        return Learned(median(self._windows), median(self._ratios) if self._ratios else None, len(self._windows))

    def expect(self, channel: str, phase: int, before: float | None, ready: float, input_bytes: float) -> Expected:
        """Return the expectations for a request that is ready.

        :param phase: number of the phase in the channel
        :param before: the window of the previous phase. None: the phase is the first
        :param input_bytes: bytes that the job reads. 0: not known
        """
        known = self._channel(channel)
        if phase > known.phase:
            known.phase, known.before = phase, known.limit
            moved = LEAST_BYTES if known.bytes is None else int(known.bytes)
            if before is not None and not is_exposed(before, moved):
                known.window = self._window = before
        size = self._expected_bytes(known, input_bytes)
        window = next((one for one in (known.window, self.within, self._window) if one is not None), None)
        if size is None or window is None or is_exposed(window, int(size)):
            return Expected(size)
        known.limit = next_limit(known.before, self.constraint.tolerance, window, size, self.overhead)
        return Expected(size, known.limit, ready + max(window - median(self._ending), SHORTEST_WINDOW))

    def moved(self, channel: str, moved: int, input_bytes: float) -> None:
        """Record the size of a request that has moved."""
        known = self._channel(channel)
        known.bytes = self._bytes = moved
        if input_bytes > 0 and moved >= LEAST_BYTES:
            known.ratio = self._ratio = moved / input_bytes
            self._ratios.append(known.ratio)

    def ran(self, starting: float, ending: float) -> None:
        """Record StreamFlow's own seconds before a command, and after it."""
        self._starting.append(max(0.0, starting))
        self._ending.append(max(0.0, ending))

    def reached(self, throughput: float) -> None:
        """Record the speed of a request without a limit, in bytes per second."""
        self._throughputs.append(throughput)

    def waited(self, window: float) -> None:
        """Record the window of a finished request, which belongs to a first phase and is not exposed."""
        self._windows.append(window)

    def _channel(self, name: str) -> _ChannelHistory:
        return self._channels.setdefault(name, _ChannelHistory())

    def _expected_bytes(self, channel: _ChannelHistory, input_bytes: float) -> float | None:
        if input_bytes > 0:
            return input_bytes * next((one for one in (channel.ratio, self._ratio) if one is not None), 1.0)
        return self._bytes if channel.bytes is None else channel.bytes
