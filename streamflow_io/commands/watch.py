"""`streamflow-io watch`: shows a run while it goes on."""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct, to_builtins
from rich.console import Console
from rich.live import Live

from streamflow_io.hints.errors import HintErrors
from streamflow_io.records.reader import has_writer, last_seconds, list_runs, parse_record, read_latest, running_run
from streamflow_io.records.records import RunRecord
from streamflow_io.records.runs import PROGRESS_FILE, TELEMETRY_FILE, find_run, run_label, runs_directory
from streamflow_io.report.analysis.live import LiveRun, RunView
from streamflow_io.report.live_view import end_line, plain_line, screen

from .console import PlainResult, SafeConsole, say

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


_SHOWN_EACH, _SAID_EACH = 1.0, 30.0


class Watched(Struct, frozen=True):
    """The state of a run at the last look.

    :ivar interrupted: whether Ctrl-C ended the command while the run went on
    """

    view: RunView
    interrupted: bool = False

    @property
    def ok(self) -> bool:
        """Whether the run goes on, or has succeeded, as far as is known."""
        return self.view.state not in ("failed", "killed", "cancelled")

    def to_json(self) -> dict[str, Any]:
        view: dict[str, Any] = to_builtins(self.view)
        return view

    def show(self, console: Console) -> None:
        if not self.interrupted:
            say(console, end_line(self.view), None if self.ok else "bold red")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run",
        metavar="RUN",
        nargs="?",
        help="the name of a run, `last`, or the path of telemetry (default: the newest run that has not ended)",
    )


def run(arguments: argparse.Namespace) -> Watched | PlainResult:
    """Show a run while it goes on, on a terminal, or in lines.

    :raises HintErrors: if there is no such run, or it cannot be read
    """
    if arguments.run is not None:
        file = find_run(arguments.run)
    elif arguments.json:
        file = running_run()
    else:
        try:
            file = _next_run()
        except KeyboardInterrupt:
            return PlainResult({}, ())
    following = follow(file)
    try:
        if arguments.json:
            return Watched(following.view(time.time()))
        watch = _on_terminal if SafeConsole().is_terminal else _in_lines
        return watch(following)
    finally:
        following.close()


def _next_run() -> Path:
    """Return the newest run that goes on. If none does, wait for the next one, which may end between two looks."""
    known = {run.name for run in list_runs()}
    is_told = False
    while True:
        # A run that was just beginning may go on now.
        with contextlib.suppress(HintErrors):
            return running_run()
        for run in list_runs(1):
            if run.name not in known:
                return runs_directory() / run.name / TELEMETRY_FILE
        if not is_told:
            say(SafeConsole(stderr=True), "No run is active. Waiting for the next run; Ctrl-C stops waiting")
            is_told = True
        time.sleep(_SHOWN_EACH)


def follow(file: Path) -> FollowedRun:
    """Return a run with all records that were written by now.

    :raises HintErrors: if the records cannot be read
    """
    try:
        following = FollowedRun(file, LiveRun(run_label(file), last_seconds(file)))
    except OSError as error:
        raise HintErrors.one(file, "file", f"cannot be read: {error.strerror}", "the telemetry file of a run") from None
    following.look()
    return following


def _on_terminal(following: FollowedRun) -> Watched:
    console = SafeConsole()
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        # A killed program cannot show the cursor again.
        console.show_cursor(True)

        def show(view: RunView) -> None:
            live.update(screen(view, console.height), refresh=True)

        return _watch(following, show, _SHOWN_EACH)


def _in_lines(following: FollowedRun) -> Watched:
    console, said = SafeConsole(), time.monotonic() - _SAID_EACH

    def show(view: RunView) -> None:
        nonlocal said
        if view.state == "running" and time.monotonic() - said >= _SAID_EACH:
            said = time.monotonic()
            say(console, plain_line(view))

    return _watch(following, show, 1.0)


def _watch(following: FollowedRun, show: Callable[[RunView], None], each: float) -> Watched:
    try:
        while True:
            following.look()
            view = following.view(time.time())
            show(view)
            if following.is_over:
                return Watched(view)
            time.sleep(each)
    except KeyboardInterrupt:
        return Watched(following.view(time.time()), interrupted=True)
