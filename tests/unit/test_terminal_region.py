"""The lowest lines of a terminal, and the text above them."""

from __future__ import annotations

import io
import time

import pytest

from lab.node import wait_for
from streamflow_io.engine.terminal_region import TerminalRegion


class Terminal(io.StringIO):
    """A terminal that understands the removal of lines.

    :ivar broken: it is gone
    """

    broken = False

    def isatty(self) -> bool:
        return True

    def write(self, text: str, /) -> int:
        if self.broken:
            raise OSError("gone")
        return super().write(text)

    @property
    def screen(self) -> list[str]:
        lines = [""]
        text = self.getvalue().replace("\r\x1b[2K", "\x00").replace("\x1b[1A\x1b[2K", "\x01")
        for character in text:
            if character == "\n":
                lines.append("")
            elif character == "\x00":
                lines[-1] = ""
            elif character == "\x01":
                lines.pop()
                lines[-1] = ""
            else:
                lines[-1] += character
        return lines


@pytest.fixture
def terminal() -> Terminal:
    return Terminal()


def test_text_goes_above_the_lines(terminal: Terminal) -> None:
    region = TerminalRegion(terminal)
    region.start()
    region.above.write("before\n")
    region.show(lambda: "one\ntwo\n")
    wait_for(lambda: terminal.screen == ["before", "one", "two", ""], "the lines")
    region.above.write("more\nand ")
    wait_for(lambda: terminal.screen == ["before", "more", "one", "two", ""], "whole lines only")
    region.above.write("more\n")
    region.show(lambda: "three\n")
    wait_for(lambda: terminal.screen == ["before", "more", "and more", "three", ""], "other lines")
    region.above.write("the end")
    region.close()
    assert terminal.screen == ["before", "more", "and more", "the end"]


def test_nothing_is_lost_and_the_order_is_kept(terminal: Terminal) -> None:
    region = TerminalRegion(terminal)
    region.start()
    for number in range(2000):
        region.above.write(f"{number}\n")
        if number % 100 == 0:
            region.show(lambda: "lines\n")
            time.sleep(0.001)
    region.close()
    region.above.write("afterwards\n")
    assert terminal.screen == [*map(str, range(2000)), "afterwards", ""]


def test_a_terminal_that_is_gone_does_not_matter(terminal: Terminal) -> None:
    region = TerminalRegion(terminal)
    region.start()
    terminal.broken = True
    region.above.write("text\n")
    region.show(lambda: "lines\n")
    region.close()
    region.above.write("more\n")
    assert terminal.screen == [""]
