"""The steps whose results each step gets, as the telemetry of a run has them."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

from streamflow.core.workflow import Workflow
from streamflow.workflow.step import ExecuteStep

from streamflow_io.engine.run_telemetry import steps_before


class Passing:
    """A step without jobs.

    :ivar before: the steps whose results it gets
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.before: list[Passing] = []

    def get_input_ports(self) -> Any:
        return {"in": SimpleNamespace(get_input_steps=lambda: self.before)}


class Executing(Passing, ExecuteStep):  # type: ignore[misc]
    """A step that runs jobs."""


def before(of: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return the result for steps with names of one letter, a capital letter for a step without jobs."""
    steps = {name: Passing(name) if name.isupper() else Executing(name) for name in of}
    for name, sources in of.items():
        steps[name].before += [steps[source] for source in sources]
    return steps_before(cast(Workflow, SimpleNamespace(steps=steps)))


def test_steps_without_jobs_are_passed() -> None:
    assert before({"b": "S", "S": "a", "a": ""}) == {"a": (), "b": ("a",)}


def test_a_step_in_a_loop_is_before_itself() -> None:
    found = before({"c": "L", "L": "ab", "b": "a", "a": "L"})
    assert found == {"c": ("a", "b"), "b": ("a",), "a": ("a", "b")}
    assert [*found] == ["b", "a", "c"]
