"""Shows the state of a run in its own terminal, below the log; elsewhere now and then in a line of the log."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import sys
import time
from collections.abc import Callable
from functools import partial

from rich.console import Console
from streamflow.log_handler import logger

from streamflow_io.records.records import ProgressRecord, Record
from streamflow_io.report.analysis.live import LiveRun, RunView
from streamflow_io.report.live_view import plain_line, screen

from .terminal_region import TerminalRegion

_SHOWN_EACH, _SAID_EACH = 1.0, 30.0


class Display:
    """Shows a run while it goes on: on a terminal each second, elsewhere each 30 s in a line of the log.

    The display raises nothing, and the run does not wait for it.
    """

    def __init__(self, label: str) -> None:
        self._live = LiveRun(label)
        self._shows = _Terminal() if sys.stderr.isatty() else _LogLines()
        self._each = _SHOWN_EACH if sys.stderr.isatty() else _SAID_EACH
        self._timer: asyncio.TimerHandle | None = None
        self._again()

    def told(self, record: Record | ProgressRecord) -> None:
        """Take in the next record."""
        self._live.told(record)

    def close(self) -> None:
        """Show nothing any more."""
        if self._timer is not None:
            self._timer.cancel()
        self._shows.close()

    def _again(self) -> None:
        with contextlib.suppress(RuntimeError):  # without an event loop nothing runs
            self._timer = asyncio.get_running_loop().call_later(self._each, self._show)

    def _show(self) -> None:
        self._shows.show(self._live.view(time.time()))
        self._again()


class _LogLines:
    def show(self, view: RunView) -> None:
        logger.info(plain_line(view))

    def close(self) -> None:
        """Do nothing: a line of the log stays."""


class _Terminal:
    """Shows the state below the log, which goes on above it."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._region = TerminalRegion(sys.stderr)
        self._restore: list[Callable[[], object]] = []
        with contextlib.suppress(OSError, RuntimeError):
            self._start()

    def show(self, view: RunView) -> None:
        self._region.show(partial(self._draw, view))

    def close(self) -> None:
        self._end()
        atexit.unregister(self._end)

    def _start(self) -> None:
        self._region.start()
        atexit.register(self._end)
        for handler in logger.handlers:
            if isinstance(handler, logging.StreamHandler) and handler.stream is sys.stderr:
                self._restore.append(partial(handler.setStream, handler.setStream(self._region.above)))
        for name in ("stdout", "stderr"):
            if (stream := getattr(sys, name)).isatty():
                setattr(sys, name, self._region.above)
                self._restore.append(partial(setattr, sys, name, stream))

    def _draw(self, view: RunView) -> str:
        # Half of the terminal is for the log.
        with self._console.capture() as captured:
            self._console.print(screen(view, self._console.height // 2))
        return captured.get()

    def _end(self) -> None:
        while self._restore:
            self._restore.pop()()
        self._region.close()
