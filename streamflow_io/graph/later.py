"""Wires streams that may be proven while a run goes on, so that further jobs of the same steps stream in it.

The workflow is wired once, before it runs. An output that may stream later is wired as if it streamed. Without a proof,
its file comes when its job has ended.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from msgspec import Struct, field

from .candidates import Candidate, Proved
from .edges import name_edges
from .io_graph import Delivery, Hop, Route, StreamEdge

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
