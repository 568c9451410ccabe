"""Reads the telemetry of a run again and again while it is written."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from streamflow_io.records.reader import has_writer, parse_record, read_latest
from streamflow_io.records.records import RunRecord
from streamflow_io.records.runs import PROGRESS_FILE

from .analysis.live import LiveRun, RunView

# In seconds. Without a writer and news for this time, the run is over.
_SECONDS = 1.0
_PIECE = 1 << 22


class FollowedRun:
    """A run that is read again and again. The run never waits for its readers.

    :param file: the telemetry of the run
    :raises HintErrors: if the file is no telemetry
    """

    def __init__(self, file: Path, live: LiveRun) -> None:
        self.file = file
        self.live = live
        self._file = file.open("rb")
        self._rest = b""
        self._lines = 0
        self._run: RunRecord | None = None
        # Since when no process has written the file.
        self._alone: float | None = None
        self._is_alone = False

    @property
    def is_over(self) -> bool:
        """Whether no more records will come: the run has ended, or was killed."""
        return self.live.has_ended or self._is_alone

    def look(self) -> None:
        """Read all new records.

        :raises HintErrors: if a line is no record; names the line
        """
        is_written = has_writer(self._file, self._run)
        news = False
        for line in self._new_lines():
            news = True
            self._lines += 1
            record = parse_record(self.file, self._lines, line)
            if isinstance(record, RunRecord):
                self._run = record
            self.live.told(record)
        if (progress := read_latest(self.file.with_name(PROGRESS_FILE))) is not None:
            self.live.told(progress)
        now = time.monotonic()
        self._alone = None if is_written or news else now if self._alone is None else self._alone
        self._is_alone = self._alone is not None and now - self._alone >= _SECONDS

    def view(self, now: float) -> RunView:
        """Return the state of the run.

        :param now: in seconds since the epoch
        """
        return self.live.view(now, is_alive=not self.is_over)

    def close(self) -> None:
        self._file.close()

    def _new_lines(self) -> Iterator[bytes]:
        while piece := self._file.read(_PIECE):
            *lines, self._rest = (self._rest + piece).split(b"\n")
            yield from lines
