"""Finds out how files could be delivered, if hints asked for it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from streamflow_io.grouping import grouped
from streamflow_io.hints.inheritance import port_path
from streamflow_io.hints.models import StreamingRule
from streamflow_io.messages import Code, coded

from .edges import plan_edges
from .io_graph import Delivery, OutputKind, Route, StreamEdge

_OWN_RULE = "a Streaming rule holds for the output already"


class PossibleRoute(Struct, frozen=True, rename="camel", kw_only=True):
    """A way from an output to an input, as far as it is known before a run."""

    output: Annotated[str, Meta(description="as /step/port")]
    input: Annotated[str, Meta(description="as /step/port")]
    kind: OutputKind
    standard_output: Annotated[bool, Meta(description="the output is the standard output of the command")] = False
    delivery: Annotated[Delivery, Meta(description="the delivery in this run")]
    by_element: Annotated[
        bool, Meta(description="with a commit rule, a list is delivered to a scatter element by element")
    ] = False
    not_at_commit: Annotated[
        str | None, Meta(description="why the output cannot be delivered before its job ends, if so")
    ] = None
    not_at_gate: Annotated[str | None, Meta(description="why the reader cannot start with the producer, if so")] = None
    not_streamed: Annotated[str | None, Meta(description="why the output cannot be read before its commit, if so")] = (
        None
    )
    not_parts: Annotated[
        str | None, Meta(description="why the files must be written if they are parts of an input")
    ] = None


def possible_routes(
    routes: Collection[Route],
    edges: Iterable[StreamEdge],
    standard_outputs: Collection[str],
    written: Mapping[str, str] = MappingProxyType({}),
) -> tuple[PossibleRoute, ...]:
    """The deliveries that are possible on each route to an input, if a rule asked for them.

    The rule holds for all routes of the output, and all readers read front to back. Rules for two outputs are not
    looked at together.

    :param routes: all routes of a workflow, with all obstacles
    :param standard_outputs: the outputs that are the standard output of their command, as `/step/port`
    :param written: why the files of an output have to be written, instead of being parts of an input; by output
    """
    deliveries = {(edge.route.output.name, _input(edge.route)): edge.delivery for edge in edges}
    of_output = grouped(routes, lambda route: route.output.whole)
    possible = {
        output: _possible(same, deliveries, port_path(*output) in standard_outputs, written.get(port_path(*output)))
        for output, same in of_output.items()
    }
    return tuple(next(possible[route.output.whole]) for route in routes if route.consumer is not None)


def _possible(
    routes: Sequence[Route],
    deliveries: Mapping[tuple[str, str], Delivery],
    standard_output: bool,
    not_parts: str | None,
) -> Iterator[PossibleRoute]:
    """Yield the possible deliveries of the routes of an output to inputs, in their order."""
    is_directory = routes[0].output.kind is OutputKind.DIRECTORY
    at_commit: dict[str, object] = (
        {"committed": "on_n_files", "nFiles": 1} if is_directory else {"committed": "on_close"}
    )
    wanted: tuple[dict[str, object], ...] = (at_commit, {"start": "producer"}, {"mode": "no_update"})
    for committed, gated, streamed in zip(*(with_rule(routes, fields) for fields in wanted), strict=True):
        route = committed.route
        delivery = deliveries.get((route.output.name, _input(route)), Delivery.TERMINATION)
        # A further rule would replace the user's rule, with all that this says.
        own = _OWN_RULE if routes[0].output.rules and delivery is Delivery.TERMINATION else None
        not_streamed = streamed.fallback
        if is_directory:
            why = f"{route.output.name} is a Directory: only a File has bytes to stream"
            not_streamed = coded(why, Code.NO_BYTES)
        yield PossibleRoute(
            output=route.output.name,
            input=_input(route),
            kind=route.output.kind,
            standard_output=standard_output,
            delivery=delivery,
            by_element=committed.by_element,
            not_at_commit=own or (None if committed.delivery is Delivery.COMMIT else committed.fallback),
            not_at_gate=own or (None if gated.delivery is Delivery.GATE else gated.fallback),
            not_streamed=own or (None if streamed.delivery is Delivery.STREAM else not_streamed),
            not_parts=not_parts,
        )


def with_rule(routes: Iterable[Route], fields: Mapping[str, object]) -> tuple[StreamEdge, ...]:
    """The edges of an output with a rule, in the order of their routes; all readers read front to back."""
    return plan_edges(
        replace(
            route,
            output=replace(route.output, rules=(StreamingRule.model_validate({"port": route.output.port, **fields}),)),
            consumer=None if route.consumer is None else replace(route.consumer, streamable=True),
        )
        for route in routes
    )


def _input(route: Route) -> str:
    return "" if route.consumer is None else route.consumer.name
