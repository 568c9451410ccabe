"""The graph of a workflow as SVG.

Each node stands below the nodes before it (Sugiyama, Tagawa and Toda 1981).
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from msgspec import Struct

from streamflow_io.graph.io_graph import Delivery
from streamflow_io.wording import counted, size_text

from .analysis.edges import GraphFlow, GraphStep, WorkflowGraph
from .chart import BAD, COLOURS, cut, points, short, text_of, width_of

_LEAST, _MOST, _HEIGHT = 150.0, 300.0, 44
_BESIDE, _LAYER = 44, 94
_MARGIN = 12
# Space beside the text in a node, on both sides together.
_PADDING = 20
# How many points of a curve are compared with labels.
_SAMPLES = 24
# Width of a character of a name.
_BOLD = 7.6
_THIN, _THICK = 1.5, 8.0
_SIZE = 12
# Places of an edge's label along the edge, the best first.
_PLACES = (0.5, 0.4, 0.6, 0.3, 0.7, 0.22, 0.78)

Point = tuple[float, float]
Box = tuple[float, float, float, float]


class Style(Struct, frozen=True):
    """How a way of delivery is drawn.

    :ivar dash: a dash pattern of SVG
    """

    name: str
    colour: str
    dash: str


STYLES = {
    Delivery.STREAM: Style("stream", COLOURS[0], ""),
    Delivery.GATE: Style("gate", COLOURS[5], "14 4"),
    Delivery.COMMIT: Style("commit", COLOURS[2], "7 4"),
    Delivery.PART: Style("parts", COLOURS[3], "10 3 2 3"),
    Delivery.TERMINATION: Style("termination", "#888888", "1.5 3"),
}


def draw_graph(graph: WorkflowGraph) -> str:
    """Return the drawing. Every text in it can be selected."""
    return _Drawing(graph).svg()


def draw_legend(graph: WorkflowGraph) -> str:
    """Return the drawings of all ways of delivery in the graph."""
    used = [delivery for delivery in STYLES if any(flow.delivery is delivery for flow in graph.flows)]
    x, parts = 0.0, []
    for delivery in used:
        style = STYLES[delivery]
        parts.append(
            f'<line x1="{short(x)}" x2="{short(x + 40)}" y1="9" y2="9" stroke="{style.colour}" stroke-width="3"'
            f' stroke-dasharray="{style.dash}"/><text x="{short(x + 46)}" y="13">{style.name}</text>'
        )
        x += 46 + width_of(style.name) + 26
    return f'<svg class="legend" width="{short(x)}" height="18" role="img" aria-label="legend">{"".join(parts)}</svg>'


def _facts(step: GraphStep) -> str:
    told = [counted(step.jobs, "job")]
    if step.failed:
        told.append(f"{step.failed:,} failed")
    if step.seconds is not None:
        told.append(f"{_seconds(step.seconds)}{' each' if step.jobs > 1 else ''}")
    return ", ".join(told)


class _Drawing:
    def __init__(self, graph: WorkflowGraph) -> None:
        self._graph = graph
        names = [step.step for step in graph.steps]
        facts = max((width_of(_facts(step), 11) for step in graph.steps), default=0.0)
        self._width = min(_MOST, max(_LEAST, _PADDING + facts, _PADDING + _BOLD * max(map(len, names), default=0)))
        self._column = self._width + _BESIDE
        self._layout: Layout = layout(names, [(flow.source, flow.target) for flow in graph.flows])
        columns = [*self._layout.columns.values(), *(one for some in self._layout.bends.values() for one in some)]
        self._left = min(columns, default=0.0)
        self._size = (
            (max(columns, default=0.0) - self._left) * self._column + self._width + 2 * _MARGIN,
            max(self._layout.layers.values(), default=0) * _LAYER + _HEIGHT + 2 * _MARGIN,
        )
        self._most = max((flow.bytes or 0 for flow in graph.flows), default=0)
        self._boxes: list[Box] = []
        self._passed: list[Point] = []

    def svg(self) -> str:
        width, height = short(self._size[0] + _BESIDE), short(self._size[1])
        nodes = [self._node(step) for step in self._graph.steps]
        ways = list(self._ways())
        self._passed = [point for _, way in ways for point in _passed(way)]
        lines = [self._line(flow, way) for flow, way in ways]
        labels = [label for flow, way in ways if (label := self._label(flow, way))]
        return (
            f'<svg class="graph" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img"'
            f' aria-label="workflow graph">{"".join([*lines, *nodes, *labels])}</svg>'
        )

    def _corner(self, step: str) -> Point:
        x = (self._layout.columns[step] - self._left) * self._column + _MARGIN
        return x, self._layout.layers[step] * _LAYER + _MARGIN

    def _node(self, step: GraphStep) -> str:
        x, y = self._corner(step.step)
        self._boxes.append((x, y, x + self._width, y + _HEIGHT))
        facts = _facts(step)
        kind = "node" + (" path" if step.on_path >= 0.05 else "") + (" bad" if step.failed else "")
        kind += " io" if step.io_task else ""
        said = f"{step.step}: {facts}"
        if step.on_path >= 0.05:
            said += f"; {_seconds(step.on_path)} on the critical path"
        middle, width = short(x + self._width / 2), short(self._width)
        name = text_of(cut(step.step, int((self._width - 12) / _BOLD)))
        corners = 2 if step.io_task else 7
        return (
            f'<g class="{kind}"><title>{text_of(said)}</title>'
            f'<rect x="{short(x)}" y="{short(y)}" width="{width}" height="{_HEIGHT}" rx="{corners}"/>'
            f'<text x="{middle}" y="{short(y + 18)}" class="name">{name}</text>'
            f'<text x="{middle}" y="{short(y + 34)}" class="facts">{text_of(facts)}</text></g>'
        )

    def _ways(self) -> Iterator[tuple[GraphFlow, list[Point]]]:
        """Yield each flow with the points that it passes."""
        leaves: defaultdict[str, list[int]] = defaultdict(list)
        comes: defaultdict[str, list[int]] = defaultdict(list)
        flows = self._graph.flows
        for index, flow in enumerate(flows):
            leaves[flow.source].append(index)
            comes[flow.target].append(index)
        starts: dict[int, float] = {}
        ends: dict[int, float] = {}
        for of, found, is_start in ((leaves, starts, True), (comes, ends, False)):
            for indexes in of.values():
                ordered = sorted(indexes, key=lambda index: self._towards(flows[index], is_start))
                for place, index in enumerate(ordered):
                    found[index] = self._width * (place + 1) / (len(ordered) + 1)
        for index, flow in enumerate(flows):
            x, y = self._corner(flow.source)
            end_x, end_y = self._corner(flow.target)
            way = [(x + starts[index], y + _HEIGHT)]
            for number, column in enumerate(self._layout.bends.get((flow.source, flow.target), []), 1):
                bend = (column - self._left) * self._column + _MARGIN + self._width / 2
                layer = self._layout.layers[flow.source] + number
                way.append((bend, layer * _LAYER + _MARGIN))
                way.append((bend, layer * _LAYER + _MARGIN + _HEIGHT))
            yield flow, [*way, (end_x + ends[index], end_y)]

    def _towards(self, flow: GraphFlow, is_start: bool) -> float:
        """Return the column of the other end, or of the next bend."""
        bends = self._layout.bends.get((flow.source, flow.target))
        if bends:
            return bends[0] if is_start else bends[-1]
        return self._layout.columns[flow.target if is_start else flow.source]

    def _thickness(self, flow: GraphFlow) -> float:
        if not flow.bytes or not self._most:
            return _THIN
        return _THIN + (_THICK - _THIN) * math.sqrt(flow.bytes / self._most)

    def _line(self, flow: GraphFlow, way: Sequence[Point]) -> str:
        style, width = STYLES[flow.delivery], self._thickness(flow)
        (x, y), *rest = way
        path = f"M{short(x)} {short(y)}"
        for number, (next_x, next_y) in enumerate(rest):
            last = number == len(rest) - 1
            to_y = next_y - 7 if last else next_y
            half = (to_y - y) / 2
            path += f"C{short(x)} {short(y + half)} {short(next_x)} {short(to_y - half)} {short(next_x)} {short(to_y)}"
            x, y = next_x, next_y
        head = max(4.5, width)
        arrow = points([(x - head, y - 9), (x + head, y - 9), (x, y)])
        return (
            f'<g><title>{text_of(flow_text(flow))}</title><path d="{path}" fill="none" stroke="{style.colour}"'
            f' stroke-width="{short(width)}" stroke-dasharray="{style.dash}"/>'
            f'<polygon points="{arrow}" fill="{style.colour}"/></g>'
        )

    def _label(self, flow: GraphFlow, way: Sequence[Point]) -> str:
        label = _label_text(flow)
        if not label:
            return ""
        width = width_of(label, _SIZE) + 6
        boxes = list(self._places(flow, way, width))
        box = min(boxes, key=self._hidden)
        self._boxes.append(box)
        colour = BAD if flow.fell_back else STYLES[flow.delivery].colour
        text_x, text_y = box[0], (box[1] + box[3]) / 2 + _SIZE * 0.35
        return (
            f'<text class="label" x="{short(text_x)}" y="{short(text_y)}" style="fill:{colour}">'
            f"<title>{text_of(flow_text(flow))}</title>{text_of(label)}</text>"
        )

    def _places(self, flow: GraphFlow, way: Sequence[Point], width: float) -> Iterator[Box]:
        """Yield the places for the label of a flow, right and left of it, the best places first."""
        beside = self._thickness(flow) / 2 + 5
        for part in pairwise(way):
            for at_x, at_y in (_on_curve(*part, place) for place in _PLACES):
                for begin in (at_x + beside, at_x - beside - width):
                    if begin >= 0 and begin + width <= self._size[0] + _BESIDE:
                        yield begin, at_y - _SIZE * 0.7, begin + width, at_y + _SIZE * 0.7
        yield way[0][0] + beside, way[0][1], way[0][0] + beside + width, way[0][1] + _SIZE * 1.4

    def _hidden(self, box: Box) -> float:
        """Return how much a label at a place would hide, or be hidden, by nodes, labels and lines."""
        left, top, right, bottom = box
        lines = sum(left <= x <= right and top <= y <= bottom for x, y in self._passed)
        return lines + 100.0 * sum(_overlap(box, other) for other in self._boxes)


def _on_curve(begin: Point, end: Point, place: float) -> Point:
    """Return a point of the curve that is drawn from one point down to another."""
    # The curve is cubic, with control points half way down.
    down = 1.5 * place * (1 - place) + place**3
    across = place * place * (3 - 2 * place)
    return begin[0] + (end[0] - begin[0]) * across, begin[1] + (end[1] - begin[1]) * down


def _passed(way: Sequence[Point]) -> Iterator[Point]:
    """Yield points of a flow's curve, near to each other."""
    for part in pairwise(way):
        yield from (_on_curve(*part, place / _SAMPLES) for place in range(_SAMPLES + 1))


