"""The times in which this machine, or this process, has paused: a test measures nothing then."""

from __future__ import annotations

import threading
import time

_LOOK_SECONDS = 0.02
_PAUSE_SECONDS = 0.2


class Pauses:
    """Notes pauses, while it is used as a context manager."""

    def __init__(self) -> None:
        self._found: list[tuple[float, float]] = []
        self._last = time.time()
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._note, daemon=True)

    def __enter__(self) -> Pauses:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def seconds(self, begin: float, end: float) -> float:
        """Return the seconds between two times since the epoch, without the pauses."""
        self._look()
        return end - begin - sum(max(0.0, min(end, until) - max(begin, since)) for since, until in self._found)

    def _note(self) -> None:
        while not self._is_over.wait(_LOOK_SECONDS):
            self._look()

    def _look(self) -> None:
        with self._lock:
            now = time.time()
            if now - self._last > _PAUSE_SECONDS:
                self._found.append((self._last, now))
            self._last = now
