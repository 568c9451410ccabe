"""Decides which splits are virtual: their files are not written, but are parts of the file that is split.

Also decides whether jobs of one site can read parts of a file of another site. Some inputs of a workflow go to its jobs
before StreamFlow has read them: this module says which.

StreamFlow decides where the file is when the split runs. The split may see the file by a symbolic link, or as a copy.
So what is possible here is tried at run time, unless it is certain.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import product

from msgspec import Struct
from msgspec.structs import replace

from streamflow_io.grouping import grouped
from streamflow_io.hints.inheritance import port_path
from streamflow_io.hints.sessions import Form, SessionRule
from streamflow_io.messages import Code, coded

from .edges import looked_at
from .io_graph import Delivery, HopKind, InputRoute, IOGraph, Output, OutputKind, Route
from .sites import ALLOCATION, LOCAL, Deployment, Site, SiteKind
from .volumes import seen_from

#: A step and its site.
At = tuple[str, Site]


def parts_obstacle(split: At, reader: At, shared: Collection[str | None] = ()) -> str | None:
    """Why no job of a reader can read a file that a job of a split sees; None: no obstacle. One sentence for the user.

    :param shared: the deployments with a storage that other deployments see, too, as the user says; None: all have one
    """
    for step, site in (split, reader):
        if site.unwatched is not None:
            return f"{step} {site.unwatched}"
        if any(deployment.kind is SiteKind.PODS for deployment in site.deployments):
            return f"{step} runs {site.where}: parts are not read in pods"
    (writer, source), (step, target) = split, reader
    for there, here in product(source.deployments, target.deployments):
        if (why := _apart(there, here, shared)) is not None:
            return f"{writer} runs {source.where}, {step} {target.where}: {why}"
    return None


def parts_condition(source: Site, target: Site) -> str | None:
    """The condition that is tried before a split reports parts, and must hold; None: no condition."""
    uncertain = [pair for pair in product(source.deployments, target.deployments) if not _is_certain(*pair)]
    if not uncertain:
        return None
    linked = all(_may_have_link(*pair) for pair in uncertain)
    return "its readers see it by the same path" + (", or reach where it is split" if linked else "")


def _apart(there: Deployment, here: Deployment, shared: Collection[str | None]) -> str | None:
    if here.kind is SiteKind.QUEUE and there.name != here.name and not {None, here.name} & {*shared}:
        # The nodes of a queue manager are not known before a job runs, so what they see cannot be tried.
        return f"name the storage that {here.name} shares, with `scope: shared`, among the `storages`"
    if _have_nothing_in_common(there, here) and not _may_have_link(there, here):
        return "they see no directory by the same path; give both a volume at one path"
    return None


def _have_nothing_in_common(there: Deployment, here: Deployment) -> bool:
    """Whether containers certainly see no file by the same path as others of their host."""
    if there.name == here.name or not (there.is_contained or here.is_contained):
        return False
    if there.node is None or there.node != here.node or there.seen is None or here.seen is None:
        return False
    paths = [bind.inside for bind in (*there.seen, *here.seen)]
    return not any(seen_from(there.seen, path, here.seen) == path for path in paths)


def _may_have_link(there: Deployment, here: Deployment) -> bool:
    """Whether a job here may get parts by the network."""
    return there.kind is here.kind is SiteKind.HOSTS or (there.name != here.name and there.has_link_to(here))


def _is_certain(there: Deployment, here: Deployment) -> bool:
    """Whether both are one machine, or nodes for which StreamFlow gives the same path to the same input."""
    if there.kind is not here.kind:
        return False
    return there.kind is SiteKind.LOCAL or (there.kind is SiteKind.QUEUE and there.name == here.name)


def are_here(site: Site) -> bool:
    """Whether all jobs of a site are processes of the driver's node, outside of containers."""
    return all(deployment.kind is SiteKind.LOCAL for deployment in site.deployments)


def is_of_hosts(site: Site) -> bool:
    """Whether all jobs of a site run on hosts of one deployment, which may be one host."""
    return len(site.deployments) == 1 and site.kind is SiteKind.HOSTS


def share_cache(site: Site) -> bool:
    """Whether all jobs of a site read what the driver's node has in its page cache."""
    return all(deployment.node == LOCAL for deployment in site.deployments)


_ONE_HOST = "its deployment is one host, which has the file"
_WHERE_WRITTEN = "its job runs on the host where the file is written"
_STREAMED = "is streamed: other cuts than declared ones of `every` need a complete file"
#: Why the program of a split with declared cuts runs the first time.
NOT_VERIFIED = "not verified yet: the first run compares what its program writes"

Routes = Mapping[tuple[str, str], Collection[Route]]


