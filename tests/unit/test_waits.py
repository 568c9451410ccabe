"""The waits of a job add up to the time in which it was known to lack something."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.telemetry import BEGIN
from lab.wording import shown
from streamflow_io.commands.report import Report
from streamflow_io.jobs.recorder import Waits
from streamflow_io.records.history import read_history
from streamflow_io.records.jobs import StartedRecord, SubmittedRecord, WaitCause
from streamflow_io.records.records import Record, RunRecord
from streamflow_io.report.analysis.results import run_results
from streamflow_io.report.page import render

CAUSES = st.sampled_from([None, "storage", "cores", "memory", "disk", "place"])


def test_one_cause_after_the_other() -> None:
    waits = Waits(0.0)
    causes: list[tuple[float, WaitCause | None]] = [
        (0, "storage"),
        (2, None),
        (3, "cores"),
        (4, "cores"),
        (7, "memory"),
    ]
    for now, cause in causes:
        waits.lacks(cause, now)
    assert waits.end(7.5) == {"storage": 2.0, "cores": 4.0, "memory": 0.5}
    short = Waits(1.0)
    short.lacks("disk", 1.0)
    assert short.end(1.0) == {}


@given(st.lists(st.tuples(st.floats(0.01, 10), CAUSES)))
def test_the_sum(looks: list[tuple[float, WaitCause | None]]) -> None:
    waits, now, expected = Waits(0.0), 0.0, 0.0
    for seconds, cause in looks:
        waits.lacks(cause, now)
        now += seconds
        expected += seconds if cause is not None else 0.0
    assert sum(waits.end(now).values()) == pytest.approx(expected)


def test_the_report_says_what_jobs_have_waited_for() -> None:
    records: list[Record] = [RunRecord(time=BEGIN, name="run", workflow="main.cwl")]
    waited: list[dict[WaitCause, float]] = [{"cores": 2.0, "storage": 0.01}, {"cores": 4.0, "memory": 9.0}, {}]
    for number, causes in enumerate(waited):
        job = f"/a/0.{number}"
        records.append(SubmittedRecord(time=BEGIN, job=job, step="/a"))
        records.append(StartedRecord(time=BEGIN + 13, job=job, step="/a", location="here", waited=causes))
    results = run_results([read_history("run", records)])
    assert "A job of /a waited for, in the mean (s): memory 3, cores 2\n" in shown(Report(results))
    assert "<td>memory 3, cores 2</td>" in render(results, [])
