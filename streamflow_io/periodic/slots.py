"""The slots of a pattern: when each application may begin to transfer, at the earliest. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from streamflow_io.sharing.slots import Slots

from .model import Instance, Pattern


def slots_of(pattern: Pattern) -> list[Slots]:
    """The slots of each application."""
    return [Slots(pattern.period, tuple(_starts(pattern.period, own))) for own in pattern.instances]


def _starts(period: float, instances: Sequence[Instance]) -> list[float]:
    """When the transfers begin of those instances that begin to compute in the first period."""
    ordered = sorted((one.work[0] % period, one.work[0], one.transfers[0].start) for one in instances)
    return [first + start - work for first, work, start in ordered]
