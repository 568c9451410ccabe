"""The streams that are possible without a hint, and how proofs change the routes, also while a run goes on.

The outputs of one scatter go to the next scatter one by one, each element when its job has ended. That needs no proof.

Hints win: an output with rules stays as it is. A proven stream goes on until the job that writes it has ended (`mode:
no_update`, committed at termination). So the way in which the job writes need not be known. The bytes that were read
are compared with the file before any result made from them is handed on.

The workflow is wired once, before it runs. An output that may stream later is wired as if it streamed. Without a proof,
its file comes when its job has ended.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from streamflow_io.grouping import grouped
from streamflow_io.hints.globs import is_pattern
from streamflow_io.hints.models import StreamingRule

from .edges import name_edges, plan_edges
from .io_graph import Delivery, Hop, IOGraph, Output, OutputKind, Route, StreamEdge
from .possible import with_rule

_READ: Mapping[str, object] = {"mode": "no_update"}

#: The size of a program in bytes; when it was changed, in nanoseconds since the epoch; a digest of the libraries loaded
#: with it. None: no such program.
Stamp = tuple[int, int, str] | None
#: The words of a tool that may name a program or a script, with their stamps on the driver's node.
ToolPrograms = tuple[tuple[str, Stamp], ...]


class Candidate(Struct, frozen=True):
    """A step with inputs that may be read as streams.

    :ivar tool: a hex digest of all that is known of its tool before it runs
    :ivar inputs: the names of the inputs that may be read so after a proof
    :ivar declared: the names of the inputs that are declared `streamable`, which need no proof
    :ivar directory: an input that is always a Directory; a proof holds for what it has. None: no such input
    :ivar programs: of the tool
    :ivar once: why its jobs do not run a second time for a proof; None: no obstacle
    :ivar writers: the paths of the steps that write the files of an input, by input, as far as known
    """

    tool: str
    inputs: tuple[str, ...]
    programs: ToolPrograms = ()
    once: str | None = None
    declared: tuple[str, ...] = ()
    directory: str | None = None
    writers: Mapping[str, Collection[str]] = field(default_factory=dict)


def candidate_inputs(graph: IOGraph, excluded: Collection[str] = ()) -> dict[str, tuple[str, ...]]:
    """The inputs that could be read as streams if their tools can, and no hint says so; by step path.

    :param graph: with all obstacles
    :param excluded: the steps that neither read nor write such streams
    """
    found: dict[str, dict[str, None]] = defaultdict(dict)
    renamed = _renamed(graph)
    readers = (route.consumer for route in graph.routes if route.consumer is not None)
    declared = {(reader.step, reader.port) for reader in readers if reader.streamable}
    for (step, _), same in grouped(graph.routes, lambda route: route.output.whole).items():
        able = {output.name for output in (route.output for route in same) if _can_change(output)} - renamed
        for edge in with_rule(same, _READ) if able and step not in excluded else ():
            reader = edge.route.consumer
            if reader is None or reader.step in excluded or (reader.step, reader.port) in declared:
                continue
            if edge.route.output.name not in able:
                continue
            if edge.delivery is Delivery.STREAM and _hands_on(edge.route):
                found[reader.step][reader.port] = None
    return {step: tuple(ports) for step, ports in found.items()}


def writers_of(graph: IOGraph) -> dict[str, dict[str, set[str]]]:
    """The steps that write the files of inputs, by the step that reads the files, and the input."""
    found: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for route in graph.routes:
        if route.consumer is not None:
            found[route.consumer.step][route.consumer.port].add(route.output.step)
    return found


def with_refuted(graph: IOGraph, refuted: Mapping[tuple[str, str], str]) -> IOGraph:
    """A graph in which some inputs count as not declared `streamable`.

    :param refuted: why these inputs are not read as declared, by step and port
    """
    if not refuted:
        return graph

    def changed(route: Route) -> Route:
        to = route.consumer
        if to is None or not to.streamable or (why := refuted.get((to.step, to.port))) is None:
            return route
        return replace(route, consumer=replace(to, streamable=False, refuted=why))

    return replace(graph, routes=tuple(map(changed, graph.routes)), names=tuple(map(changed, graph.names)))


def _can_change(output: Output) -> bool:
    """Whether no hint is about an output, and its readers can start again if it is another file in the end."""
    return output.kind is OutputKind.FILE and not output.rules


def _hands_on(route: Route) -> bool:
    """Whether no hop on the way depends on the name of a file, or on whether there is a file."""
    return not route.needs_name and not (route.output.optional and any(hop.fills for hop in route.hops))


def _renamed(graph: IOGraph) -> set[str]:
    """The names of outputs on whose file names something depends, and whose file names may change until the end."""
    return {
        route.output.name
        for route in graph.names
        if route.consumer is not None and any(map(is_pattern, route.output.globs))
    }


class Proved(Struct, frozen=True):
    """A graph in which outputs are streamed to the readers that can read streams.

    :ivar hinted: the graph without such streams
    :ivar streamed: these outputs, by name
    :ivar one_by_one: the outputs whose elements go from one scatter to the next, each when its job has ended, by name
    """

    hinted: IOGraph
    graph: IOGraph
    streamed: frozenset[str] = frozenset()
    one_by_one: frozenset[str] = frozenset()

    def edges(self, virtual: Collection[str] = ()) -> tuple[StreamEdge, ...]:
        """The edges of :func:`plan_edges`, without those that no hint asks for and plain StreamFlow has, too."""
        edges = plan_edges(self.graph.routes, virtual)
        if not (changed := self.streamed | self.one_by_one):
            return edges
        asked = {edge.name for edge in plan_edges(self.hinted.routes, virtual)}
        is_asked = [edge.name in asked or edge.route.output.name not in changed for edge in edges]
        found = zip(edges, is_asked, strict=True)
        return tuple(
            edge if asked else replace(edge, fallback=None) for edge, asked in found if asked or not edge.is_plain
        )


def with_proofs(
    graph: IOGraph,
    proven: Collection[tuple[str, str]],
    refused: Collection[str] = (),
    excluded: Collection[str] = (),
) -> Proved:
    """Let outputs without rules be streamed to the inputs that are known to be read as streams.

    :param proven: these inputs, as step and port
    :param refused: the outputs that are not streamed, by name
    :param excluded: as for :func:`candidate_inputs`
    """
    readers = {route.consumer for route in graph.routes if route.consumer is not None}
    able = {reader: replace(reader, streamable=True) for reader in readers if (reader.step, reader.port) in proven}
    kept = {route.output.name for route in graph.routes if route.consumer in able and not _hands_on(route)}
    kept |= {*refused, *_renamed(graph)}
    streamed = {
        route.output: _with_rule(route.output, _READ)
        for route in graph.routes
        if route.consumer in able and _can_change(route.output) and route.output.name not in kept
    }
    apart = {output: _with_rule(output, {}) for output in _one_by_one(graph, excluded) if output not in streamed}
    changed = {**streamed, **apart}

    def proved(route: Route) -> Route:
        consumer = None if route.consumer is None else able.get(route.consumer, route.consumer)
        return Route(changed.get(route.output, route.output), route.hops, consumer)

    new = replace(
        graph,
        outputs=tuple(changed.get(output, output) for output in graph.outputs),
        routes=tuple(map(proved, graph.routes)),
        names=tuple(map(proved, graph.names)),
    )
    return Proved(graph, new, *(frozenset(output.name for output in outputs) for outputs in (streamed, apart)))


def _with_rule(output: Output, fields: Mapping[str, object]) -> Output:
    return replace(output, rules=(StreamingRule.model_validate({"port": output.port, **fields}),))


def _one_by_one(graph: IOGraph, excluded: Collection[str]) -> Iterator[Output]:
    """Yield the outputs of a scatter that go to another scatter, whose jobs need not wait for all of them."""
    for output, same in grouped(graph.routes, lambda route: route.output).items():
        if output.rules or output.streamable or output.step in excluded:
            continue
        edges = [edge for edge in with_rule(same, {}) if edge.by_element and edge.delivery is Delivery.TERMINATION]
        if any(edge.route.consumer is not None and edge.route.consumer.step not in excluded for edge in edges):
            yield output


#: An input, as step and port.
Reader = tuple[str, str]


class Wiring(Struct, frozen=True):
    """How the files of a workflow are delivered, as it is wired.

    :ivar delivered: the edges of files and of names; streams that may be proven later are among them
    :ivar awaited: by the name of an output that streams only after a proof: the inputs that read it as a stream
    """

    routes: tuple[Route, ...]
    names: tuple[Route, ...]
    delivered: tuple[StreamEdge, ...]
    awaited: Mapping[str, tuple[Reader, ...]] = field(default_factory=dict)


def hoped_readers(
    proved: Proved,
    candidates: Mapping[str, Candidate],
    repeated: Collection[str],
    settled: Collection[Reader],
) -> frozenset[Reader]:
    """The inputs that a proof in this run may allow to read streams, early enough to matter in the run.

    :param repeated: the steps that may have many jobs
    :param settled: the inputs for which the answer is known already
    """
    read = {output.name: set[Reader]() for output in proved.graph.outputs}
    for route in proved.graph.routes:
        if route.consumer is not None:
            read[route.output.name].add((route.consumer.step, route.consumer.port))
    # A reader of an output that others have as a stream would get it together with them.
    with_others = {reader for name in proved.streamed for reader in read[name]}
    found = {(step, port) for step, each in candidates.items() if step in repeated for port in each.inputs}
    return frozenset(found - with_others - {*settled})


def wire_for_later(
    proved: Proved, hoped: Proved, readers: Collection[Reader], virtual: Collection[str] = ()
) -> Wiring | None:
    """The wiring of a workflow in which streams can begin that are proven meanwhile.

    :param proved: the graph with what is proven
    :param hoped: the same graph, as if `readers` were proven already
    :param readers: the inputs that may be proven
    :param virtual: the outputs that no job writes, by name
    :return: None: nothing can stream later, or files that are delivered now would be delivered in another way
    """
    edges, now = hoped.edges(virtual), {_way(edge): _how(edge) for edge in proved.edges(virtual)}
    awaited: dict[str, dict[Reader, None]] = {}
    for edge in edges:
        output, to = edge.route.output.name, edge.route.consumer
        is_new = output in hoped.streamed and output not in proved.streamed
        if is_new and edge.delivery is Delivery.STREAM and to is not None and (to.step, to.port) in readers:
            awaited.setdefault(output, {})[to.step, to.port] = None
        elif now.get(_way(edge), _PLAIN) != _how(edge):
            return None
    if not awaited or now.keys() - {_way(edge) for edge in edges}:
        return None
    graph = hoped.graph
    delivered = (*edges, *name_edges(graph.names, edges))
    return Wiring(graph.routes, graph.names, delivered, {name: tuple(read) for name, read in awaited.items()})


_PLAIN = (Delivery.TERMINATION, False, False)


def _way(edge: StreamEdge) -> tuple[str, tuple[Hop, ...], Reader | None]:
    to = edge.route.consumer
    return edge.route.output.name, edge.route.hops, None if to is None else (to.step, to.port)


def _how(edge: StreamEdge) -> tuple[Delivery, bool, bool]:
    return edge.delivery, edge.by_element, edge.reordered
