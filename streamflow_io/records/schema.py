"""The JSON Schema of a line of a telemetry file, generated from the records.

`python -m streamflow_io.records.schema` writes it beside this module.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from streamflow_io.hints.schemas import DRAFT, tidy

from .records import Record

SCHEMA_FILE = Path(__file__).with_name("telemetry.schema.json")


def record_schema() -> dict[str, Any]:
    """Return the JSON Schema of one record, the same with each version of msgspec."""
    schema = _without_names(msgspec.json.schema(Record, ref_template="#/$defs/{name}"))
    return {"$schema": DRAFT, "title": "Record", **tidy(schema)}


def _without_names(schema: Any) -> Any:
    """Return a schema without `propertyNames`, which msgspec writes since 0.23."""
    if isinstance(schema, list):
        return [_without_names(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {key: _without_names(value) for key, value in schema.items() if key != "propertyNames"}


def schema_text() -> str:
    """Return the content of the schema's file."""
    return json.dumps(record_schema(), indent=2) + "\n"


if __name__ == "__main__":
    SCHEMA_FILE.write_text(schema_text(), encoding="utf-8")
