"""The report about read sessions."""

from __future__ import annotations

from lab.telemetry import BEGIN, job
from streamflow_io.hints.reasons import SessionReason
from streamflow_io.records.files import (
    ChunkRecord,
    ConsumedRecord,
    SessionEndRecord,
    SessionForm,
    SessionRecord,
)
from streamflow_io.records.history import read_history
from streamflow_io.records.records import EndRecord, Record, RunRecord, StepRecord
from streamflow_io.report.analysis.results import RunResult, run_results
from streamflow_io.report.chart import draw
from streamflow_io.report.page import SESSIONS, render, row

MB = 1_000_000
RUN = RunRecord(time=BEGIN, name="run", workflow="main.cwl")


def began(form: SessionForm = "said", session: int = 1, time: float = 1.0) -> SessionRecord:
    return SessionRecord(
        time=BEGIN + time, session=session, step="/split", file="/data/all <1>.fq", size=40 * MB, form=form, readers=4,
        chunk=10 * MB, window=30 * MB,
    )  # fmt: skip


def chunk(time: float, seconds: float = 1.0, cached: int | None = 0, held: int = 0, session: int = 1) -> ChunkRecord:
    return ChunkRecord(
        time=BEGIN + time, session=session, bytes=10 * MB, cached=cached, seconds=seconds, held=held,
    )  # fmt: skip


def consumed(time: float, part: int, held: int | None) -> ConsumedRecord:
    return ConsumedRecord(time=BEGIN + time, session=1, part=part, held=held)


def ended(time: float, reason: SessionReason = "done", session: int = 1) -> SessionEndRecord:
    return SessionEndRecord(time=BEGIN + time, session=session, reason=reason)


def result(*records: Record) -> RunResult:
    return run_results([read_history("run", (RUN, *records))])[0]


def whole() -> list[Record]:
    """Four chunks, two at a time, and four parts; the second pair of jobs ends after the session."""
    return [
        began(),
        chunk(2.0),
        chunk(2.5, 1.5, held=10 * MB),
        consumed(3.0, 0, 10 * MB),
        chunk(3.0, held=10 * MB),
        consumed(3.5, 1, 10 * MB),
        chunk(5.0, 2.0, held=10 * MB), ended(5.0),
        consumed(6.0, 2, 10 * MB), consumed(8.0, 3, 0),
        EndRecord(time=BEGIN + 9),
    ]  # fmt: skip


def test_a_row_of_a_session() -> None:
    # A job computes from 2 to 4; that of the split, from 1 to 5, only says parts; an I/O task computes nothing.
    jobs = [*job("/split/0", 0, 1, 5), *job("/align/0", 0, 2, 4), *job("/io/0", 0, 1, 5)]
    (session,) = result(StepRecord(time=BEGIN, step="/io", io_task=True), *jobs, *whole()).sessions
    assert {title: text(session) for title, text in SESSIONS.items()} == {
        "step": "/split",
        "file": "all <1>.fq",
        "form": "parts of a virtual split",
        "end": "all was read",
        "size (MB)": "40",
        "readers": "2 of 4",
        "from storage (MB)": "40",
        "cached (MB)": "0",
        "reading (s)": "4",
        "overlap": "50%",
    }


def test_what_had_arrived_and_was_consumed_over_time() -> None:
    (session,) = result(*whole()).sessions
    assert [(point.time, point.arrived // MB, point.consumed // MB) for point in session.over_time] == [
        (1, 0, 0), (2, 10, 0), (2.5, 20, 0), (3, 20, 10), (3, 30, 10), (3.5, 30, 20), (5, 40, 20), (6, 40, 30),
        (8, 40, 40),
    ]  # fmt: skip


def test_a_session_of_a_killed_run() -> None:
    (session,) = result(began(), chunk(2.0), chunk(2.5, held=10 * MB, cached=4 * MB)).sessions
    assert session.reason is None
    assert (session.storage_bytes, session.cached_bytes) == (16 * MB, 4 * MB)
    assert "not recorded" in row(SESSIONS, session)


def test_the_page_has_the_table_and_a_figure_for_each_session_that_read() -> None:
    run = result(*whole(), began(session=2), ended(1.2, "cached", session=2))
    figures = [figure for figure in draw([run, run]) if figure.title.startswith("Read session")]
    assert [figure.title for figure in figures] == ["Read session 1: all <1>.fq, /split of run"] * 2
    assert [line.name for line in figures[0].lines] == ["arrived", "consumed"]
    page = render([run], draw([run]))
    assert "<h2>Read sessions of run</h2>" in page
    assert "it was in the page cache before" in page
    assert "all <1>" not in page
