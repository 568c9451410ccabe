"""What others are told of a run's periodic bursts, as a model."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from streamflow_io.hints.models import Way
from streamflow_io.storage.sharing.entries import Entry

_Positive = Annotated[float, Field(gt=0, le=1e12, allow_inf_nan=False)]
_AtLeast0 = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]


class PublishedRate(BaseModel):
    """How fast the storage was with so many jobs of a run at once, while no other used it, as far as it knew.

    :ivar rate: of all together, MB/s
    :ivar seconds: for so long
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore", defer_build=True)
    jobs: Annotated[int, Field(ge=1, le=10**6)]
    rate: _Positive
    seconds: _Positive


class BurstProfile(BaseModel):
    """The periodic bursts of a run; see :class:`streamflow_io.features.schedules.profile.Profile`.

    :ivar bursts: how many it was found in
    :ivar jobs: of a burst
    :ivar storage_bw: of a job, MB/s
    :ivar volume: of a burst, MB: what its jobs would move with their storageBW for as long as they have it. While they
        start, or wait for a slow disk, nobody else has it either
    :ivar rate: of a burst that is alone, MB/s
    :ivar work: seconds between a burst and the next
    :ivar error: of work and volume, relative
    :ivar moved: what its jobs really move in a burst, MB; none: not known
    :ivar latency: seconds in which a job has its storageBW, and moves nothing
    :ivar seen: how fast the storage was
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore", defer_build=True)
    direction: Way
    bursts: Annotated[int, Field(ge=1, le=10**9)]
    jobs: Annotated[int, Field(ge=1, le=10**9)]
    storage_bw: _Positive
    volume: _Positive
    rate: _Positive
    work: _AtLeast0
    error: _AtLeast0
    moved: _Positive | None = None
    latency: _AtLeast0 = 0.0
    seen: Annotated[tuple[PublishedRate, ...], Field(max_length=8)] = ()


def profile_of(entry: Entry) -> BurstProfile | None:
    """The profile in the entry of a run; None: its bursts are not periodic, or not known."""
    try:
        # Without `strict`: a list of JSON is a tuple here.
        return BurstProfile.model_validate((entry.model_extra or {}).get("profile"), strict=False)
    except ValidationError:
        return None
