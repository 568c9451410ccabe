"""Adapter: the state of a run in its own terminal, below its log; or now and then in a line of the log."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Protocol

from rich.console import Console
from rich.live import Live
from streamflow.log_handler import logger

from streamflow_io.telemetry.live import LiveRun, RunView
from streamflow_io.telemetry.live_screen import screen
from streamflow_io.telemetry.live_text import plain_line
from streamflow_io.telemetry.records import ProgressRecord, Record

_SHOWN_EACH, _SAID_EACH = 1.0, 30.0


class Shows(Protocol):
    """Where the state of a run is shown."""

    def show(self, view: RunView) -> None: ...
    def close(self) -> None: ...


class Display:
    """Shows a run while it goes on: on a terminal each second, elsewhere each 30 s in a line of the log.

    It raises nothing, and the run does not wait for it.
    """

    def __init__(self, label: str) -> None:
        self._live = LiveRun(label)
        self._shows: Shows = _Terminal() if sys.stderr.isatty() else _Lines()
        self._each = _SHOWN_EACH if sys.stderr.isatty() else _SAID_EACH
        self._timer: asyncio.TimerHandle | None = None
        self._again()

    def told(self, record: Record | ProgressRecord) -> None:
        """The next record."""
        self._live.told(record)

    def close(self) -> None:
        """Show nothing any more."""
        if self._timer is not None:
            self._timer.cancel()
        self._shows.close()

    def _again(self) -> None:
        with contextlib.suppress(RuntimeError):  # there is no loop: nothing runs
            self._timer = asyncio.get_running_loop().call_later(self._each, self._show)

    def _show(self) -> None:
        self._shows.show(self._live.view(time.time()))
        self._again()


class _Lines:
    def show(self, view: RunView) -> None:
        logger.info(plain_line(view))

    def close(self) -> None:
        """Nothing is left of it."""


class _Terminal:
    """Shows it below the log, which goes on above it, in a thread of its own: a terminal may stand still."""

    def __init__(self) -> None:
        self._view: RunView | None = None
        self._changed = threading.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="display", daemon=True)
        self._restore: list[Callable[[], object]] = []
        self._live: Live | None = None
        with contextlib.suppress(OSError, RuntimeError):
            self._start()

    def show(self, view: RunView) -> None:
        self._view = view
        self._changed.set()

    def close(self) -> None:
        self._closed = True
        self._changed.set()
        if self._thread.is_alive():
            self._thread.join(1.0)
        self._end()
        atexit.unregister(self._end)

    def _start(self) -> None:
        console = Console(stderr=True)
        before = sys.stderr
        live = Live(console=console, auto_refresh=False, transient=True, redirect_stdout=sys.stdout.isatty())
        live.start()
        self._live = live
        atexit.register(self._end)
        # A run that is killed cannot show it again.
        console.show_cursor(True)
        for handler in logger.handlers:
            if isinstance(handler, logging.StreamHandler) and handler.stream is before:
                handler.setStream(sys.stderr)
                self._restore.append(partial(handler.setStream, before))
        self._thread.start()

    def _run(self) -> None:
        with contextlib.suppress(OSError, ValueError):  # the terminal is gone
            while not self._closed and self._live is not None:
                self._changed.wait()
                self._changed.clear()
                if self._view is not None and not self._closed:
                    # Half of the terminal is for the log.
                    height = self._live.console.height // 2
                    self._live.update(screen(self._view, height), refresh=True)

    def _end(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            with contextlib.suppress(OSError, ValueError):
                live.stop()
        while self._restore:
            self._restore.pop()()
