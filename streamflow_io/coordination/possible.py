"""How files could be delivered, if hints asked for it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from streamflow_io.hints.models import StreamingRule

from .graph import Delivery, HopKind, OutputKind, Route, StreamEdge
from .plan import plan_edges


@dataclass(frozen=True)
class PossibleRoute:
    """A way from an output to an input.

    :ivar output: as `/step/port`
    :ivar input: as `/step/port`
    :ivar standard_output: whether the output is the standard output of its command
    :ivar delivery: how it is delivered with the hints that there are
    :ivar by_element: whether with a commit rule the elements of a list would go to a scatter one by one
    :ivar not_at_commit: why no commit rule could deliver it before its job ends, if so
    :ivar not_at_gate: why its reader could not start with its producer, and be held where it touches it, if so
    :ivar not_streamed: why it could not be read before its commit, if so
    """

    output: str
    input: str
    kind: OutputKind
    standard_output: bool
    through: tuple[HopKind, ...]
    delivery: Delivery
    by_element: bool
    not_at_commit: str | None
    not_at_gate: str | None
    not_streamed: str | None


def possible_routes(
    routes: Collection[Route], edges: Iterable[StreamEdge], standard_outputs: Collection[str]
) -> tuple[PossibleRoute, ...]:
    """What could be done with each route to an input, each by itself; no two hints are looked at together.

    :param routes: all routes of a workflow, with all obstacles
    :param edges: the stream edges that there are
    :param standard_outputs: the outputs that are the standard output of their command, as `/step/port`
    """
    deliveries = {(edge.route.output.name, _input(edge.route)): edge.delivery for edge in edges}
    return tuple(
        _possible(
            route,
            deliveries.get((route.output.name, _input(route)), Delivery.TERMINATION),
            route.output.name in standard_outputs,
        )
        for route in routes
        if route.consumer is not None
    )


def _possible(route: Route, delivery: Delivery, standard_output: bool) -> PossibleRoute:
    committed = "on_n_files" if route.output.kind is OutputKind.DIRECTORY else "on_close"
    number = {"nFiles": 1} if committed == "on_n_files" else {}
    at_commit = _with_rule(route, {"committed": committed, **number})
    at_gate = _with_rule(route, {"start": "producer"})
    streamed = _with_rule(route, {"mode": "no_update"})
    not_at_commit = None if at_commit.delivery is Delivery.COMMIT else at_commit.fallback
    not_streamed = None
    if route.output.kind is OutputKind.DIRECTORY:
        not_streamed = f"{route.output.name} is a Directory: only a File has bytes to stream"
    elif streamed.delivery is not Delivery.STREAM:
        not_streamed = streamed.fallback
    return PossibleRoute(
        output=route.output.name,
        input=_input(route),
        kind=route.output.kind,
        standard_output=standard_output,
        through=tuple(hop.kind for hop in route.hops),
        delivery=delivery,
        by_element=at_commit.by_element,
        not_at_commit=not_at_commit,
        not_at_gate=None if at_gate.delivery is Delivery.GATE else at_gate.fallback,
        not_streamed=not_streamed,
    )


def _with_rule(route: Route, fields: dict[str, object]) -> StreamEdge:
    assert route.consumer is not None
    rule = StreamingRule.model_validate({"port": route.output.port, **fields})
    (edge,) = plan_edges(
        [replace(route, output=replace(route.output, rules=(rule,)), consumer=replace(route.consumer, streamable=True))]
    )
    return edge


def _input(route: Route) -> str:
    return "" if route.consumer is None else route.consumer.name
