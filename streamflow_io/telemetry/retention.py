"""How long runs are kept: the telemetry of old runs is removed when a new one begins."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import time
from pathlib import Path
from typing import BinaryIO

from streamflow_io.files import stranger

from .job_logs import LOGS_DIRECTORY
from .runs import COORDINATION_FILE, PROGRESS_FILE, TELEMETRY_FILE, run_names, runs_directory

KEPT_RUNS = 100
# Locks of other hosts are not seen on every file system, and a run may be silent while its jobs wait in a queue.
SILENT_SECONDS = 30 * 24 * 3600
_LONGEST_END = 4096
_TRIES = 50


def remove_old_runs(keep: int = KEPT_RUNS) -> None:
    """Remove all runs but those whose telemetry was written last. Raises nothing: what cannot be removed stays.

    Removed are directories that hold nothing but what we keep of a run that is over: it has its last record, or it was
    killed: nothing was written for :data:`SILENT_SECONDS`, and nobody has it locked.
    """
    with contextlib.suppress(OSError):
        for name in run_names()[keep:] if stranger(runs_directory()) is None else ():
            with contextlib.suppress(OSError, ValueError):
                _remove(runs_directory() / name)


def lock(descriptor: int) -> None:
    """Tell others that a run goes on, while its telemetry file is open. Raises nothing: some disks have no locks."""
    with contextlib.suppress(OSError):
        for _ in range(_TRIES):
            # Who looks whether it is locked has it locked for a moment.
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            time.sleep(0.01)


def _remove(directory: Path) -> None:
    """:raises OSError, ValueError: if it holds something else"""
    telemetry = directory / TELEMETRY_FILE
    ours = {TELEMETRY_FILE, COORDINATION_FILE, PROGRESS_FILE, f".{PROGRESS_FILE}", LOGS_DIRECTORY}
    others = set(os.listdir(directory)) - ours
    if directory.is_symlink() or not telemetry.is_file() or others:
        return
    # For writing, without which NFS gives no lock.
    with os.fdopen(os.open(telemetry, os.O_RDWR | os.O_NOFOLLOW), "rb") as file:
        if _event(file.readline()) == "run" and (has_ended(file) or _was_killed(file)):
            # The telemetry last: without it this is no run any more, and would never be looked at again.
            if (directory / LOGS_DIRECTORY).exists():
                shutil.rmtree(directory / LOGS_DIRECTORY)
            for name in (COORDINATION_FILE, PROGRESS_FILE, f".{PROGRESS_FILE}"):
                (directory / name).unlink(missing_ok=True)
            telemetry.unlink()
            directory.rmdir()


def has_ended(file: BinaryIO) -> bool:
    """Whether a telemetry file has its last record."""
    return end_record(file) is not None


def end_record(file: BinaryIO) -> dict[str, object] | None:
    """The last record of a telemetry file, if it has it."""
    file.seek(max(0, os.fstat(file.fileno()).st_size - _LONGEST_END))
    try:
        record = json.loads(file.readlines()[-1])
    except (IndexError, ValueError):  # a line that was not written to its end
        return None
    return record if isinstance(record, dict) and record.get("event") == "end" else None


def _was_killed(file: BinaryIO) -> bool:
    """:raises OSError: if it goes on"""
    if time.time() - os.fstat(file.fileno()).st_mtime < SILENT_SECONDS:
        return False
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return True


def _event(line: bytes) -> object:
    """:raises ValueError: if it is no JSON"""
    record = json.loads(line)
    return record.get("event") if isinstance(record, dict) else None
