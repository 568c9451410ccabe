"""The best of many locations, kept so that it need not be searched. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence


class LocationHeap:
    """Locations by how much they have free, the most first; of equals, the one named first.

    :param locations: all of them
    :param measure: what a location has free; none: it cannot be used. :meth:`touch` must be told of each change
    """

    def __init__(self, locations: Sequence[str], measure: Callable[[str], tuple[int, ...] | None]) -> None:
        self._order = {location: index for index, location in enumerate(locations)}
        self._measure = measure
        self._heap: list[tuple[tuple[int, ...], int, str]] = []
        for location in locations:
            self.touch(location)

    def touch(self, location: str) -> None:
        """What a location has free may have changed."""
        # The entry of before stays, and is dropped when it comes up: it is out of date.
        if (free := self._measure(location)) is not None:
            heapq.heappush(self._heap, (tuple(-amount for amount in free), self._order[location], location))
        if len(self._heap) > 4 * len(self._order) + 16:
            self._heap = [entry for entry in set(self._heap) if self._is_current(entry)]
            heapq.heapify(self._heap)

    def best(self, count: int) -> list[str]:
        """The best so many locations; fewer if fewer can be used. They stay in the heap."""
        found: list[tuple[tuple[int, ...], int, str]] = []
        while self._heap and len(found) < count:
            entry = heapq.heappop(self._heap)
            if self._is_current(entry) and entry not in found:
                found.append(entry)
        for entry in found:
            heapq.heappush(self._heap, entry)
        return [location for _, _, location in found]

    def _is_current(self, entry: tuple[tuple[int, ...], int, str]) -> bool:
        free = self._measure(entry[2])
        return free is not None and entry[0] == tuple(-amount for amount in free)
