"""The report about storages that runs share."""

from __future__ import annotations

from streamflow_io.hints.models import Way
from streamflow_io.records.history import read_history
from streamflow_io.records.jobs import AdmittedRecord, SubmittedRecord
from streamflow_io.records.records import EndRecord, HeldRecord, LeaseRecord, Record, RunRecord, RunStorage
from streamflow_io.report.analysis.lease_results import lease_results
from streamflow_io.report.page import lease_row

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
    assert lease_row(result) == ("disk", "write", "4", "1.67 times", "", "")


def test_a_run_that_is_killed_while_it_waits() -> None:
    records = run(lease(1, 0, 60, 50))[:-1]
    records.append(LeaseRecord(time=BEGIN + 3, storage="x", direction="read", held=0, used=0, others=0, wanted=0))
    (result,) = lease_results(read_history("one", records))
    assert result.waited == 2.0


def test_bursts_that_were_held_for_their_slots() -> None:
    def burst(number: int, since: float, slot: float, begun: float | None) -> list[Record]:
        job, step = f"/save{number}/0", f"/save{number}"
        admitted = AdmittedRecord(
            time=BEGIN + (begun or 0.0), job=job, step=step, location="here", storage="disk", constraint=50.0,
            allocated=50.0, running=1,
        )  # fmt: skip
        return [
            SubmittedRecord(time=BEGIN + since, job=job, step=step),
            HeldRecord(time=BEGIN + since, storage="disk", slot=BEGIN + slot, until=BEGIN + slot),
            *([admitted] if begun is not None else ()),
        ]

    bursts = [*burst(0, 1.0, 2.5, 2.51), *burst(1, 4.0, 6.0, 4.5), *burst(2, 8.0, 9.0, None)]
    records = run(lease(0.5, 0, 10, 50), lease(3, 50, 10, 0), *bursts)
    (result,) = lease_results(read_history("one", records))
    # For 1.5 s, 0.5 s and 1 s; while the first was held, its job waited for nothing else.
    assert (result.bursts, result.held) == (3, 3.0)
    assert lease_row(result)[4:] == ("3", "3")
    assert result.waited == 1.0