def _label_text(flow: GraphFlow) -> str:
    size = "" if flow.bytes is None else size_text(flow.bytes)
    if flow.delivery is Delivery.TERMINATION:
        return f"fell back {size}".strip() if flow.fell_back else size
    return f"{STYLES[flow.delivery].name}{' in part' if flow.fell_back else ''} {size}".strip()


def flow_text(flow: GraphFlow) -> str:
    """Return all that is known of a flow, in a line."""
    ways = ", ".join(f"{source} -> {target}" for source, target in flow.ports)
    size = "" if flow.bytes is None else f", {size_text(flow.bytes)}"
    fell = "; not all as asked" if flow.fell_back else ""
    return f"{flow.source} -> {flow.target}{f' ({ways})' if ways else ''}: {STYLES[flow.delivery].name}{size}{fell}"


def _seconds(seconds: float) -> str:
    return f"{seconds:,.0f} s" if seconds >= 100 else f"{seconds:.3g} s"


def _overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


# How often the layers are put into a better order, down and up.
_SWEEPS = 6


class Layout(Struct, frozen=True):
    """The places of nodes and edges.

    :ivar layers: the layer of each node, from 0 at the top
    :ivar columns: the place of each node in its layer, with fractions: 0 is the middle
    :ivar bends: for each edge, the columns where it passes the layers between its nodes, from the top
    """

    layers: dict[str, int]
    columns: dict[str, float]
    bends: dict[tuple[str, str], list[float]]


