"""Where jobs ran, and what went between locations: in the report, and while a run goes on."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from lab.telemetry import BEGIN, job
from lab.wording import shown
from streamflow_io.commands.report import Report
from streamflow_io.records.files import StreamedRecord
from streamflow_io.records.history import read_history
from streamflow_io.records.jobs import StartedRecord
from streamflow_io.records.records import EndRecord, LocationRecord, Record, RunRecord
from streamflow_io.report.analysis.live import LiveRun, RunView
from streamflow_io.report.analysis.locations import LocationResult
from streamflow_io.report.analysis.results import RunResult, run_results
from streamflow_io.report.live_view import plain_line, screen
from streamflow_io.report.page import LOCATIONS, most_used, render, row

RUN = RunRecord(time=BEGIN, name="run", workflow="main.cwl", steps={"/a": (), "/b": ("/a",)})


def at(location: str, name: str, begin: float, end: float, status: str = "completed", cores: float = 1) -> list[Record]:
    """The records of a job at a location with four cores."""
    found = job(name, begin, begin, end, status=status)  # type: ignore[arg-type]
    place = {"location": location, "cores": cores, "location_cores": 4.0}
    return [replace(each, **place) if isinstance(each, StartedRecord) else each for each in found]


def streamed(source: str, target: str, size: int, time: float) -> StreamedRecord:
    step = target.rpartition("/")[0]
    return StreamedRecord(
        time=BEGIN + time, job=target, step=step, source=source, outputs=("/a/out",), input="/b/in", bytes=size
    )


def result(*records: Record) -> RunResult:
    ordered = sorted(records, key=lambda record: record.time)
    return run_results([read_history("run", (RUN, *ordered, EndRecord(time=BEGIN + 10)))])[0]


def live(*records: Record) -> RunView:
    run = LiveRun("run")
    for record in (RUN, *sorted(records, key=lambda record: record.time)):
        run.told(record)
    return run.view(BEGIN + 10)


def rows(locations: Sequence[LocationResult]) -> list[tuple[str, ...]]:
    return [row(LOCATIONS, one) for one in most_used(locations)]


def test_streams_count_between_locations_only() -> None:
    """A job that is repeated elsewhere has its streams where it runs then."""
    found = result(
        *at("n1", "/a/0", 0, 5, cores=2),
        *at("n1", "/b/0", 0, 2, "failed"),
        *at("n2", "/b/0", 3, 5),
        *at("n1", "/b/1", 0, 5),
        streamed("/a/0", "/b/0", 1_000_000, 1.5),
        streamed("/a/0", "/b/0", 3_000_000, 4.5),
        streamed("/a/0", "/b/1", 9_000_000, 4.5),
    )
    assert rows(found.locations) == [
        ("n1", "3", "1", "4", "1.7", "", "3"),
        ("n2", "1", "", "4", "0.2", "3", ""),
    ]
    assert "received (MB)" in shown(Report([found]), 120)
    page = render([found], ())
    assert "Locations of run" in page
    assert page.count("on n1</title>") == 3
    assert page.count("on n2</title>") == 1


def offered(*names: str) -> list[Record]:
    return [LocationRecord(time=BEGIN, location=name, location_cores=4.0) for name in names]


def test_locations_without_jobs_are_shown() -> None:
    records = [*offered("n1", "n2"), *at("n1", "/a/0", 0, 10)]
    assert rows(result(*records).locations) == [
        ("n1", "1", "", "4", "1", "", ""),
        ("n2", "0", "", "4", "0", "", ""),
    ]
    assert "n2" in shown(Report([result(*records)]))
    locations = live(*records[:-1]).locations
    assert [(one.name, one.jobs, one.cores) for one in locations] == [("n1", ("/a/0",), 4.0), ("n2", (), 4.0)]
    assert "n2" in shown(screen(live(*records[:-1]), 24))


def test_of_many_locations_those_without_jobs_are_counted() -> None:
    records = [*offered(*(f"n{node:03}" for node in range(200))), *at("n150", "/a/0", 0, 10)]
    shown_rows = rows(result(*records).locations)
    assert len(shown_rows) == 20
    assert ("n150", "1", "", "4", "1", "", "") in shown_rows
    assert "of them idle" in shown(screen(live(*records[:-1]), 24))


def test_the_cores_of_each_location_while_a_run_goes_on() -> None:
    done = [each for node in range(200) for each in at(f"n{node:03}", f"/a/0.{node}", 0, 5)]
    running = [each for number in range(3) for each in at("n150", f"/b/0.{number}", 6, 12)[:-1]]
    view = live(*done, *running, *at("n151", "/b/0.3", 6, 12, cores=2)[:-1])
    lines = [line.rstrip() for line in shown(screen(view, 24)).splitlines()]
    start = lines.index("location      run     cores  jobs")
    assert lines[start + 1 : start + 4] == [
        "n150            3    3 of 4  /b/0.0, /b/0.1, /b/0.2",
        "n151            1    2 of 4  /b/0.3",
        "and 198 more    0  0 of 792  198 of them idle",
    ]
    assert "2 of 200 locations run jobs, with 5 of 800 cores" in plain_line(view)
    assert sum(len(location.jobs) for location in view.locations) == 4
