"""Runs that share a storage: those for which it is the same, whatever it is called."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streamflow_io.hints.config import StorageConfig
from streamflow_io.storage.sharing import directory as directories
from streamflow_io.storage.sharing.directory import SharedDirectory, shared_directories

HERE = {"here": {"type": "local", "config": {}}}
CLUSTER = {
    "login": {"type": "ssh", "config": {"nodes": ["login1"], "username": "a", "sshKey": "/k"}},
    "hpc": {"type": "slurm", "config": {"maxConcurrentJobs": 4}, "wraps": "login"},
}
MOUNTS = """
22 1 254:0 / / rw - ext4 /dev/vda rw
23 22 0:40 / /scratch rw - lustre mgs:/scratch rw
24 22 8:1 / /data rw - xfs /dev/sdb rw
25 22 8:1 / /also/data rw - xfs /dev/sdb rw
"""


@pytest.fixture(autouse=True)
def node(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A node with mounts of its own, which has `/scratch`, `/data` and `/also/data`."""
    mounts, machine = tmp_path / "mountinfo", tmp_path / "machine-id"
    mounts.write_text(MOUNTS)
    machine.write_text("one\n")
    monkeypatch.setattr(directories, "_MOUNTS", mounts)
    monkeypatch.setattr(directories, "_MACHINE", machine)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    return machine


def directory(deployments: dict[str, dict[str, Any]] = HERE, **fields: Any) -> SharedDirectory:
    storage = StorageConfig.model_validate({"name": "s", "path": "/data", "write": 1, **fields})
    return shared_directories([storage], deployments)["s"]


def test_a_storage_of_this_node_is_its_device_on_this_machine(node: Path, tmp_path: Path) -> None:
    one = directory()
    assert one.path.parent == tmp_path / "home/streamflow-io/shared"
    assert one.mine
    assert one.storage_path == "/data"
    assert directory(path="/also/data/runs/1", name="s").path == one.path
    assert directory(write=7, read=8).path == one.path
    assert directory(path="/elsewhere").path != one.path
    node.write_text("two\n")
    assert directory().path != one.path


def test_a_network_file_system_is_one_for_all_nodes(node: Path) -> None:
    one = directory(path="/scratch")
    node.write_text("two\n")
    assert directory(path="/scratch/me").path == one.path


def test_a_storage_elsewhere_is_what_its_hosts_have_at_that_path() -> None:
    one = directory(CLUSTER, deployment="hpc")
    renamed = {"other": CLUSTER["login"], "queue": {**CLUSTER["hpc"], "wraps": {"deployment": "other"}}}
    assert directory(renamed, deployment="queue").path == one.path
    assert directory(CLUSTER, deployment="hpc", path="/scratch").path != one.path
    assert directory(CLUSTER, deployment="login").path != one.path
    another = {**CLUSTER, "login": {"type": "ssh", "config": {"nodes": ["login2"]}}}
    assert directory(another, deployment="hpc").path != one.path
    assert directory(HERE).path != one.path


def test_containers_beside_the_driver_are_on_its_machine(node: Path) -> None:
    boxes = {"box": {"type": "docker", "config": {"image": "a"}}, **CLUSTER}
    one = directory(boxes, deployment="box")
    assert directory({"crate": {"type": "docker", "config": {"image": "b"}}}, deployment="crate").path == one.path
    node.write_text("two\n")
    assert directory(boxes, deployment="box").path != one.path
    wrapped = {**CLUSTER, "box": {"type": "docker", "config": {}, "wraps": "login"}}
    there = directory(wrapped, deployment="box").path
    node.write_text("three\n")
    assert directory(wrapped, deployment="box").path == there


def test_a_deployment_that_wraps_itself_ends() -> None:
    odd = {"a": {"type": "ssh", "config": {}, "wraps": "b"}, "b": {"type": "ssh", "config": {}, "wraps": "a"}}
    assert directory(odd, deployment="a").mine


def test_entries_of_one_file_on_one_device_are_told_apart() -> None:
    """A run that is alone gives each what it says."""
    both = [StorageConfig(name=name, path=f"/data/{name}", write=1) for name in ("a", "b")]
    found = shared_directories(both, HERE)
    assert found["a"].path != found["b"].path
    assert directory().path not in (found["a"].path, found["b"].path)


def test_what_is_not_shared_and_what_others_share_too() -> None:
    storages = [
        StorageConfig(name="ssd", path="/data", write=1, scope="node"),
        StorageConfig(name="off", path="/scratch", write=1, share="off"),
        StorageConfig(name="group", path="/scratch/a", write=1, share="/scratch/.ledger"),
    ]
    found = shared_directories(storages, HERE)
    assert found == {"group": SharedDirectory(Path("/scratch/.ledger"), "group", False, "/scratch/a")}
