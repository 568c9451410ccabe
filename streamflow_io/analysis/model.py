"""What all results of an analysis have in common."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

MB = 1e6
# The most points of a line.
POINTS = 1000


class AnalysisModel(BaseModel):
    """Part of what is said of runs."""

    model_config = ConfigDict(frozen=True, alias_generator=to_camel, populate_by_name=True, defer_build=True)


class Advice(AnalysisModel):
    """
    :ivar text: what to do
    :ivar why: what was seen
    :ivar saved: seconds by which the run would have been shorter, at most; none: not known
    """

    text: str
    why: str
    saved: float | None = None
