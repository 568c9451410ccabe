"""The JSON Schema of a line of a telemetry file, generated from the records.

`python -m streamflow_io.telemetry.schema` writes it beside this module.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .records import RECORD

SCHEMA_FILE = Path(__file__).with_name("telemetry.schema.json")
_DRAFT = "https://json-schema.org/draft/2020-12/schema"


def record_schema() -> dict[str, Any]:
    """The JSON Schema of one record."""
    return {"$schema": _DRAFT, "title": "Record", **_without_titles(RECORD.json_schema(by_alias=True))}


def schema_text() -> str:
    """The content of the schema's file."""
    return json.dumps(record_schema(), indent=2) + "\n"


def _without_titles(schema: Any) -> Any:
    """A schema without the titles that pydantic makes from names, and without OpenAPI's discriminator."""
    if isinstance(schema, list):
        return [_without_titles(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    # A property may be called so.
    return {
        key: {name: _without_titles(field) for name, field in value.items()}
        if key == "properties"
        else _without_titles(value)
        for key, value in schema.items()
        if key not in ("title", "discriminator")
    }


if __name__ == "__main__":
    SCHEMA_FILE.write_text(schema_text(), encoding="utf-8")
