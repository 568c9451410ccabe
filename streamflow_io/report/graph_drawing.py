"""The graph of a workflow, and the timeline of a run, as SVG.

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
from streamflow_io.records.jobs import CAUSES
from streamflow_io.wording import counted, how_often, size_text

from .analysis.edges import GraphFlow, GraphStep, WorkflowGraph
from .analysis.results import RunResult
from .analysis.timeline import TimelineJob, TimelineStream
from .analysis.verdict import span_name
from .chart import BAD, COLOURS, WIDTH, cut, points, scale, short, text_of, time_axis, width_of

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


# Of more jobs, each step has a row.
_JOBS = 150
_ROW, _BAR, _THIN_BAR = 20, 13, 4
_RIGHT = 110
_LONGEST = 34
# Share of the picture. A shorter pause between two jobs of a step would not be seen.
_PAUSE = 0.002
# A job counts as on the critical path from this many seconds on.
_ON_PATH = 0.05


class TimelineRow(Struct, frozen=True):
    """A row of bars.

    :ivar bars: begin, end, class in the style sheet of the page, and a text for each bar
    :ivar text: stands after the last bar
    """

    name: str
    bars: Sequence[tuple[float, float, str, str]]
    text: str = ""


def draw_timeline(run: RunResult, until: float) -> str:
    """Return the drawing.

    :param until: the end of the axis, in seconds: that of the longest run, so that drawings can be compared
    """
    rows = list(timeline_rows(run))
    left = 16 + width_of("x" * min(_LONGEST, max(len(row.name) for row in rows)))
    bottom = _ROW * len(rows) + 4
    x = scale(until, left, WIDTH - _RIGHT)
    parts = [*time_axis(x, until, 0, bottom)]
    for number, row in enumerate(rows):
        y = _ROW * number + (_ROW - _BAR) / 2
        parts.append(
            f'<text class="end" x="{short(left - 8)}" y="{short(y + 11)}"><title>{text_of(row.name)}</title>'
            f"{text_of(cut(row.name, _LONGEST))}</text>"
        )
        for begin, end, kind, said in row.bars:
            at, wide = x(begin), max(0.8, x(end) - x(begin))
            top, height = (y + _BAR - _THIN_BAR, _THIN_BAR) if kind in ("stream", "commit") else (y, _BAR)
            parts.append(
                f'<rect class="{kind}" x="{short(at)}" y="{short(top)}" width="{short(wide)}" height="{height}">'
                f"<title>{text_of(said)}</title></rect>"
            )
            if kind == "path" and width_of(said) < wide:
                parts.append(f'<text class="on" x="{short(at + 4)}" y="{short(y + 11)}">{text_of(said)}</text>')
        last = max((end for _, end, _, _ in row.bars), default=0.0)
        parts.append(f'<text x="{short(x(last) + 6)}" y="{short(y + 11)}">{text_of(row.text)}</text>')
    return (
        f'<svg class="chart" viewBox="0 0 {WIDTH} {bottom + 44}" role="img" aria-label="timeline">'
        f"{''.join(parts)}</svg>"
    )


def timeline_rows(run: RunResult) -> Iterator[TimelineRow]:
    """Yield the rows: the critical path, and a row for each attempt of a job, or for each step of many jobs."""
    if run.path:
        spans = [(one.begin, one.end, "path", f"{span_name(one)}: {one.seconds:.2f} s") for one in run.path]
        yield TimelineRow("critical path", spans)
    for step, jobs in grouped(run.timeline, lambda job: job.step).items():
        if len(run.timeline) <= _JOBS:
            yield from map(_of_job, jobs)
        else:
            failed = sum(job.status == "failed" for job in jobs)
            text = counted(len(jobs), "job") + (f", {failed:,} failed" if failed else "")
            kind = "run io" if jobs[0].io_task else "run"
            yield TimelineRow(step, [(*span, kind, f"{step}: {text}") for span in _busy(jobs, run.seconds)], text)


def _of_job(job: TimelineJob) -> TimelineRow:
    bars: list[tuple[float, float, str, str]] = []
    text = "" if job.status == "completed" else f"{job.status or 'not ended'} "
    if job.waiting is not None and job.waiting[1] > job.waiting[0]:
        bars.append((*job.waiting, "wait", f"{job.job} waited {job.waiting[1] - job.waiting[0]:.2f} s"))
    if job.running is not None:
        begin, end = job.running
        kinds = {"io": job.io_task, "bad": job.status == "failed", "critical": job.on_path >= _ON_PATH}
        kind = " ".join(["run", *(name for name, holds in kinds.items() if holds)])
        bars.append((begin, end, kind, f"{job.job}: {_said(job)}"))
        for stream in job.streams:
            since, until = (begin if stream.begin is None else stream.begin), stream.end or end
            bars.append((since, until, "stream", _of_stream(stream)))
        text += f"{end - begin:.3g} s"
    for one in job.commits:
        said = f"{one.output}: {one.files:,} committed, {size_text(one.bytes)}"
        bars.append((one.time, one.time, "commit", said))
    return TimelineRow(job.job, bars, text.strip())


def _busy(jobs: Sequence[TimelineJob], seconds: float) -> list[tuple[float, float]]:
    """Return when at least one of some jobs ran."""
    spans: list[tuple[float, float]] = []
    for begin, end in sorted(job.running for job in jobs if job.running is not None):
        if spans and begin - spans[-1][1] <= _PAUSE * seconds:
            spans[-1] = spans[-1][0], max(spans[-1][1], end)
        else:
            spans.append((begin, end))
    return spans


def _said(job: TimelineJob) -> str:
    """Return the facts of a job that no bar shows, in a line."""
    told = [f"waited for {CAUSES[cause]} {seconds:.2f} s" for cause, seconds in job.waited.items() if seconds >= 0.005]
    for name, seconds in (
        ("CPU time", job.cpu_seconds),
        ("waited for devices", job.io_seconds),
        ("held at the gate", job.held_seconds),
    ):
        if seconds:
            told.append(f"{name} {seconds:.2f} s")
    if job.pauses:
        told.append(f"paused {how_often(job.pauses)}, {job.paused_seconds or 0.0:.2f} s")
    if job.bytes_read or job.bytes_written:
        told.append(f"read {size_text(job.bytes_read or 0)}, wrote {size_text(job.bytes_written or 0)}")
    if job.location is not None:
        told.append(f"on {job.location}")
    return "; ".join(told)


def _of_stream(stream: TimelineStream) -> str:
    port = "" if stream.input is None else f" into {stream.input.rpartition('/')[2]}"
    told = f"{stream.output} of {stream.source or 'a job'}{port}: {size_text(stream.bytes)}"
    if stream.waited is not None:
        told += f"; waited {stream.waited:.2f} s for bytes"
    return told + (f", {stream.behind:.2f} s behind" if stream.behind else "")
