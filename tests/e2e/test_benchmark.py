"""The workloads `cluster` and `containers`, with next to nothing to do."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from benchmarks import cluster, cluster_wrapper, containers, containers_damage, containers_rate, containers_ready
from benchmarks.chain import Chain
from benchmarks.cluster_sites import program_on_host
from benchmarks.containers_site import PROGRAM, make_images
from benchmarks.workload import Outcome, Workload
from lab.machines.laboratory import Laboratory, slurm_obstacle
from tests.e2e.conftest import require_containers, require_laboratories


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    if "container" in request.node.name:
        require_containers()
    else:
        require_laboratories()
    monkeypatch.setattr(containers, "PACED", Chain(20, 1000, "wait:0.2", PROGRAM))
    monkeypatch.setattr(containers_ready, "TIMES", 1)
    monkeypatch.setattr(containers_rate, "BYTES", 8 << 20)
    monkeypatch.setattr(containers_rate, "JOBS", 2)
    monkeypatch.setattr(cluster, "HOSTS_CHAIN", Chain(3, 1000, "wait:0.01", program_on_host("tools.py")))
    monkeypatch.setattr(cluster_wrapper, "JOBS", 3)


def run(name: str, directory: Path, workload: Workload = cluster.CLUSTER) -> Outcome:
    (inputs := directory / "input").mkdir()
    (variant,) = (variant for variant in workload.prepare(inputs) if variant.name == name)
    (place := directory / "run").mkdir()
    return variant.run(place)


@pytest.mark.long
def test_a_chain_by_hand_and_by_streamflow(tmp_path: Path) -> None:
    outcomes = []
    for name in ("hosts, alone", "hosts, plain"):
        (directory := tmp_path / name).mkdir()
        outcomes.append(run(name, directory))
    alone, plain = outcomes
    assert alone.outputs == plain.outputs != {}
    assert alone.sample.window == max(alone.sample.further.values())
    assert 0 < alone.sample.window < plain.sample.window


@pytest.mark.long
def test_what_the_wrapper_adds_on_a_host(tmp_path: Path) -> None:
    assert 0 < run("hosts, wrapper", tmp_path).sample.measure(cluster_wrapper.MEASURE) < 1000


@pytest.mark.long
def test_what_the_wrapper_adds_on_slurm(tmp_path: Path) -> None:
    if (reason := slurm_obstacle()) is not None:
        pytest.skip(reason)
    assert 0 < run("Slurm, wrapper", tmp_path).sample.measure(cluster_wrapper.MEASURE) < 1000


@pytest.mark.long
@pytest.mark.parametrize("name", ["chain", "fan-out"])
def test_streams_between_containers(tmp_path: Path, name: str) -> None:
    outcomes = []
    for variant in (f"{name}, plain", f"{name}, streaming"):
        (directory := tmp_path / variant).mkdir()
        outcomes.append(run(variant, directory, containers.CONTAINERS))
    plain, streaming = outcomes
    assert streaming.outputs == plain.outputs != {}
    assert streaming.sample.window < plain.sample.window


@pytest.mark.long
def test_how_soon_the_node_runtime_is_ready_in_a_container(
    containers_laboratory: Laboratory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In an engine that is there; `test_streams_between_containers` has one of its own, as the workload."""
    make_images(containers_laboratory)
    monkeypatch.setattr(containers_ready, "engine", lambda: nullcontext(containers_laboratory))
    outcome = run("node runtime", tmp_path, containers.CONTAINERS)
    # Less than nothing, if the command that is taken off takes longer to end.
    assert abs(outcome.sample.measure(containers_ready.MEASURE)) < 10_000


@pytest.mark.long
@pytest.mark.parametrize("name", ["FIFO in one container", "stream on a volume, samples", "stream by a bridge"])
def test_how_fast_bytes_go_between_containers(tmp_path: Path, name: str) -> None:
    outcome = run(name, tmp_path, containers.CONTAINERS)
    assert 0 < outcome.sample.measure(containers_rate.RATE) < 100


@pytest.mark.long
def test_what_a_tiny_job_in_a_container_computes(tmp_path: Path) -> None:
    assert 0 < run("tiny job", tmp_path, containers.CONTAINERS).sample.measure(containers_rate.CPU) < 1000


@pytest.mark.long
def test_how_soon_a_consumer_ends_whose_container_is_killed(tmp_path: Path) -> None:
    outcome = run("docker kill", tmp_path, containers.CONTAINERS)
    assert 0 < outcome.sample.measure(containers_damage.MEASURE) < 10
