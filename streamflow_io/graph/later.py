"""What may be proven while a run goes on, so that further jobs of the same steps stream in it.

The workflow is wired once, before it runs. An output that may stream later is wired as one that does, and comes when
its job has ended, as long as nothing is proven.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from .candidates import Candidate, Proved
from .edges import name_edges
from .io_graph import Delivery, Hop, Route, StreamEdge

#: An input, as step and port.
Reader = tuple[str, str]


@dataclass(frozen=True)
class Wiring:
    """How the files of a workflow are delivered, as it is wired.

    :ivar delivered: the edges of files and of names; those of what may stream later as if it did
    :ivar awaited: the outputs that stream as soon as that is proven, by name, with the inputs that read them so
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
    """The inputs of which it may be proven in this run that they can be read as streams, and that matters yet in it.

    :param repeated: the steps that may have many jobs
    :param settled: the inputs of which it is known whether they can
    """
    read = {output.name: set[Reader]() for output in proved.graph.outputs}
    for route in proved.graph.routes:
        if route.consumer is not None:
            read[route.output.name].add((route.consumer.step, route.consumer.port))
    # Who reads what others have as a stream would get it with them.
    with_others = {reader for name in proved.streamed for reader in read[name]}
    found = {(step, port) for step, each in candidates.items() if step in repeated for port in each.inputs}
    return frozenset(found - with_others - {*settled})


def wire_for_later(
    proved: Proved, hoped: Proved, readers: Collection[Reader], virtual: Collection[str] = ()
) -> Wiring | None:
    """How a workflow is wired so that what is proven meanwhile streams.

    :param proved: the graph, with what is proven
    :param hoped: the same, as if it was proven already of some readers
    :param readers: these
    :param virtual: the outputs that nobody writes, by name
    :return: None: nothing can stream later, or what is served now would be served in another way
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
