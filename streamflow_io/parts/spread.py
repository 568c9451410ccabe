"""The sessions that read the parts of one split, each at a node of its own."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from streamflow_io.runtime.extents import Span

from .read_session import ReadAheadSession

# The number of runs of parts that each node has, if all parts are known at once.
_RUNS = 8


class Home(Struct, frozen=True):
    """Where parts of a file are read.

    :ivar location: the name of the location
    """

    session: ReadAheadSession
    location: str


class SpreadSessions:
    """Chooses for each part the session that reads the part: each byte is read at one node.

    Parts that follow each other are read at the same node for a while, because the kernel reads ahead of each reader.

    The first session is where the split runs. A program that looks for its cuts reads the file there, and the session
    reads ahead of the program: such parts stay. A program that says its parts at once leaves them to all nodes.

    :param homes: the first one where the split runs
    :param chunk: bytes of a chunk
    """

    def __init__(self, homes: Sequence[Home], chunk: int) -> None:
        self._homes = homes
        self._last = homes[0]
        # The most bytes by which one session may be behind another.
        self._run = max(chunk, homes[0].session.size // (_RUNS * len(homes)))

    def announce(self, spans: Sequence[Span]) -> tuple[Home, int]:
        """A part is known.

        :return: where the part is read, and its number there
        """
        first, *others = self._homes
        chosen = first
        if first.session.ended is None and not first.session.is_to_read(spans):
            going_on = [first, *(home for home in others if home.session.ended is None)]
            chosen = min(going_on, key=lambda home: home.session.waiting)
            if self._last in going_on and self._last.session.waiting < chosen.session.waiting + self._run:
                chosen = self._last
        if chosen is not first:
            first.session.leave(spans)
        self._last = chosen
        return chosen, chosen.session.announce(spans)

    def is_first(self, home: Home) -> bool:
        """Whether a part is read where the split runs."""
        return home is self._homes[0]

    def all_announced(self) -> None:
        """No more parts come."""
        for home in self._homes:
            home.session.all_announced()
