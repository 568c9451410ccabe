"""Gangs: steps that run at the same time because one reads what the other writes; steps that ask for too much."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from graphlib import TopologicalSorter

from msgspec import Struct

from streamflow_io.capacity import Room, too_large

from .io_graph import Step, StreamEdge


class Gang(Struct, frozen=True):
    """Steps joined by streams and gates.

    :ivar steps: paths, producers before consumers
    :ivar heads: the steps that read from no other step of the gang; they need their cores
    :ivar cores: the cores that the heads need at once, for one job each; None: known only at run time
    :ivar apart: why not all steps run at the same time; None: no obstacle is known
    """

    steps: tuple[str, ...]
    heads: tuple[str, ...]
    cores: float | None
    apart: str | None = None


def find_gangs(edges: Iterable[StreamEdge], steps: Mapping[str, Step]) -> tuple[Gang, ...]:
    """Find the steps that are co-scheduled.

    :param edges: all stream edges
    :param steps: steps by path
    :return: the connected components of the steps under edges that are streamed or gated, in the order of the paths
    """
    producers: dict[str, set[str]] = {}
    for edge in edges:
        if edge.delivery.joins and edge.route.consumer is not None:
            producers.setdefault(edge.route.consumer.step, set()).add(edge.route.output.step)
    components: dict[str, set[str]] = {}
    for consumer, read in producers.items():
        joined = {consumer, *read}
        joined.update(*(components.get(step, ()) for step in joined))
        components.update(dict.fromkeys(joined, joined))
    order = tuple(TopologicalSorter({step: sorted(read) for step, read in producers.items()}).static_order())
    found = {id(component): component for component in components.values()}.values()
    return tuple(sorted((_gang(component, producers, order, steps) for component in found), key=lambda g: g.steps))


def _gang(
    component: set[str], producers: Mapping[str, set[str]], order: Iterable[str], steps: Mapping[str, Step]
) -> Gang:
    members = tuple(step for step in order if step in component)
    heads = tuple(sorted(step for step in members if step not in producers))
    cores = [steps[head].cores for head in heads]
    known = [number for number in cores if number is not None]
    return Gang(members, heads, sum(known) if len(known) == len(cores) else None)


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


def gang_cores(gangs: Iterable[Gang], steps: Mapping[str, Step]) -> dict[str, float]:
    """Return, for each step of a gang, the cores of one job of each of the gang's steps.

    Steps whose cores only a job tells count as 0.
    """
    return {step: sum(steps[member].cores or 0.0 for member in gang.steps) for gang in gangs for step in gang.steps}
