"""The report about storages that runs share."""

from __future__ import annotations

from streamflow_io.hints.models import Way
from streamflow_io.records.history import read_history
from streamflow_io.records.records import EndRecord, LeaseRecord, Record, RunRecord, RunStorage
from streamflow_io.report.analysis.results import lease_results
from streamflow_io.report.page import LEASES, row

BEGIN = 1_700_000_000.0
STORAGE = RunStorage(name="disk", path="/scratch", scope="shared", write=100.0)


def lease(time: float, used: float, others: float, wanted: float, direction: Way = "write") -> LeaseRecord:
    return LeaseRecord(
        time=BEGIN + time, storage="disk", direction=direction, held=used, used=used, others=others, wanted=wanted
    )


def run(*leases: Record, begin: float = 0.0, end: float = 10.0) -> list[Record]:
    first = RunRecord(time=BEGIN + begin, name="sweep", workflow="main.cwl", storages=(STORAGE,))
    return [first, *leases, EndRecord(time=BEGIN + end)]


WAITING = run(
    lease(0, 0, 0, 0, "read"),
    lease(1, 0, 60, 50),
    lease(3, 0, 80, 50),
    lease(4, 50, 50, 50),
    lease(5, 50, 0, 50),
    lease(9, 0, 0, 0),
)


def test_who_waits_while_others_hold_something_waits_for_them() -> None:
    """A wait for the bandwidth of the run's own jobs is no such wait."""
    (result,) = lease_results(read_history("one", WAITING))
    assert (result.storage, result.direction) == ("disk", "write")
    # From 1 s to 5 s.
    assert result.waited == 4.0
    assert result.slowdown == 10 / 6
    assert row(LEASES, result) == ("disk", "write", "4", "1.67 times")


def test_a_run_that_is_killed_while_it_waits() -> None:
    records = run(lease(1, 0, 60, 50))[:-1]
    records.append(LeaseRecord(time=BEGIN + 3, storage="x", direction="read", held=0, used=0, others=0, wanted=0))
    (result,) = lease_results(read_history("one", records))
    assert result.waited == 2.0
