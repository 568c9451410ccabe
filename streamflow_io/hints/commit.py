"""The value of `committed`: when a file is complete.

Source of the rules: A. R. Martinelli et al., CAPIO: a middleware for transparent I/O streaming in data-intensive
workflows.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, get_args

CommitKind = Literal["on_termination", "on_close", "on_file", "on_n_files"]
KINDS: tuple[CommitKind, ...] = get_args(CommitKind)
PATTERN = r"^(?:on_termination|on_close(?::[1-9][0-9]{0,8})?|on_file|on_n_files)$"
# The largest number of closes or files. All parts of the project can count this far, and no workflow has more.
MOST = 999_999_999
ALLOWED = "on_termination, on_close, on_close:N with 1 <= N < 10^9, on_file, on_n_files"


# A dataclass: pydantic writes the default of a field into JSON, and knows no Struct.
@dataclass(frozen=True)
class CommitRule:
    """When a file is complete.

    :param kind: `on_termination` of the job, `on_close` of the file, `on_file`: when other files are
        complete, `on_n_files`: when a directory or a list has enough complete entries
    :param closes: `on_close` only: the close that completes the file, from 1
    """

    kind: CommitKind = "on_termination"
    closes: int = 1

    def __str__(self) -> str:
        return self.kind if self.closes == 1 else f"{self.kind}:{self.closes}"


ON_TERMINATION = CommitRule()
ON_CLOSE = CommitRule("on_close")


def parse_commit_rule(value: object) -> CommitRule:
    """Read a `committed`.

    :param value: one of the strings of :data:`PATTERN`
    :return: the rule; `parse_commit_rule(str(r)) == r` for every rule `r`
    :raises ValueError: with one sentence that says what is wrong
    """
    if isinstance(value, CommitRule):
        return value
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is no commit rule")
    kind, colon, closes = value.partition(":")
    if kind not in KINDS or (colon and kind != "on_close"):
        raise ValueError(f"{value!r} is no commit rule")
    if not colon:
        return CommitRule(kind)
    if re.fullmatch(r"[1-9][0-9]*", closes) is None:
        raise ValueError(f"{closes!r} is no number of closes")
    if len(closes) > len(str(MOST)):
        raise ValueError(f"{_shown(closes)} closes are more than {MOST}")
    return CommitRule("on_close", int(closes))


def _shown(digits: str) -> str:
    return digits if len(digits) <= 30 else f"{digits[:30]}..."
