"""The workload `cluster`, with next to nothing to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import cluster, cluster_wrapper
from benchmarks.chain import Chain
from benchmarks.cluster_sites import program_on_host
from benchmarks.workload import Outcome
from laboratories.laboratory import slurm_obstacle
from tests.e2e.conftest import require_laboratories


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    require_laboratories()
    monkeypatch.setattr(cluster, "HOSTS_CHAIN", Chain(3, 1000, "wait:0.01", program_on_host("tools.py")))
    monkeypatch.setattr(cluster_wrapper, "JOBS", 3)


def run(name: str, directory: Path) -> Outcome:
    (inputs := directory / "input").mkdir()
    (variant,) = (variant for variant in cluster.CLUSTER.prepare(inputs) if variant.name == name)
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


def test_what_the_wrapper_adds_on_a_host(tmp_path: Path) -> None:
    assert 0 < run("hosts, wrapper", tmp_path).sample.measure(cluster_wrapper.MEASURE) < 1000


@pytest.mark.long
def test_what_the_wrapper_adds_on_slurm(tmp_path: Path) -> None:
    if (reason := slurm_obstacle()) is not None:
        pytest.skip(reason)
    assert 0 < run("Slurm, wrapper", tmp_path).sample.measure(cluster_wrapper.MEASURE) < 1000
