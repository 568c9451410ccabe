"""How far a run is, in a file that is replaced whenever it changes: of past states nothing is kept."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from pathlib import Path

from .records import ProgressRecord


class LatestWriter:
    """Writes the last of what it is given, in a thread of its own: the run never waits for the disk.

    Readers see a whole record, or none. What cannot be written is left out: without it the run can be watched, too, but
    for its byte streams and what its jobs wait for.

    :param locate: gives the path of the file, as soon as its directory is there
    """

    def __init__(self, locate: Callable[[], Path | None]) -> None:
        self._locate = locate
        self._latest: ProgressRecord | None = None
        self._changed = threading.Event()
        self._closed = False
        self._thread: threading.Thread | None = None

    def write(self, record: ProgressRecord) -> None:
        """Raises nothing; returns at once; does nothing after :meth:`close`."""
        if self._closed:
            return
        self._latest = record
        self._changed.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="progress", daemon=True)
            try:
                self._thread.start()
            except RuntimeError:  # no more threads
                self._closed = True

    def close(self, seconds: float = 1.0) -> None:
        """Remove the file. Waits for the disk, but not for ever."""
        self._closed = True
        self._changed.set()
        if self._thread is not None and self._thread.is_alive():
            self._thread.join(seconds)

    def _run(self) -> None:
        while not self._closed:
            self._changed.wait()
            self._changed.clear()
            path, latest = self._locate(), self._latest
            if path is not None and latest is not None:
                with contextlib.suppress(OSError):
                    _replace(path, latest.model_dump_json(by_alias=True, exclude_none=True).encode())
        if (path := self._locate()) is not None:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)


def read_latest(path: Path) -> ProgressRecord | None:
    """What was written last; None: nothing, or it cannot be read."""
    try:
        return ProgressRecord.model_validate_json(path.read_bytes())
    except (OSError, ValueError):
        return None


def _replace(path: Path, content: bytes) -> None:
    beside = path.with_name(f".{path.name}")
    with open(beside, "wb", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW, 0o600)) as file:
        file.write(content)
    os.replace(beside, path)
