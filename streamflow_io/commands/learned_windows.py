"""What `streamflow-io learned` shows of windows: how long it takes until somebody waits for what an I/O task moves, and
until the next burst of a byte stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from streamflow_io.learned.database import date_of
from streamflow_io.learned.store import size_range
from streamflow_io.learned.windows import LearnedWindow

from .console import say, table
from .learned_limits import size_text


def window_to_json(window: LearnedWindow) -> dict[str, Any]:
    """All that is known of one, for programs."""
    lower, upper = size_range(window.key.size_class)
    return {
        "key": window.key.digest,
        "step": window.step,
        "tool": window.key.tool,
        "conditions": window.key.storage,
        "sizeClass": window.key.size_class,
        "inputBytes": {"from": lower, "below": upper},
        "learned": window.learned,
        "window": window.of.window,
        "ratio": window.of.ratio,
        "phases": window.of.phases,
        "burstBytes": window.of.bytes,
    }


def windows_table(keys: Sequence[str], windows: Sequence[LearnedWindow]) -> Table:
    """:param keys: as long as it takes to tell them apart"""
    columns = ("key", "step", "storage, or stream", "input files", "window", "learned")
    rows = [
        (key, one.step, one.key.storage, size_text(one.key.size_class), _seconds(one), date_of(one.learned))
        for key, one in zip(keys, windows, strict=True)
    ]
    return table("Windows with `required`: of I/O tasks, and of byte streams", columns, rows, unfolded=("key",))


def show_window(console: Console, window: LearnedWindow) -> None:
    """All that is known of one."""
    for name, value in {
        "key": window.key.digest,
        "step": window.step,
        "tool": window.key.tool,
        "of" if window.of.bytes else "storage": window.key.storage,
        "input files": f"{size_text(window.key.size_class)}, all of a job together",
        "window": f"{_seconds(window)}: the median of {window.of.phases:,} first {_what(window)}",
        "moved": _moved(window),
        "learned": date_of(window.learned),
    }.items():
        say(console, f"{name + ':':13}{value}")


def what_window(window: LearnedWindow) -> str:
    """What it is of, on one line."""
    return f"{window.step}, window of {_seconds(window)}, {size_text(window.key.size_class)}"


def _seconds(window: LearnedWindow) -> str:
    return f"{window.of.window:.3g} s"


def _what(window: LearnedWindow) -> str:
    return "phases" if window.of.bytes is None else "bursts"


def _moved(window: LearnedWindow) -> str:
    if window.of.bytes is not None:
        return f"{window.of.bytes / 1e6:.3g} MB in a burst"
    return "not known" if window.of.ratio is None else f"{window.of.ratio:.3g} bytes for each byte of input"
