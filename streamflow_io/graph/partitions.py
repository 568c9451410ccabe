"""Which splits are virtual: nobody writes their files, which are parts of the file that is split. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from streamflow_io.grouping import grouped
from streamflow_io.hints.inheritance import port_path
from streamflow_io.hints.sessions import SessionRule

from .edges import LOOKS_AT
from .io_graph import HopKind, IOGraph, Output, OutputKind, Route
from .sites import Site, SiteKind

_NOT_YET = {
    "declared": "`records` are not served yet, the program itself has to say where it cuts",
    "selected": "nothing is read ahead yet for jobs that select their own part",
}


@dataclass(frozen=True)
class Partition:
    """A rule of a read session, and what is made of it.

    :ivar port: the output whose files are parts; None: the jobs of the step read parts themselves
    :ivar of: the input that is read in parts
    :ivar real: why everything is as without the rule; None: its program is asked where it cuts, and writes nothing
    """

    step: str
    port: str | None
    of: str
    real: str | None = None

    @property
    def name(self) -> str:
        """For people: what the rule is about."""
        return port_path(self.step, self.of if self.port is None else self.port)

    @property
    def is_virtual(self) -> bool:
        return self.real is None


def plan_partitions(
    graph: IOGraph, rules: Mapping[str, Iterable[SessionRule]], streamed: Collection[tuple[str, str]]
) -> tuple[Partition, ...]:
    """Decide which splits are virtual.

    :param rules: by step path
    :param streamed: inputs, as step and port, that are read while they are written
    """
    routes = grouped((*graph.routes, *graph.names), lambda route: (route.output.step, route.output.port))
    outputs = {(output.step, output.port): output for output in graph.outputs}
    found: list[Partition] = []
    for step, of_step in rules.items():
        for rule in of_step:
            real: str | None = _NOT_YET.get(rule.form)
            if real is None and rule.port is not None:
                output = outputs.get((step, rule.port))
                real = _obstacle(step, output, rule, routes.get((step, rule.port), ()), streamed)
            other = next((each for each in found if each.step == step and each.is_virtual), None)
            if real is None and other is not None:
                real = f"a program says the parts of one output only, which is {other.name}"
            found.append(Partition(step, rule.port, rule.of, real))
    return tuple(_without_parts_of_parts(found, routes))


def _obstacle(
    step: str,
    output: Output | None,
    rule: SessionRule,
    routes: Collection[Route],
    streamed: Collection[tuple[str, str]],
) -> str | None:
    """Why the real split runs, if so; one sentence for the user."""
    if output is None:
        return f"{step} is an ExpressionTool"
    if output.kind is not OutputKind.FILES:
        return f"{output.name} is a {output.kind.value}"
    if (reason := _not_here(step, output.site) or output.part_obstacle) is not None:
        return reason
    if (step, rule.of) in streamed:
        return f"{port_path(step, rule.of)} is streamed: cuts are known of a complete file only"
    if not routes:
        return f"nobody reads {output.name}"
    return next((reason for route in routes if (reason := _route_obstacle(route)) is not None), None)


def _not_here(step: str, site: Site) -> str | None:
    if site.kind is SiteKind.LOCAL and site.unwatched is None:
        return None
    return f"{step} runs {site.where}: parts are read by jobs of the driver's node only, outside of containers"


def _route_obstacle(route: Route) -> str | None:
    for hop in route.hops:
        if hop.by_name:
            return None
        if hop.kind in LOOKS_AT:
            return f"{LOOKS_AT[hop.kind]} ({hop.step})"
        # A scatter may need the whole list: it gets that.
        if hop.obstacle is not None and hop.kind is not HopKind.SCATTER:
            return hop.obstacle
    if route.consumer is None:
        return f"{route.output.name} is a workflow output: its files have to be written"
    return _not_here(route.consumer.step, route.consumer.site) or route.consumer.part_obstacle


def _without_parts_of_parts(
    partitions: Sequence[Partition], routes: Mapping[tuple[str, str], Sequence[Route]]
) -> Iterator[Partition]:
    """A part is there as long as the job that reads it: it is no file that others could read parts of."""

    def settled(partition: Partition) -> Partition:
        sources = [other for other in partitions if partition.is_virtual and feeds(other, partition)]
        whole = next((other for other in sources if settled(other).is_virtual), None)
        reason = f"{port_path(partition.step, partition.of)} is a part itself"
        return partition if whole is None else replace(partition, real=f"{reason} ({whole.name})")

    def feeds(source: Partition, partition: Partition) -> bool:
        read = (partition.step, partition.of)
        of_port = routes.get((source.step, source.port or ""), ()) if source.is_virtual else ()
        return any((route.consumer.step, route.consumer.port) == read for route in of_port if route.consumer)

    return map(settled, partitions)
