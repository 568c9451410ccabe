"""Messages of the program without their codes, for tests that are about something else."""

from __future__ import annotations

import re
from typing import overload


@overload
def uncoded(text: str) -> str: ...
@overload
def uncoded(text: None) -> None: ...
def uncoded(text: str | None) -> str | None:
    """A message without the code that it ends in."""
    return None if text is None else re.sub(r" \[SFIO-[A-Z]\d{3}\]$", "", text)
