"""The telemetry of a run, and the messages about it at its end."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from streamflow_io.records.files import CommittedRecord, EdgeRecord, FallbackRecord, ReadingRecord, StreamedRecord
from streamflow_io.records.history import HistoryReader
from streamflow_io.records.jobs import EndedRecord, StartedRecord, SubmittedRecord
from streamflow_io.records.records import (
    EndRecord,
    ProgressRecord,
    Record,
    RemovedRecord,
    RunRecord,
    RunStatus,
    StepRecord,
)
from streamflow_io.records.runs import PROGRESS_FILE
from streamflow_io.records.writer import LatestWriter, TelemetryWriter

if TYPE_CHECKING:
    from .display import Display

# The records that the messages at the end need. Most records are of other classes.
_KEPT = (
    RunRecord,
    StepRecord,
    EdgeRecord,
    SubmittedRecord,
    StartedRecord,
    EndedRecord,
    ReadingRecord,
    StreamedRecord,
    CommittedRecord,
    FallbackRecord,
    RemovedRecord,
    EndRecord,
)


class RunTelemetry:
    """Keeps the records of a run in its file, and in memory those that the messages at its end need.

    :param locate: as of :class:`TelemetryWriter`
    :param is_shown: whether the run is shown while it goes on
    """

    def __init__(self, locate: Callable[[], Path], is_shown: bool) -> None:
        self._is_shown = is_shown
        self._display: Display | None = None
        self._locate = locate
        self._file: Path | None = None
        self._writer = TelemetryWriter(self._located)
        self._latest = LatestWriter(lambda: None if self._file is None else self._file.with_name(PROGRESS_FILE))
        self._reader: HistoryReader | None = None

    def write(self, record: Record) -> None:
        """Keep a record. Raises nothing; returns at once."""
        self._writer.write(record)
        if self._display is not None:
            self._display.told(record)
        if isinstance(record, RunRecord):
            if self._is_shown:
                # Only this run needs the modules that draw.
                from .display import Display

                self._display = Display(record.name)
                self._display.told(record)
            self._reader = HistoryReader(record.name, record)
        elif self._reader is not None and isinstance(record, _KEPT):
            self._reader.told(record)

    def keep(self, name: str, content: bytes) -> None:
        """Keep a file in the directory of the run, by its relative path. Raises nothing; returns at once."""
        self._writer.write((name, content))

    def show(self, record: ProgressRecord) -> None:
        """Keep the present state of the run, and show it. Raises nothing; returns at once."""
        self._latest.write(record)
        if self._display is not None:
            self._display.told(record)

    def close(self, status: RunStatus) -> list[str]:
        """End the telemetry, if it has begun. Waits for the disk, but not for ever.

        :return: the messages about the run
        """
        if self._reader is None:
            return []
        self.write(EndRecord(time=time.time(), status=status))
        if self._display is not None:
            self._display.close()
        self._latest.close()
        self._writer.close()
        history = self._reader.history
        if not (history.edges or history.steps or history.removed):
            # There were no hints, and nothing was removed.
            return []
        # The start of a run is faster without the modules of reports.
        from streamflow_io.report.analysis.verdict import ending_lines

        return ending_lines(history)

    def _located(self) -> Path:
        self._file = self._locate()
        return self._file
