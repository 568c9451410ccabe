"""The lowest lines of a terminal, which stay below all other output.

`rich.live` draws its lines anew for each piece of text above them. That takes longer than the small jobs that the text
is about. Here text is collected for some hundredths of a second, and goes above the lines at once.
"""

from __future__ import annotations

import contextlib
import io
import threading
from collections.abc import Callable
from typing import BinaryIO, TextIO, cast

# Seconds for which text may wait for more.
_COLLECTED = 0.05
# Goes to the beginning of the line above, and clears it.
_UP = "\x1b[1A\x1b[2K"
_BEGIN_OF_LINE = "\r\x1b[2K"


class TerminalRegion:
    """The lines at the end of a terminal, drawn by a thread of their own: no writer waits for the terminal.

    :param terminal: all other output to it has to go through :attr:`above`
    :ivar above: takes text that is to go above the lines
    """

    def __init__(self, terminal: TextIO) -> None:
        self.above = cast(TextIO, _Above(self._write, terminal))
        self._terminal = terminal
        self._text: list[str] = []
        self._draw: Callable[[], str] | None = None
        self._lines = ""
        self._drawn = 0
        self._news = threading.Event()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="display", daemon=True)

    def start(self) -> None:
        """Start the thread.

        :raises RuntimeError: if no more threads can be started
        """
        self._thread.start()

    def show(self, draw: Callable[[], str]) -> None:
        """Draw new lines in place of those before.

        :param draw: returns the lines, each with its end; called in the thread that draws
        """
        self._draw = draw
        self._news.set()

    def close(self, seconds: float = 1.0) -> None:
        """Remove the lines, and write the text that is left. Waits for the terminal, but not for ever."""
        self._closed.set()
        self._news.set()
        if self._thread.is_alive():
            self._thread.join(seconds)

    def _write(self, text: str) -> None:
        self._text.append(text)
        if not self._thread.is_alive():
            self._finish()
        elif not self._news.is_set():
            self._news.set()

    def _run(self) -> None:
        with contextlib.suppress(OSError, ValueError):  # the terminal is gone
            while not self._closed.is_set():
                self._news.wait()
                self._closed.wait(_COLLECTED)
                self._news.clear()
                self._update()
        self._finish()

    def _update(self) -> None:
        draw, self._draw = self._draw, None
        if draw is not None:
            self._lines = draw()
        *whole, rest = self._take().split("\n")
        if rest:
            # The rest of the line is still to come.
            self._text.insert(0, rest)
        text = "".join(f"{line}\n" for line in whole)
        if draw is not None or text:
            self._put(text, self._lines)

    def _finish(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            if (text := self._take()) or self._drawn:
                self._put(text, "")

    def _take(self) -> str:
        # Other threads add text meanwhile.
        number = len(self._text)
        taken = "".join(self._text[:number])
        del self._text[:number]
        return taken

    def _put(self, text: str, lines: str) -> None:
        removed = _BEGIN_OF_LINE + _UP * self._drawn if self._drawn else ""
        self._drawn = lines.count("\n")
        self._terminal.write(f"{removed}{text}{lines}")
        self._terminal.flush()


class _Above(io.TextIOBase):
    """A text stream that looks like the terminal, and collects text."""

    def __init__(self, take: Callable[[str], None], terminal: TextIO) -> None:
        self._take = take
        self._terminal = terminal

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._terminal.encoding

    @property
    def buffer(self) -> BinaryIO:
        return self._terminal.buffer

    def write(self, text: str, /) -> int:
        self._take(text)
        return len(text)

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return self._terminal.isatty()

    def fileno(self) -> int:
        return self._terminal.fileno()
