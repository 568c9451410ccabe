"""`streamflow-io watch`: a run while it goes on."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live

from streamflow_io.hints.errors import HintErrors
from streamflow_io.telemetry.following import Following
from streamflow_io.telemetry.listing import last_seconds, running_run
from streamflow_io.telemetry.live import LiveRun, RunView
from streamflow_io.telemetry.live_screen import screen
from streamflow_io.telemetry.live_text import end_line, plain_line
from streamflow_io.telemetry.runs import find_run, run_label

from .console import say

_SHOWN_EACH, _SAID_EACH = 0.25, 30.0


@dataclass(frozen=True)
class Watched:
    """What a run was like when one stopped to look.

    :ivar interrupted: by Ctrl-C, while it went on
    """

    view: RunView
    interrupted: bool = False

    @property
    def ok(self) -> bool:
        """Whether the run goes on, or has succeeded, as far as is known."""
        return self.view.state not in ("failed", "killed", "cancelled")

    def to_json(self) -> dict[str, Any]:
        return asdict(self.view)

    def show(self, console: Console) -> None:
        if not self.interrupted:
            say(console, end_line(self.view), None if self.ok else "bold red")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run",
        metavar="RUN",
        nargs="?",
        help="name of a run, `last`, or path of telemetry (default: the newest that goes on)",
    )


def run(arguments: argparse.Namespace) -> Watched:
    """:raises HintErrors: if there is no such run, or it cannot be read"""
    following = follow(find_run(arguments.run) if arguments.run is not None else running_run())
    try:
        if arguments.json:
            return Watched(following.view(time.time()))
        watch = _on_terminal if Console().is_terminal else _in_lines
        return watch(following)
    finally:
        following.close()


def follow(file: Path) -> Following:
    """A run of which all is known that was written.

    :raises HintErrors: if it cannot be read
    """
    try:
        following = Following(file, LiveRun(run_label(file), last_seconds(file)))
    except OSError as error:
        raise HintErrors.one(file, "file", f"cannot be read: {error.strerror}", "the telemetry file of a run") from None
    following.look()
    return following


def _on_terminal(following: Following) -> Watched:
    console = Console()
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:

        def show(view: RunView) -> None:
            live.update(screen(view, console.height), refresh=True)

        return _watch(following, show, _SHOWN_EACH)


def _in_lines(following: Following) -> Watched:
    console, said = Console(), time.monotonic() - _SAID_EACH

    def show(view: RunView) -> None:
        nonlocal said
        if view.state == "running" and time.monotonic() - said >= _SAID_EACH:
            said = time.monotonic()
            say(console, plain_line(view))

    return _watch(following, show, 1.0)


def _watch(following: Following, show: Callable[[RunView], None], each: float) -> Watched:
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
