"""Decides which inputs of a workflow its jobs get before StreamFlow has read them for their checksum."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from streamflow_io.grouping import grouped

from .io_graph import HopKind, InputRoute
from .part_sites import are_here, is_of_hosts
from .partitions import Partition
from .sites import ALLOCATION, Site

# The hops that hand a file on unchanged.
_HANDS_ON = frozenset(
    {
        HopKind.SUBWORKFLOW,
        HopKind.FORWARD,
        HopKind.COMBINATOR,
        HopKind.SCATTER,
        HopKind.WHEN,
        HopKind.DEFAULT,
    }
)


def early_inputs(
    routes: Iterable[InputRoute],
    partitions: Iterable[Partition],
    with_checksum: Collection[tuple[str, str]] = (),
) -> tuple[InputRoute, ...]:
    """The routes of workflow inputs that come early: no job needs their checksum, and some job gains by it.

    A job gains if it reads front to back, as the checksum does, or if a read session serves it.

    :param routes: of all inputs of the workflow
    :param partitions: the rules of read sessions, with their outcomes
    :param with_checksum: inputs, as step and port, whose checksum is needed though no expression asks for it
    """
    read = {(each.step, each.of) for each in partitions if each.is_served or each.is_read_ahead}

    def gains(route: InputRoute) -> bool:
        reader = route.consumer
        if reader is None or not _is_there(route.site, reader.site):
            return False
        return reader.streamable or (reader.step, reader.port) in read

    def may_come_early(route: InputRoute) -> bool:
        reader = route.consumer
        handed_on = all(hop.kind in _HANDS_ON and hop.obstacle is None and not hop.by_name for hop in route.hops)
        return (
            handed_on
            and reader is not None
            and reader.part_obstacle is None
            and (reader.step, reader.port) not in with_checksum
        )

    of_inputs = grouped(routes, lambda route: route.input).values()
    early = [found for found in of_inputs if any(map(gains, found)) and all(map(may_come_early, found))]
    return tuple(route for found in early for route in found)


def _is_allocation(site: Site) -> bool:
    return is_of_hosts(site) and site.deployments[0].type == ALLOCATION


def _is_there(given: Site, reader: Site) -> bool:
    """Whether a file at one site is at the other one, too, so that jobs need no copy.

    Whether the nodes of an allocation see a file of the driver is found out by their jobs. A job that needs a copy
    waits for the checksum.
    """
    if are_here(given) and (are_here(reader) or _is_allocation(reader)):
        return True
    return is_of_hosts(given) and is_of_hosts(reader) and given.deployments[0].name == reader.deployments[0].name
