"""What is expected of the next request of a step: its bytes, its window, and so its limit.

The window is carried over from the phase before of the channel. For the first phase it is what the user has said
(`within`), else what an earlier run has learned of the step, else the newest window of another channel of it. How many
bytes a request will move is in proportion to the input of its job, as it was last time.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from math import inf
from statistics import median

from streamflow_io.hints.bandwidth import RequiredConstraint

from .phases import LEAST_BYTES, SHORTEST_WINDOW, Request, is_exposed
from .strategies import Limited, next_limit

# StreamFlow's own time around a command, s, before it is known: as much before it as after it.
_OVERHEAD = 0.25
# How many of the last commands count.
_COMMANDS = 8


@dataclass(frozen=True)
class Learned:
    """What the phases of a step were like, or the bursts of an output.

    :ivar window: seconds: the median of the first phases of its channels
    :ivar ratio: bytes that a job moves, of each byte of its input; None: no input had a size that is known
    :ivar phases: how many these were
    :ivar bytes: of the first burst, the median; None: these are no bursts
    """

    window: float
    ratio: float | None
    phases: int
    bytes: float | None = None


@dataclass(frozen=True)
class Expected:
    """What is expected of a request.

    :ivar bytes: None: it is not known
    :ivar limit: by its strategy, bytes/s; None: it has none
    :ivar required: when somebody will wait for it; inf: that is not known
    """

    bytes: float | None = None
    limit: float | None = None
    required: float = inf


@dataclass
class _Channel:
    """:ivar before: its limits up to the phase before
    :ivar limited: with that of this phase
    :ivar ratio: as in :class:`Learned`, of the last request
    :ivar bytes: of the last request
    """

    before: Limited
    limited: Limited
    phase: int = -1
    window: float | None = None
    ratio: float | None = None
    bytes: float | None = None


@dataclass
class Expectations:
    """What is known of the requests of a step.

    :ivar within: seconds after which somebody waits, if the user has said so
    """

    constraint: RequiredConstraint
    within: float | None = None
    _window: float | None = None
    _ratio: float | None = None
    _bytes: float | None = None
    _channels: dict[str, _Channel] = field(default_factory=dict)
    # StreamFlow's own time before commands, and after them.
    _starting: deque[float] = field(default_factory=lambda: deque((_OVERHEAD,), _COMMANDS))
    _ending: deque[float] = field(default_factory=lambda: deque((_OVERHEAD,), _COMMANDS))
    _throughputs: deque[float] = field(default_factory=lambda: deque(maxlen=_COMMANDS))
    # Of the first phases, and of all requests: what is to be learned.
    _windows: list[float] = field(default_factory=list)
    _ratios: list[float] = field(default_factory=list)

    def remember(self, learned: Learned) -> None:
        """What an earlier run has learned; what is known of this one counts more."""
        self._window = learned.window if self._window is None else self._window
        self._ratio = learned.ratio if self._ratio is None else self._ratio

    @property
    def throughput(self) -> float | None:
        """How fast requests move that have no limit, bytes/s; None: that is not known yet."""
        return median(self._throughputs) if self._throughputs else None

    @property
    def overhead(self) -> float:
        """StreamFlow's own time around a command, seconds: what nothing can be moved in."""
        return median(self._starting) + median(self._ending)

    @property
    def learned(self) -> Learned | None:
        """What is to be remembered; None: nothing."""
        if not self._windows:
            return None
        return Learned(median(self._windows), median(self._ratios) if self._ratios else None, len(self._windows))

    def expect(self, channel: str, phase: int, before: float | None, ready: float, input_bytes: float) -> Expected:
        """What is expected of a request that is ready.

        :param phase: of the channel
        :param before: the window of the phase before; None: there was none
        :param input_bytes: what its job reads; 0: not known
        """
        known = self._channel(channel)
        if phase > known.phase:
            known.phase, known.before = phase, known.limited
            moved = LEAST_BYTES if known.bytes is None else int(known.bytes)
            if before is not None and not is_exposed(before, moved):
                known.window = self._window = before
        size = self._expected_bytes(known, input_bytes)
        window = next((one for one in (known.window, self.within, self._window) if one is not None), None)
        if size is None or window is None or is_exposed(window, int(size)):
            return Expected(size)
        known.limited = next_limit(known.before, window, size, self.overhead)
        return Expected(size, known.limited.limit, ready + max(window - median(self._ending), SHORTEST_WINDOW))

    def moved(self, channel: str, moved: int, input_bytes: float) -> None:
        """A request has moved so much."""
        known = self._channel(channel)
        known.bytes = self._bytes = moved
        if input_bytes > 0 and moved >= LEAST_BYTES:
            known.ratio = self._ratio = moved / input_bytes
            self._ratios.append(known.ratio)

    def ran(self, starting: float, ending: float) -> None:
        """StreamFlow took so many seconds before a command, and after it."""
        self._starting.append(max(0.0, starting))
        self._ending.append(max(0.0, ending))

    def reached(self, throughput: float) -> None:
        """A request without a limit moved so fast, bytes/s."""
        self._throughputs.append(throughput)

    def told(self, request: Request) -> None:
        """All is known of a request."""
        if request.phase == 0 and request.rule != "exposed":
            self._windows.append(request.window)

    def _channel(self, name: str) -> _Channel:
        if name not in self._channels:
            limited = Limited(self.constraint.strategy, self.constraint.tolerance)
            self._channels[name] = _Channel(limited, limited)
        return self._channels[name]

    def _expected_bytes(self, channel: _Channel, input_bytes: float) -> float | None:
        if input_bytes > 0:
            return input_bytes * next((one for one in (channel.ratio, self._ratio) if one is not None), 1.0)
        return self._bytes if channel.bytes is None else channel.bytes
