"""What to do next about a run. Pure."""

from __future__ import annotations

from .numbers import Result


class Advice(Result):
    """
    :ivar text: what to do
    :ivar why: what was seen
    :ivar saved: seconds by which the run would have been shorter, at most; none: not known
    """

    text: str
    why: str
    saved: float | None = None
