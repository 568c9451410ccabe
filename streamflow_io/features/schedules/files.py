"""Reads set files and the sets of the paper; writes schedule files.

A schedule file is JSON, one instance on each line.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from msgspec import Struct
from pydantic import ConfigDict, Field, JsonValue
from pydantic.alias_generators import to_camel

from streamflow_io.hints.errors import HintError, HintErrors, Source, field_name
from streamflow_io.hints.fields import Model, Text
from streamflow_io.hints.parsing import parse_model
from streamflow_io.hints.yaml_files import plain, read_yaml, source_of

from .model import (
    Application,
    ApplicationSet,
    Instance,
    Pattern,
    Platform,
    Schedule,
    Transfer,
)

PAPER_SETS = 10
_PAPER = "paper:"
SET_ALLOWED = f"a set file, in YAML or JSON, or {_PAPER}1 to {_PAPER}{PAPER_SETS}"

Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Positive = Annotated[Number, Field(gt=0)]
Count = Annotated[int, Field(strict=True, gt=0, le=1_000_000)]


class CamelModel(Model):
    model_config = ConfigDict(alias_generator=to_camel)


class PlatformFile(CamelModel):
    nodes: Count = Field(description="a whole number above 0: how many nodes the platform has")
    node_bandwidth: Positive = Field(description="a number above 0, in MB/s: what one node can read or write")
    bandwidth: Positive = Field(description="a number above 0, in MB/s: what the storage can")


class ApplicationFile(CamelModel):
    name: Text = Field(description="a text that no other application is called")
    copies: Count = Field(1, description="a whole number above 0: how many such applications there are")
    nodes: Count = Field(description="a whole number above 0: how many nodes it has, each copy")
    work: Annotated[Number, Field(ge=0)] = Field(description="a number of seconds, 0 or more: how long it computes")
    volume: Positive = Field(description="a number above 0, in MB: what it transfers after each compute")
    rate: Positive | None = Field(
        None, description="a number above 0, in MB/s: what it can reach; none: nodes x nodeBandwidth"
    )


class SetFile(CamelModel):
    """A set file as it is written."""

    version: Literal[1] = Field(1, description="1")
    platform: PlatformFile = Field(description="a mapping with nodes, nodeBandwidth and bandwidth")
    applications: list[ApplicationFile] = Field(min_length=1, description="a list of at least one application")

    def to_set(self) -> ApplicationSet:
        platform = Platform(self.platform.nodes, self.platform.node_bandwidth, self.platform.bandwidth)
        return ApplicationSet(platform, tuple(each for one in self.applications for each in _copies(one)))


def _copies(one: ApplicationFile) -> Iterator[Application]:
    names = [one.name] if one.copies == 1 else [f"{one.name}-{number}" for number in range(1, one.copies + 1)]
    for name in names:
        yield Application(name, one.nodes, one.work, one.volume, one.rate)


class Published(Struct, frozen=True):
    """Figures that the paper has for one of its sets.

    :ivar least_period: where the sweep of its authors began, in seconds
    """

    efficiency: float
    dilation: float
    least_period: float


def read_set(name: str | os.PathLike[str]) -> ApplicationSet:
    """Read a set file, or take one of the paper's sets.

    :param name: a path, or `paper:1` to `paper:10`
    :raises HintErrors: with all mistakes in it; also if it cannot be read
    """
    if (number := paper_number(name)) is not None:
        return paper_set(number)
    document = read_yaml(Path(name), "set", SET_ALLOWED)
    source = source_of(document, os.path.abspath(name))
    raw = plain(document)
    if not isinstance(raw, Mapping):
        raise HintErrors.one(source.file, "set", "not a mapping", "platform, applications", source.line())
    found, errors = parse_model(SetFile, raw, "", source)
    if found is not None:
        errors = _mistakes(found, source)
    if found is None or errors:
        raise HintErrors(errors)
    return found.to_set()


def set_to_json(applications: ApplicationSet) -> dict[str, JsonValue]:
    """A set, as it is in a file; each copy is an application of its own."""
    platform = applications.platform
    rows: list[JsonValue] = []
    for one in applications.applications:
        row: dict[str, JsonValue] = {"name": one.name, "nodes": one.nodes, "work": one.work, "volume": one.volume}
        rows.append(row if one.rate is None else {**row, "rate": one.rate})
    return {
        "platform": {
            "nodes": platform.nodes,
            "nodeBandwidth": platform.node_bandwidth,
            "bandwidth": platform.bandwidth,
        },
        "applications": rows,
    }


def _mistakes(found: SetFile, source: Source) -> list[HintError]:
    """The mistakes in a set whose fields are right: names that are given twice, more nodes than the platform has."""

    def mistake(message: str, allowed: str, *way: str | int) -> HintError:
        return HintError(source.file, source.line(*way), field_name("", way), message, allowed)

    errors = []
    seen: dict[str, int] = {}
    for index, one in enumerate(found.applications):
        for name in (each.name for each in _copies(one)):
            if name in seen:
                message = f"{name!r} is also the name of applications[{seen[name]}]"
                errors.append(
                    mistake(message, "a text that no other application is called", "applications", index, "name")
                )
            seen[name] = index
    nodes = sum(one.nodes * one.copies for one in found.applications)
    if nodes > found.platform.nodes:
        message = f"the applications have {nodes:,} nodes, the platform {found.platform.nodes:,}"
        errors.append(mistake(message, "as many as all applications have, or more", "platform", "nodes"))
    return errors


def paper_number(name: str | os.PathLike[str]) -> int | None:
    """The number of the paper's set that a name means. None: the name is the path of a file.

    :raises HintErrors: if there is no such set
    """
    text = os.fspath(name)
    if not text.startswith(_PAPER):
        return None
    number = text.removeprefix(_PAPER)
    if number not in map(str, range(1, PAPER_SETS + 1)):
        raise HintErrors.one(text, "set", "there is no such set of the paper", SET_ALLOWED)
    return int(number)


def paper_set(number: int) -> ApplicationSet:
    """One of the sets of the paper, from 1."""
    raw = _paper()
    copies = raw["sets"][number - 1]["copies"]
    rows = [{**one, "copies": copies[one["name"]]} for one in raw["applications"] if one["name"] in copies]
    return SetFile.model_validate({"platform": raw["platform"], "applications": rows}).to_set()


def published(number: int) -> Published:
    """Figures that the paper has for one of its sets.

    :param number: of the set, from 1
    """
    row = _paper()["sets"][number - 1]
    return Published(**row["persched"], least_period=row["leastPeriod"])


@cache
def _paper() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(files(__package__).joinpath("data/paper.json").read_text("utf-8"))
    return found


class InstanceFile(CamelModel):
    """Times are in seconds from the beginning of the pattern: from, to, and MB/s."""

    work: tuple[Number, Number]
    transfers: list[tuple[Number, Number, Number]]


class ScheduledFile(CamelModel):
    model_config = ConfigDict(extra="ignore")

    name: Text
    instances: list[InstanceFile]


class ScheduleFile(CamelModel):
    """A schedule file, without its figures.

    :ivar followed: whether the runs that it is for follow it, for the `reason`
    :ivar start: when it begins, in seconds since the epoch
    """

    model_config = ConfigDict(extra="ignore")

    version: Literal[1]
    set: SetFile
    period: Positive
    applications: list[ScheduledFile]
    followed: bool | None = None
    reason: str | None = None
    start: Number | None = None

    def to_schedule(self) -> Schedule:
        instances = tuple(
            tuple(Instance(one.work, tuple(Transfer(*each) for each in one.transfers)) for one in row.instances)
            for row in self.applications
        )
        return Schedule(self.set.to_set(), Pattern(self.period, instances))


def schedule_to_json(schedule: Schedule) -> dict[str, JsonValue]:
    """A schedule, as it is in a file, with its figures."""
    of, rates = schedule.set, schedule.pattern.rates
    rows = zip(of.applications, rates, of.dilations(rates), schedule.pattern.instances, strict=True)
    return {
        "version": 1,
        "set": set_to_json(of),
        "period": schedule.pattern.period,
        "efficiency": of.efficiency(rates),
        "dilation": of.dilation(rates),
        "bounds": {"efficiency": of.bounds.efficiency, "dilation": of.bounds.dilation},
        "applications": [
            {
                "name": one.name,
                "efficiency": one.work * rate,
                "dilation": dilation,
                "instances": list(map(_instance, instances)),
            }
            for one, rate, dilation, instances in rows
        ],
    }


def _instance(one: Instance) -> dict[str, JsonValue]:
    return {"work": list(one.work), "transfers": [[each.start, each.end, each.rate] for each in one.transfers]}


def schedule_text(document: Mapping[str, JsonValue]) -> str:
    """A schedule as a file, an instance a line."""
    rows = ",\n".join(map(_row_text, cast(list[dict[str, JsonValue]], document["applications"])))
    head = json.dumps({**document, "applications": []}, indent=2)
    return head.replace('"applications": []', f'"applications": [\n{rows}\n  ]') + "\n"


def _row_text(row: dict[str, JsonValue]) -> str:
    lines = ",\n".join(f"      {json.dumps(one)}" for one in cast(list[JsonValue], row["instances"]))
    head = json.dumps({**row, "instances": []})
    return f"    {head[:-2]}\n{lines}\n    ]}}"
