"""Decides how each route is served: the delivery of every stream edge, and why an edge falls back."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from msgspec.structs import replace

from streamflow_io.grouping import grouped
from streamflow_io.hints.models import StreamingRule
from streamflow_io.messages import Code, coded

from .io_graph import Delivery, Hop, HopKind, Input, OutputKind, Route, StreamEdge
from .sites import not_joined

_NOT_EARLY_THROUGH = {
    HopKind.SCATTER: "a list is scattered as a whole here",
    HopKind.VALUE_FROM: "valueFrom computes a new value from it",
    HopKind.LOOP: "it enters a loop",
    HopKind.UNKNOWN: "it is not known what happens to it there",
}
_NO_COMMIT_THROUGH = {HopKind.LOOP, HopKind.UNKNOWN}


def looked_at(hop: Hop) -> str | None:
    """Why no early file passes a hop, for any reader: it looks at a value, or changes it. A scatter takes a list."""
    if hop.kind is HopKind.SCATTER or hop.kind not in _NOT_EARLY_THROUGH:
        return None
    code = Code.UNKNOWN_WAY if hop.kind in _NO_COMMIT_THROUGH else Code.VALUE_COMPUTED
    return coded(f"{_NOT_EARLY_THROUGH[hop.kind]} ({hop.place})", code)


def plan_edges(routes: Iterable[Route], virtual: Collection[str] = ()) -> tuple[StreamEdge, ...]:
    """Decide for each route how its file is delivered.

    :param routes: all routes of a workflow on which a file arrives, workflow outputs included; names pass everywhere
    :param virtual: the outputs that no job writes, by name: see :mod:`.partitions`
    :return: one edge for each route whose output has a rule, or is `streamable` on both ends. Workflow outputs have no
        edge: they are collected as with plain StreamFlow. An edge that is not served as its rule asks says why.
    """
    routes = list(routes)
    edges = [
        edge
        for route in routes
        if (edge := _part_edge(route) if route.output.name in virtual else _edge(route)) is not None
    ]
    edges = _in_order(edges)
    edges = [_not_before_its_values(edge, routes) for edge in edges]
    edges = list(_with_their_records(edges, routes))
    return tuple(_without_mixed_hops(edges, routes))


def name_edges(routes: Iterable[Route], edges: Iterable[StreamEdge]) -> tuple[StreamEdge, ...]:
    """Decide how the names of files are delivered: like the files that go to the same step, or through the same hop.

    Otherwise the step would wait for the name of a file that it could read already. A step that only gets a name gets
    it when the file is committed.

    :param routes: the routes on which only a name arrives
    :param edges: the edges that :func:`plan_edges` has made of the other routes
    """
    early = [edge for edge in edges if not edge.is_plain]
    left, found = list(routes), list[StreamEdge]()
    while along := [edge for route in left if (edge := _with_its_file(route, [*early, *found])) is not None]:
        found += along
        left = [route for route in left if all(edge.route is not route for edge in along)]
    for route in left:
        rule = _rule(route)
        if rule is not None and route.consumer is not None and _no_commit(route) is None:
            found.append(_at_commit(route, rule, by_element=False, reordered=False))
    return tuple(found)


def _part_edge(route: Route) -> StreamEdge | None:
    if route.consumer is None:
        return None
    return StreamEdge(route, StreamingRule(port=route.output.port), Delivery.PART, *_by_element(route))


def _edge(route: Route) -> StreamEdge | None:
    rule = _rule(route)
    if rule is None or route.consumer is None:
        return None
    by_element, reordered = _by_element(route)
    if (reason := _no_commit(route)) is not None:
        wanted = rule.committed.kind != "on_termination" or rule.start == "producer"
        return StreamEdge(route, rule, Delivery.TERMINATION, fallback=reason if wanted else None)
    at_commit = _at_commit(route, rule, by_element, reordered)
    if rule.start == "commit":
        return at_commit
    if (reason := _not_early(route, rule, by_element)) is not None:
        return replace(at_commit, fallback=reason)
    return StreamEdge(route, rule, _early_delivery(route, rule), by_element, reordered)


def _with_its_file(route: Route, early: Iterable[StreamEdge]) -> StreamEdge | None:
    """An edge for the name of a file, like that of the file; None: no early file goes where the name goes."""
    for edge in early:
        to = edge.route.consumer
        if edge.route.output != route.output or route.consumer is None or to is None:
            continue
        way = _by_element(route)
        alike = way == _by_element(edge.route) and way[0] == edge.by_element
        if alike and (to.step == route.consumer.step or _shared_hop(edge, route) is not None):
            return replace(edge, route=route, fallback=None)
    return None


def _not_before_its_values(edge: StreamEdge, routes: Iterable[Route]) -> StreamEdge:
    """An edge that waits for all inputs of its job, also for one that `valueFrom` computes from the whole file."""
    to = edge.route.consumer
    if not edge.delivery.joins or to is None:
        return edge
    for route in routes:
        other = route.consumer
        computed = any(hop.kind is HopKind.VALUE_FROM for hop in route.hops)
        if computed and route.output == edge.route.output and other not in (None, to) and other.step == to.step:
            why = f"{other.name} is computed from it by valueFrom, which uses more than its name"
            at_commit = _at_commit(edge.route, edge.rule, edge.by_element, edge.reordered)
            return replace(at_commit, fallback=coded(why, Code.VALUE_COMPUTED))
    return edge


def _early_delivery(route: Route, rule: StreamingRule) -> Delivery:
    """The delivery to a consumer that starts with its producer: bytes of a growing file, or at the gate.

    A Directory has no bytes. Under `no_update` the gate lists its entries as they are committed.
    """
    bytewise = rule.mode == "no_update" and route.output.kind is not OutputKind.DIRECTORY
    return Delivery.STREAM if bytewise else Delivery.GATE


def _rule(route: Route) -> StreamingRule | None:
    """The rule of the output as a whole. Rules with `files` hold for single entries, and lead if there is no other."""
    for rule in sorted(route.output.rules, key=lambda rule: bool(rule.files)):
        return rule
    to = route.consumer
    if route.output.streamable and to is not None and (to.streamable or to.refuted is not None):
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
        return StreamEdge(route, rule, Delivery.TERMINATION, fallback=coded(reason, Code.DIRECTORY_NOT_CLOSED))
    fallback = None if by_element else _not_by_element(route)
    return StreamEdge(route, rule, Delivery.COMMIT, by_element, reordered, fallback)


def _by_element(route: Route) -> tuple[bool, bool]:
    """Whether elements go to a scatter one by one, and whether they then come in the order of their commits."""
    kinds = [hop.kind for hop in route.hops]
    possible = HopKind.SCATTER in kinds and _not_by_element(route) is None
    # The outputs of a scatter have their places in the list from the beginning.
    return possible, possible and kinds[0] is HopKind.SCATTER


def _not_by_element(route: Route) -> str | None:
    """Why the scatter over a list gets all elements together; None: no scatter, or one that gets them one by one."""
    scatter = next((hop for hop in route.hops if hop.kind is HopKind.SCATTER), None)
    if scatter is None:
        return None
    if scatter.obstacle is not None:
        return coded(f"{scatter.obstacle} ({scatter.place})", Code.WHOLE_LIST)
    before = route.hops[: route.hops.index(scatter)]
    gathers = [hop for hop in before if hop.kind is HopKind.GATHER]
    of_files = route.output.kind is OutputKind.FILES and not gathers
    reason = None
    if (between := next((hop for hop in before if hop.kind is not HopKind.GATHER), None)) is not None:
        reason = f"{between.kind.value} at {between.place} lies between the list and the scatter"
    elif len(gathers) > 1:
        reason = "scatters are nested"
    elif not of_files and not gathers:
        reason = f"{route.output.name} is a {route.output.kind.value}"
    elif of_files and scatter.widths > 1:
        reason = f"{_step_of(scatter)} pairs them with those of another list, and their places are known at the end"
    elif gathers and gathers[0].widths > 1:
        reason = "a flat_crossproduct made the list"
    if reason is None:
        return None
    return coded(f"{_NOT_EARLY_THROUGH[HopKind.SCATTER]} ({scatter.place}): {reason}", Code.WHOLE_LIST)


def _no_commit(route: Route) -> str | None:
    if route.output.obstacle is not None:
        return route.output.obstacle
    if route.output.site.unwatched is not None:
        return f"{route.output.step} {route.output.site.unwatched}"
    if route.of_record and route.output.record_obstacle is not None:
        return route.output.record_obstacle
    for hop in route.hops:
        if hop.kind in _NO_COMMIT_THROUGH:
            return looked_at(hop)
        if hop.kind is HopKind.VALUE_FROM and route.output.record is not None:
            return looked_at(hop)
    return _in_a_list(route)


def _in_a_list(route: Route) -> str | None:
    """Why a field waits for others: records go on alone, and not element by element. None: no list on the way."""
    for hop in route.hops if route.output.record is not None else ():
        if hop.kind in (HopKind.GATHER, HopKind.SCATTER):
            return coded(f"a list of records goes on as a whole ({hop.place})", Code.WHOLE_LIST)
    return None


def _not_early(route: Route, rule: StreamingRule, by_element: bool) -> str | None:
    """Why a consumer cannot start with its producer; None: no obstacle."""
    output, consumer = route.output, route.consumer
    assert consumer is not None
    # Bytes, and listings under `no_update`, can be read only once, front to back.
    if rule.mode == "no_update" and not consumer.streamable:
        if consumer.refuted is not None:
            return consumer.refuted
        return coded(f"the input {consumer.name} is not `streamable`", Code.NOT_STREAMABLE)
    if consumer.obstacle is not None:
        return consumer.obstacle
    if output.stream_obstacle is not None:
        return output.stream_obstacle
    of_files = by_element and route.hops[0].kind is HopKind.SCATTER
    if output.kind not in (OutputKind.FILE, OutputKind.DIRECTORY) and not of_files:
        only = "only a File, a Directory, or a File[] into a scatter, can be had before its commit"
        whole = coded(f"{only}; {output.name} is a {output.kind.value}", Code.WHOLE_LIST)
        return _not_by_element(route) or whole
    gate = _early_delivery(route, rule) is Delivery.GATE
    if (reason := not_joined((output.step, output.site), (consumer.step, consumer.site), gate=gate)) is not None:
        return reason
    if (reason := _not_by_element(route)) is not None:
        return reason
    scatter = next((hop for hop in route.hops if hop.kind is HopKind.SCATTER), None)
    for hop in route.hops:
        if hop.obstacle is not None:
            return hop.obstacle
        if hop is not scatter and (reason := looked_at(hop)) is not None:
            return reason
    return None


def _in_order(edges: Sequence[StreamEdge]) -> list[StreamEdge]:
    """The edges, with outputs in commit order where their elements come in commit order.

    Elements in commit order must not be paired with those of another list in one scatter.
    """
    edges = list(edges)
    while True:
        reordered = {_step_of(scatter_of(edge)) for edge in edges if edge.reordered}
        for index, edge in enumerate(edges):
            if not edge.by_element or edge.reordered or _step_of(edge.route.hops[0]) not in reordered:
                continue
            if (scatter := scatter_of(edge)).widths > 1:
                reason = f"its elements are in commit order and {_step_of(scatter)} pairs them with another list"
                at_commit = _at_commit(edge.route, edge.rule, False, False)
                edges[index] = replace(at_commit, fallback=coded(reason, Code.WHOLE_LIST))
            else:
                edges[index] = replace(edge, reordered=True)
            break
        else:
            return edges


def scatter_of(edge: StreamEdge) -> Hop:
    """The scatter to which the elements of an edge go."""
    return next(hop for hop in edge.route.hops if hop.kind is HopKind.SCATTER)


def _step_of(hop: Hop) -> str:
    """The path of the step that is scattered, or whose outputs are gathered."""
    return hop.step.rpartition("/")[0]


def _with_their_records(edges: Sequence[StreamEdge], routes: Sequence[Route]) -> Iterator[StreamEdge]:
    """Yield the edges, with each record as late as the last of its fields: a record is one token."""
    deliveries = {edge.route: edge.delivery for edge in edges}
    records = grouped((route for route in routes if route.of_record), _record_of)
    for edge in edges:
        fields = records[_record_of(edge.route)] if edge.route.of_record else [edge.route]
        found = {deliveries.get(route, Delivery.TERMINATION): route.output.name for route in fields}
        last = Delivery.TERMINATION if Delivery.TERMINATION in found else Delivery.COMMIT
        if len(found) == 1 or edge.delivery is last:
            yield edge
        else:
            why = f"{found[last]} is a field of the same record, and comes no earlier"
            yield replace(edge, delivery=last, fallback=coded(why, Code.SHARED_TOKEN))


def _record_of(route: Route) -> tuple[tuple[str, str], tuple[Hop, ...], Input | None]:
    return route.output.whole, route.hops, route.consumer


def _without_mixed_hops(edges: Sequence[StreamEdge], routes: Sequence[Route]) -> Iterator[StreamEdge]:
    """Yield the edges that pass each hop together. A hop delivers one token to all routes behind it.

    An early token passes only if all these routes are served alike.
    """
    deliveries = {edge.route: edge.delivery for edge in edges}
    for edge in edges:
        others = [route for route in routes if deliveries.get(route) is not edge.delivery]
        if edge.delivery.joins and (mixed := _mixed_hop(edge, others)) is not None:
            hop, other = mixed
            rule = edge.rule
            target = "a workflow output" if other.consumer is None else other.consumer.name
            cannot = "cannot stream it" if edge.delivery is Delivery.STREAM else "needs it committed"
            at_commit = _at_commit(edge.route, rule, edge.by_element, edge.reordered)
            why = f"{hop.place} hands the same file to {target}, which {cannot}"
            yield replace(at_commit, fallback=coded(why, Code.SHARED_TOKEN))
        else:
            yield edge


def _mixed_hop(edge: StreamEdge, others: Sequence[Route]) -> tuple[Hop, Route] | None:
    for other in others:
        if other.output == edge.route.output and (hop := _shared_hop(edge, other)) is not None:
            return hop, other
    return None


def _shared_hop(edge: StreamEdge, other: Route) -> Hop | None:
    """A hop that hands one token to both; None: no such hop."""
    hops = edge.route.hops
    # A list that streams by element also goes its usual way. Its elements leave that way at the scatter.
    first = next(i for i, hop in enumerate(hops) if hop.kind is HopKind.SCATTER) if edge.by_element else 0
    for index in range(first, min(len(hops), len(other.hops))):
        if hops[: index + 1] != other.hops[: index + 1]:
            break
        if hops[index].kind is not HopKind.GATHER:
            return hops[index]
    return None
