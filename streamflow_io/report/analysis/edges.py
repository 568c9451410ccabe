"""The delivery of each edge of a run, and the workflow's graph with the data that flowed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

from streamflow_io.graph.io_graph import Delivery
from streamflow_io.grouping import grouped
from streamflow_io.records.files import OFF, SERVED, EdgeRecord, StreamedRecord
from streamflow_io.records.history import History
from streamflow_io.wording import counted

from .critical_path import PathSpan
from .model import AnalysisModel
from .network import step_of


class EdgeResult(AnalysisModel):
    """A route from an output to an input.

    :ivar input: None: the output is one of the workflow
    :ivar delivery: as planned
    :ivar streamed: how many byte streams ended without an error
    :ivar bytes: the sum over these streams. None: streams of several outputs between two jobs cannot be told apart
    :ivar before_end: mean seconds from the first byte given to a reader, or the first commit, to the end of the
        producer. None: unknown
    :ivar waited: mean seconds in which a reader had taken all bytes, and waited. None: unknown
    :ivar capio: with `runtime: capio`, whether CAPIO carried the streams, or why not; for people
    :ivar reasons: why files were not delivered as the rule asks
    :ivar unused: why there was nothing to deliver or no job to deliver it to, for instance because a `when` is false;
        for people. None: files were delivered, or the run has not succeeded
    """

    output: str
    input: str | None
    delivery: Delivery
    streamed: int
    bytes: int | None
    before_end: float | None
    waited: float | None
    capio: str | None = None
    reasons: list[str]
    unused: str | None = None

    @property
    def remarks(self) -> list[str]:
        """All remarks about the edge, in words."""
        return [*self.reasons, *(remark for remark in (self.unused, self.capio) if remark)]


def edge_results(history: History) -> list[EdgeResult]:
    """Return the results of all edges, in the order of the plan."""
    return list(_edges(history))


def _edges(history: History) -> Iterator[EdgeResult]:
    ends = {job.name: job.ended for job in history.jobs if job.ended is not None}
    streams_into = grouped(history.streamed, lambda stream: stream.step)
    committed = grouped(history.committed, lambda commit: commit.output)
    ran = {job.step for job in history.jobs}
    for edge in history.edges:
        producer = edge.output.rpartition("/")[0]
        consumer = None if edge.input is None else edge.input.rpartition("/")[0]
        steps = {producer, consumer}
        idle = [step for step in (producer, consumer) if step is not None and step not in ran]
        streams = [each for each in streams_into[consumer or ""] if _is_of(each, edge)]
        if edge.delivery in (Delivery.COMMIT, Delivery.GATE):
            early = [each.ended - each.first for each in committed[edge.output]]
        else:
            early = [
                ends[each.source] - history.since_start(each.first)
                for each in streams
                if each.source in ends and each.first is not None
            ]
        waited = [each.waited for each in streams if each.waited is not None]
        lost = [each.reason for each in history.fallbacks if each.without is not None and each.step in steps]
        found = [
            each.reason
            for each in history.fallbacks
            if each.without is None and each.step in steps and each.output in (None, edge.output)
        ]
        yield EdgeResult(
            output=edge.output,
            input=edge.input,
            delivery=edge.delivery,
            streamed=round(sum(1 / len(each.outputs) for each in streams)),
            bytes=None if any(len(each.outputs) > 1 for each in streams) else sum(each.bytes for each in streams),
            before_end=max(0.0, fmean(early)) if early else None,
            waited=fmean(waited) if waited else None,
            capio=_capio(edge, streams, lost),
            reasons=list(dict.fromkeys([*([edge.fallback] if edge.fallback else []), *found])),
            unused=f"no job of {idle[0]} ran" if idle and history.status == "completed" else None,
        )


def _capio(edge: EdgeRecord, streams: Sequence[StreamedRecord], lost: Sequence[str]) -> str | None:
    """Return whether CAPIO carried the streams of an edge, for people. None: the run did not use CAPIO for it.

    :param lost: why jobs of either end were started again without CAPIO
    """
    if edge.capio in (None, SERVED) and not lost:
        return None if edge.capio is None else "by CAPIO"
    if edge.capio != SERVED:
        return None if edge.capio is None else f"not by CAPIO: {edge.capio}"
    carried = sum(bool(each.capio) for each in streams)
    return f"{carried:,} of {counted(len(streams), 'byte stream')} by CAPIO: {'; '.join(dict.fromkeys(lost))}"


def _is_of(stream: StreamedRecord, edge: EdgeRecord) -> bool:
    return edge.output in stream.outputs and stream.input in (None, edge.input)


class GraphStep(AnalysisModel):
    """A step.

    :ivar seconds: the mean of jobs that succeeded. None: no job has
    :ivar on_path: seconds in which one of its jobs was on the critical path, running or waiting
    """

    step: str
    io_task: bool
    jobs: int
    failed: int
    seconds: float | None
    on_path: float


class GraphFlow(AnalysisModel):
    """The data that went from one step to another.

    :ivar delivery: how the data was delivered, as far as was seen
    :ivar ports: pairs of output and input. Empty: unknown
    :ivar bytes: the sum. None: unknown
    :ivar fell_back: whether a part was delivered later than asked
    """

    source: str
    target: str
    delivery: Delivery
    ports: list[tuple[str, str]]
    bytes: int | None
    fell_back: bool


class WorkflowGraph(AnalysisModel):
    """The steps, each after the steps that give it results as far as known, and the data between them.

    Deliveries at termination that follow from others are left out.
    """

    steps: list[GraphStep]
    flows: list[GraphFlow]


def workflow_graph(history: History, edges: Sequence[EdgeResult], path: Sequence[PathSpan]) -> WorkflowGraph:
    """Return the graph of a run.

    :param edges: the edges that were to be delivered early, or were
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
    return WorkflowGraph(steps=steps, flows=[*early, *_without_implied(list(_rest(history, known)), known)])


