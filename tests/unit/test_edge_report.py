"""The report about files that were to be delivered before their jobs end."""

from __future__ import annotations

from typing import Any

from msgspec import convert
from msgspec.structs import replace

from lab.telemetry import BEGIN
from lab.wording import shown
from streamflow_io.commands.report import Report
from streamflow_io.graph.io_graph import Delivery
from streamflow_io.records.files import CommittedRecord, EdgeRecord, FallbackRecord, ReadingRecord, StreamedRecord
from streamflow_io.records.history import read_history
from streamflow_io.records.jobs import EndedRecord
from streamflow_io.records.records import Record, RunRecord
from streamflow_io.report.analysis.results import RunResult, run_results
from streamflow_io.report.page import EDGES, render, row


def edge(target: str | None = "/b/in", delivery: Delivery = Delivery.STREAM, **fields: Any) -> EdgeRecord:
    return EdgeRecord(time=BEGIN, output="/a/out", input=target, delivery=delivery, **fields)


def streamed(job: str, size: int, *outputs: str) -> StreamedRecord:
    step = job.rpartition("/")[0]
    return StreamedRecord(time=BEGIN, job=job, step=step, outputs=outputs or ("/a/out",), bytes=size)


def fallback(job: str, reason: str, output: str | None = "/a/out") -> FallbackRecord:
    return FallbackRecord(time=BEGIN, job=job, step=job.rpartition("/")[0], output=output, reason=reason)


def result(*records: Record) -> RunResult:
    return run_results([read_history("run", (RunRecord(time=BEGIN, name="run", workflow="main.cwl"), *records))])[0]


def rows(*records: Record) -> list[tuple[str, ...]]:
    return [row(EDGES, found) for found in result(*records).edges]


def test_what_has_streamed() -> None:
    others = (streamed("/x/0", 9), fallback("/x/0", "other reader"), fallback("/x/1", "other step", None))
    found = rows(
        edge(), edge("/c/in", Delivery.COMMIT), streamed("/b/0", 3_000_000), streamed("/b/1", 1_000_000), *others
    )
    assert found == [
        ("/a/out -> /b/in", "as a byte stream", "2", "4", "", "", ""),
        ("/a/out -> /c/in", "at commit", "", "", "", "", ""),
    ]


def test_what_nobody_knew_of_when_the_run_began() -> None:
    facts = {"time": BEGIN, "job": "/b/0", "step": "/b", "output": "/a/out", "sources": ("/a/0",)}
    readings = [
        convert({**facts, "input": name, "delivery": delivery}, ReadingRecord)
        for name, delivery in (("/b/in", "stream"), ("/b/in", "stream"), ("/b/other", "gate"))
    ]
    assert rows(*readings, streamed("/b/0", 1_000_000)) == [
        ("/a/out -> /b/in", "as a byte stream", "1", "1", "", "", ""),
        ("/a/out -> /b/other", "at the gate", "1", "1", "", "", ""),
    ]
    assert len(rows(edge(), *readings)) == 2


def test_what_capio_has_carried() -> None:
    why = "CAPIO does not implement `on_file`"
    found = rows(
        edge(capio="served"),
        edge("/c/in", capio="served"),
        edge("/d/in", capio=why),
        replace(streamed("/b/0", 1_000_000), capio=True, input="/b/in"),
        replace(streamed("/c/0", 1_000_000), capio=True, input="/c/in"),
        replace(streamed("/c/1", 1_000_000), input="/c/in"),
        replace(fallback("/c/1", "it seeks", None), without="CAPIO"),
    )
    assert [row[-1] for row in found] == [
        "by CAPIO",
        "1 of 2 byte streams by CAPIO: it seeks",
        f"not by CAPIO: {why}",
    ]


def ended(job: str, at: float) -> EndedRecord:
    return EndedRecord(time=BEGIN + at, job=job, step=job.rpartition("/")[0], status="completed")


def test_how_much_earlier() -> None:
    times = [("/b/0", "/b/in", "/a/0", 2.0, 1.0), ("/b/1", "/b/in", "/a/1", 3.0, 2.0), ("/b/1", "/b/x", "/a/1", 9.0, 0)]
    streams = [
        replace(streamed(job, 1_000_000), input=port, source=source, first=BEGIN + first, waited=waited)
        for job, port, source, first, waited in times
    ]
    facts = {"output": "/a/out", "files": 1, "bytes": 5, "last": BEGIN, "ended": BEGIN}
    commits = [
        convert({"time": BEGIN, "job": job, "step": "/a", "first": BEGIN - early, **facts}, CommittedRecord)
        for job, early in (("/a/0", 1.0), ("/a/1", 4.0))
    ]
    found = rows(edge(), edge("/c/in", Delivery.COMMIT), *streams, *commits, ended("/a/0", 12.0), ended("/a/1", 23.0))
    assert [row[2:] for row in found] == [("2", "2", "15", "1.5", ""), ("", "", "2.5", "", "")]


def test_what_fell_back_and_why() -> None:
    planned = edge(None, Delivery.TERMINATION, fallback="it is a workflow output")
    found = rows(
        planned,
        edge(),
        fallback("/b/0", "connection refused"),
        fallback("/b/1", "connection refused"),
        fallback("/a/0", "no node runtime on host", None),
        fallback("/a/1", "on_close:3 never came"),
        fallback("/d/0", "the host of another reader is out of reach"),
        streamed("/b/2", 1_000_000),
    )
    assert found[0][-1] == "it is a workflow output; no node runtime on host; on_close:3 never came"
    assert found[0][:2] == ("/a/out -> workflow output", "at termination")
    assert found[1][2:] == ("1", "1", "", "", "connection refused; no node runtime on host; on_close:3 never came")


def test_it_is_in_the_terminal_and_on_the_page() -> None:
    run = result(edge(fallback="because of [b]it[/b] <i>"))
    text = shown(Report([run]))
    assert "Stream edges" in text
    assert "  /a/out -> /b/in: as a byte stream, not as asked: because of [b]it[/b] <i>\n" in text
    assert "[b]it[/b]" in text.replace("\n", "")
    page = render([run], [])
    assert "<h2>Stream edges of run</h2>" in page
    assert "because of [b]it[/b] &lt;i&gt;" in page
    assert "Stream edges" not in render([result()], [])
