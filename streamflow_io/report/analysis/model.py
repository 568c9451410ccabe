"""The base of all results of an analysis."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

MB = 1e6
# The most points of a line.
POINTS = 1000


class AnalysisModel(BaseModel):
    """A result about runs. Its JSON has camelCase names."""

    model_config = ConfigDict(frozen=True, alias_generator=to_camel, populate_by_name=True, defer_build=True)


class Advice(AnalysisModel):
    """A step to take after a run.

    :ivar text: what to do
    :ivar why: what was seen
    :ivar saved: the most seconds by which the run would have been shorter. None: unknown
    """

    text: str
    why: str
    saved: float | None = None
