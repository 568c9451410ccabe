"""What is known of a message beyond its line."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    """One wording of a message, and what to do about it.

    :ivar message: as it is printed; words in capitals and `...` stand for what differs
    :ivar to_do: what to do
    """

    message: str
    to_do: str


@dataclass(frozen=True)
class Explanation:
    """What a code means.

    :ivar title: what has happened
    :ivar why: why that is so, and what it means for the results
    :ivar cases: how it is said, one wording at least, each with what to do
    :ivar more: the page of the documentation, and the place in it, that says more
    """

    title: str
    why: str
    cases: tuple[Case, ...]
    more: str | None = None
