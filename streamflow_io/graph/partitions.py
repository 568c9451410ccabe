"""Decides which splits are virtual: no job writes their files, which are parts of the file that is split."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

from streamflow_io.grouping import grouped
from streamflow_io.hints.globs import matches
from streamflow_io.hints.inheritance import port_path
from streamflow_io.hints.sessions import Form, SessionRule
from streamflow_io.messages import Code, coded

from .edges import looked_at
from .io_graph import Delivery, HopKind, IOGraph, Output, OutputKind, Route
from .part_sites import are_here, is_of_hosts, parts_condition, parts_obstacle

_ONE_HOST = "its deployment is one host, which has the file"
_WHERE_WRITTEN = "its job runs on the host where the file is written"


class Partition(Struct, frozen=True):
    """A rule of a read session, and what follows from it.

    :ivar port: the output whose files are parts; None: the jobs of the step read parts themselves
    :ivar of: the input that is read in parts
    :ivar real: why the rule has no effect; None: the files can be parts, or parts that jobs read themselves are read
        ahead
    :ivar form: where the knowledge about the beginnings of parts comes from
    :ivar condition: what must be found at run time, else the rule has no effect; None: no condition
    :ivar grows: the parts are reported while the file is still written
    :ivar trial: why the real split runs, though its files could be parts: its declaration is not trusted. None:
        trusted, or the program itself says where it cuts
    """

    step: str
    port: str | None
    of: str
    real: str | None = None
    form: Form = "said"
    trial: str | None = None
    condition: str | None = None
    grows: bool = False

    @property
    def name(self) -> str:
        """The output or input that the rule is about, for people."""
        return port_path(self.step, self.of if self.port is None else self.port)

    @property
    def is_served(self) -> bool:
        """Whether its files are delivered as parts, if a job reports them."""
        return self.real is None and self.port is not None

    @property
    def is_read_ahead(self) -> bool:
        """Whether the parts that the jobs of the step select are read ahead."""
        return self.real is None and self.port is None

    @property
    def is_virtual(self) -> bool:
        """Whether no job writes its files."""
        return self.is_served and self.trial is None


def plan_partitions(
    graph: IOGraph,
    rules: Mapping[str, Iterable[SessionRule]],
    streamed: Mapping[tuple[str, str], Delivery],
    trials: Mapping[tuple[str, str], str] = MappingProxyType({}),
    shared: Collection[str | None] = (),
) -> tuple[Partition, ...]:
    """Decide which splits are virtual.

    :param rules: by step path
    :param streamed: the inputs that are read while they are written, by step and port
    :param trials: why a declared rule is not trusted, by step and output; rules that are missing here are trusted
    :param shared: the deployments with a storage that other deployments see, too, as the user says; None: all have one
    """
    routes = _routes_by_output(graph)
    outputs = {(output.step, output.port): output for output in graph.outputs}
    found: list[Partition] = []
    for step, of_step in rules.items():
        for rule in of_step:
            if rule.port is None:
                ahead = _reader_obstacle(graph, step, rule.of, streamed)
                condition = None if ahead is not None or are_here(graph.steps[step].site) else _ONE_HOST
                found.append(Partition(step, None, rule.of, ahead, rule.form, condition=condition))
                continue
            output = outputs.get((step, rule.port))
            readers = routes.get((step, rule.port), ())
            real = _obstacle(step, output, rule, readers, streamed, shared)
            if real is None and output is not None and rule.form == "declared":
                real = _declared_obstacle(output, rule, routes)
            other = next((each for each in found if each.step == step and each.is_served), None)
            if real is None and other is not None:
                real = f"a program reports the parts of one output only: {other.name}"
            trial = trials.get((step, rule.port)) if real is None else None
            condition = _condition(readers) if real is None else None
            grows = real is None and (step, rule.of) in streamed
            if grows and not are_here(graph.steps[step].site):
                condition = ", and ".join(filter(None, (_WHERE_WRITTEN, condition)))
            found.append(Partition(step, rule.port, rule.of, real, rule.form, trial, condition, grows))
    return tuple(_without_parts_of_parts(found, routes))


def never_parts(graph: IOGraph, shared: Collection[str | None] = ()) -> dict[str, str]:
    """Why the files of a File[] output have to be written, even if they are declared as parts of an input.

    Outputs whose files could be parts are missing here.

    :param shared: as of :func:`plan_partitions`
    :return: by output, as /step/port
    """
    routes = _routes_by_output(graph)
    found: dict[str, str] = {}
    for output in graph.outputs:
        if output.kind is OutputKind.FILES:
            rule = SessionRule(port=output.port, of=output.port)
            readers = routes.get((output.step, output.port), ())
            why = _obstacle(output.step, output, rule, readers, {}, shared) or _used_beside(output, rule, routes)
            if why is not None:
                found[output.name] = why
    return found


def _routes_by_output(graph: IOGraph) -> dict[tuple[str, str], list[Route]]:
    """All routes of files and of names, by step and output."""
    return grouped((*graph.routes, *graph.names), lambda route: (route.output.step, route.output.port))


def _obstacle(
    step: str,
    output: Output | None,
    rule: SessionRule,
    routes: Collection[Route],
    streamed: Mapping[tuple[str, str], Delivery],
    shared: Collection[str | None],
) -> str | None:
    """Why the real split runs; None: no obstacle. One sentence for the user."""
    if output is None:
        return coded(f"{step} is an ExpressionTool", Code.EXPRESSION)
    if output.kind is not OutputKind.FILES:
        return f"{output.name} is a {output.kind.value}"
    at_split = step, output.site
    if (reason := parts_obstacle(at_split, at_split, {None}) or output.part_obstacle) is not None:
        return reason
    if (how := streamed.get((step, rule.of))) is not None and not _may_grow(rule, how):
        return f"{port_path(step, rule.of)} is streamed: other cuts than declared ones of `every` need a complete file"
    if not routes:
        return f"no step reads {output.name}"
    return next((reason for route in routes if (reason := _route_obstacle(route, shared)) is not None), None)


def _may_grow(rule: SessionRule, how: Delivery) -> bool:
    """Whether the cuts of a file are known while it is still written.

    The cuts of a program with `chunk` depend on the content, and the beginnings of `parts` on the size.
    """
    return how is Delivery.STREAM and rule.form == "declared" and rule.every is not None


def _condition(routes: Iterable[Route]) -> str | None:
    """The condition that must hold where the readers of parts run; None: no condition."""
    readers = [(route.output.site, route.consumer.site) for route in routes if _needs_bytes(route) and route.consumer]
    return next((found for pair in readers if (found := parts_condition(*pair)) is not None), None)


def _needs_bytes(route: Route) -> bool:
    return not any(hop.by_name for hop in route.hops)


def _declared_obstacle(
    output: Output, rule: SessionRule, routes: Mapping[tuple[str, str], Collection[Route]]
) -> str | None:
    """Why the program of a split has to run, though its cuts are declared; None: no obstacle."""
    if (why := _used_beside(output, rule, routes)) is not None:
        return why
    name = name_of_part(rule)
    if not any(matches(glob, name) for glob in output.globs):
        return f"the glob of {output.name} does not find {name}, as `names` has it"
    return None


def _used_beside(output: Output, rule: SessionRule, routes: Mapping[tuple[str, str], Collection[Route]]) -> str | None:
    for step, port in routes:
        if step == output.step and port not in (output.port, rule.count):
            return f"{port_path(step, port)} is used, too: only a run of the program makes this output"
    return None


def name_of_part(rule: SessionRule, number: int = 0) -> str:
    """The name of a declared part; numbers are from 0."""
    return (rule.names or "%d") % ((1 if rule.first is None else rule.first) + number)


def _reader_obstacle(graph: IOGraph, step: str, of: str, streamed: Mapping[tuple[str, str], Delivery]) -> str | None:
    """Why no part is read ahead for jobs that select their own part; None: no obstacle."""
    if step not in graph.steps:
        return coded(f"{step} is an ExpressionTool", Code.EXPRESSION)
    if (step, of) in streamed:
        return f"{port_path(step, of)} is streamed: it is read while it is written"
    site = graph.steps[step].site
    if (are_here(site) or is_of_hosts(site)) and site.unwatched is None:
        return None
    where = "of the driver's node, or of one SSH host, outside of containers"
    return f"{step} runs {site.where}: files are read ahead for jobs {where}"


def _route_obstacle(route: Route, shared: Collection[str | None]) -> str | None:
    for hop in route.hops:
        if hop.by_name:
            return None
        if (reason := looked_at(hop)) is not None:
            return reason
        # A scatter may need the whole list, and gets it.
        if hop.obstacle is not None and hop.kind is not HopKind.SCATTER:
            return hop.obstacle
    if route.consumer is None:
        return f"{route.output.name} is a workflow output: its files have to be written"
    readers = route.consumer.step, route.consumer.site
    return parts_obstacle((route.output.step, route.output.site), readers, shared) or route.consumer.part_obstacle


def _without_parts_of_parts(
    partitions: Sequence[Partition], routes: Mapping[tuple[str, str], Sequence[Route]]
) -> Iterator[Partition]:
    """Turn off parts of parts. A part is there only as long as the job that reads it, so it cannot be split in turn."""

    def settled(partition: Partition) -> Partition:
        sources = [other for other in partitions if partition.real is None and feeds(other, partition)]
        whole = next((other for other in sources if settled(other).is_served), None)
        if whole is None:
            return partition
        real = f"{port_path(partition.step, partition.of)} is a part itself ({whole.name})"
        return replace(partition, real=real, trial=None, condition=None, grows=False)

    def feeds(source: Partition, partition: Partition) -> bool:
        read = (partition.step, partition.of)
        of_port = routes.get((source.step, source.port or ""), ()) if source.is_served else ()
        return any((route.consumer.step, route.consumer.port) == read for route in of_port if route.consumer)

    return map(settled, partitions)
