"""The explanation of a message code."""

from __future__ import annotations

from msgspec import Struct


class Case(Struct, frozen=True):
    """One wording of a message, and what to do about it.

    :ivar message: the message as printed; words in capitals and `...` stand for the parts that differ
    :ivar to_do: what to do
    """

    message: str
    to_do: str


class Explanation(Struct, frozen=True):
    """The meaning of a code.

    :ivar title: what has happened
    :ivar why: why that is so, and what it means for the results
    :ivar cases: the wordings, at least one, each with what to do
    :ivar more: a page of the documentation, with an anchor, that says more
    """

    title: str
    why: str
    cases: tuple[Case, ...]
    more: str | None = None
