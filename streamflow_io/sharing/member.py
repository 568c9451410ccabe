"""A run's side of a shared storage: a thread that asks for what the run wishes, and tells what it has."""

from __future__ import annotations

import threading
from collections.abc import Callable

from .directory import SharedDirectory
from .wish import WAYS, Amounts, Lease, Way, Wish, amount, positive


class Member:
    """A run among those that use a storage.

    All that touches files happens in a thread of its own, so that a slow file system never stops the run.

    :param run: what the run is called, for people
    :param bandwidth: of the storage, as the run's StreamFlow file has it
    :param tell: is told each lease, in the thread
    :param failed: is told once, in the thread, that sharing is over for this run, and why; nothing comes after it.
        What the run held stays its own
    :param warn: is told what the user should know, in the thread
    """

    def __init__(
        self,
        directory: SharedDirectory,
        run: str,
        bandwidth: Amounts,
        tell: Callable[[Lease], None],
        failed: Callable[[str], None],
        warn: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._bandwidth = bandwidth
        self._tell = tell
        self._wish: Wish | None = None
        self._number = self._gave = 0
        self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._work, name=f"sharing {directory.storage}", daemon=True)
        self._thread.start()

    def wish(self, wish: Wish) -> None:
        """Say what the run wants from now on; never blocks."""
        with self._changed:
            self._wish = wish
            self._changed.notify()

    def close(self) -> None:
        """End membership: what the run held is free, and its entry is gone; may be called twice."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._wish is not None)
                if self._closed or self._wish is None:
                    return
                wish, self._wish = self._wish, None
            self._look(wish)

    def _look(self, wish: Wish) -> None:
        if wish.seen < self._gave or not positive(wish.lacks):
            return
        free: dict[Way, int] = {way: amount(self._bandwidth, way) - amount(wish.kept, way) for way in WAYS}
        if any(free[way] < lacked and amount(wish.kept, way) for way, lacked in positive(wish.lacks).items()):
            return
        given: dict[Way, int] = {
            way: max(amount(wish.lacks, way), min(amount(wish.useful, way), free[way])) for way in WAYS
        }
        self._number += 1
        self._gave = self._number
        self._tell(Lease(self._number, positive(given), {}, self._bandwidth))
