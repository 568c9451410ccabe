"""Adapter: the telemetry of a run, and what is said of it when it ends."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from streamflow_io.telemetry.ending import ending_lines, matters_at_the_end
from streamflow_io.telemetry.history import HistoryReader
from streamflow_io.telemetry.records import EndRecord, Record, RunRecord, RunStatus
from streamflow_io.telemetry.writer import TelemetryWriter


class RunTelemetry:
    """Keeps the records of a run: in its file, and in memory what is said of it at its end.

    :param locate: as of :class:`TelemetryWriter`
    """

    def __init__(self, locate: Callable[[], Path]) -> None:
        self._writer = TelemetryWriter(locate)
        self._reader: HistoryReader | None = None

    def write(self, record: Record) -> None:
        """Keep a record. Raises nothing; returns at once."""
        self._writer.write(record)
        if isinstance(record, RunRecord):
            self._reader = HistoryReader(record.name, record)
        elif self._reader is not None and matters_at_the_end(record):
            self._reader.told(record)

    def close(self, status: RunStatus) -> list[str]:
        """End it, if it has begun; waits for the disk, but not for ever.

        :return: what there is to say of the run
        """
        if self._reader is None:
            return []
        self.write(EndRecord(time=time.time(), status=status))
        self._writer.close()
        return ending_lines(self._reader.history)
