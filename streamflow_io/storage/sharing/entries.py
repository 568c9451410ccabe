"""Models of the files of a shared directory.

Every user of the directory may write anything there. So only values of the right form and within bounds are accepted.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from streamflow_io.hints.models import Way
from streamflow_io.storage.admission.demand import Amounts

from .allocation import LAST_TICKET, Tenant, takes

# One block: written at once, with a reserved place on the disk.
ENTRY_BYTES = 4096
# Enough for any storage, and a sum of a thousand of them is no problem either.
_MOST = 10**18

_Amount = Annotated[int, Field(ge=0, le=_MOST)]
_Name = Annotated[str, StringConstraints(max_length=100)]
# Some thousand years, so that people can read every time.
_MOST_SECONDS = 1e11
_Seconds = Annotated[float, Field(ge=-_MOST_SECONDS, le=_MOST_SECONDS, allow_inf_nan=False)]
MOST_OF_PATH = 1_000


class _SharedModel(BaseModel):
    # Other fields belong to features, which check the fields that they read.
    model_config = ConfigDict(frozen=True, strict=True, extra="allow", defer_build=True)


class Entry(_SharedModel):
    """`runs/ID.json`: what one run holds and wants, in bytes per second.

    :ivar run: the name of the run, for people
    :ivar started: when the run came. All times are in seconds since the epoch, on the run's own host
    :ivar now: when the run wrote this entry
    :ivar beat: one more with each time that the entry was written
    :ivar bandwidth: the storage's bandwidth in the run's StreamFlow file
    :ivar wanted: what the run waits for
    :ivar ticket: order of asking: a run with a smaller ticket asked before
    :ivar asked: when the burst of the run began
    """

    version: Literal[1] = 1
    run: _Name
    host: _Name
    pid: Annotated[int, Field(ge=0, le=2**31)]
    started: _Seconds
    now: _Seconds
    beat: Annotated[int, Field(ge=0, le=2**62)]
    bandwidth: dict[Way, _Amount]
    held: dict[Way, _Amount] = Field(default_factory=dict)
    wanted: dict[Way, _Amount] = Field(default_factory=dict)
    ticket: Annotated[int, Field(ge=0, le=LAST_TICKET)] = 0
    asked: _Seconds = 0.0
    due: _Seconds = 0.0

    def tenant(self, identifier: str, bandwidth: Amounts, silent: bool = False, owner: int = 0) -> Tenant:
        """Return the tenant of this entry. Amounts are cut to the bandwidth.

        :param identifier: the name of the entry's file
        :param owner: the owner of the entry's file
        """
        held, wanted = _within(self.held, bandwidth), _within(self.wanted, bandwidth)
        seconds = takes(self.asked, self.due)
        return Tenant(identifier, held, wanted, self.due, self.ticket, silent, owner=owner, seconds=seconds)

    def to_bytes(self) -> bytes:
        """Return the content of the file, always of the same length."""
        text = self.model_dump_json().encode("utf-8")
        if len(text) >= ENTRY_BYTES:
            raise ValueError("an entry is too large")
        return text.ljust(ENTRY_BYTES - 1) + b"\n"


class LedgerFile(_SharedModel):
    """`ledger.json`: what is shared.

    :ivar path: the path of the storage, for people
    :ivar write: bytes per second for all runs together. None: the value of `read`, or else the lowest value that a run
        states
    :ivar read: the same, with `write` as the default
    :ivar holds: `auto`: bursts of runs take turns; see :mod:`.turns`
    """

    version: Literal[1] = 1
    path: Annotated[str, StringConstraints(max_length=4096)]
    write: Annotated[int, Field(gt=0, le=_MOST)] | None = None
    read: Annotated[int, Field(gt=0, le=_MOST)] | None = None
    holds: Literal["off", "auto"] = "off"

    @property
    def bandwidth(self) -> dict[Way, int] | None:
        """The bandwidth, if it is given. A single value holds for both directions, as in the StreamFlow file."""
        given = [each for each in (self.write, self.read) if each is not None]
        return {"write": self.write or given[0], "read": self.read or given[0]} if given else None


def _within(amounts: Amounts, bandwidth: Amounts) -> dict[Way, int]:
    return {way: min(much, bandwidth[way]) for way, much in amounts.items() if way in bandwidth}


def shortened(name: str) -> str:
    """Return a name that is short enough for an entry."""
    return name if len(name) <= 100 else f"{name[:97]}..."
