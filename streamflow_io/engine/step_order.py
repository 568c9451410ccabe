"""Adapter: which steps get the results of which."""

from __future__ import annotations

from collections.abc import Iterator

from streamflow.core.workflow import Step, Workflow
from streamflow.workflow.step import ExecuteStep


def steps_before(workflow: Workflow) -> dict[str, tuple[str, ...]]:
    """The steps that run jobs, each with those whose results it gets, also by way of what runs no jobs.

    :return: each after those whose results it gets, but in loops; else in the order of the workflow
    """
    executing = {name: step for name, step in workflow.steps.items() if isinstance(step, ExecuteStep)}
    before = {name: tuple(dict.fromkeys(_before(step))) for name, step in executing.items()}
    ordered: dict[str, tuple[str, ...]] = {}
    for name in before:
        _place(name, before, ordered)
    return ordered


def _before(step: Step) -> Iterator[str]:
    """The nearest steps before one that run jobs."""
    seen, ahead = {step.name}, [step]
    while ahead:
        for port in ahead.pop().get_input_ports().values():
            for writer in port.get_input_steps():
                if isinstance(writer, ExecuteStep):
                    if writer.name != step.name:
                        yield writer.name
                elif writer.name not in seen:
                    seen.add(writer.name)
                    ahead.append(writer)


def _place(name: str, before: dict[str, tuple[str, ...]], ordered: dict[str, tuple[str, ...]]) -> None:
    """Put a step into the order, after those before it."""
    ahead, entered = [name], set()
    while ahead:
        last = ahead[-1]
        missing = [other for other in before[last] if other not in ordered and other not in entered]
        if last not in entered and missing:
            entered.add(last)
            ahead += reversed(missing)
        else:
            ahead.pop()
            ordered.setdefault(last, before[last])
