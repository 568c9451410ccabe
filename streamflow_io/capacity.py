"""How much a job asks for and a location has.

Runs without hints need it, too: of this package nothing is imported here.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from streamflow_io.wording import counted

_SHOWN = 3


class Room(Struct, frozen=True):
    """The resources that a job asks for, or that a location has.

    :ivar cores: None: known at run time only
    :ivar memory: MiB; None: known at run time only
    """

    cores: float | None
    memory: float | None

    def __str__(self) -> str:
        cores = "" if self.cores is None else counted(self.cores, "core")
        memory = "" if self.memory is None else f"{self.memory:,.0f} MiB of memory"
        return " and ".join(filter(None, (cores, memory)))

    def holds(self, asked: Room) -> bool:
        """Whether a job with this request could run here alone. True while an amount is unknown."""
        return _covers(self.cores, asked.cores) and _covers(self.memory, asked.memory)

    def within(self, other: Room) -> Room:
        """The capacity of a location inside another one."""
        return Room(_least(self.cores, other.cores), _least(self.memory, other.memory))


def too_large(asked: Room, there: Mapping[str, Room], locations: int = 1) -> str | None:
    """Describe request and capacity of a job that can never start. None: the job can start.

    :param there: all locations where it may run, by name
    :param locations: the number of locations of the job, each with all that the job asks for
    """
    if not there or sum(room.holds(asked) for room in there.values()) >= locations:
        return None
    most = sorted(there.items(), key=lambda item: (-(item[1].cores or 0.0), -(item[1].memory or 0.0)))[:_SHOWN]
    found = "; ".join(f"{room} on {name}" for name, room in most)
    several = f" on each of {locations} locations" if locations > 1 else ""
    more = f", and {len(there) - _SHOWN} locations with no more cores" if len(there) > _SHOWN else ""
    return f"it asks for {asked}{several}, and there are {found}{more}"


def _least(one: float | None, other: float | None) -> float | None:
    return other if one is None else one if other is None else min(one, other)


def _covers(has: float | None, asked: float | None) -> bool:
    return has is None or asked is None or asked <= has
