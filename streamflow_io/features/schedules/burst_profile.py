"""Model of the periodic bursts of a run, as the run publishes them to other runs."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from streamflow_io.hints.models import Way
from streamflow_io.storage.sharing.entries import Entry

_Positive = Annotated[float, Field(gt=0, le=1e12, allow_inf_nan=False)]
_AtLeast0 = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]


class SeenRate(BaseModel):
    """The measured rate of a storage, while no other run used it, as far as the run knew.

    :ivar jobs: of the run, which moved data at once
    :ivar rate: of all together, MB/s
    :ivar seconds: the time with this number of jobs
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore", defer_build=True)
    jobs: Annotated[int, Field(ge=1, le=10**6)]
    rate: _Positive
    seconds: _Positive


class BurstProfile(BaseModel):
    """The periodic bursts of a run.

    :ivar bursts: the number of bursts that were seen
    :ivar jobs: of a burst
    :ivar storage_bw: of a job, MB/s
    :ivar volume: MB that the jobs of a burst would move with their storageBW for as long as they hold it. While jobs
        start, or wait for a slow disk, no other job has their storageBW
    :ivar rate: of a burst that is alone, MB/s
    :ivar work: seconds between a burst and the next
    :ivar error: of work and volume, relative
    :ivar moved: MB that the jobs of a burst really move. None: jobs count as moving `volume`
    :ivar latency: seconds in which a job has its storageBW, and moves nothing
    :ivar seen: measured rates of the storage
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
    seen: Annotated[tuple[SeenRate, ...], Field(max_length=8)] = ()


def profile_of(entry: Entry) -> BurstProfile | None:
    """The profile in the entry of a run; None: its bursts are not periodic, or not known."""
    try:
        # Without `strict`: a list of JSON is a tuple here.
        return BurstProfile.model_validate((entry.model_extra or {}).get("profile"), strict=False)
    except ValidationError:
        return None
