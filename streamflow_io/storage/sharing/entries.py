"""What stands in the files of a shared directory, as models.

Whoever may write there may write anything: nothing is believed that is not of the right form and within bounds.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from streamflow_io.hints.models import Way
from streamflow_io.storage.admission.storages import Amounts

from .allocation import LAST_TICKET, Tenant, takes

# One block: it is written at once, and always has its place on the disk.
ENTRY_BYTES = 4096
# Enough for any storage; sums of a thousand of them are no trouble either.
_MOST = 10**18

_Amount = Annotated[int, Field(ge=0, le=_MOST)]
_Name = Annotated[str, StringConstraints(max_length=100)]
_Seconds = Annotated[float, Field(allow_inf_nan=False)]
MOST_OF_PATH = 1_000


class _Model(BaseModel):
    # Other fields are for features, which check what they read.
    model_config = ConfigDict(frozen=True, strict=True, extra="allow", defer_build=True)


class Entry(_Model):
    """`runs/ID.json`: what one run holds and wants, in bytes per second.

    :ivar run: what it is called, for people
    :ivar started: when it came, as all times in seconds since the epoch, on its own host
    :ivar now: when it wrote this
    :ivar beat: one more with each time that it was written
    :ivar bandwidth: of the storage, as its StreamFlow file has it
    :ivar wanted: what it waits for
    :ivar useful: what it could use beyond what it holds
    :ivar ticket: who wants something and has a smaller one asked before
    :ivar asked: when its burst began
    """

    version: Literal[1] = 1
    run: _Name
    host: _Name
    pid: Annotated[int, Field(ge=0)]
    started: _Seconds
    now: _Seconds
    beat: Annotated[int, Field(ge=0, le=2**62)]
    bandwidth: dict[Way, _Amount]
    held: dict[Way, _Amount] = Field(default_factory=dict)
    wanted: dict[Way, _Amount] = Field(default_factory=dict)
    useful: dict[Way, _Amount] = Field(default_factory=dict)
    ticket: Annotated[int, Field(ge=0, le=LAST_TICKET)] = 0
    asked: _Seconds = 0.0
    due: _Seconds = 0.0

    def tenant(self, identifier: str, bandwidth: Amounts, silent: bool = False, owner: int = 0) -> Tenant:
        """What the table knows of it: nobody holds, or wants, more than there is.

        :param identifier: of its file
        :param owner: of its file
        """
        held, wanted = _within(self.held, bandwidth), _within(self.wanted, bandwidth)
        seconds = takes(self.asked, self.due)
        return Tenant(identifier, held, wanted, self.due, self.ticket, silent, owner=owner, seconds=seconds)

    def to_bytes(self) -> bytes:
        """As it is written: always of the same length."""
        text = self.model_dump_json().encode("utf-8")
        if len(text) >= ENTRY_BYTES:
            raise ValueError("an entry is too large")
        return text.ljust(ENTRY_BYTES - 1) + b"\n"


class LedgerFile(_Model):
    """`ledger.json`: what is shared.

    :ivar path: of the storage, for people
    :ivar write: bytes per second for all runs together; none: the least of what the runs say
    :ivar read: the same
    :ivar holds: `auto`: bursts of runs take turns; see :mod:`.turns`
    """

    version: Literal[1] = 1
    path: Annotated[str, StringConstraints(max_length=4096)]
    write: Annotated[int, Field(gt=0, le=_MOST)] | None = None
    read: Annotated[int, Field(gt=0, le=_MOST)] | None = None
    holds: Literal["off", "auto"] = "off"

    @property
    def bandwidth(self) -> dict[Way, int] | None:
        """Where it is given; one alone holds for both directions, as in the StreamFlow file."""
        given = [each for each in (self.write, self.read) if each is not None]
        return {"write": self.write or given[0], "read": self.read or given[0]} if given else None


def _within(amounts: Amounts, bandwidth: Amounts) -> dict[Way, int]:
    return {way: min(much, bandwidth[way]) for way, much in amounts.items() if way in bandwidth}


def shortened(name: str) -> str:
    """A name that an entry can have."""
    return name if len(name) <= 100 else f"{name[:97]}..."
