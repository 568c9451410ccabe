"""Finds steps and gangs that ask for more than there is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from streamflow_io.capacity import Room, too_large

from .gangs import Gang
from .io_graph import Step


def never_start(
    steps: Mapping[str, Step], without_cores: Iterable[str], gangs: Iterable[Gang], here: Room
) -> dict[str, str]:
    """The steps whose jobs can never start on the driver's node, and why; by path, as far as known before the run.

    A job in a container there takes its cores and memory from the node.

    :param without_cores: I/O tasks
    :param gangs: their members that read from others need no free cores
    :param here: the room of the driver's node
    """
    coreless = {*without_cores, *(step for gang in gangs for step in gang.steps if step not in gang.heads)}
    found = {}
    for path, step in steps.items():
        asked = Room(None if path in coreless else step.cores, step.memory)
        if step.site.is_here and (why := too_large(asked, {"the driver's node": here})) is not None:
            found[path] = why
    return found


def not_together(gang: Gang, steps: Mapping[str, Step], here: Room) -> str | None:
    """Why the steps of a gang on the driver's node cannot all run at the same time; None: their memory fits."""
    memory = sum(steps[path].memory or 0.0 for path in gang.steps)
    if not all(steps[path].site.is_here for path in gang.steps) or here.holds(Room(None, memory)):
        return None
    return (
        f"not all at the same time: together they ask for {memory:,.0f} MiB of memory, and there are {here.memory:,.0f}"
    )
