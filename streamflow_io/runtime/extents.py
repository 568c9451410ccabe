"""Sets of bytes of a file."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

#: Bytes of a file: the position of the first one, and the position behind the last.
Span = tuple[int, int]


class Extents:
    """A set of bytes, as spans that neither touch nor overlap, in order.

    :ivar bytes: the number of bytes
    """

    def __init__(self, spans: Iterable[Span] = ()) -> None:
        self.bytes = 0
        self._begins: list[int] = []
        self._ends: list[int] = []
        for span in spans:
            self.add(span)

    def __iter__(self) -> Iterator[Span]:
        return iter(zip(self._begins, self._ends, strict=True))

    def add(self, span: Span) -> None:
        begin, end = span
        if begin >= end:
            return
        first, last = bisect_left(self._ends, begin), bisect_right(self._begins, end)
        if first < last:
            begin, end = min(begin, self._begins[first]), max(end, self._ends[last - 1])
        self._replace(first, last, [(begin, end)])

    def remove(self, span: Span) -> None:
        begin, end = span
        first, last = self._touching(span)
        if first < last:
            left, right = (self._begins[first], begin), (end, self._ends[last - 1])
            self._replace(first, last, [rest for rest in (left, right) if rest[0] < rest[1]])

    def within(self, span: Span) -> list[Span]:
        """The parts of a span that are in the set."""
        first, last = self._touching(span)
        found = zip(self._begins[first:last], self._ends[first:last], strict=True)
        return [(max(begin, span[0]), min(end, span[1])) for begin, end in found]

    def missing(self, span: Span) -> list[Span]:
        """The parts of a span that are not in the set."""
        rest: list[Span] = []
        at = span[0]
        for begin, end in self.within(span):
            if at < begin:
                rest.append((at, begin))
            at = end
        return [*rest, (at, span[1])] if at < span[1] else rest

    def has(self, span: Span) -> bool:
        """Whether all of a span is in the set."""
        return not self.missing(span)

    def _touching(self, span: Span) -> tuple[int, int]:
        """The numbers of the spans that share bytes with this one: of the first, and of the one behind the last."""
        if span[0] >= span[1]:
            return 0, 0
        return bisect_right(self._ends, span[0]), bisect_left(self._begins, span[1])

    def _replace(self, first: int, last: int, spans: list[Span]) -> None:
        self.bytes -= sum(self._ends[first:last]) - sum(self._begins[first:last])
        self.bytes += sum(end - begin for begin, end in spans)
        self._begins[first:last] = [begin for begin, _ in spans]
        self._ends[first:last] = [end for _, end in spans]


def length(spans: Iterable[Span]) -> int:
    """The number of bytes of spans that do not overlap."""
    return sum(end - begin for begin, end in spans)
