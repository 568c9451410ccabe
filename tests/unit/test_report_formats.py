"""Runs side by side, as a trace, and as files for other programs."""

from __future__ import annotations

import base64
import json
from collections import defaultdict
from typing import Any

import pytest
from google.protobuf.json_format import Parse
from opentelemetry.proto.trace.v1.trace_pb2 import Span, TracesData

from lab.telemetry import BEGIN, job, learning_run, usage
from streamflow_io.graph.io_graph import Delivery
from streamflow_io.records.files import EdgeRecord, StreamedRecord
from streamflow_io.records.history import read_history
from streamflow_io.records.records import EndRecord, Record, RunRecord
from streamflow_io.report.analysis.results import RunResult, compared, compared_rows, run_results
from streamflow_io.report.formats import as_multiqc, as_spans, as_trace
from streamflow_io.report.page import render

STEPS: dict[str, tuple[str, ...]] = {"/a": (), "/b": ("/a",)}


def run(name: str, *records: Record, end: float, status: Any = "completed") -> RunResult:
    first = RunRecord(time=BEGIN, name=name, workflow="main.cwl", steps=STEPS)
    return run_results([read_history(name, [first, *records, EndRecord(time=BEGIN + end, status=status)])])[0]


def plain() -> RunResult:
    edge = EdgeRecord(
        time=BEGIN, output="/a/out", input="/b/in", delivery=Delivery.TERMINATION, fallback="`runtime: off`"
    )
    return run("plain", edge, *job("/a/0", 0, 0, 8), *job("/b/0", 8, 8, 13), end=13)


def fast() -> RunResult:
    edge = EdgeRecord(time=BEGIN, output="/a/out", input="/b/in", delivery=Delivery.STREAM)
    stream = StreamedRecord(
        time=BEGIN + 8, job="/b/0", step="/b", input="/b/in", outputs=("/a/out",), source="/a/0",
        bytes=1000, first=BEGIN + 1, last=BEGIN + 8, waited=4.0, behind=0.0,
    )  # fmt: skip
    reads = job("/b/0", 0, 0.5, 9, usage=usage(0.5, 9))
    records = [edge, *job("/a/0", 0, 0, 8), *reads[:3], stream, *reads[3:]]
    return run("fast", *records, end=9)


def test_the_steps_of_runs_side_by_side() -> None:
    assert compared(plain(), fast()) == "fast took 9.0 s, plain 13.0 s: 4.0 s (31%) less."
    assert "4.0 s (44%) more" in compared(fast(), plain())
    assert compared(plain(), plain()).endswith("as good as the same.")
    assert list(compared_rows([plain(), fast()])) == [
        ("/a", "plain", "0.0", "1", "", "8.0", "0.0"),
        ("", "fast", "0.0", "1", "", "8.0", "0.0"),
        ("/b", "plain", "8.0", "1", "", "5.0", "0.0"),
        ("", "fast", "0.5", "1", "", "8.5", "0.5"),
    ]
    page = render([plain(), fast()], [])
    assert "4.0 s (31%) less" in page
    assert "Side by side" not in render([fast()], [])


def test_a_run_that_failed_is_not_taken_for_a_fast_one() -> None:
    failed = run("bad", *job("/a/0", 0, 0, 2, status="failed"), end=2, status="failed")
    assert compared(plain(), failed).endswith("bad has not succeeded, so that their times say little.")
    rows = list(compared_rows([plain(), failed]))
    assert rows[1] == ("", "bad", "0.0", "1", "1", "", "0.0")
    assert [row[1] for row in rows[2:]] == ["plain"]


def spans_of(*runs: RunResult) -> dict[str, Span]:
    """The spans by name, after the official classes of the protocol have read them."""

    def in_base64(found: dict[str, Any]) -> dict[str, Any]:
        # OTLP writes identifiers in hexadecimal digits, and other JSON of protocol buffers bytes in base64.
        return {
            key: base64.b64encode(bytes.fromhex(value)).decode()
            if key.lower().endswith(("traceid", "spanid"))
            else value
            for key, value in found.items()
        }

    document = json.loads(as_spans(runs), object_hook=in_base64)
    read = Parse(json.dumps(document), TracesData())
    return {span.name: span for span in read.resource_spans[0].scope_spans[0].spans}


