"""The plan of one workflow, for programs and for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import to_builtins
from msgspec.structs import asdict
from rich.console import Console, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from streamflow_io.engine.intermediates import outcomes
from streamflow_io.engine.plan import Plan, Service
from streamflow_io.graph.io_graph import Delivery, StreamEdge
from streamflow_io.graph.memory_steps import MemoryPlan
from streamflow_io.graph.partitions import Partition
from streamflow_io.graph.possible import PossibleRoute
from streamflow_io.graph.sites import SiteKind
from streamflow_io.graph.stream_windows import StreamWindow
from streamflow_io.hints.inheritance import port_path
from streamflow_io.messages import Code, coded
from streamflow_io.storage.admission.demand import StepStorage
from streamflow_io.storage.intermediates.disk_forecast import DiskForecast, disk_forecasts
from streamflow_io.storage.intermediates.memory import memory_here
from streamflow_io.wording import counted, size_text

from .console import say, table
from .plan_proofs import declared, prospects, prospects_table
from .sites import KnownLocations, meeting_text, meets, site_to_json, sites_table


def plan_to_json(plan: Plan, locations: Mapping[str, KnownLocations]) -> dict[str, Any]:
    """Return the plan of one workflow, for programs.

    :param locations: the locations of deployments, as far as they are known
    """
    return {
        "steps": {
            path: {"cores": step.cores, "memory": step.memory, **site_to_json(step.site)}
            for path, step in plan.graph.steps.items()
        },
        "edges": [{**_edge_to_json(edge), "declared": declared(plan, edge)} for edge in plan.graph.edges],
        "possible": [to_builtins(asdict(one)) for one in plan.graph.possible],
        "proofs": [asdict(one) for one in prospects(plan)],
        "partitions": [asdict(partition) for partition in plan.parts.partitions],
        "early_inputs": [port_path(*read) for read in sorted(plan.parts.read_early)],
        "gangs": [
            {**asdict(gang), "on_one_location": meets(gang, plan.graph.steps, locations)} for gang in plan.graph.gangs
        ],
        "removal": [asdict(each) for each in outcomes(plan)],
        "windows": [asdict(window) for window in plan.intermediates.windows],
        "disk": {name: asdict(each) for name, each in _disks(plan).items()},
        "disk_limit": plan.intermediates.disk_limit,
        "memory": None if plan.intermediates.memory is None else asdict(plan.intermediates.memory),
        "impossible": dict(plan.graph.impossible),
        "storages": [asdict(step) for step in plan.bandwidth.storages.steps] if plan.bandwidth.storages else [],
    }


def show_plan(console: Console, name: str, plan: Plan, locations: Mapping[str, KnownLocations]) -> None:
    """Print the plan of one workflow; see :func:`plan_to_json`."""
    of = f"{counted(len(plan.graph.steps), 'step')}; {_deliveries(plan.graph.edges)}"
    console.print(f"[bold]{escape(name)}[/bold]: {of}")
    if any(step.site.kind is not SiteKind.LOCAL for step in plan.graph.steps.values()):
        console.print(sites_table(plan.graph.steps, locations))
    if plan.graph.edges:
        console.print(_edges(plan))
        # Below the table: a reason may quote what a tool said, and a column leaves it a few letters of each line.
        reasons = [f"  {edge.name}: {edge.fallback}" for edge in plan.graph.edges if edge.fallback]
        if reasons:
            say(console, "\n".join(["Why not as asked:", *reasons]))
    if found := prospects(plan):
        console.print(prospects_table(found))
    elif plan.graph.possible and not plan.graph.edges:
        console.print(_candidates(plan.graph.possible))
        say(console, _FIND_OUT)
    if plan.parts.partitions:
        console.print(_partitions(plan.parts.partitions))
    if found_outcomes := outcomes(plan):
        rows = [(port_path(o.step, o.port), "removed" if o.goes else "kept", o.why) for o in found_outcomes]
        console.print(table("Intermediate files", ("output", "is", "when, or why"), rows))
        foretold = _disks(plan)
        for location, disk in foretold.items():
            peak, written = _foretold(disk.peak, disk.peak_error), _foretold(disk.written, disk.written_error)
            say(console, f"Disk of {location}, as in the last run: at most {peak} at a time; written: {written}")
        if (limit := plan.intermediates.disk_limit) is not None:
            say(console, _disk_limit(limit, [disk.peak for disk in foretold.values()]))
        if (memory := plan.intermediates.memory) is not None:
            is_here = all(plan.graph.steps[step].site.is_here for step in memory.steps)
            say(console, _memory(memory, plan.service, is_here))
    if plan.intermediates.windows:
        rows = [_window(window) for window in plan.intermediates.windows]
        console.print(
            table("Windows: read bytes are removed at once", ("output", "window", "why not, or not at once"), rows)
        )
    if plan.parts.read_early:
        names = ", ".join(port_path(*read) for read in sorted(plan.parts.read_early))
        routes = ((route.site, route.consumer) for route in plan.parts.early_inputs)
        far = any(given.is_here and reader is not None and not reader.site.is_here for given, reader in routes)
        where = ", where nodes see the file of the driver" if far else ""
        say(console, f"Without a wait for the checksum that StreamFlow computes{where}: {names}")
    if plan.graph.gangs:
        console.print(_gangs(plan, locations))
    for step, why in plan.graph.impossible.items():
        say(console, coded(f"No job of {step} can start: {why}", Code.NEVER_STARTS), "red")
    if plan.bandwidth.storages is not None and plan.bandwidth.storages.steps:
        console.print(_storages(plan.bandwidth.storages.steps))


def _disks(plan: Plan) -> dict[str, DiskForecast]:
    return disk_forecasts(plan.source.file) if plan.intermediates.removal is not None else {}


def _foretold(size: int, error: float | None) -> str:
    return size_text(size) + ("" if error is None else f" (earlier forecasts were {error:.0%} off)")


def _window(window: StreamWindow) -> tuple[str, str, str]:
    """The row of an output."""
    name = port_path(window.step, window.port)
    if window.why is not None:
        return name, "none", window.why
    late = f"more is kept until its readers have begun: {window.late}"
    return name, f"of {size_text(window.size)}", "" if window.late is None else late


def _disk_limit(limit: int, peaks: Sequence[int]) -> str:
    """Say whether a `diskLimit` can hold, as far as the last run shows."""
    text = f"The diskLimit is {size_text(limit)} on each disk"
    if not peaks:
        return f"{text}; whether a run fits is known after the first one"
    if max(peaks) > limit:
        return f"{text}: jobs will wait for space, or the run will end"
    return f"{text}: the last run fits{'' if sum(peaks) <= limit else ', unless nodes share a work directory'}"


def _memory(memory: MemoryPlan, service: Service, is_here: bool) -> str:
    """Say which steps may write into memory.

    :param is_here: whether they all run on the driver's node
    """
    obstacle = service.unavailable
    if obstacle is None and is_here:
        obstacle = memory_here().why
    if not memory.steps or obstacle is not None:
        why = obstacle or "no step has files that can lie there"
        lines = [f"No file lies in memory: {why}"]
    else:
        may = f"These steps may write up to {size_text(memory.limit)} into memory, once their sizes are known: "
        lines = [may + ", ".join(sorted(memory.steps))]
    return "\n".join([*lines, *(f"  {step} writes to the disk: {why}" for step, why in sorted(memory.why_not.items()))])


def _edge_to_json(edge: StreamEdge) -> dict[str, Any]:
    return {
        "output": edge.route.output.name,
        "input": edge.route.consumer.name if edge.route.consumer else None,
        "committed": str(edge.rule.committed),
        "mode": edge.rule.mode,
        "delivery": edge.delivery.value,
        "byElement": edge.by_element,
        "condition": edge.condition,
        "begins": edge.begins,
        "fallback": edge.fallback,
    }


_DELIVERY = {
    Delivery.STREAM: Text("streams", "green"),
    Delivery.GATE: Text("gate", "green"),
    Delivery.COMMIT: Text("at commit", "cyan"),
    Delivery.PART: Text("parts", "green"),
    Delivery.TERMINATION: Text("at termination"),
}


def _deliveries(edges: Sequence[StreamEdge]) -> str:
    if not edges:
        return "nothing is delivered early"
    numbers = Counter(edge.delivery for edge in edges)
    each = ", ".join(f"{numbers[delivery]} {text}" for delivery, text in _DELIVERY.items() if numbers[delivery])
    return f"{counted(len(edges), 'edge')}: {each}"


def _edges(plan: Plan) -> Table:
    rows: list[list[RenderableType]] = [
        [
            edge.name.replace(" -> ", "\n-> "),
            str(edge.rule.committed),
            edge.rule.mode,
            _delivered(plan, edge),
        ]
        for edge in plan.graph.edges
    ]
    return table("Edges", ("edge", "committed", "mode", "delivered"), rows, unfolded=("edge",))


_FIND_OUT = (
    "No hint says that anything is delivered early.\n"
    "Runs find out by themselves what your tools allow, and stream that, with\n"
    "  scheduling: {scheduler: {type: sfio.io-aware, config: {streaming: auto}}}"
)


def _candidates(possible: Iterable[PossibleRoute]) -> Table:
    """Return the table of routes that could be delivered early, if their tools allow it."""
    rows = []
    for one in possible:
        ways = ((_DELIVERY[Delivery.STREAM], one.not_streamed), (_DELIVERY[Delivery.COMMIT], one.not_at_commit))
        could = Text(" or ").join(way for way, obstacle in ways if obstacle is None)
        reasons = dict.fromkeys(obstacle for _, obstacle in ways if obstacle is not None)
        rows.append(
            (
                f"{one.output}\n-> {one.input}",
                could or _DELIVERY[Delivery.TERMINATION],
                "; ".join(reasons),
            )
        )
    columns = ("way", "if its tools allow it", "why not otherwise")
    return table("What could be delivered early", columns, rows, unfolded=("way",))


def _delivered(plan: Plan, edge: StreamEdge) -> Text:
    if edge.delivery is Delivery.PART and edge.route.output.name not in plan.parts.virtual:
        return Text("at termination; as parts when its cuts are verified")
    condition = f", if {edge.condition}; else at commit" if edge.condition else ""
    by_element = ", by element" if edge.by_element else ""
    begins = f" once {edge.begins}" if edge.begins else ""
    known = declared(plan, edge) if edge.delivery is Delivery.STREAM else None
    declaration = "" if known is None else f"; declared, {known}"
    network = ", by TCP" if edge.delivery is Delivery.STREAM and _is_between_hosts(edge) else ""
    return Text.assemble(_DELIVERY[edge.delivery], network, by_element, begins, condition, declaration)


def _is_between_hosts(edge: StreamEdge) -> bool:
    """Whether no host can run both jobs, as far as the deployments tell."""
    if edge.route.consumer is None:
        return False
    source, target = edge.route.output.site, edge.route.consumer.site
    are_hosts = source.kind is target.kind is SiteKind.HOSTS
    return are_hosts and not {d.name for d in source.deployments} & {d.name for d in target.deployments}


def _partitions(partitions: tuple[Partition, ...]) -> Table:
    rows = []
    for partition in partitions:
        declared = "cut as declared; verified for the same values of its other inputs"
        who = declared if partition.form == "declared" else "reported by the program"
        parts = f"parts of {port_path(partition.step, partition.of)}, {who}"
        if partition.grows:
            parts += ", while it is written"
        split = Text("virtual", "green") if partition.is_virtual else Text("real")
        if partition.port is None:
            parts = f"parts of {port_path(partition.step, partition.of)}, selected by its jobs"
            split = Text("read ahead", "green") if partition.is_read_ahead else Text("as without the rule")
        if partition.condition is not None:
            parts += f", if {partition.condition}; else {'real' if partition.port else 'not'}"
        rows.append((partition.name, split, partition.real or partition.trial or parts))
    return table("Read sessions", ("of", "split", "why"), rows)


def _gangs(plan: Plan, locations: Mapping[str, KnownLocations]) -> Table:
    title = "Gangs: steps that run at the same time"
    columns = ["steps", "needs cores for", "cores"]
    rows = []
    sites = (plan.graph.steps[step].site for gang in plan.graph.gangs for step in gang.steps)
    have_hosts = any(site.kind is SiteKind.HOSTS for site in sites)
    if have_hosts:
        columns.append("on one location")
    some_are_apart = any(gang.apart is not None for gang in plan.graph.gangs)
    for gang in plan.graph.gangs:
        cores = "known at run time" if gang.cores is None else f"{gang.cores:g}"
        rows.append(["\n".join(gang.steps), "\n".join(gang.heads), cores])
        if have_hosts:
            rows[-1].append(meeting_text(gang, plan.graph.steps, locations))
        if some_are_apart:
            rows[-1].append(gang.apart or "yes")
    if some_are_apart:
        title += ", except where noted"
        columns.append("at the same time")
    return table(title, columns, rows)


def _storages(steps: tuple[StepStorage, ...]) -> Table:
    rows = []
    for step in steps:
        cores, limit = "no: I/O task" if step.io_task else "yes", step.storage_bw or "no limit"
        without = "not shared" if limit.startswith("required") else "no limit"
        storage = Text(f"none found: {without}", "yellow")
        if step.storage:
            storage = Text(f"{step.storage} ({step.direction})")
        rows.append((step.step, cores, limit, storage if step.storage_bw else "", step.deployment))
    columns = ("step", "takes cores", "storageBW (MB/s)", "of storage", "on")
    return table("I/O tasks and storage bandwidth", columns, rows)