def _early(history: History, edges: Sequence[EdgeResult]) -> Iterator[GraphFlow]:
    """Yield the flows that a hint or a proof is about. Flows of one kind between two steps are added up."""
    gated = {(one.output, one.input) for one in history.readings if one.delivery == "gate"}
    found: dict[tuple[str, str, Delivery], list[tuple[EdgeResult, bool, int | None]]] = {}
    for edge in edges:
        if edge.input is None:
            continue
        delivery, size = _delivered(history, edge, (edge.output, edge.input) in gated)
        key = step_of(edge.output), step_of(edge.input), delivery
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
    """Return the way in which an edge was delivered, and the bytes that are known."""
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
    """Yield the flows that are delivered when their job has ended."""
    sizes = _sizes(history)
    routes: defaultdict[tuple[str, str], list[tuple[str, str]]] = defaultdict(list)
    for route in history.routes:
        pair = step_of(route.output), step_of(route.input)
        if (*pair,) not in known:
            routes[pair].append((route.output, route.input))
    pairs = {(before, step): None for step, some in history.run.steps.items() for before in some if before != step}
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
    """Return the bytes of outputs, as far as the run was observed."""
    sizes: defaultdict[str, int] = defaultdict(int)
    for job in history.jobs:
        for record in job.outputs:
            if record.size is not None:
                sizes[f"{job.step}/{record.port}"] += record.size
    return sizes


def _without_implied(flows: Sequence[GraphFlow], early: set[tuple[str, str]]) -> list[GraphFlow]:
    """Return the flows without those that other flows imply over steps between. A flow with known ports stays."""
    after: defaultdict[str, set[str]] = defaultdict(set)
    for source, target in (*early, *((flow.source, flow.target) for flow in flows)):
        after[source].add(target)
    reached: dict[str, set[str]] = {}

    def reach(step: str) -> set[str]:
        """Return all steps after a step."""
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


def _port(path: str) -> str:
    return path.rpartition("/")[2]
