"""Hosts, and nodes of a Slurm, share no more than those of a real cluster."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lab.machines.deployments import slurm_environment
from lab.machines.hosts import ADDRESSES
from lab.machines.laboratory import Laboratory
from lab.machines.slurm import NODES, has_cgroups
from tests.e2e.conftest import require_laboratories


@pytest.fixture(autouse=True)
def _required() -> None:
    require_laboratories()


def test_hosts_have_file_systems_of_their_own(hosts_laboratory: Laboratory, tmp_path: Path) -> None:
    one, other = ADDRESSES
    secret = tmp_path / "of the driver"
    secret.touch()
    (hosts_laboratory.directory / "shared" / "of all").touch()
    login(hosts_laboratory, one, "touch /scratch/mine /tmp/mine")
    for file in ("/scratch/mine", "/tmp/mine", secret, hosts_laboratory.directory / "key"):
        assert login(hosts_laboratory, other, f"test -e '{file}' || echo absent") == "absent\n"
    assert login(hosts_laboratory, other, f"ls {hosts_laboratory.directory}/shared").startswith("of all\n")


def test_nodes_of_slurm_share_nothing_but_files(slurm_laboratory: Laboratory) -> None:
    """Each has an address, a name, processes and a memory of its own; a job gets its cores, and no more."""
    looks = "hostname; hostname -I; nproc; echo $(ls -d /proc/[0-9]* | wc -l); ls /dev/shm; touch /dev/shm/mine"
    told = [node(slurm_laboratory, name, looks).split() for name in NODES]
    assert [(name, address) for name, address, *_ in told] == list(NODES.items())
    if has_cgroups():
        assert {cores for *_, cores, _ in told} == {"1"}
    ours = len([each for each in os.listdir("/proc") if each.isdigit()])
    assert all(int(processes) < ours for *_, processes in told)


def node(laboratory: Laboratory, name: str, command: str) -> str:
    return laboratory.run("srun", "--nodelist", name, "-c1", "sh", "-c", command, **slurm_environment(laboratory))


def login(running: Laboratory, address: str, command: str) -> str:
    return running.run(*running.login(address, command))
