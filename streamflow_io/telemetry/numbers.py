"""What all that is said of runs has in common. Pure."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

MB = 1e6
# The most points of a line.
POINTS = 1000


class Result(BaseModel):
    """Part of what is said of runs."""

    model_config = ConfigDict(frozen=True, alias_generator=to_camel, populate_by_name=True, defer_build=True)
