"""Verdicts: whether a program has split a file as declared."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

from .database import LearnedEntry, LearnedKey
from .remembered import Remembered


class VerdictKey(LearnedKey, frozen=True):
    """The conditions under which a verdict holds.

    :ivar rule: the declared rule for the cuts, in JSON
    :ivar inputs: a hex digest of everything else that the cuts can depend on
    """

    rule: str
    inputs: str


class Verdict(LearnedEntry, frozen=True):
    """The outcome of a comparison.

    :ivar parts: how many parts the rule gives
    :ivar difference: the first difference between these parts and the program's files. None: no difference
    """

    kind: ClassVar[str] = "verdict"
    key: VerdictKey
    parts: int
    difference: str | None = None

    @property
    def is_verified(self) -> bool:
        return self.difference is None


class RememberedVerdicts(Remembered[Verdict]):
    """Verdicts of earlier runs, and of this one.

    :param path: the file
    :param known: the verdicts of the file
    """

    def __init__(self, path: Path, known: Iterable[Verdict]) -> None:
        super().__init__(path, Verdict, known, "Verified splits are")
        self._comparing: set[VerdictKey] = set()

    def begin(self, key: VerdictKey) -> bool:
        """Begin a comparison, unless there is a verdict or another comparison is under way.

        :return: whether the comparison has begun
        """
        if self.of(key) is not None or key in self._comparing:
            return False
        self._comparing.add(key)
        return True

    def end(self, key: VerdictKey) -> None:
        """End a comparison, with or without a verdict."""
        self._comparing.discard(key)
