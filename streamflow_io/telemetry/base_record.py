"""What all records of a run have. Pure."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel


class BaseRecord(BaseModel):
    """A line of the telemetry file."""

    # Built when first used: each run starts with importing all of them, and writes some.
    model_config = ConfigDict(frozen=True, alias_generator=to_camel, populate_by_name=True, defer_build=True)
    time: float = Field(description="seconds since the epoch")
    event: str
