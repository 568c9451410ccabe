"""Where runs keep their files: one directory for each run, in the user's data directory."""

from __future__ import annotations

import contextlib
import difflib
import re
from pathlib import Path

from streamflow_io.hints.errors import HintErrors
from streamflow_io.wording import shortened

from .directories import data_directory

TELEMETRY_FILE = "telemetry.jsonl"
COORDINATION_FILE = "coordination.json"
#: There while the run goes on.
PROGRESS_FILE = "progress.json"
LAST = "last"


def runs_directory() -> Path:
    """The parent of all run directories; it may not exist."""
    return data_directory() / "runs"


def create_run_directory(name: str) -> Path:
    """A new directory, of mode 0700, for a run.

    The second run of a name gets `NAME-2`, the third `NAME-3`: an earlier run is never touched. What cannot be part of
    a file name becomes `_`. Two processes at once get two directories.

    :raises OSError: if it cannot be created
    """
    runs_directory().mkdir(mode=0o700, parents=True, exist_ok=True)
    base = _file_name(name)
    # `last` means another run.
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
    """The telemetry file of a run.

    :param text: the path of a telemetry file or of a directory that holds one, the name of a run directory, or `last`:
        the run whose telemetry was written last
    :raises HintErrors: if there is none; names the nearest runs there are
    """
    names = run_names()
    if text == LAST and names:
        return runs_directory() / names[0] / TELEMETRY_FILE
    if text in names:
        return runs_directory() / text / TELEMETRY_FILE
    path = Path(text).expanduser()
    # A text that cannot be a path is no path.
    with contextlib.suppress(OSError, ValueError):
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
    """The names of the run directories that have telemetry, the one written last first."""
    files = [(file.stat().st_mtime_ns, file.parent.name) for file in runs_directory().glob(f"*/{TELEMETRY_FILE}")]
    return [name for _, name in sorted(files, reverse=True)]


def run_label(telemetry: Path) -> str:
    """What to call the run of a telemetry file."""
    telemetry = telemetry.absolute()
    return telemetry.parent.name if telemetry.name == TELEMETRY_FILE else telemetry.stem


def _file_name(name: str) -> str:
    # At most 200 bytes, to leave room for a number.
    name = re.sub(r"[/\x00-\x1f\x7f]", "_", name).encode(errors="replace")[:200].decode(errors="ignore").strip()
    return "run" if name in ("", ".", "..") else name