def layout(nodes: Sequence[str], edges: Iterable[tuple[str, str]]) -> Layout:
    """Put each node below all nodes before it. Edges against the order of a cycle, such as a loop, do not count."""
    layers, forward = _layers(nodes, edges)
    rows: list[list[str]] = [[] for _ in range(max(layers.values(), default=-1) + 1)]
    for node in nodes:
        rows[layers[node]].append(node)
    above: defaultdict[str, list[str]] = defaultdict(list)
    below: defaultdict[str, list[str]] = defaultdict(list)
    passed: dict[tuple[str, str], list[str]] = {}
    for source, target in forward:
        chain = [source]
        for layer in range(layers[source] + 1, layers[target]):
            # This name stands for an edge where it passes a layer.
            chain.append(f"{source}\n{target}\n{layer}")
            rows[layer].append(chain[-1])
        passed[source, target] = chain[1:]
        for upper, lower in zip(chain, [*chain[1:], target], strict=True):
            above[lower].append(upper)
            below[upper].append(lower)
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        beside = above if down else below
        order = rows if down else rows[::-1]
        for before, row in itertools.pairwise(order):
            place = {node: index / max(1, len(before) - 1) for index, node in enumerate(before)}
            now = {node: index / max(1, len(row) - 1) for index, node in enumerate(row)}
            row.sort(key=lambda node: _middle([place[one] for one in beside[node] if one in place], now[node]))
    columns = _columns(rows, above, below)
    bends = {edge: [columns[one] for one in chain] for edge, chain in passed.items()}
    return Layout(layers, {node: columns[node] for node in nodes}, bends)


