"""The critical path of a run, and its description."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import convert
from msgspec.structs import replace

from lab.telemetry import BEGIN, job, usage
from streamflow_io.graph.io_graph import Delivery
from streamflow_io.records.files import OFF, CommittedRecord, EdgeRecord, FallbackRecord, ReadingRecord, StreamedRecord
from streamflow_io.records.history import History, read_history
from streamflow_io.records.records import EndRecord, Record, RunRecord
from streamflow_io.report.analysis.critical_path import critical_path
from streamflow_io.report.analysis.edges import edge_results
from streamflow_io.report.analysis.results import run_results
from streamflow_io.report.analysis.verdict import path_text, verdict
from streamflow_io.report.suggestions.advice import MOST, advice

STEPS: dict[str, tuple[str, ...]] = {"/a": (), "/b": ("/a",), "/c": ("/b",)}


def history(*records: Record, steps: dict[str, tuple[str, ...]] | None = None, status: Any = "completed") -> History:
    ended = max((record.time for record in records), default=BEGIN)
    run = RunRecord(time=BEGIN, name="run", workflow="main.cwl", steps=STEPS if steps is None else steps)
    ordered = sorted(records, key=lambda record: record.time)
    return read_history("run", [run, *ordered, EndRecord(time=ended, status=status)])


def edge(output: str, input_: str, delivery: Delivery, fallback: str | None = None) -> EdgeRecord:
    return EdgeRecord(time=BEGIN, output=output, input=input_, delivery=delivery, fallback=fallback)


def reading(name: str, output: str, source: str, at: float, delivery: Any = "stream") -> ReadingRecord:
    step = name.rpartition("/")[0]
    return ReadingRecord(
        time=BEGIN + at, job=name, step=step, input=f"{step}/in", output=output, delivery=delivery, sources=(source,)
    )


def streamed(name: str, output: str, source: str, first: float, last: float, waited: float) -> StreamedRecord:
    step = name.rpartition("/")[0]
    return StreamedRecord(
        time=BEGIN + last, job=name, step=step, input=f"{step}/in", outputs=(output,), source=source,
        bytes=8_000_000, first=BEGIN + first, last=BEGIN + last, waited=waited, behind=0.1,
    )  # fmt: skip


def spans(found: History) -> list[tuple[str, str | None, float]]:
    return [(span.what, span.job, round(span.seconds, 3)) for span in critical_path(found)]


CHAIN = [*job("/a/0", 0.5, 1, 4), *job("/b/0", 4.5, 5, 9), *job("/c/0", 9, 9, 10)]


def test_one_after_the_other() -> None:
    assert spans(history(*CHAIN)) == [
        ("begin", None, 0.5),
        ("waited", "/a/0", 0.5),
        ("ran", "/a/0", 3),
        ("between", "/b/0", 0.5),
        ("waited", "/b/0", 0.5),
        ("ran", "/b/0", 4),
        ("ran", "/c/0", 1),
    ]


def test_each_iteration_of_a_loop_is_behind_the_one_before() -> None:
    def ran(*names: str) -> list[str | None]:
        jobs = [one for at, name in enumerate(names) for one in job(name, at, at + 0.1, at + 1)]
        steps = {"/a": ("/a", "/b"), "/b": ("/a",), "/c": ("/a",)}
        return [span.job for span in critical_path(history(*jobs, steps=steps)) if span.what == "ran"]

    alone = ["/a/0.0", "/a/0.1", "/a/0.2", "/c/0"]
    assert ran(*alone) == alone
    two = ["/a/0.0", "/b/0.0", "/a/0.1", "/b/0.1", "/a/0.2", "/c/0"]
    assert ran(*two) == two


def test_the_queue_of_a_queue_manager_is_on_it() -> None:
    first = job("/a/0", 0.5, 1, 4)
    queued = job("/b/0", 4.5, 5, 9, usage=usage(7.5, 9), queue=True)
    found = history(*first, *queued)
    assert spans(found)[-3:] == [("waited", "/b/0", 0.5), ("waited", "/b/0", 2.5), ("ran", "/b/0", 1.5)]
    assert critical_path(found)[-2].cause == "queue"
    assert "/b waited for the queue 2.5 s" in path_text(critical_path(found))
    (result,) = run_results([found])
    (step,) = [step for step in result.steps if step.step == "/b"]
    assert step.waited == {"queue": 2.5}
    assert (step.mean_wait, step.mean_seconds) == (3.0, 1.5)
    (shown,) = [one for one in result.timeline if one.step == "/b"]
    assert (shown.waiting, shown.running) == ((4.5, 7.5), (7.5, 9.0))
    assert any("queue" in one.why and one.saved == 2.5 for one in advice(found, critical_path(found), []))


def test_a_reader_that_waits_for_bytes_is_not_on_it_while_its_producer_is() -> None:
    records = [
        edge("/a/out", "/b/in", Delivery.STREAM),
        *job("/a/0", 0, 0, 8),
        *job("/b/0", 0, 1, 9),
        reading("/b/0", "/a/out", "/a/0", 1),
        streamed("/b/0", "/a/out", "/a/0", 1.5, 8, 6),
    ]
    assert spans(history(*records)) == [("ran", "/a/0", 8), ("tail", "/b/0", 1)]
    # One that is slower than its producer is on it itself, from when that began.
    slow = [*records[:-1], streamed("/b/0", "/a/out", "/a/0", 1.5, 8, 0)]
    assert spans(history(*slow)) == [("waited", "/b/0", 1), ("ran", "/b/0", 8)]


def test_the_gate_and_a_commit() -> None:
    facts = {"output": "/a/out", "files": 1, "bytes": 5, "first": BEGIN + 3, "last": BEGIN + 3, "ended": BEGIN + 9}
    committed = convert({"time": BEGIN + 8.9, "job": "/a/0", "step": "/a", **facts}, CommittedRecord)
    gated = [
        edge("/a/out", "/b/in", Delivery.GATE),
        *job("/a/0", 0, 0, 9),
        committed,
        *job("/b/0", 0, 0, 10, usage=replace(usage(0, 10), held_seconds=2.0)),
        reading("/b/0", "/a/out", "/a/0", 0, "gate"),
    ]
    assert spans(history(*gated)) == [("ran", "/a/0", 3), ("tail", "/b/0", 7)]
    other = [edge("/a/log", "/b/in", Delivery.COMMIT), *job("/a/0", 0, 0, 9), committed, *job("/b/0", 9, 9, 10)]
    assert spans(history(*other)) == [("ran", "/a/0", 9), ("ran", "/b/0", 1)]
    early = [edge("/a/out", "/b/in", Delivery.COMMIT), *job("/a/0", 0, 0, 9), committed, *job("/b/0", 3.5, 3.5, 10)]
    assert spans(history(*early)) == [("ran", "/a/0", 3), ("between", "/b/0", 0.5), ("ran", "/b/0", 6.5)]


def test_a_reader_whose_stream_a_file_replaced_is_behind_the_producer() -> None:
    """One such reader is `sort`, which asks for the size of its input."""
    waited = usage(0, 9)
    records = [
        edge("/a/out", "/b/in", Delivery.STREAM),
        *job("/a/0", 0, 0, 8),
        *job("/b/0", 0, 1, 9, usage=replace(waited, held_seconds=6.9)),
        reading("/b/0", "/a/out", "/a/0", 1),
    ]
    assert spans(history(*records)) == [("ran", "/a/0", 8), ("tail", "/b/0", 1)]
    never_held = [*records[:2], *job("/b/0", 0, 1, 9, usage=waited), records[-1]]
    assert ("tail", "/b/0", 1) not in spans(history(*never_held))


def test_a_job_that_waits_for_its_turn_is_behind_the_one_before_it() -> None:
    # StreamFlow submits the second when the first has a place, and so on.
    turns = [(0.0, 0.5, 3.0), (0.5, 3.0, 5.5), (3.0, 5.5, 8.0), (5.6, 8.0, 10.5)]
    jobs = [one for number, times in enumerate(turns) for one in job(f"/a/0.{number}", *times)]
    assert spans(history(*jobs)) == [
        ("waited", "/a/0.0", 0.5),
        ("waited", "/a/0.1", 2.5),
        ("waited", "/a/0.2", 2.5),
        ("between", "/a/0.3", 0.1),
        ("waited", "/a/0.3", 2.4),
        ("ran", "/a/0.3", 2.5),
    ]


def test_an_attempt_before_and_a_failure() -> None:
    again = [*job("/a/0", 0, 0, 2, status="failed"), *job("/a/0", 2.5, 2.5, 5)]
    assert spans(history(*again)) == [("ran", "/a/0", 2), ("between", "/a/0", 0.5), ("ran", "/a/0", 2.5)]
    failed = [*job("/a/0", 0, 0, 2, status="failed"), *job("/b/0", 0, 0, 5)]
    found = history(*failed, status="failed")
    assert spans(found) == [("ran", "/a/0", 2), ("end", None, 3)]
    assert verdict(found) == "This run has failed after 5.0 s: 1 of 2 jobs succeeded"
    (first, *_) = advice(found, critical_path(found), [])
    assert first.text.startswith("Mend /a: ")
    assert first.why == "1 job failed, first /a/0 after 2.0 s"


def test_a_job_that_failed_with_a_byte_stream_is_told_with_it() -> None:
    def why(started: float) -> str:
        failed = [*job("/a/0", 0, 0, 3), *job("/b/0", started, started, 4, status="failed")]
        found = history(*failed, reading("/b/0", "/a/out", "/a/0", started), status="failed")
        return advice(found, critical_path(found), [])[0].why

    assert "; it read /a/out as a byte stream: if its command seeks, or reads twice, remove `streamable`" in why(1)
    # The fourth reader has read the file.
    assert "byte stream" not in why(3)


@given(
    st.lists(
        st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 9), *[st.floats(0, 9)] * 3, st.booleans()),
        max_size=12,
    )
)
def test_it_goes_from_the_start_to_the_end_without_a_gap(
    some: list[tuple[str, int, float, float, float, bool]],
) -> None:
    records: list[Record] = [edge("/a/out", "/b/in", Delivery.STREAM)]
    for step, tag, *times, is_early in some:
        submitted, started, ended = sorted(times)
        records += job(f"{step}/0.{tag}", submitted, started, ended)
        if is_early and step == "/b":
            records.append(reading(f"/b/0.{tag}", "/a/out", f"/a/0.{tag}", started))
            records.append(streamed(f"/b/0.{tag}", "/a/out", f"/a/0.{tag}", started, ended, 5.0))
    found = history(*records)
    path = critical_path(found)
    assert all(one.end == pytest.approx(other.begin) for one, other in pairwise(path))
    assert all(span.seconds >= 0 for span in path)
    if path:
        assert path[-1].end == pytest.approx(found.seconds)
    text = path_text(path)
    assert text == "" or text.startswith("Of the ")
    assert len(advice(found, path, edge_results(found))) <= MOST


def test_verdicts() -> None:
    hints = [edge("/a/out", "/b/in", Delivery.STREAM)]
    streams = [
        *hints,
        *job("/a/0", 0, 0, 8),
        *job("/b/0", 0, 0, 9, usage=usage(0, 9)),
        reading("/b/0", "/a/out", "/a/0", 0),
        streamed("/b/0", "/a/out", "/a/0", 0.5, 8, 3),
    ]
    assert verdict(history(*streams)) == (
        "This run has taken 9.0 s, for 2 jobs; 1 byte stream carried 8.0 MB; with each file delivered when its job "
        "ended, the run would have taken about 14.0 s, 5.0 s more"
    )
    fell = FallbackRecord(time=BEGIN + 4, job="/b/0", step="/b", output="/a/out", reason="no way")
    assert verdict(history(*hints, fell, *CHAIN)) == (
        "This run has taken 10.0 s, for 3 jobs; nothing was delivered before its job had ended"
    )
    off = edge("/a/out", "/b/in", Delivery.TERMINATION, OFF)
    assert verdict(history(off, *CHAIN)) == "This run has taken 10.0 s, for 3 jobs, with `runtime: off`"
    assert verdict(history(*CHAIN)) == "This run has taken 10.0 s, for 3 jobs"


def test_a_job_that_has_moved_counts_once() -> None:
    moved = history(*job("/a/0", 0, 0.2, 0.4, status="rolled back"), *CHAIN)
    assert verdict(moved) == "This run has taken 10.0 s, for 3 jobs"
    assert run_results([moved])[0].jobs == 3
    assert [step.jobs for step in run_results([moved])[0].steps if step.step == "/a"] == [1]


def test_what_to_do_next() -> None:
    found = history(*CHAIN)
    (first, second) = advice(found, critical_path(found), [])
    assert "observe: true" in first.text
    assert first.saved == pytest.approx(4)  # /a beside /b, and /c beside that
    assert first.why == "/b begins when /a has ended: both at a time would take up to 3.0 s less"
    assert second.text == "Make /b itself faster, or give it less to do"
    off = history(edge("/a/out", "/b/in", Delivery.TERMINATION, OFF), *CHAIN)
    assert advice(off, critical_path(off), edge_results(off))[0].text == "Run it without `runtime: off`"


@pytest.mark.parametrize(
    ("cpu", "oversubscribe", "words"),
    [
        (0.2, "gangs", "`oversubscribe: idle` lends idle cores (jobs used 7% of"),
        (0.2, "idle", "Ask for fewer cores for a job: jobs used 7% of"),
        (2.9, "idle", "More cores, or fewer"),
    ],
)
def test_who_waits_for_cores_is_told_what_helps(cpu: float, oversubscribe: str, words: str) -> None:
    records = [*job("/a/0", 0, 0, 3, usage=usage(0, 3)), *job("/x/0", 0, 3, 6, usage=usage(3, 6))]
    found = history(*records)
    found.run = replace(found.run, oversubscribe=oversubscribe)
    for each in found.jobs:
        each.cores = 1.0
        assert each.usage is not None
        each.usage = replace(each.usage, cpu_seconds=cpu)
    found.jobs[1].waited = {"cores": 3.0}
    some = advice(found, critical_path(found), [])
    assert some[0].text.startswith(words) or words in some[0].text
    assert some[0].saved == 3


@pytest.mark.parametrize(("cores", "told"), [(1.0, True), (2.0, False), (None, False)])
def test_where_the_cores_are_busy_nothing_that_overlaps_is_advised(cores: float | None, told: bool) -> None:
    records = [*job("/a/0", 0, 0, 5, usage=usage(0, 5)), *job("/b/0", 5, 5, 10, usage=usage(5, 10))]
    found = history(*records)
    for each in found.jobs:
        each.location_cores = cores
        assert each.usage is not None
        each.usage = replace(each.usage, cpu_seconds=4.9)
    some = advice(found, critical_path(found), [])
    assert any(one.text.startswith("More cores, or less to compute") for one in some) is told
    assert any("observe: true" in one.text for one in some) is not told
    if told:
        assert some[0].why.startswith("the core of the run computed for 98% of its time: jobs that run beside others")


def test_a_run_that_finds_out_by_itself_is_not_told_to() -> None:
    found = history(*CHAIN)
    found.run = replace(found.run, streaming="auto")
    assert not any("streaming: auto" in one.text for one in advice(found, critical_path(found), []))
