"""Makes the page of the telemetry records, from their JSON Schema."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from textwrap import wrap
from typing import Any

from streamflow_io.records.schema import record_schema

Schema = Mapping[str, Any]

#: Fields that the head of the page explains.
_COMMON = ("time", "event", "job", "step", "location")
_HEAD = """# Telemetry records

This page is for you if your program reads the telemetry file of a run. [Telemetry and report](telemetry.md#where-it-is)
says where the file is.

Each line is one JSON object, and `event` names its kind. Points in time, as `time`, are seconds since the epoch.
Durations are in seconds, bandwidths in MB/s (10^6 bytes per second). `step` is the path of a step, and `job` is that
path with the tag of StreamFlow. `input` and `output` are `/step/port`. `location` is where the job runs.

A field is left out if there is no value, or if the value is not known: *none* says which. Ignore fields that you do
not know, and a last line without an end. A repeated job has all its records again, from `submitted` on. The
[schema](../streamflow_io/records/telemetry.schema.json) of a line has the types.
"""
#: What the head says, and the lists need not repeat.
_PLAIN = ("string", "integer", "number", "boolean")
_SAID = re.compile(r"^as /step/port(; |$)|(^|; )none: not known$")


def page() -> str:
    """The page of all records and their fields."""
    definitions = record_schema()["$defs"]
    records = {each["properties"]["event"]["enum"][0]: each for each in definitions.values() if _is_record(each)}
    objects = {name: each for name, each in definitions.items() if "properties" in each and not _is_record(each)}
    sections = {**{f"`{event}`": each for event, each in sorted(records.items())}, **objects}
    return _HEAD + "".join("\n".join(_section(title, each, definitions)) for title, each in sections.items())


def _is_record(definition: Schema) -> bool:
    return "event" in definition.get("properties", ())


def _section(title: str, definition: Schema, definitions: Mapping[str, Schema]) -> Iterator[str]:
    yield from ("", f"## {title}", "")
    yield " ".join(definition["description"].split("\n\n")[0].split())
    meanings = {
        name: _meaning(field, definitions) for name, field in definition["properties"].items() if name not in _COMMON
    }
    if bare := [f"`{name}`" for name, meaning in meanings.items() if not meaning]:
        yield f"Fields: {', '.join(bare)}" + ("." if len(bare) == len(meanings) else ", and:")
    if len(bare) < len(meanings):
        yield ""
        yield from items((f"`{name}`", meaning) for name, meaning in meanings.items() if meaning)
    yield ""


def items(rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    """The lines of a list of names and their meanings."""
    for name, meaning in rows:
        yield from wrap(f"- {name}: {meaning}", 120, subsequent_indent="  ", break_long_words=False)


def _meaning(field: Schema, definitions: Mapping[str, Schema]) -> str:
    """The description of a field, with its type or values where these are no plain text, number, or flag."""
    value, text = _value(field, definitions), _SAID.sub("", field.get("description", ""))
    return ": ".join(part for part in ("" if value in _PLAIN else value, text) if part)


def _value(field: Schema, definitions: Mapping[str, Schema]) -> str:
    """The type of a field, or the values that it may have."""
    if "$ref" in field:
        name = field["$ref"].rpartition("/")[2]
        return name if "properties" in definitions[name] else _value(definitions[name], definitions)
    if "anyOf" in field:
        options = ", ".join(_value(option, definitions) for option in field["anyOf"])
        return ", ".join(dict.fromkeys(options.split(", ")))
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    if "const" in field:
        return f"`{field['const']}`"
    if field["type"] == "array":
        return f"list of {_value(field['items'], definitions)}"
    if field["type"] == "object":
        return f"mapping to {_value(field['additionalProperties'], definitions)}"
    return str(field["type"])
