"""The best of many locations, kept so that it need not be searched. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence

_Entry = tuple[tuple[int, ...], int, str]


class LocationHeap:
    """Locations by how much they have free, the most first; of equals, the one named first.

    :param locations: all of them
    :param measure: what a location has free; none: it cannot be used. :meth:`touch` must be told of each change
    """

    def __init__(self, locations: Sequence[str], measure: Callable[[str], tuple[int, ...] | None]) -> None:
        self._order = {location: index for index, location in enumerate(locations)}
        self._measure = measure
        self._entries: dict[str, _Entry] = {}
        self._heap: list[_Entry] = []
        for location in locations:
            self.touch(location)

    def __len__(self) -> int:
        """How many entries it holds, also such as are out of date."""
        return len(self._heap)

    def touch(self, location: str) -> None:
        """What a location has free may have changed."""
        if (free := self._measure(location)) is None:
            self._entries.pop(location, None)
            return
        entry = (tuple(-amount for amount in free), self._order[location], location)
        if self._entries.get(location) == entry:
            return
        # The entry of before stays in the heap, and is dropped when it comes up: it is out of date.
        self._entries[location] = entry
        heapq.heappush(self._heap, entry)
        if len(self._heap) > 4 * len(self._order) + 16:
            self._heap = list(self._entries.values())
            heapq.heapify(self._heap)

    def best(self, count: int) -> list[str]:
        """The best so many locations; fewer if fewer can be used. They stay in the heap."""
        found: list[_Entry] = []
        while self._heap and len(found) < count:
            entry = heapq.heappop(self._heap)
            # Not an equal one: a location may have had as much free before.
            if self._entries.get(entry[2]) is entry:
                found.append(entry)
        for entry in found:
            heapq.heappush(self._heap, entry)
        return [location for _, _, location in found]
