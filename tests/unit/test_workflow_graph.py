"""The drawing of a workflow, with what went through it."""

from __future__ import annotations

from itertools import combinations, islice
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from lab.telemetry import BEGIN, job
from streamflow_io.graph.io_graph import Delivery
from streamflow_io.records.files import EdgeRecord, FallbackRecord, StreamedRecord
from streamflow_io.records.history import read_history
from streamflow_io.records.records import Record, RunRecord
from streamflow_io.report.analysis.edges import GraphFlow, GraphStep, WorkflowGraph
from streamflow_io.report.analysis.results import run_results
from streamflow_io.report.graph_drawing import bends_of, draw_graph, draw_legend, flow_text, layout

NODES = [f"/{name}" for name in "abcdefgh"]
EDGES = st.lists(st.tuples(st.sampled_from(NODES), st.sampled_from(NODES)), max_size=20)
STEPS: dict[str, tuple[str, ...]] = {"/a": (), "/b": ("/a",), "/c": ("/a", "/b"), "/d": ("/a", "/c")}


def graph(*records: Record) -> WorkflowGraph:
    run = RunRecord(time=BEGIN, name="run", workflow="main.cwl", steps=STEPS)
    jobs = [record for step in STEPS for record in job(f"{step}/0", 0, 1, 2)]
    return run_results([read_history("run", [run, *records, *jobs])])[0].graph


def stream(size: int) -> StreamedRecord:
    return StreamedRecord(time=BEGIN, job="/b/0", step="/b", input="/b/in", outputs=("/a/out",), bytes=size)


@given(EDGES)
def test_nodes_are_below_those_before_and_never_above_each_other(edges: list[tuple[str, str]]) -> None:
    forward = [(one, other) for one, other in edges if one < other]
    found = layout(NODES, forward)
    assert len(set(found.values())) == len(found)
    for one, other in combinations(NODES, 2):
        if found[one][1] == found[other][1]:
            assert abs(found[one][0] - found[other][0]) > 0.99
    for source, target in set(forward):
        passed = range(found[source][1] + 1, found[target][1])
        assert found[source][1] < found[target][1]
        assert [found[bend][1] for bend in islice(bends_of(source, target), len(passed))] == list(passed)


@given(EDGES)
def test_cycles_are_drawn_too(edges: list[tuple[str, str]]) -> None:
    assert set(layout(NODES, edges)) >= set(NODES)
    steps = [GraphStep(step=node, io_task=False, jobs=1, failed=0, seconds=None, on_path=0.0) for node in NODES]
    flows = [
        GraphFlow(source=one, target=other, delivery=Delivery.COMMIT, ports=[], bytes=5, fell_back=False)
        for one, other in edges
        if one != other
    ]
    drawn = ElementTree.fromstring(draw_graph(WorkflowGraph(steps=steps, flows=flows)))
    assert len(drawn.findall(".//{*}path")) == len(flows)
    assert "nan" not in draw_graph(WorkflowGraph(steps=steps, flows=flows))


def test_what_went_where() -> None:
    records = [
        EdgeRecord(time=BEGIN, output="/a/out", input="/b/in", delivery=Delivery.STREAM),
        EdgeRecord(time=BEGIN, output="/b/out", input="/c/in", delivery=Delivery.COMMIT),
        FallbackRecord(time=BEGIN, job="/c/0", step="/c", output="/b/out", reason="too late"),
    ]
    found = graph(*records, stream(4_000_000), stream(5_000_000))
    assert [(flow.source, flow.target, flow.delivery, flow.bytes, flow.fell_back) for flow in found.flows] == [
        ("/a", "/b", Delivery.STREAM, 9_000_000, False),
        ("/b", "/c", Delivery.TERMINATION, None, True),
        ("/c", "/d", Delivery.TERMINATION, None, False),
    ]
    assert flow_text(found.flows[0]) == "/a -> /b (out -> in): stream, 9.0 MB"
    drawn = ElementTree.fromstring(draw_graph(found))
    texts = {(text.text or "") + "".join(child.tail or "" for child in text) for text in drawn.iter("text")}
    assert {"/a", "/b", "/c", "/d", "stream 9.0 MB", "fell back"} <= texts
    assert "1 job, 1 s" in texts
    assert "stream" in draw_legend(found)


def test_names_are_no_markup() -> None:
    run = RunRecord(time=BEGIN, name="run", workflow="main.cwl", steps={"/<b>&": ()})
    (found,) = run_results([read_history("run", [run])])
    assert "&lt;b&gt;&amp;" in draw_graph(found.graph)