class Partition(Struct, frozen=True):
    """A rule of a read session, and its outcome.

    :ivar port: the output whose files are parts. None: the jobs of the step read parts themselves
    :ivar of: the input that is read in parts
    :ivar real: why everything is as without the rule. None: the files can be parts, or are read ahead where jobs read
        parts themselves
    :ivar form: how it is known where the parts begin
    :ivar condition: must hold when the split runs, or everything is as without the rule. None: no condition
    :ivar grows: whether the parts are said while the file is still written
    :ivar trial: why the program runs though its files could be parts: the declared cuts are not trusted. None: the cuts
        are trusted, or the program says its parts
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
        """The name of the output or the input of the rule, for people."""
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
        """Whether its files are not written."""
        return self.is_served and self.trial is None


class CutRules:
    """The meaning of declared cuts for the plan of a split. The feature `cuts` extends this class."""

    def obstacle(self, output: Output, rule: SessionRule, routes: Routes) -> str | None:
        """Why the program of a split has to run. None: the program need not run.

        :param routes: all routes of the workflow, by step and output
        """
        return None

    def may_grow(self, rule: SessionRule) -> bool:
        """Whether the cuts in a file are known while the file is still written."""
        return False

    def trial(self, step: str, port: str) -> str | None:
        """Why the cuts of an output are not trusted. None: the cuts are trusted, or none is declared."""
        return None


def plan_partitions(
    graph: IOGraph,
    rules: Mapping[str, Iterable[SessionRule]],
    streamed: Mapping[tuple[str, str], Delivery],
    shared: Collection[str | None] = (),
    cuts: CutRules = CutRules(),  # noqa: B008
) -> tuple[Partition, ...]:
    """Decide which splits are virtual.

    :param rules: by step path
    :param streamed: the delivery of each input that is read while it is written, by step and port
    :param shared: the deployments with a storage that others see, too, as the user says. None in it: all deployments
    """
    routes = routes_by_output(graph)
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
            how = streamed.get((step, rule.of))
            complete = how is not None and not (how is Delivery.STREAM and cuts.may_grow(rule))
            real = obstacle(
                step, output, readers, shared, f"{port_path(step, rule.of)} {_STREAMED}" if complete else None
            )
            if real is None and output is not None:
                real = cuts.obstacle(output, rule, routes)
            other = next((each for each in found if each.step == step and each.is_served), None)
            if real is None and other is not None:
                real = f"a program reports the parts of one output only: {other.name}"
            trial = cuts.trial(step, rule.port) if real is None else None
            condition = _condition(readers) if real is None else None
            grows = real is None and (step, rule.of) in streamed
            if grows and not are_here(graph.steps[step].site):
                condition = ", and ".join(filter(None, (_WHERE_WRITTEN, condition)))
            found.append(Partition(step, rule.port, rule.of, real, rule.form, trial, condition, grows))
    return tuple(_without_parts_of_parts(found, routes))


def routes_by_output(graph: IOGraph) -> dict[tuple[str, str], list[Route]]:
    """All routes of files and of names, by step and output."""
    return grouped((*graph.routes, *graph.names), lambda route: (route.output.step, route.output.port))


def obstacle(
    step: str,
    output: Output | None,
    routes: Collection[Route],
    shared: Collection[str | None],
    of_input: str | None = None,
) -> str | None:
    """Why the program of a split has to write its files, as one sentence. None: the files can be parts.

    :param of_input: why the input of the split cannot be read in parts. None: the input can
    """
    if output is None:
        return coded(f"{step} is an ExpressionTool", Code.EXPRESSION)
    if output.kind is not OutputKind.FILES:
        return f"{output.name} is a {output.kind.value}"
    at_split = step, output.site
    if (reason := parts_obstacle(at_split, at_split, {None}) or output.part_obstacle) is not None:
        return reason
    if of_input is not None:
        return of_input
    if not routes:
        return f"no step reads {output.name}"
    return next((reason for route in routes if (reason := _route_obstacle(route, shared)) is not None), None)


def _condition(routes: Iterable[Route]) -> str | None:
    """The condition that must hold where the readers of parts run. None: no condition."""
    readers = [(route.output.site, route.consumer.site) for route in routes if _needs_bytes(route) and route.consumer]
    return next((found for pair in readers if (found := parts_condition(*pair)) is not None), None)


def _needs_bytes(route: Route) -> bool:
    return not any(hop.by_name for hop in route.hops)


def _reader_obstacle(graph: IOGraph, step: str, of: str, streamed: Mapping[tuple[str, str], Delivery]) -> str | None:
    """Why nothing is read ahead for jobs that select their own part. None: the parts are read ahead."""
    if step not in graph.steps:
        return coded(f"{step} is an ExpressionTool", Code.EXPRESSION)
    if (step, of) in streamed:
        return f"{port_path(step, of)} is streamed: it is read while it is written"
    site = graph.steps[step].site
    if (are_here(site) or is_of_hosts(site)) and site.unwatched is None:
        return None
    where = "of the driver's node, or of one host (SSH or an allocation), outside of containers"
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
    """Leave out the parts of parts: a part ends with its reader, and is no file for others."""

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
