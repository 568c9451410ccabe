"""Reads the records of runs, and lists the runs."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast, get_args

import msgspec
from msgspec import Struct

from streamflow_io.hints.errors import HintErrors

from .records import VERSION, DiskRecord, ProgressRecord, Record, RunRecord, RunState, RunStatus, record_decoder
from .runs import BEAT_SECONDS, TELEMETRY_FILE, end_record, run_names, runs_directory

# Caches of a network file system, and clocks that differ, may hide a change of a file for a minute or more.
_QUIET_SECONDS = BEAT_SECONDS + 100
# In such a part of the end of a file, the space on disks is found.
_END_BYTES = 256 * 1024
_MISSING = re.compile("missing required field `(.*)`")


def read_records(path: Path) -> Iterator[Record]:
    """Yield the records of a telemetry file, in order. The first is a :class:`RunRecord`.

    A last line without an end is ignored: the run was killed, or is still writing the line. Unknown fields are ignored.

    :raises HintErrors: if the file cannot be read or holds something else; names the line
    """
    try:
        with path.open("rb") as file:
            whole = (line for line in file if line.endswith(b"\n"))
            number = 0
            for number, line in enumerate(whole, 1):
                record = parse_record(path, number, line)
                if isinstance(record, RunRecord) is not (number == 1):
                    raise HintErrors.one(
                        path, "event", "this is no telemetry of one run", "`run` first, and only there", line=number
                    )
                yield record
            if number == 0:
                raise HintErrors.one(path, "file", "nothing was recorded yet", "the telemetry file of a run")
    except OSError as error:
        raise HintErrors.one(path, "file", f"cannot be read: {error.strerror}", "the telemetry file of a run") from None


def parse_record(path: Path, number: int, line: bytes) -> Record:
    """Parse a line of a telemetry file.

    :raises HintErrors: if the line holds something else; names the line
    """
    try:
        return record_decoder().decode(line)
    except (ValueError, RecursionError) as error:
        # The message of msgspec ends in the path of the field, or of the object without the field.
        what, _, place = str(error).partition(" - at `$")
        field = ".".join(name for name in (place.strip(".`"), *_MISSING.findall(what)) if name) or "line"
        allowed = f"a record of a telemetry file, version {VERSION}"
        raise HintErrors.one(path, field, what, allowed, line=number) from None


class RunSummary(Struct, frozen=True):
    """A line of the list of runs.

    :ivar workflow: the CWL file
    :ivar workflow_name: that in the StreamFlow file; None: an older run, which does not say the name
    :ivar began: in seconds since the epoch
    :ivar seconds: from the beginning to the last record
    """

    name: str
    workflow: str
    began: float
    seconds: float
    state: RunState
    workflow_name: str | None = None


def list_runs(most: int | None = None) -> list[RunSummary]:
    """Return the runs, the newest telemetry first. Directories that hold no run of this version are left out.

    :param most: how many runs are listed. None: all
    """
    found: list[RunSummary] = []
    for name in run_names():
        if most is not None and len(found) == most:
            break
        with contextlib.suppress(OSError, ValueError, RecursionError):
            if (summary := _summary(name)) is not None:
                found.append(summary)
    return found


def _summary(name: str) -> RunSummary | None:
    with (runs_directory() / name / TELEMETRY_FILE).open("rb") as file:
        first = record_decoder().decode(file.readline())
        if not isinstance(first, RunRecord):
            return None
        seconds = max(0.0, os.fstat(file.fileno()).st_mtime - first.time)
        return RunSummary(name, first.workflow, first.time, seconds, _state(file, first), first.workflow_name)


def _state(file: BinaryIO, run: RunRecord) -> RunState:
    if (end := end_record(file)) is not None:
        status = end.get("status")
        return cast(RunStatus, status) if status in get_args(RunStatus) else "ended"
    return "running" if has_writer(file, run) else "killed"


def has_writer(file: BinaryIO, run: RunRecord | None) -> bool:
    """Whether a process still writes the telemetry of a run, as far as that can be told.

    :param run: the first record of the file; None: the record is not read yet, and without locks a process may write
    """
    # A file system may have no locks, as Lustre without the mount option `flock`. Others keep the locks on each host,
    # as with `localflock`, or `nolock` of NFS. The time of the file then tells of another host.
    is_elsewhere = run is not None and run.host is not None and run.host != socket.gethostname()
    if is_elsewhere and time.time() - os.fstat(file.fileno()).st_mtime < _QUIET_SECONDS:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        pid = None if run is None else run.pid
        return not is_elsewhere and (pid is None or Path(f"/proc/{pid}").exists())
    fcntl.flock(file, fcntl.LOCK_UN)
    return False


def last_disk_records(workflow: str) -> Iterator[list[DiskRecord]]:
    """Yield the disk space of the last successful runs of a workflow, by location; the last run first.

    :param workflow: the CWL file, as in the record of the start
    :raises OSError: if the records cannot be read
    """
    for run in list_runs():
        if run.workflow == workflow and run.state == "completed":
            with (runs_directory() / run.name / TELEMETRY_FILE).open("rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - _END_BYTES))
                found = []
                for line in file.readlines():
                    with contextlib.suppress(ValueError):
                        if isinstance(record := record_decoder().decode(line), DiskRecord):
                            found.append(record)
            if found:
                yield found


def running_run() -> Path:
    """Return the telemetry file of the newest run that goes on.

    :raises HintErrors: if no run goes on
    """
    found = [run for run in list_runs() if run.state == "running"]
    if not found:
        near = run_names()[:3]
        allowed = f"the name of a run that has ended, as {', '.join(near)}" if near else "a run with hints"
        raise HintErrors.one("streamflow-io watch", "RUN", "no run goes on", allowed)
    newest = max(found, key=lambda run: run.began)
    return runs_directory() / newest.name / TELEMETRY_FILE


def last_seconds(telemetry: Path) -> float | None:
    """Return the time that the last successful run of the same workflow took. None: no earlier run succeeded.

    :param telemetry: the telemetry file of a run, which is not compared with itself
    """
    with contextlib.suppress(OSError, ValueError, RecursionError):
        with telemetry.open("rb") as file:
            own = record_decoder().decode(file.readline())
        if isinstance(own, RunRecord):
            runs = (run for run in list_runs() if run.workflow == own.workflow and run.began < own.time)
            return next((run.seconds for run in runs if run.state == "completed"), None)
    return None


def read_latest(path: Path) -> ProgressRecord | None:
    """Read the latest progress of a run. None: no progress can be read."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=ProgressRecord)
    except (OSError, ValueError, RecursionError):
        return None
