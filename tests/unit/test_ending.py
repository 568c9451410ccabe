"""Messages about a run that has ended, and the time that it would have taken without early delivery."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from lab.telemetry import BEGIN
from streamflow_io.graph.io_graph import Delivery
from streamflow_io.records.files import CommittedRecord, EdgeRecord, FallbackRecord, ReadingRecord, StreamedRecord
from streamflow_io.records.history import History, read_history
from streamflow_io.records.jobs import CommandRecord, EndedRecord, StartedRecord, SubmittedRecord
from streamflow_io.records.records import EndRecord, Record, RunRecord
from streamflow_io.report.analysis.verdict import Otherwise, at_termination, ending_lines
from streamflow_io.runtime.usage import JobUsage

STEPS: dict[str, tuple[str, ...]] = {"/a": (), "/b": ("/a",), "/c": ("/b",)}


def job(
    name: str,
    submitted: float,
    started: float,
    ended: float,
    status: Any = "completed",
    cpu: float | None = None,
    waited: dict[Any, float] | None = None,
) -> list[Record]:
    of = {"job": name, "step": name.rpartition("/")[0]}
    usage = None
    if cpu is not None:
        read = {"bytes_read": 0, "bytes_written": 0, "storage_bytes_read": 0, "storage_bytes_written": 0}
        usage = JobUsage(started=BEGIN + started, ended=BEGIN + ended, cpu_seconds=cpu, **read)
    where = {"location": "here", "cores": 1.0, "location_cores": 2.0}
    return [
        SubmittedRecord(time=BEGIN + submitted, **of),
        StartedRecord(time=BEGIN + started, waited=waited or {}, **of, **where),
        EndedRecord(time=BEGIN + ended, status=status, usage=usage, **of),
    ]


def held(records: list[Record], seconds: float) -> list[Record]:
    """The same job, with a measured time at the gate."""
    last = records[-1]
    assert isinstance(last, EndedRecord)
    assert last.usage is not None
    return [*records[:-1], replace(last, usage=replace(last.usage, held_seconds=seconds))]


def edge(output: str, target: str | None, delivery: Delivery = Delivery.STREAM, why: str | None = None) -> EdgeRecord:
    return EdgeRecord(time=BEGIN, output=output, input=target, delivery=delivery, fallback=why)


def reading(reader: str, source: str, delivery: Any = "stream") -> ReadingRecord:
    steps = [name.rpartition("/")[0] for name in (reader, source)]
    ports = {"input": f"{steps[0]}/in", "output": f"{steps[1]}/out"}
    return ReadingRecord(time=BEGIN, job=reader, step=steps[0], delivery=delivery, sources=(source,), **ports)


def streamed(reader: str, waited: float, size: int = 2_000_000) -> StreamedRecord:
    step = reader.rpartition("/")[0]
    return StreamedRecord(
        time=BEGIN, job=reader, step=step, outputs=("/a/out",), source="/a/0", bytes=size, waited=waited
    )


def committed(name: str, first: float, ended: float, files: int = 1) -> CommittedRecord:
    step = name.rpartition("/")[0]
    times = {"first": first, "last": first, "ended": ended}
    return CommittedRecord(time=BEGIN, job=name, step=step, output=f"{step}/out", files=files, bytes=1, **times)


def history(
    *records: Record | Iterable[Record],
    end: float = 10.0,
    status: Any = "completed",
    steps: dict[str, tuple[str, ...]] = STEPS,
) -> History:
    flat = [one for each in records for one in ([each] if isinstance(each, Struct) else each)]
    flat.sort(key=lambda record: record.time)
    first = RunRecord(time=BEGIN, name="run", workflow="main.cwl", steps=steps)
    return read_history("run", [first, *flat, EndRecord(time=BEGIN + end, status=status)])


def otherwise(*records: Record | Iterable[Record], **fields: Any) -> Otherwise:
    return at_termination(history(*records, **fields))


def test_a_stream_has_saved_what_its_reader_did_meanwhile() -> None:
    # The reader has read for 8 s, and waited for bytes in 2 of them; /c comes a second later, as before.
    run = (
        edge("/a/out", "/b/in"),
        job("/a/0", 0, 0, 7),
        job("/b/0", 0.5, 0.5, 8.5),
        job("/c/0", 8.6, 8.7, 10),
        reading("/b/0", "/a/0"),
        streamed("/b/0", waited=2),
    )
    assert otherwise(*run).seconds == pytest.approx(7 + 6 + 0.2 + 1.3)
    assert not otherwise(*run).is_least


def test_a_commit_has_saved_the_time_to_the_end_of_its_job() -> None:
    run = (
        edge("/a/out", "/b/in", Delivery.COMMIT),
        job("/a/0", 0, 0, 5),
        job("/b/0", 2, 2, 6),
        committed("/a/0", 2, 5),
    )
    assert otherwise(*run, end=6).seconds == pytest.approx(5 + 4)


def test_what_waited_for_something_else_has_saved_nothing() -> None:
    run = (edge("/a/out", "/b/in", Delivery.COMMIT), job("/a/0", 0, 0, 5), job("/b/0", 2, 6, 9, waited={"cores": 4}))
    assert otherwise(*run, end=9).seconds == pytest.approx(9)


def test_who_had_to_start_again_has_saved_nothing() -> None:
    first, *rest = job("/b/0", 0.5, 0.5, 13, cpu=1)
    last = rest[-1]
    assert isinstance(last, EndedRecord)
    assert last.usage is not None
    again = replace(last, usage=replace(last.usage, started=BEGIN + 7))
    run = (
        edge("/a/out", "/b/in"),
        job("/a/0", 0, 0, 7),
        [first, *rest[:-1], again],
        reading("/b/0", "/a/0"),
        reading("/b/0", "/a/0"),
        streamed("/b/0", waited=0),
    )
    assert otherwise(*run, end=13).seconds == pytest.approx(13)
    # When its last try began was not measured.
    assert "repeated" in (otherwise(*run[:2], job("/b/0", 0.5, 0.5, 13), *run[3:], end=13).unknown or "")


def test_a_reader_that_ran_again_with_the_file_has_saved_nothing() -> None:
    """The second attempt reads no stream, so only its command tells of the attempt."""
    records = job("/b/0", 0.5, 0.5, 8, cpu=1)
    last = records[-1]
    assert isinstance(last, EndedRecord)
    assert last.usage is not None
    again = replace(last, usage=replace(last.usage, started=BEGIN + 7))
    commands = [
        CommandRecord(
            time=BEGIN, job="/b/0", step="/b", attempt=attempt, command="b", location="here", started=BEGIN + started
        )
        for attempt, started in ((1, 0.5), (2, 7.0))
    ]
    run = (edge("/a/out", "/b/in"), job("/a/0", 0, 0, 7), records[:-1], reading("/b/0", "/a/0"), commands, [again])
    assert otherwise(*run, streamed("/b/0", waited=5), end=8).seconds == pytest.approx(8)


def test_who_may_have_waited_at_the_gate_is_taken_to_have_waited() -> None:
    run = (edge("/a/out", "/b/in", Delivery.GATE), job("/a/0", 0, 0, 5), reading("/b/0", "/a/0", "gate"))
    assert otherwise(*run, job("/b/0", 0, 0, 6), end=6).seconds == pytest.approx(6)
    # Before it opened the file it worked for 4 s, and afterwards for one.
    assert otherwise(*run, held(job("/b/0", 0, 0, 6, cpu=1), 1), end=6).seconds == pytest.approx(5 + 5)


def test_elements_of_a_list_belong_to_their_own() -> None:
    run = (
        edge("/a/out", "/b/in", Delivery.COMMIT),
        job("/a/0.0", 0, 0, 4, cpu=0.1),
        job("/a/0.1", 0, 0, 8, cpu=0.1),
        job("/b/0.0", 1, 1, 3, cpu=0.1),
        job("/b/0.1", 1, 1, 3, cpu=0.1),
        committed("/a/0.0", 1, 4),
    )
    assert otherwise(*run, end=8).seconds == pytest.approx(10)


def test_where_all_cores_were_used_no_more_is_said_than_is_known() -> None:
    # Each has had two thirds of a core: alone, each would have been done in 6 s.
    run = (
        edge("/a/out", "/b/in"),
        edge("/b/out", "/c/in"),
        job("/a/0", 0, 0, 9, cpu=6),
        job("/b/0", 0, 0, 9, cpu=6),
        job("/c/0", 0, 0, 9, cpu=6),
        reading("/b/0", "/a/0"),
        reading("/c/0", "/b/0"),
        streamed("/b/0", waited=0),
        streamed("/c/0", waited=0),
    )
    found = otherwise(*run, end=9)
    assert found.is_least
    assert found.seconds == pytest.approx(6 + 6 + 6)


times = st.floats(0, 50, allow_nan=False)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 2), times, times, times), max_size=12), st.booleans())
def test_never_shorter_than_it_was(jobs: list[tuple[str, int, float, float, float]], early: bool) -> None:
    named = {f"/{step}/0.{number}": (at, wait, took) for step, number, at, wait, took in jobs}
    records = [job(name, at, at + wait, at + wait + took) for name, (at, wait, took) in named.items()]
    edges = [edge("/a/out", "/b/in", Delivery.COMMIT), edge("/b/out", "/c/in")] if early else []
    found = otherwise(edges, *records, end=200)
    assert found.seconds is not None
    assert found.seconds == pytest.approx(200) if not early else found.seconds >= 200


def test_what_is_said_at_the_end() -> None:
    run = (
        edge("/a/out", "/b/in"),
        edge("/a/log", "/c/in", Delivery.TERMINATION, "it has an expression"),
        job("/a/0", 0, 0, 7),
        job("/b/0", 0.5, 0.5, 8.5),
        reading("/b/0", "/a/0"),
        streamed("/b/0", waited=2),
    )
    assert ending_lines(history(*run, end=8.5)) == [
        "This run has taken 8.5 s, for 2 jobs",
        "1 byte stream carried 2.0 MB; with each file delivered when its job ended, the run would have taken about "
        "13.0 s, 4.5 s more",
        "Not delivered as asked: /a/log: it has an expression",
    ]


@pytest.mark.parametrize(
    ("reason", "shown"),
    [
        ("it has an expression [SFIO-S004]", "it has an expression [SFIO-S004]"),
        (f"it {'x' * 500} [SFIO-S004]", f"it {'x' * 197}... [SFIO-S004]"),
    ],
)
def test_the_last_line_says_how_to_learn_more(reason: str, shown: str) -> None:
    run = (edge("/a/log", "/c/in", Delivery.TERMINATION, reason), job("/a/0", 0, 0, 7))
    last = ending_lines(history(*run, end=7))[-1]
    assert last == f"Not delivered as asked: /a/log: {shown}; more: streamflow-io explain SFIO-S004"


def test_a_failed_run_claims_nothing() -> None:
    fallback = FallbackRecord(time=BEGIN, job="/b/0", step="/b", output="/a/out", reason="it runs elsewhere")
    run = (
        edge("/a/out", "/b/in"),
        job("/a/0", 0, 0, 7),
        job("/b/0", 0.5, 0.5, 6, "failed"),
        committed("/a/0", 5, 7, 3),
    )
    assert ending_lines(history(*run, fallback, end=7, status="failed")) == [
        "This run has failed after 7.0 s: 1 of 2 jobs succeeded",
        "3 files were committed up to 2.0 s before their jobs ended",
        "Not delivered as asked: /a/out: it runs elsewhere",
    ]
    assert ending_lines(history(*run, end=7, status="failed"))[1:] == [
        "3 files were committed up to 2.0 s before their jobs ended"
    ]
