"""What is read of CAPIO's files, and when, as the guard reports it: for telemetry, and no more."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict, deque
from collections.abc import Callable
from pathlib import Path

from streamflow_io.runtime.protocol import CarriedEvent

from .reports import Reading

_LOOK_SECONDS = 0.2
# The guard adds whole lines.
_READS = ("opens ", "read ")


class Readings:
    """Follows the reports of a job.

    :param reports: the file with them, which may not be there yet
    :param tell: is told of each file that is opened
    """

    def __init__(self, job: str, reports: Path, tell: Callable[[CarriedEvent], None]) -> None:
        self._job = job
        self._reports = reports
        self._tell = tell
        self._offset = 0
        # By path, when it was opened, and closed, as often as it was.
        self._opened: defaultdict[str, deque[float]] = defaultdict(deque)
        self._closed: defaultdict[str, deque[float]] = defaultdict(deque)

    async def follow(self, directory: Path) -> None:
        """Look again and again, until this is cancelled.

        :param directory: `CAPIO_DIR`, below which the paths of reports are
        """
        while True:
            for path in await asyncio.to_thread(self._look):
                opened = self._opened[path][-1]
                self._tell(CarriedEvent(job=self._job, time=opened, path=str(directory / path), first=opened))
            await asyncio.sleep(_LOOK_SECONDS)

    def ended(self, reading: Reading, directory: Path) -> CarriedEvent:
        """What is told of a reading that was compared, once of each."""
        now = time.time()
        first, last = (times[reading.path] for times in (self._opened, self._closed))
        return CarriedEvent(
            job=self._job,
            time=now,
            path=str(directory / reading.path),
            bytes=reading.content.count,
            first=first.popleft() if first else now,
            last=last.popleft() if last else now,
        )

    def _look(self) -> list[str]:
        """Read what was added.

        :return: what was opened
        """
        try:
            with self._reports.open("rb") as file:
                file.seek(self._offset)
                added = file.read()
        except FileNotFoundError:
            return []
        lines = added[: added.rfind(b"\n") + 1]
        self._offset += len(lines)
        now, found = time.time(), []
        for line in lines.decode(errors="replace").splitlines():
            if line.startswith(_READS):
                path = line.split(" ", 1 if line.startswith("opens ") else 4)[-1]
                (self._opened if line.startswith("opens ") else self._closed)[path].append(now)
                found += [path] if line.startswith("opens ") else []
        return found
