"""How each route is served: the delivery of every stream edge, and why an edge falls back. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from streamflow_io.hints.models import StreamingRule

from .graph import Delivery, Hop, HopKind, OutputKind, Route, StreamEdge
from .sites import not_joined

_NOT_EARLY_THROUGH = {
    HopKind.SCATTER: "a list is scattered as a whole here",
    HopKind.PICK_VALUE: "pickValue looks at the value",
    HopKind.VALUE_FROM: "valueFrom computes a new value from it",
    HopKind.LOOP: "it enters a loop",
    HopKind.UNKNOWN: "it is not known what happens to it there",
}
_NO_COMMIT_THROUGH = {HopKind.LOOP, HopKind.UNKNOWN}


def plan_edges(routes: Iterable[Route]) -> tuple[StreamEdge, ...]:
    """Decide for each route how its file is delivered.

    :param routes: all routes of a workflow, workflow outputs included
    :return: one edge for each route whose output has a rule, or is `streamable` on both ends; workflow outputs have
        none: they are collected as with plain StreamFlow. An edge that is not served as its rule asks says why.
    """
    routes = list(routes)
    edges = [edge for route in routes if (edge := _edge(route)) is not None]
    edges = _without_reordered_zips(edges)
    return tuple(_without_mixed_hops(edges, routes))


def _edge(route: Route) -> StreamEdge | None:
    rule = _rule(route)
    if rule is None or route.consumer is None:
        return None
    by_element, reordered = _by_element(route, rule)
    if (reason := _no_commit(route)) is not None:
        wanted = rule.committed.kind != "on_termination" or rule.start == "producer"
        return StreamEdge(route, rule, Delivery.TERMINATION, fallback=reason if wanted else None)
    at_commit = _at_commit(route, rule, by_element, reordered)
    if rule.start == "commit":
        return at_commit
    if (reason := _not_early(route, rule, by_element)) is not None:
        return replace(at_commit, fallback=reason)
    return StreamEdge(route, rule, _early_delivery(route, rule), by_element, reordered)


def _early_delivery(route: Route, rule: StreamingRule) -> Delivery:
    """How a consumer that starts with its producer reads: bytes of a growing file, or at the gate.

    A Directory has no bytes; under `no_update` the gate lists its entries as they are committed.
    """
    bytewise = rule.mode == "no_update" and route.output.kind is not OutputKind.DIRECTORY
    return Delivery.STREAM if bytewise else Delivery.GATE


def _rule(route: Route) -> StreamingRule | None:
    """The rule of the output as a whole; those with `files` hold for single entries and lead if there is no other."""
    for rule in sorted(route.output.rules, key=lambda rule: bool(rule.files)):
        return rule
    if route.output.streamable and route.consumer is not None and route.consumer.streamable:
        return StreamingRule(port=route.output.port, mode="no_update")
    return None


def _at_commit(route: Route, rule: StreamingRule, by_element: bool, reordered: bool) -> StreamEdge:
    if rule.committed.kind == "on_termination":
        # Elements that a step has committed already keep their order: each is the output of a job of its own.
        by_element = by_element and not reordered
        return StreamEdge(route, rule, Delivery.TERMINATION, by_element)
    if route.output.kind is OutputKind.DIRECTORY and str(rule.committed) == "on_close":
        reason = (
            "a Directory is never closed: use on_n_files, on_file or on_close:N; its files are committed at termination"
        )
        return StreamEdge(route, rule, Delivery.TERMINATION, fallback=reason)
    return StreamEdge(route, rule, Delivery.COMMIT, by_element, reordered and by_element)


def _by_element(route: Route, rule: StreamingRule) -> tuple[bool, bool]:
    """Whether elements go to a scatter one by one, and whether then in the order of their commits."""
    kinds = [hop.kind for hop in route.hops]
    if kinds[:1] == [HopKind.SCATTER] and route.output.kind is OutputKind.FILES:
        # Only the order of one list can be put right afterwards.
        possible = route.hops[0].widths == 1 and route.hops[0].obstacle is None
        return possible, possible
    if kinds[:2] == [HopKind.GATHER, HopKind.SCATTER] and route.hops[1].obstacle is None:
        return True, False
    return False, False


def _no_commit(route: Route) -> str | None:
    if route.output.obstacle is not None:
        return route.output.obstacle
    if route.output.site.unwatched is not None:
        return f"{route.output.step} {route.output.site.unwatched}"
    for hop in route.hops:
        if hop.kind in _NO_COMMIT_THROUGH:
            return f"{_NOT_EARLY_THROUGH[hop.kind]} ({hop.step})"
    return None


def _not_early(route: Route, rule: StreamingRule, by_element: bool) -> str | None:
    """Why a consumer cannot start with its producer, if so."""
    output, consumer = route.output, route.consumer
    assert consumer is not None
    # Bytes, and listings under `no_update`, can be read only once, front to back.
    if rule.mode == "no_update" and not consumer.streamable:
        return f"the input {consumer.name} is not `streamable`"
    if consumer.obstacle is not None:
        return consumer.obstacle
    if output.stream_obstacle is not None:
        return output.stream_obstacle
    if output.kind not in (OutputKind.FILE, OutputKind.DIRECTORY) and not by_element:
        return (
            "only a File, a Directory, or a File[] into a scatter, can be had before its commit; "
            f"{output.name} is a {output.kind.value}"
        )
    gate = _early_delivery(route, rule) is Delivery.GATE
    if (reason := not_joined((output.step, output.site), (consumer.step, consumer.site), gate=gate)) is not None:
        return reason
    scatters = 0
    for hop in route.hops:
        if hop.obstacle is not None:
            return hop.obstacle
        if hop.kind is HopKind.SCATTER:
            scatters += 1
            if by_element and scatters == 1:
                continue
        if hop.kind in _NOT_EARLY_THROUGH:
            return f"{_NOT_EARLY_THROUGH[hop.kind]} ({hop.step})"
    return None


def _without_reordered_zips(edges: Sequence[StreamEdge]) -> list[StreamEdge]:
    """Elements in commit order must not meet those of another list in one scatter: they would be paired wrongly."""
    edges = list(edges)
    while True:
        reordered = {_scattered_step(edge) for edge in edges if edge.reordered}
        for index, edge in enumerate(edges):
            if not edge.by_element or edge.reordered:
                continue
            inside = any(_is_below(edge.route.output.step, step) for step in reordered)
            if inside and edge.route.hops[1].widths > 1:
                reason = f"its elements are in commit order and {_scattered_step(edge)} pairs them with another list"
                edges[index] = replace(edge, by_element=False, delivery=Delivery.TERMINATION, fallback=reason)
                break
            if inside:
                edges[index] = replace(edge, reordered=True)
                break
        else:
            return edges


def _scattered_step(edge: StreamEdge) -> str:
    """The path of the step over which the elements of an edge are scattered."""
    hop = next(hop for hop in edge.route.hops if hop.kind is HopKind.SCATTER)
    return hop.step.rpartition("/")[0]


def _is_below(path: str, step: str) -> bool:
    return path == step or path.startswith(step.rstrip("/") + "/")


def _without_mixed_hops(edges: Sequence[StreamEdge], routes: Sequence[Route]) -> Iterator[StreamEdge]:
    """A hop delivers one token to all behind it: an early one passes only if all of them are served alike."""
    deliveries = {edge.route: edge.delivery for edge in edges}
    for edge in edges:
        others = [route for route in routes if deliveries.get(route) is not edge.delivery]
        if edge.delivery.joins and (mixed := _mixed_hop(edge, others)) is not None:
            hop, other = mixed
            rule = edge.rule
            target = "a workflow output" if other.consumer is None else other.consumer.name
            cannot = "cannot stream it" if edge.delivery is Delivery.STREAM else "needs it committed"
            by_element, reordered = _by_element(edge.route, rule)
            at_commit = _at_commit(edge.route, rule, by_element, reordered)
            yield replace(at_commit, fallback=f"{hop.step} hands the same file to {target}, which {cannot}")
        else:
            yield edge


def _mixed_hop(edge: StreamEdge, others: Sequence[Route]) -> tuple[Hop, Route] | None:
    hops = edge.route.hops
    # A list that streams by element goes its usual way besides; the scatter is where the elements leave it.
    first = next(i for i, hop in enumerate(hops) if hop.kind is HopKind.SCATTER) if edge.by_element else 0
    for other in others:
        if other.output != edge.route.output:
            continue
        for index in range(first, min(len(hops), len(other.hops))):
            if hops[: index + 1] != other.hops[: index + 1]:
                break
            if hops[index].kind is not HopKind.GATHER:
                return hops[index], other
    return None