def _middle(places: Sequence[float], otherwise: float) -> float:
    return sum(places) / len(places) if places else otherwise


def _layers(nodes: Sequence[str], edges: Iterable[tuple[str, str]]) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Return the length of the longest way to each node, and the edges that go forward."""
    known = set(nodes)
    after: defaultdict[str, list[str]] = defaultdict(list)
    for source, target in dict.fromkeys(edges):
        if source in known and target in known and source != target:
            after[source].append(target)
    order, backward = _order(nodes, after)
    layers = dict.fromkeys(nodes, 0)
    forward = []
    for node in order:
        for target in after[node]:
            if (node, target) not in backward:
                layers[target] = max(layers[target], layers[node] + 1)
                forward.append((node, target))
    return layers, forward


def _order(nodes: Sequence[str], after: defaultdict[str, list[str]]) -> tuple[list[str], set[tuple[str, str]]]:
    """Return the nodes, each after the nodes before it, and the edges that close a cycle."""
    backward: set[tuple[str, str]] = set()
    done: list[str] = []
    state: dict[str, int] = {}
    for first in nodes:
        todo = [] if first in state else [(first, iter(after[first]))]
        state.setdefault(first, 1)
        while todo:
            node, others = todo[-1]
            other = next(others, None)
            if other is None:
                todo.pop()
                state[node] = 2
                done.append(node)
            elif other not in state:
                state[other] = 1
                todo.append((other, iter(after[other])))
            elif state[other] == 1:
                backward.add((node, other))
    return done[::-1], backward


def _columns(
    rows: Sequence[Sequence[str]], above: defaultdict[str, list[str]], below: defaultdict[str, list[str]]
) -> dict[str, float]:
    """Return a column for each node and bend, near to those that it is joined with.

    Neighbours are at least 1 apart, less where an edge passes.
    """
    columns: dict[str, float] = {}
    for row in rows:
        _spread(columns, row, {})
    for sweep in range(_SWEEPS):
        order = rows if sweep % 2 == 0 else rows[::-1]
        beside = above if sweep % 2 == 0 else below
        for row in order:
            wanted = {node: _middle([columns[one] for one in beside[node]], columns[node]) for node in row}
            _spread(columns, row, wanted)
    return columns


def _spread(columns: dict[str, float], row: Sequence[str], wanted: dict[str, float]) -> None:
    """Put the nodes of a row as near to their wanted columns as their order and distances allow."""
    offsets = [0.0]
    for one, other in itertools.pairwise(row):
        offsets.append(offsets[-1] + _distance(one, other))
    if not row:
        return
    middle = offsets[-1] / 2
    targets = [wanted.get(node, offset - middle) - offset for node, offset in zip(row, offsets, strict=True)]
    # The best places that keep the order are means of neighbours that would be too near (pool adjacent violators).
    blocks: list[tuple[float, int]] = []
    for target in targets:
        mean, count = target, 1
        while blocks and blocks[-1][0] > mean:
            before, members = blocks.pop()
            mean, count = (before * members + mean * count) / (members + count), members + count
        blocks.append((mean, count))
    means = [mean for mean, count in blocks for _ in range(count)]
    for node, offset, mean in zip(row, offsets, means, strict=True):
        columns[node] = mean + offset


def _distance(one: str, other: str) -> float:
    edges = ("\n" in one) + ("\n" in other)
    return (1.0, 0.7, 0.35)[edges]
