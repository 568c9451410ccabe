"""Verdicts: whether a program has split a file as the rule declares."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

from msgspec.structs import replace

from streamflow_io.records.learned.database import LearnedEntry, LearnedKey
from streamflow_io.records.learned.remembered import Remembered


class VerdictKey(LearnedKey, frozen=True):
    """The conditions of a verdict.

    :ivar rule: the declared cuts, in JSON
    :ivar inputs: a hex digest of all else that the cuts can depend on
    :ivar programs: a hex digest of the programs that differ from those on the driver's node. Empty: none differs
    """

    rule: str
    inputs: str
    programs: str = ""

    @property
    def anywhere(self) -> VerdictKey:
        """The conditions with the programs of the driver's node."""
        return replace(self, programs="")


class Verdict(LearnedEntry, frozen=True):
    """The outcome of a comparison.

    :ivar parts: the number of parts that the rule gives
    :ivar difference: the first difference between the parts and the files. None: the rule is verified
    """

    kind: ClassVar[str] = "verdict"
    key: VerdictKey
    parts: int
    difference: str | None = None

    @property
    def is_verified(self) -> bool:
        return self.difference is None


class RememberedVerdicts(Remembered[Verdict]):
    """Verdicts of earlier runs, and of this one."""

    def __init__(self, path: Path, known: Iterable[Verdict]) -> None:
        super().__init__(path, Verdict, known, "Verified splits are")
        self._comparing: set[VerdictKey] = set()

    def begin(self, key: VerdictKey) -> bool:
        """Whether a job is to be compared: no verdict is known, and no other comparison is under way."""
        if self.of(key) is not None or key in self._comparing:
            return False
        self._comparing.add(key)
        return True

    def end(self, key: VerdictKey) -> None:
        """Note that a comparison has ended, however."""
        self._comparing.discard(key)