def test_spans_are_read_by_the_classes_of_the_protocol() -> None:
    spans = spans_of(fast())
    assert [*spans] == ["fast", "/a/0", "/b/0", "/a/out to /b/0"]
    whole, writer, reader, stream = spans.values()
    assert (whole.parent_span_id, writer.parent_span_id, stream.parent_span_id) == (b"", whole.span_id, reader.span_id)
    assert {span.trace_id for span in spans.values()} == {whole.trace_id}
    assert len({span.span_id for span in spans.values()}) == len(spans)
    assert (len(whole.trace_id), len(whole.span_id)) == (16, 8)
    assert (whole.start_time_unix_nano, whole.end_time_unix_nano) == (int(BEGIN * 1e9), int((BEGIN + 9) * 1e9))
    assert [link.span_id for link in stream.links] == [writer.span_id]
    facts = {fact.key: fact.value for fact in stream.attributes}
    assert (facts["streamflow.bytes"].int_value, facts["streamflow.waited"].double_value) == (1000, 4.0)


def test_a_section_for_multiqc_has_a_row_for_each_step() -> None:
    section = json.loads(as_multiqc([fast()]))
    assert section["data"]["a"] == {"jobs": 1, "failed": 0, "seconds": 8.0, "wait": 0.0, "streamed": 0.0}
    assert section["data"]["b"] == {"jobs": 1, "failed": 0, "seconds": 8.5, "wait": 0.5, "streamed": 0.001}
    assert {name for row in section["data"].values() for name in row} <= section["headers"].keys()
    assert [*json.loads(as_multiqc([plain(), fast()]))["data"]] == ["plain: a", "plain: b", "fast: a", "fast: b"]


def test_multiqc_gets_no_markup_of_others() -> None:
    text = as_multiqc([run("<b>x", *job("/c/<i>/0", 0, 0, 2), end=2)])
    assert "<b>" not in text
    assert [*json.loads(text)["data"]] == ["c.&lt;i&gt;"]


def test_an_arrow_leads_from_the_writer_to_the_reader() -> None:
    events = json.loads(as_trace([fast()]))["traceEvents"]
    (begins,) = (event for event in events if event["ph"] == "s")
    (ends,) = (event for event in events if event["ph"] == "f")
    assert begins["id"] == ends["id"]
    for arrow in (begins, ends):
        assert any(
            event["ph"] == "X"
            and (event["pid"], event["tid"]) == (arrow["pid"], arrow["tid"])
            and event["ts"] <= arrow["ts"] <= event["ts"] + event["dur"]
            for event in events
        )


@pytest.mark.parametrize("runs", [[plain(), fast()], run_results([read_history("auto", learning_run())])])
def test_a_trace_is_what_the_format_of_chrome_traces_says(runs: list[RunResult]) -> None:
    events = json.loads(as_trace(runs))["traceEvents"]
    known = {"ph", "name", "cat", "pid", "tid", "ts", "dur", "id", "bp", "args"}
    needed = {"X": {"dur"}, "M": {"args"}, "C": {"args"}, "b": {"id", "cat"}, "e": {"id", "cat"}, "s": {"id", "cat"}}
    needed["f"] = {"id", "cat", "bp"}
    pairs: defaultdict[tuple[str, str, int], list[tuple[str, int]]] = defaultdict(list)
    for event in events:
        kind = event["ph"]
        assert {"ph", "name", "pid"} | needed[kind] <= set(event) <= known, event
        assert kind == "M" or event["ts"] >= 0
        for number in ("pid", "tid", "ts", "dur", "id"):
            assert type(event.get(number, 0)) is int, event
        if kind == "C":
            assert all(type(value) in (int, float) for value in event["args"].values()), event
        if kind in "besf":
            pairs["async" if kind in "be" else "flow", event["cat"], event["id"]].append((kind, event["ts"]))
    for (way, _, _), found in pairs.items():
        assert [kind for kind, _ in found] == (["b", "e"] if way == "async" else ["s", "f"])
        assert found[0][1] <= found[1][1]
    processes = [event["pid"] for event in events if event["name"] == "process_name"]
    assert len(processes) == len(set(processes))
    assert {event["pid"] for event in events} <= set(processes)
