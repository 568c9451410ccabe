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
    """Return the JSON Schema of one record."""
    return {"$schema": DRAFT, "title": "Record", **tidy(msgspec.json.schema(Record, ref_template="#/$defs/{name}"))}


def schema_text() -> str:
    """Return the content of the schema's file."""
    return json.dumps(record_schema(), indent=2) + "\n"


if __name__ == "__main__":
    SCHEMA_FILE.write_text(schema_text(), encoding="utf-8")
