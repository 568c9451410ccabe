"""The graph of a workflow as SVG.

Each node stands below the nodes before it (Sugiyama, Tagawa and Toda 1981).
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

from msgspec import Struct

from streamflow_io.graph.io_graph import Delivery
from streamflow_io.grouping import grouped
from streamflow_io.wording import counted, size_text

from .analysis.edges import GraphFlow, GraphStep, WorkflowGraph
from .chart import BAD, COLOURS, cut, points, scale, short, text_of, width_of

_WIDTH, _HEIGHT = 230.0, 44
_BESIDE, _LAYER = 50, 94
_MARGIN = 12
# Width of a character of a name.
_BOLD = 7.6
_THIN, _THICK = 1.5, 8.0
# Height of a label.
_LINE = 14
# How often the layers are put into a better order, down and up.
_SWEEPS = 6
# Room of a bend, as a share of the room of a node.
_BEND = 0.3

Point = tuple[float, float]


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


def draw_graph(graph: WorkflowGraph) -> str:
    """Return the drawing. Every text in it can be selected."""
    names = dict.fromkeys(step.step for step in graph.steps)
    # Ports of a workflow or a loop are those of no step with jobs.
    drawn = [flow for flow in graph.flows if {flow.source, flow.target} <= names.keys() and flow.source != flow.target]
    flows = [(flow.source, flow.target) for flow in drawn]
    places = layout([*names], flows)
    first = min((column for column, _ in places.values()), default=0.0)
    corners = {
        name: ((column - first) * (_WIDTH + _BESIDE) + _MARGIN, layer * _LAYER + _MARGIN)
        for name, (column, layer) in places.items()
    }
    most = max((flow.bytes or 0 for flow in drawn), default=0)
    thickness = scale(math.sqrt(most), _THIN, _THICK)
    lines, labels = [], []
    taken: list[tuple[float, float, float]] = []
    for flow, way in zip(drawn, _ways(flows, corners), strict=True):
        width = thickness(math.sqrt(flow.bytes or 0))
        lines.append(_line(flow, way, width))
        labels.append(_label(flow, way[-2:], width, taken))
    nodes = [_node(step, corners[step.step]) for step in graph.steps]
    width = max((x for x, _ in corners.values()), default=0.0) + _WIDTH + 2 * _MARGIN + _BESIDE
    height = max((y for _, y in corners.values()), default=0.0) + _HEIGHT + _MARGIN
    return (
        f'<svg class="graph" viewBox="0 0 {short(width)} {short(height)}" width="{short(width)}"'
        f' height="{short(height)}" role="img" aria-label="workflow graph">{"".join([*lines, *nodes, *labels])}</svg>'
    )


def _node(step: GraphStep, corner: Point) -> str:
    x, y = corner
    told = [counted(step.jobs, "job")]
    if step.failed:
        told.append(f"{step.failed:,} failed")
    if step.seconds is not None:
        told.append(f"{_seconds(step.seconds)}{' each' if step.jobs > 1 else ''}")
    facts = ", ".join(told)
    kinds = {"path": step.on_path >= 0.05, "bad": bool(step.failed), "io": step.io_task}
    kind = " ".join(["node", *(name for name, holds in kinds.items() if holds)])
    said = f"{step.step}: {facts}"
    if step.on_path >= 0.05:
        said += f"; {_seconds(step.on_path)} on the critical path"
    middle = short(x + _WIDTH / 2)
    name = text_of(cut(step.step, int((_WIDTH - 12) / _BOLD)))
    return (
        f'<g class="{kind}"><title>{text_of(said)}</title>'
        f'<rect x="{short(x)}" y="{short(y)}" width="{_WIDTH}" height="{_HEIGHT}" rx="{2 if step.io_task else 7}"/>'
        f'<text x="{middle}" y="{short(y + 18)}" class="name">{name}</text>'
        f'<text x="{middle}" y="{short(y + 34)}" class="facts">{text_of(facts)}</text></g>'
    )


def _ways(flows: Sequence[tuple[str, str]], corners: Mapping[str, Point]) -> Iterator[list[Point]]:
    """Yield the points that each flow passes. The flows of a node are beside each other."""
    leave = grouped(range(len(flows)), lambda index: flows[index][0])
    come = grouped(range(len(flows)), lambda index: flows[index][1])
    for index, (source, target) in enumerate(flows):
        bends = [corners[one] for one in itertools.takewhile(corners.__contains__, bends_of(source, target))]
        (x, y), (end_x, end_y) = corners[source], corners[target]
        beside = sorted(leave[source], key=lambda one: corners[flows[one][1]])
        above = sorted(come[target], key=lambda one: corners[flows[one][0]])
        start = x + _WIDTH * (beside.index(index) + 1) / (len(beside) + 1)
        end = end_x + _WIDTH * (above.index(index) + 1) / (len(above) + 1)
        passed = [(bend_x + _WIDTH / 2, at) for bend_x, top in bends for at in (top, top + _HEIGHT)]
        yield [(start, y + _HEIGHT), *passed, (end, end_y)]


def _line(flow: GraphFlow, way: Sequence[Point], width: float) -> str:
    style = STYLES[flow.delivery]
    (x, y), *rest = way
    path = f"M{short(x)} {short(y)}"
    for number, (next_x, next_y) in enumerate(rest, 1):
        to_y = next_y - 7 if number == len(rest) else next_y
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


def _label(flow: GraphFlow, end: Sequence[Point], width: float, taken: list[tuple[float, float, float]]) -> str:
    """Return the label of a flow, at the right of the middle of its last piece.

    :param taken: left, middle and width of earlier labels. This one is put above or below those, and added
    """
    size = "" if flow.bytes is None else size_text(flow.bytes)
    name = STYLES[flow.delivery].name + (" in part" if flow.fell_back else "")
    if flow.delivery is Delivery.TERMINATION:
        name = "fell back" if flow.fell_back else ""
    if not (text := f"{name} {size}".strip()):
        return ""
    colour = BAD if flow.fell_back else STYLES[flow.delivery].colour
    (x, y), (to_x, to_y) = end
    at, middle, room = (x + to_x + width) / 2 + 5, (y + to_y) / 2 + 4, _BOLD * len(text)

    def is_free(height: float) -> bool:
        return not any(abs(height - one) < _LINE and left < at + room and at < left + wide for left, one, wide in taken)

    middle = next(filter(is_free, (middle, middle - _LINE, middle + _LINE)), middle)
    taken.append((at, middle, room))
    return (
        f'<text class="label" x="{short(at)}" y="{short(middle)}" style="fill:{colour}">'
        f"<title>{text_of(flow_text(flow))}</title>{text_of(text)}</text>"
    )


def flow_text(flow: GraphFlow) -> str:
    """Return all that is known of a flow, in a line."""
    ways = ", ".join(f"{source} -> {target}" for source, target in flow.ports)
    size = "" if flow.bytes is None else f", {size_text(flow.bytes)}"
    fell = "; not all as asked" if flow.fell_back else ""
    return f"{flow.source} -> {flow.target}{f' ({ways})' if ways else ''}: {STYLES[flow.delivery].name}{size}{fell}"


def _seconds(seconds: float) -> str:
    return f"{seconds:,.0f} s" if seconds >= 100 else f"{seconds:.3g} s"


def bends_of(source: str, target: str) -> Iterator[str]:
    """Yield the names of the places where an edge passes the layers between its nodes, from the top."""
    return (f"{source}\n{target}\n{number}" for number in itertools.count())


def layout(nodes: Sequence[str], edges: Iterable[tuple[str, str]]) -> dict[str, tuple[float, int]]:
    """Return the column and the layer of each node, and of each bend of an edge. Layer 0 is at the top.

    Each node is below all nodes before it. Edges that close a cycle, such as a loop, do not count.
    """
    layers, before = _layers(nodes, edges)
    rows: list[list[str]] = [[] for _ in range(max(layers.values(), default=-1) + 1)]
    for node in nodes:
        rows[layers[node]].append(node)
    above: defaultdict[str, list[str]] = defaultdict(list)
    below: defaultdict[str, list[str]] = defaultdict(list)
    for target, sources in before.items():
        for source in sources:
            between = range(layers[source] + 1, layers[target])
            bends = list(itertools.islice(bends_of(source, target), len(between)))
            for layer, bend in zip(between, bends, strict=True):
                rows[layer].append(bend)
            for upper, lower in itertools.pairwise([source, *bends, target]):
                above[lower].append(upper)
                below[upper].append(lower)
    for sweep in range(_SWEEPS):
        beside, order = (above, rows) if sweep % 2 == 0 else (below, rows[::-1])
        for other, row in itertools.pairwise(order):
            columns = _columns([other, row])
            row.sort(key=lambda node: _mean([columns[one] for one in beside[node]], columns[node]))
    columns = _columns(rows)
    return {node: (columns[node], layer) for layer, row in enumerate(rows) for node in row}


def _columns(rows: Iterable[Sequence[str]]) -> dict[str, float]:
    """Return the column of each node and bend. The middle of each row is at 0, and a bend takes less room."""
    columns: dict[str, float] = {}
    for row in rows:
        rooms = [_BEND if "\n" in node else 1.0 for node in row]
        ends = itertools.accumulate(rooms, initial=-sum(rooms) / 2)
        columns |= {node: begin + room / 2 for node, begin, room in zip(row, ends, rooms, strict=False)}
    return columns


def _mean(columns: Sequence[float], otherwise: float) -> float:
    return sum(columns) / len(columns) if columns else otherwise


def _layers(nodes: Sequence[str], edges: Iterable[tuple[str, str]]) -> tuple[dict[str, int], dict[str, list[str]]]:
    """Return the length of the longest way to each node, and the nodes before each, without a cycle."""
    before: dict[str, list[str]] = {node: [] for node in nodes}
    for source, target in dict.fromkeys(edges):
        if source in before and target in before and source != target:
            before[target].append(source)
    while True:
        try:
            order = list(TopologicalSorter(before).static_order())
            break
        except CycleError as error:
            source, target, *_ = error.args[1]
            before[target].remove(source)
    layers: dict[str, int] = {}
    for node in order:
        layers[node] = max((layers[source] + 1 for source in before[node]), default=0)
    return layers, before
