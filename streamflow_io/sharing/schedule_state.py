"""What others are told of the schedule that a run follows, or does not follow, as a model. Pure."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

#: Characters of a reason that others can read: an entry has one block.
MOST_OF_REASON = 200


class ScheduleState(BaseModel):
    """A schedule that was made for the runs that are there.

    :ivar name: its digest
    :ivar since: from when on the run follows it, by its clock; none: it does not
    :ivar reason: why it does, or does not, for people
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore", defer_build=True)
    name: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    since: Annotated[float, Field(allow_inf_nan=False)] | None
    reason: Annotated[str, StringConstraints(max_length=MOST_OF_REASON)]
