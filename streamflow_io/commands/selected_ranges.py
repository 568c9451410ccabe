"""Warnings about parts of files that jobs are to select, and that do not exist, as far as known before the run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from streamflow_io.hints.errors import HintError
from streamflow_io.hints.inheritance import StepAnnotations
from streamflow_io.hints.sessions import SessionRule
from streamflow_io.parts.selected import selected

from .known_values import KnownValues


def wrong_ranges(steps: Mapping[str, StepAnnotations], values: KnownValues) -> list[HintError]:
    """Return warnings about ranges. A wrong range is no error: the tool gets it as it is, and nothing is read ahead.

    :return: the first warning for each rule
    """
    return [
        error
        for path, step in steps.items()
        for rule in step.sessions
        if rule.value.form == "selected" and (error := next(_wrong(path, rule.value, values), None)) is not None
    ]


def _wrong(path: str, rule: SessionRule, values: KnownValues) -> Iterator[HintError]:
    known = None if rule.part is None else values.of(path, rule.part)
    parts: object = rule.parts
    if isinstance(rule.parts, str):
        counts = values.of(path, rule.parts) or []
        if len({repr(count.value) for count in counts}) != 1:
            return
        parts = counts[0].value
    allowed = "KofN with K from 1 to N, as 2of16" if rule.parts is None else "a whole number from 1 to the parts"
    for each in known or ():
        try:
            selected(each.value, parts, 0)
        except ValueError as error:
            yield each.error(f"`{rule.part}` of {path} names no part of {rule.of}: {error}", allowed)
