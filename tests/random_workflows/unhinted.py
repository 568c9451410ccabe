"""Random workflows without a hint, with `streaming: auto`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .blueprint import Blueprint, Step
from .programs import BUFFERED, SIZED

_KEPT = ("oversubscribe", "observe", "intermediates", "diskLimit")


def unhinted(blueprint: Blueprint, **config: Any) -> Blueprint:
    """The same workflow, in which nothing streams but what is proven.

    :param config: more of that of the scheduler
    """
    kept = {key: value for key, value in blueprint.config if key in _KEPT}
    settings = tuple({**kept, "streaming": "auto", **config}.items())
    return replace(blueprint, steps=tuple(map(_unhinted, blueprint.steps)), config=settings, beside=False)


def believed(blueprint: Blueprint) -> Blueprint:
    """The same workflow for a run that takes all for proven: without tools for which no proof can be true."""
    steps = (replace(step, reader="twice") if step.reader in (SIZED, BUFFERED) else step for step in blueprint.steps)
    return replace(blueprint, steps=tuple(steps))


def another_sample(blueprint: Blueprint) -> Blueprint:
    """The same workflow for files of other sizes: what was proven with one sample holds for the next."""
    given = {name: replace(each, value=_resized(each.value)) for name, each in blueprint.given.items()}
    return replace(blueprint, given=given)


def _resized(value: Any) -> Any:
    if isinstance(value, list):
        return [_resized(each) for each in value]
    if isinstance(value, dict) and "lines" in value:
        return {**value, "lines": 3 if value["lines"] >= 40 else 40}
    return value


def larger_sample(blueprint: Blueprint, times: int) -> Blueprint:
    """The same workflow for larger files: what was proven with a small sample need not hold for these.

    :param times: so long the lines are
    """
    given = {name: replace(each, value=_longer(each.value, times)) for name, each in blueprint.given.items()}
    return replace(blueprint, given=given)


def _longer(value: Any, times: int) -> Any:
    if isinstance(value, list):
        return [_longer(each, times) for each in value]
    return {**value, "times": times} if isinstance(value, dict) and "lines" in value else value


def _unhinted(step: Step) -> Step:
    outputs = tuple(replace(output, streamable=False, hint=()) for output in step.outputs)
    return replace(step, outputs=outputs, streamable=False, io_task=False, bandwidth=())
