"""Random workflows without a hint, with `streaming: auto`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .blueprint import Blueprint, Step

_KEPT = ("oversubscribe", "observe")


def unhinted(blueprint: Blueprint, **config: Any) -> Blueprint:
    """The same workflow, in which nothing streams but what is proven.

    :param config: more of that of the scheduler
    """
    kept = {key: value for key, value in blueprint.config if key in _KEPT}
    settings = tuple({**kept, "streaming": "auto", **config}.items())
    return replace(blueprint, steps=tuple(map(_unhinted, blueprint.steps)), config=settings, beside=False)


def _unhinted(step: Step) -> Step:
    outputs = tuple(replace(output, streamable=False, hint=()) for output in step.outputs)
    return replace(step, outputs=outputs, streamable=False, io_task=False, bandwidth=())
