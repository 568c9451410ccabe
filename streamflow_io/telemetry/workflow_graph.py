"""The workflow as what its run has shown: its steps, and what went from one to the next, and how. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from streamflow_io.graph.io_graph import Delivery
from streamflow_io.grouping import grouped

from .critical_path import PathSpan
from .edge_results import EdgeResult
from .history import History
from .numbers import Result
from .records import OFF


class GraphStep(Result):
    """A step.

    :ivar seconds: of a job that succeeded, in the mean; none: no job has
    :ivar on_path: seconds in which one of its jobs was on the critical path, running or waiting
    """

    step: str
    io_task: bool
    jobs: int
    failed: int
    seconds: float | None
    on_path: float


class GraphFlow(Result):
    """What goes from one step to another.

    :ivar delivery: as it was; none: nothing was seen of it
    :ivar ports: from and to which ports; empty: not known
    :ivar bytes: together; none: not known
    :ivar fell_back: some of it was to be delivered earlier than it was
    """

    source: str
    target: str
    delivery: Delivery
    ports: list[tuple[str, str]]
    bytes: int | None
    fell_back: bool


class WorkflowGraph(Result):
    """The steps, each after those whose results it gets, as far as that is known; and what goes between them.

    :ivar hidden: so many ways of results at termination follow from others, and are left out
    """

    steps: list[GraphStep]
    flows: list[GraphFlow]
    hidden: int


def workflow_graph(history: History, edges: Sequence[EdgeResult], path: Sequence[PathSpan]) -> WorkflowGraph:
    """The graph of a run.

    :param edges: what was to be delivered early, and was
    """
    jobs = grouped(history.jobs, lambda job: job.step)
    on_path: defaultdict[str, float] = defaultdict(float)
    for span in path:
        if span.step is not None and span.what != "between":
            on_path[span.step] += span.seconds
    early = list(_early(history, edges))
    named = [*history.run.steps, *jobs, *(step for flow in early for step in (flow.source, flow.target))]
    steps = []
    for step in dict.fromkeys(named):
        done = [job for job in jobs[step] if job.status == "completed"]
        times = [end - begin for begin, end in filter(None, map(history.running, done))]
        steps.append(
            GraphStep(
                step=step,
                io_task=history.is_io_task(step),
                jobs=len({job.name for job in jobs[step]}),
                failed=sum(job.status == "failed" for job in jobs[step]),
                seconds=sum(times) / len(times) if times else None,
                on_path=on_path[step],
            )
        )
    known = {(flow.source, flow.target) for flow in early}
    rest = list(_rest(history, known))
    shown = _without_implied(rest, known)
    return WorkflowGraph(steps=steps, flows=[*early, *shown], hidden=len(rest) - len(shown))


def _early(history: History, edges: Sequence[EdgeResult]) -> Iterator[GraphFlow]:
    """What a hint, or a proof, says something of; all of one way between two steps together."""
    gated = {(one.output, one.input) for one in history.readings if one.delivery == "gate"}
    found: dict[tuple[str, str, Delivery], list[tuple[EdgeResult, bool, int | None]]] = {}
    for edge in edges:
        if edge.input is None:
            continue
        delivery, size = _delivered(history, edge, (edge.output, edge.input) in gated)
        key = _step(edge.output), _step(edge.input), delivery
        found.setdefault(key, []).append((edge, edge.reasons not in ([], [OFF]), size))
    for (source, target, delivery), some in found.items():
        sizes = [size for _, _, size in some if size is not None]
        yield GraphFlow(
            source=source,
            target=target,
            delivery=delivery,
            ports=[(_port(edge.output), _port(edge.input or "")) for edge, _, _ in some],
            bytes=sum(sizes) if sizes else None,
            fell_back=any(fell for _, fell, _ in some),
        )


def _delivered(history: History, edge: EdgeResult, was_gated: bool) -> tuple[Delivery, int | None]:
    """How it was delivered, and how many bytes of it are known."""
    committed = [one.bytes for one in history.committed if one.output == edge.output]
    size = sum(committed) if committed else None
    if edge.delivery is Delivery.STREAM:
        if edge.streamed:
            return Delivery.STREAM, edge.bytes
        return (Delivery.STREAM if not edge.reasons else Delivery.TERMINATION), None
    if edge.delivery is Delivery.GATE:
        return (Delivery.GATE if was_gated else Delivery.COMMIT if committed else Delivery.TERMINATION), size
    if edge.delivery is Delivery.COMMIT:
        return (Delivery.COMMIT if committed or not edge.reasons else Delivery.TERMINATION), size
    return edge.delivery, None


def _rest(history: History, known: set[tuple[str, str]]) -> Iterator[GraphFlow]:
    """What is delivered when its job has ended."""
    sizes = _sizes(history)
    routes: defaultdict[tuple[str, str], list[tuple[str, str]]] = defaultdict(list)
    for route in history.routes:
        pair = _step(route.output), _step(route.input)
        if (*pair,) not in known:
            routes[pair].append((route.output, route.input))
    pairs = {(before, step): None for step, some in history.run.steps.items() for before in some}
    for source, target in {**routes, **pairs}:
        if (source, target) in known:
            continue
        ports = routes.get((source, target), [])
        outputs = {output for output, _ in ports}
        found = [sizes[output] for output in outputs if output in sizes]
        yield GraphFlow(
            source=source,
            target=target,
            delivery=Delivery.TERMINATION,
            ports=[(_port(output), _port(input_)) for output, input_ in ports],
            bytes=sum(found) if found else None,
            fell_back=False,
        )


def _sizes(history: History) -> Mapping[str, int]:
    """The bytes of outputs, as far as the run was observed."""
    sizes: defaultdict[str, int] = defaultdict(int)
    for job in history.jobs:
        for record in job.outputs:
            if record.size is not None:
                sizes[f"{job.step}/{record.port}"] += record.size
    return sizes


def _without_implied(flows: Sequence[GraphFlow], early: set[tuple[str, str]]) -> list[GraphFlow]:
    """Without those between which another way leads, over steps between them. What is known by its ports stays."""
    after: defaultdict[str, set[str]] = defaultdict(set)
    for source, target in (*early, *((flow.source, flow.target) for flow in flows)):
        after[source].add(target)
    reached: dict[str, set[str]] = {}

    def reach(step: str) -> set[str]:
        """All that comes after a step."""
        todo = [step]
        while todo:
            top = todo[-1]
            missing = [one for one in after[top] if one not in reached and one not in todo]
            if missing:
                todo.extend(missing)
                continue
            reached.setdefault(top, set().union(*({one} | reached.get(one, set()) for one in after[top])))
            todo.pop()
        return reached[step]

    return [
        flow
        for flow in flows
        if flow.ports
        or not any(flow.target in reach(step) for step in after[flow.source] if step not in (flow.target, flow.source))
    ]


def _step(port: str) -> str:
    return port.rpartition("/")[0]


def _port(path: str) -> str:
    return path.rpartition("/")[2]
