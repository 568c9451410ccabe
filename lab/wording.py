"""Texts of the program: messages without their codes, and what a terminal shows."""

from __future__ import annotations

import io
import re
from typing import Any, overload

from rich.console import Console


@overload
def uncoded(text: str) -> str: ...
@overload
def uncoded(text: None) -> None: ...
def uncoded(text: str | None) -> str | None:
    """A message without the code that it ends in."""
    return None if text is None else re.sub(r" \[SFIO-[A-Z]\d{3}\]$", "", text)


def shown(what: Any, width: int = 80) -> str:
    """Return what a terminal shows of the result of a command, or of something that `rich` prints."""
    console = Console(file=io.StringIO(), width=width, legacy_windows=False)
    what.show(console) if hasattr(what, "show") else console.print(what)
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]
