"""Reads and writes schedule files: JSON, one instance on each line."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal, cast

from pydantic import Field, JsonValue, ValidationError

from streamflow_io.hints.errors import HintError, HintErrors, Loc, Source
from streamflow_io.hints.fields import Text
from streamflow_io.hints.parsing import parse_model
from streamflow_io.hints.yaml_files import plain, read_yaml, source_of

from .files import CamelModel, Number, Positive, SetFile, set_mistakes, set_to_json
from .model import Algorithm, Figures, Goal, Instance, Pattern, Schedule, ScheduleBounds, Transfer

_WHAT = "schedule"
# Characters of a file whose lines are found within some seconds.
_MOST_WITH_LINES = 100_000
_ALLOWED = "a schedule file, as `streamflow-io schedule compute` writes it"

AtLeast0 = Annotated[Number, Field(ge=0)]


class InstanceFile(CamelModel):
    work: tuple[Number, Number] = Field(description="[from, to], in seconds from the beginning of the pattern")
    transfers: list[tuple[Number, Number, Number]] = Field(description="a list of [from, to, MB/s]")


class ScheduledFile(CamelModel):
    name: Text = Field(description="an application of the set, in the same order")
    efficiency: AtLeast0 = Field(description="a number: the part of its time in which it computes")
    dilation: AtLeast0 = Field(description="a number: how many times as long as alone it takes")
    instances: list[InstanceFile] = Field(description="a list of instances, each with work and transfers")


class BoundsFile(CamelModel):
    efficiency: AtLeast0 = Field(description="a number: the largest efficiency that any schedule can have")
    dilation: AtLeast0 = Field(description="a number: the smallest dilation that any schedule can have")


class AlgorithmFile(CamelModel):
    name: Text = Field(description="the name of the algorithm")
    parameters: dict[str, float | str] = Field(description="a mapping: the options of the algorithm")
    seconds: AtLeast0 = Field(description="a number: the seconds of CPU time")


class ScheduleFile(CamelModel):
    """A schedule file as it is written."""

    version: Literal[1] = Field(description="1")
    set: SetFile = Field(description="a set: a mapping with platform and applications")
    goal: Goal = Field(description="efficiency, dilation")
    period: Positive = Field(description="a number of seconds above 0")
    efficiency: AtLeast0 = Field(description="a number: the part of all nodes' time in which they compute")
    dilation: AtLeast0 = Field(description="a number: the largest of all applications")
    bounds: BoundsFile = Field(description="a mapping with efficiency and dilation")
    algorithm: AlgorithmFile = Field(description="a mapping with name, parameters and seconds")
    applications: list[ScheduledFile] = Field(description="a list with an entry for each application of the set")
    followed: bool | None = Field(None, description="true, false: whether the runs that it is for follow it")
    reason: str | None = Field(None, description="a text: why")
    start: Number | None = Field(None, description="a number: when it begins, in seconds since the epoch")

    def to_schedule(self) -> Schedule:
        applications = self.set.to_set()
        rows = self.applications
        found = Figures(
            self.efficiency,
            self.dilation,
            tuple(row.efficiency for row in rows),
            tuple(row.dilation for row in rows),
            ScheduleBounds(self.bounds.efficiency, applications.bounds.unlimited_efficiency, self.bounds.dilation),
        )
        instances = tuple(
            tuple(Instance(one.work, tuple(Transfer(*each) for each in one.transfers)) for one in row.instances)
            for row in rows
        )
        algorithm = Algorithm(self.algorithm.name, self.algorithm.parameters, self.algorithm.seconds)
        return Schedule(applications, self.goal, Pattern(self.period, instances), found, algorithm)


def read_schedule(path: str | os.PathLike[str]) -> Schedule:
    """Read a schedule file.

    :return: what the file says; whether it can be kept is for :func:`streamflow_io.features.schedules.check.check`
    :raises HintErrors: with all mistakes in its form; also if it cannot be read
    """
    file = os.path.abspath(path)
    try:
        text = Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise HintErrors.one(file, _WHAT, f"cannot be read: {reason}", _ALLOWED) from None
    source = Source(file, lambda: _lines(Path(path), file, len(text)))
    try:
        found = ScheduleFile.model_validate_json(text)
    except ValidationError:
        found = _mistaken(_raw(Path(path), text), source)
    if errors := [*set_mistakes(found.set, source, "set"), *_other_names(found, source)]:
        raise HintErrors(errors)
    return found.to_schedule()


def _lines(path: Path, file: str, size: int) -> Mapping[Loc, int]:
    """The lines of everything in a file; of a large one none: it takes half a minute for 10,000 instances."""
    return source_of(read_yaml(path, _WHAT, _ALLOWED), file).lines if size <= _MOST_WITH_LINES else {}


def _raw(path: Path, text: str) -> object:
    """:raises HintErrors: if it is neither JSON nor YAML"""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return plain(read_yaml(path, _WHAT, _ALLOWED))


def _mistaken(raw: object, source: Source) -> ScheduleFile:
    """:raises HintErrors: with the mistakes of a file that is no schedule file; unless it is one in YAML"""
    if not isinstance(raw, Mapping) or "set" not in raw:
        message = "not a schedule" if isinstance(raw, Mapping) else "not a mapping"
        raise HintErrors.one(source.file, _WHAT, message, _ALLOWED, source.line())
    found, errors = parse_model(ScheduleFile, raw, "", source)
    if found is None:
        raise HintErrors(errors)
    return found


def _other_names(found: ScheduleFile, source: Source) -> list[HintError]:
    expected = [one.name for one in found.set.to_set().applications]
    names = [row.name for row in found.applications]
    if names == expected:
        return []
    line = source.line("applications")
    message = "are not those of the set, in their order"
    return [HintError(source.file, line, "applications", message, ", ".join(expected))]


def schedule_text(schedule: Schedule) -> str:
    """A schedule as a file, an instance a line."""
    head = schedule_to_json(schedule)
    head["applications"] = []
    rows = ",\n".join(map(_row_text, _rows(schedule)))
    return json.dumps(head, indent=2).replace('"applications": []', f'"applications": [\n{rows}\n  ]') + "\n"


def _row_text(row: dict[str, JsonValue]) -> str:
    lines = ",\n".join(f"      {json.dumps(one)}" for one in cast(list[JsonValue], row["instances"]))
    head = json.dumps({**row, "instances": []})
    return f"    {head[:-2]}\n{lines}\n    ]}}"


def schedule_to_json(schedule: Schedule) -> dict[str, JsonValue]:
    """A schedule, as it is in a file."""
    found = schedule.figures
    return {
        "version": 1,
        "set": set_to_json(schedule.set),
        "goal": schedule.goal,
        "period": schedule.pattern.period,
        "efficiency": found.efficiency,
        "dilation": found.dilation,
        "bounds": {"efficiency": found.bounds.efficiency, "dilation": found.bounds.dilation},
        "algorithm": {
            "name": schedule.algorithm.name,
            "parameters": dict(schedule.algorithm.parameters),
            "seconds": schedule.algorithm.seconds,
        },
        "applications": list(_rows(schedule)),
    }


def _rows(schedule: Schedule) -> Iterator[dict[str, JsonValue]]:
    rows = zip(
        schedule.set.applications,
        schedule.figures.work_shares,
        schedule.figures.dilations,
        schedule.pattern.instances,
        strict=True,
    )
    for application, share, dilation, instances in rows:
        placed: list[JsonValue] = [
            {"work": list(one.work), "transfers": [[each.start, each.end, each.rate] for each in one.transfers]}
            for one in instances
        ]
        yield {"name": application.name, "efficiency": share, "dilation": dilation, "instances": placed}
