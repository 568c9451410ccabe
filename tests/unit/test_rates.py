"""From jobs of a run to the rates that they are told: the adapter of required bandwidth."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from streamflow.core.workflow import Status, Token
from streamflow.workflow.token import FileToken

from lab.telemetry import BEGIN, usage
from streamflow_io.bandwidth import rates
from streamflow_io.hints.errors import Level, Located, Source
from streamflow_io.hints.inheritance import StepAnnotations
from streamflow_io.hints.models import IOTask, StorageBandwidth
from streamflow_io.records.records import RateRecord
from streamflow_io.storage.admission.demand import Capacity
from tests.unit.test_requests import Driver

MB = 1_000_000
SIZE = 100 * MB
NEVER = 1e9


def hints(**fields: Any) -> dict[str, StepAnnotations]:
    source = Source("save.cwl")
    bandwidth = StorageBandwidth.model_validate({"storageBW": "required(1)", **fields})
    return {
        "/save": StepAnnotations(
            "/save",
            io_task=Located(IOTask(), Level.TOOL, "sfio:IOTask", source),
            storage_bandwidth=Located(bandwidth, Level.TOOL, "sfio:StorageBandwidth", source),
        )
    }


class SizedFile(FileToken):  # type: ignore[misc]
    """A file whose size is known."""

    async def get_paths(self, context: Any) -> list[str]:
        raise NotImplementedError


def file(path: str, size: int = SIZE) -> Token:
    return SizedFile({"class": "File", "path": path, "basename": "file", "size": size})


Making = Callable[..., Driver]


@pytest.fixture
def making(monkeypatch: pytest.MonkeyPatch) -> Making:
    """Drivers whose I/O tasks are `/save`; no one looks again by the clock."""
    monkeypatch.setattr(rates, "_LOOK_SECONDS", NEVER)
    return lambda limits=True, **fields: Driver(monkeypatch, hints(**fields), limits)


def rate(driver: Driver, job: str) -> float | None:
    told = [rate for name, rate in driver.rates if name == job]
    return None if not told or told[-1] is None else told[-1] / MB


async def test_a_job_is_told_how_fast_it_may_move(making: Making) -> None:
    driver = making(within=10)
    driver.submit(0, "/compute/0")
    driver.submit(1, "/save/0", file("/out/compute/0/file"))
    assert rate(driver, "/save/0") == pytest.approx(100 / (10 - 0.5))
    [record] = [record for record in driver.records if isinstance(record, RateRecord)]
    assert (record.job, record.rate, record.reason) == ("/save/0", pytest.approx(100 / 9.5), "strategy")
    driver.end(5, "/save/0", used=usage(1.2, 4.9, SIZE))
    driver.end(20, "/compute/0")
    told = (await driver.close())["/save/0"]
    assert (told.limit, told.rule, told.required) == (pytest.approx(100 / 9.5), "within", BEGIN + 11)


@pytest.mark.parametrize(
    ("limits", "fields"), [(False, {"within": 10}), (True, {"within": 10, "limited": False}), (True, {})]
)
async def test_what_has_no_rate(making: Making, limits: bool, fields: dict[str, Any]) -> None:
    """Where nothing is limited, where it is not to be, and where nothing is known of the window."""
    driver = making(limits, **fields)
    driver.submit(0, "/compute/0")
    driver.submit(1, "/save/0", file("/out/compute/0/file"))
    driver.end(30, "/save/0")
    assert driver.rates == []
    driver.end(40, "/compute/0")
    told = (await driver.close())["/save/0"]
    assert (told.limit, told.rule) == (None, "within" if fields else "end")


async def test_limits_end_when_no_job_computes_any_more(making: Making) -> None:
    driver = making(within=1000)
    driver.submit(0, "/compute/0")
    driver.submit(0, "/other/0")
    driver.submit(1, "/save/0", file("/out/compute/0/file"))
    driver.end(2, "/compute/0")
    assert rate(driver, "/save/0") is not None, "another one computes"
    driver.end(3, "/other/0", status=Status.FAILED)
    assert rate(driver, "/save/0") is not None, "the next one may be about to be submitted"
    driver.more_jobs = False
    driver.submit(4, "/save/1", file("/input"))
    assert rate(driver, "/save/0") is None
    driver.submit(5, "/other/1")
    assert rate(driver, "/save/0") is not None


async def test_who_does_not_come_for_a_while_is_not_waited_for(making: Making, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "_PATIENCE", 0.0)
    monkeypatch.setattr(rates, "_LEAST_PATIENCE", 0.01)
    driver = making(within=1000)
    driver.submit(0, "/compute/0")
    driver.submit(1, "/save/0", file("/out/compute/0/file"))
    assert rate(driver, "/save/0") is not None
    driver.end(2, "/compute/0")
    await asyncio.sleep(0.1)
    assert rate(driver, "/save/0") is None


async def test_what_was_moved_counts(making: Making, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = making(within=10)
    driver.submit(0, "/compute/0")
    driver.submit(1, "/save/0", file("/out/compute/0/file"))
    monkeypatch.setattr(rates.time, "time", lambda: BEGIN + 6)
    driver.adapter.moved(driver.jobs["/save/0"], 10 * MB)
    assert rate(driver, "/save/0") == pytest.approx(90 / 4.75)
    driver.adapter.repeated(driver.jobs["/save/0"])
    assert rate(driver, "/save/0") is None


async def test_small_jobs_are_spaced(making: Making) -> None:
    driver = making(within=10)
    driver.submit(0, "/compute/0")

    def spacing(n: int, size: int) -> float | None:
        driver.submit(1, f"/save/{n}", file("/out/compute/0/file", size))
        found = driver.adapter.spacing(driver.jobs[f"/save/{n}"], 100.0, 8)
        return None if found is None else found.value

    assert spacing(0, SIZE) is None
    assert spacing(1, 5 * MB) == 12.5
    driver.end(2, "/save/1", used=usage(1.5, 1.75, 5 * MB))
    assert spacing(2, 5 * MB) == pytest.approx(20), "what one has reached that had no limit"
    driver.end(3, "/save/2", used=usage(2.9, 2.91, 5 * MB))
    assert spacing(3, 5 * MB) == 100.0


async def test_what_others_hold_is_not_there(making: Making) -> None:
    driver = making(within=10)
    driver.capacity = Capacity(5 * MB, True, 8, 8)
    driver.submit(0, "/compute/0")
    driver.submit(1, "/save/0", file("/out/compute/0/file"))
    assert rate(driver, "/save/0") == pytest.approx(5)
