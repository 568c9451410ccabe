"""The simulation of the driver's decisions, and that they do not grow with the cluster and the run."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path

import pytest

from benchmarks import __main__ as command_line
from benchmarks import driver_parts, footprint, scale
from benchmarks.meter import Meter, longest_collection
from benchmarks.model import Report
from benchmarks.simulated_work import Size
from benchmarks.simulation import Simulation, figures
from benchmarks.workload import Workload

SMALL, EIGHT_TIMES = Size(4, 240), Size(32, 1920)


def simulated(size: Size, sampled: int = 7) -> Simulation:
    simulation = Simulation(size, Meter(sampled))
    asyncio.run(simulation.run())
    return simulation


@pytest.fixture(scope="module")
def small() -> Simulation:
    return simulated(SMALL)


def test_every_job_runs(small: Simulation) -> None:
    # Each is submitted, and ends; some of them only when their producer has, after another event.
    assert small.events >= 2 * SMALL.jobs
    assert 1 < small.most_running <= SMALL.jobs
    assert small.now > 0


def test_equal_runs_decide_the_same(small: Simulation) -> None:
    assert simulated(SMALL, sampled=100).digest == small.digest
    assert simulated(Size(3, 480)).digest != small.digest


def test_a_decision_takes_no_more_calls_at_eight_times_the_size(small: Simulation) -> None:
    large = simulated(EIGHT_TIMES)
    assert large.meter.count > 6 * small.meter.count
    assert large.meter.calls() < 1.1 * small.meter.calls()


def test_four_times_as_many_steps_do_not_take_twice_the_calls() -> None:
    assert simulated(Size(4, 960, 12)).meter.calls() < 1.6 * simulated(Size(4, 960, 3)).meter.calls()


def test_jobs_that_never_start_are_an_error() -> None:
    simulation = Simulation(SMALL)
    simulation._admission.decide = lambda now: []  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="jobs never start"):
        asyncio.run(simulation.run())


def test_figures_of_a_run() -> None:
    result = figures(SMALL)
    numbers = result["figures"]
    assert isinstance(numbers, dict)
    assert all(value > 0 for name, value in numbers.items() if name != "ms_longest_collection")
    assert numbers["decisions_per_s"] == pytest.approx(1e6 / numbers["us_per_decision"])
    assert numbers["us_at_most_99_percent"] <= 2e3 * numbers["ms_longest_decision"]


def test_the_meter_times_and_profiles() -> None:
    meter = Meter(sampled=4)
    for _ in range(8):
        with meter:
            sorted([3, 1, 2])
    assert meter.count == 8
    assert meter.calls() >= 1
    assert meter.mean == pytest.approx(meter.seconds / 6)
    assert 0 < meter.at_most(0.5) <= meter.at_most(1.0) < 2 * meter.longest
    assert sum(meter.shares().values()) == pytest.approx(1)
    assert Meter().shares() == {}
    assert Meter().at_most(0.5) == 0


def test_collections_are_measured() -> None:
    with longest_collection() as longest:
        assert longest() == 0
        gc.collect()
        assert longest() > 0
    before = longest()
    gc.collect()
    assert longest() == before


def test_parts_of_the_driver_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_parts, "EVENT_SECONDS", 0.01)
    assert driver_parts.events_per_second() > 0
    assert driver_parts.job_token_ms(40) > 0
    for nodes in (1, 3):
        assert driver_parts.streamflow_scheduler_ms(nodes, 2) > 0
        assert driver_parts.storage_admission_ms(nodes, 2) > 0


def test_an_ended_job_leaves_nothing_in_the_admission(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(footprint, "JOBS", 200)
    bytes_of = footprint.footprints()
    assert 100 < bytes_of["bytes_per_waiting_job"] < bytes_of["bytes_per_running_job"] < 10_000
    assert bytes_of["bytes_per_ended_job"] < bytes_of["bytes_per_waiting_job"] / 4
    assert 100 < bytes_of["bytes_per_streaming_job"] < 10_000


def test_a_simulation_is_a_process_of_its_own(tmp_path: Path) -> None:
    variant = next(iter(scale.scale([SMALL]).prepare(tmp_path)))
    (directory := tmp_path / "run").mkdir()
    outcome = variant.run(directory)
    assert outcome.sample.further["decisions"] > SMALL.jobs / 2
    assert str(SMALL) in outcome.outputs
    assert "where decisions spend their time" in outcome.notes[0]


def test_sizes_are_options(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[Workload] = []

    def run(workload: Workload, repetitions: int, announce: object) -> Report:
        ran.append(workload)
        raise KeyboardInterrupt

    monkeypatch.setattr(command_line, "run_workload", run)
    command_line.main(["run", "scale", "--sizes", "2:240", "16:1920"])
    assert "2 nodes, 240 jobs, 24 steps to 16 nodes, 1,920 jobs, 24 steps" in ran[0].summary


@pytest.mark.parametrize(
    "arguments", [["scale", "--sizes", "2"], ["scale", "--sizes", "0:8"], ["chain", "--sizes", "2:8"]]
)
def test_wrong_sizes(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command_line.main(["run", *arguments])
    assert "sizes" in capsys.readouterr().err
