"""The window of a session: the bytes that have arrived, and that somebody will still need. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from streamflow_io.runtime.extents import Extents, Span


class Window:
    """What has arrived and is not consumed.

    :ivar bytes: how many there may be
    :ivar held: what has arrived, and was not consumed
    :ivar arrived: all that has ever arrived
    :ivar consumed: what nobody needs any more, whether it has arrived or not
    :ivar peak: the most bytes that were held at once
    """

    def __init__(self, most: int) -> None:
        self.bytes = most
        self.held = Extents()
        self.arrived = Extents()
        self.consumed = Extents()
        self.peak = 0

    def is_full(self, more: int = 0) -> bool:
        """Whether nothing more is to be read.

        :param more: bytes that are being read
        """
        return self.held.bytes + more >= self.bytes

    def arrive(self, spans: Iterable[Span]) -> list[Span]:
        """These were read.

        :return: those among them that nobody needs any more
        """
        late: list[Span] = []
        for span in spans:
            self.arrived.add(span)
            for needed in self.consumed.missing(span):
                self.held.add(needed)
            late += self.consumed.within(span)
        self.peak = max(self.peak, self.held.bytes)
        return late

    def consume(self, spans: Sequence[Span]) -> list[Span]:
        """Nobody needs these any more, whether they have arrived or not.

        :return: those that were held
        """
        gone: list[Span] = []
        for span in spans:
            gone += self.held.within(span)
            self.held.remove(span)
            self.consumed.add(span)
        return gone

    def need(self, spans: Iterable[Span]) -> None:
        """Somebody needs these, also if nobody did any more."""
        for span in spans:
            self.consumed.remove(span)

    def shrink(self, bytes_gone: int, least: int) -> None:
        """The kernel has not kept so many bytes of what is held: it has no room for as many.

        :param least: bytes that the window keeps
        """
        self.bytes = min(self.bytes, max(least, self.held.bytes - bytes_gone))
