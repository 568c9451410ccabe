"""The directories of runs, one for each run, in the user's data directory. Removes the directories of old runs."""

from __future__ import annotations

import contextlib
import difflib
import fcntl
import json
import os
import re
import shutil
import time
from pathlib import Path
from typing import BinaryIO

from streamflow_io.files import stranger
from streamflow_io.hints.errors import HintErrors
from streamflow_io.runtime.values import readable
from streamflow_io.wording import shortened

#: The directory of the jobs' logs, below the directory of the run.
LOGS_DIRECTORY = "jobs"


TELEMETRY_FILE = "telemetry.jsonl"
#: A file that exists while the run goes on.
PROGRESS_FILE = "progress.json"
LAST = "last"


def runs_directory() -> Path:
    """Return the parent of all run directories; it may not exist."""
    return data_directory() / "runs"


def create_run_directory(name: str) -> Path:
    """Create a directory, of mode 0700, for a run.

    The second run of a name gets `NAME-2`, the third `NAME-3`: an earlier run is never touched. Characters that cannot
    be part of a file name become `_`. Two processes at once get two directories.

    :raises OSError: if the directory cannot be created
    """
    runs_directory().mkdir(mode=0o700, parents=True, exist_ok=True)
    base = _file_name(name)
    # `last` stands for the newest run, and cannot be a name.
    number = 2 if base == LAST else 1
    while True:
        directory = runs_directory() / (base if number == 1 else f"{base}-{number}")
        try:
            directory.mkdir(mode=0o700)
        except FileExistsError:
            number += 1
        else:
            return directory


def find_run(text: str) -> Path:
    """Return the telemetry file of a run.

    :param text: the path of a telemetry file or of its directory, the name of a run, or `last` for the newest telemetry
    :raises HintErrors: if there is no such run; names similar runs
    """
    names = run_names()
    if text == LAST and names:
        return runs_directory() / names[0] / TELEMETRY_FILE
    if text in names:
        return runs_directory() / text / TELEMETRY_FILE
    # An error means that the text cannot be a path, or names a user that is unknown.
    with contextlib.suppress(OSError, ValueError, RuntimeError):
        path = Path(text).expanduser()
        if path.is_dir() and (path / TELEMETRY_FILE).is_file():
            return path / TELEMETRY_FILE
        if path.is_file():
            return path
    near = difflib.get_close_matches(text, names, n=3, cutoff=0.4) or names[:3]
    known = [f"`{LAST}`", *near] if names else []
    allowed = f"{', '.join(known)}, or the path of a telemetry file" if known else "the path of a telemetry file"
    missing = "there is no such run" if names else f"there is no run in {runs_directory()}"
    raise HintErrors.one(shortened(text), "RUN", missing, allowed)


def run_names() -> list[str]:
    """Return the names of the run directories that have telemetry, the one written last first."""
    written: list[tuple[int, str]] = []
    for file in runs_directory().glob(f"*/{TELEMETRY_FILE}"):
        # A run that begins removes old runs.
        with contextlib.suppress(FileNotFoundError):
            written.append((file.stat().st_mtime_ns, file.parent.name))
    return [name for _, name in sorted(written, reverse=True)]


def run_label(telemetry: Path) -> str:
    """Return the name under which the run of a telemetry file is shown. It can be written as UTF-8."""
    telemetry = telemetry.absolute()
    return readable(telemetry.parent.name if telemetry.name == TELEMETRY_FILE else telemetry.stem)


def _file_name(name: str) -> str:
    # At most 200 bytes, to leave room for a number.
    name = re.sub(r"[/\x00-\x1f\x7f]", "_", name).encode(errors="replace")[:200].decode(errors="ignore").strip()
    return "run" if name in ("", ".", "..") else name


def data_directory() -> Path:
    """Return `$XDG_DATA_HOME/streamflow-io`, by default `~/.local/share/streamflow-io`; it may not exist.

    A relative `XDG_DATA_HOME` is ignored, as its specification requires.
    """
    base = os.environ.get("XDG_DATA_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path("~/.local/share").expanduser()) / "streamflow-io"


KEPT_RUNS = 100
# Not every file system shows locks of other hosts, and a run may be silent while its jobs wait in a queue.
SILENT_SECONDS = 30 * 24 * 3600
#: A run that goes on changes the time of its telemetry after this many seconds, also without a new record.
BEAT_SECONDS = 20.0
_LONGEST_END = 4096
_TRIES = 50


def remove_old_runs(keep: int = KEPT_RUNS) -> None:
    """Remove all runs except those with the newest telemetry. Raises nothing: a run that cannot be removed stays.

    Only directories that hold nothing but files of a run that is over are removed. A run is over when its last record
    is written, or when it was killed: for :data:`SILENT_SECONDS` nothing was written, and no process holds the lock.
    """
    with contextlib.suppress(OSError):
        for name in run_names()[keep:] if stranger(runs_directory()) is None else ():
            with contextlib.suppress(OSError, ValueError):
                _remove(runs_directory() / name)


def lock(descriptor: int) -> None:
    """Lock a telemetry file, so that other processes see that its run goes on.

    Raises nothing: some file systems have no locks.
    """
    with contextlib.suppress(OSError):
        for _ in range(_TRIES):
            # A process that tests the lock holds it for a moment.
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            time.sleep(0.01)


def _remove(directory: Path) -> None:
    """Remove the directory of a run that is over. Does nothing if the directory holds other files, or the run goes on.

    :raises OSError: if the directory cannot be removed, or another process has the lock
    :raises ValueError: if the telemetry holds no JSON
    """
    telemetry = directory / TELEMETRY_FILE
    ours = {TELEMETRY_FILE, PROGRESS_FILE, f".{PROGRESS_FILE}", LOGS_DIRECTORY}
    others = set(os.listdir(directory)) - ours
    if directory.is_symlink() or not telemetry.is_file() or others:
        return
    # NFS gives a lock only on a file that is open for writing.
    with os.fdopen(os.open(telemetry, os.O_RDWR | os.O_NOFOLLOW), "rb") as file:
        if _event(file.readline()) == "run" and (end_record(file) is not None or _was_killed(file)):
            # The telemetry is removed last: a directory without it is no run, and would never be removed later.
            if (directory / LOGS_DIRECTORY).exists():
                shutil.rmtree(directory / LOGS_DIRECTORY)
            for name in (PROGRESS_FILE, f".{PROGRESS_FILE}"):
                (directory / name).unlink(missing_ok=True)
            telemetry.unlink()
            directory.rmdir()


def end_record(file: BinaryIO) -> dict[str, object] | None:
    """Return the record of the end of a telemetry file. None: the run goes on, or was killed."""
    file.seek(max(0, os.fstat(file.fileno()).st_size - _LONGEST_END))
    try:
        record = json.loads(file.readlines()[-1])
    except (IndexError, ValueError):  # a line that was not written to its end
        return None
    return record if isinstance(record, dict) and record.get("event") == "end" else None


def _was_killed(file: BinaryIO) -> bool:
    """Whether nothing was written for :data:`SILENT_SECONDS`.

    :raises OSError: if another process has the lock, because the run goes on
    """
    if time.time() - os.fstat(file.fileno()).st_mtime < SILENT_SECONDS:
        return False
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return True


def _event(line: bytes) -> object:
    """Return the event of a line.

    :raises ValueError: if the line is no JSON
    """
    record = json.loads(line)
    return record.get("event") if isinstance(record, dict) else None
