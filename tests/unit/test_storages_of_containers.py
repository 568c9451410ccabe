"""The storage of a job's writes in a container: by its path there, or by that on its host."""

from __future__ import annotations

import os
import posixpath
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from streamflow.core.deployment import DeploymentConfig, LocalTarget, Target
from streamflow.core.scheduling import AvailableLocation, Hardware

from streamflow_io.adapters.deployment_sites import Sites
from streamflow_io.hints.config import StorageConfig
from streamflow_io.runtime.locations import innermost, node_name
from streamflow_io.storage.storages import Storages
from tests.unit.test_sites_of_containers import DEPLOYMENTS, HERE, ON_ONE, explicit, required

BOX = explicit("box", volume=["/scratch/me:/data", "engine:/volume"], workdir="/data")
JOB = "/tmp/streamflow/job"


def storage(path: str, deployment: str | None = None, name: str = "disk") -> StorageConfig:
    return StorageConfig(name=name, deployment=deployment, path=path, write=1)


def found(target: Target, directory: str, *storages: StorageConfig, name: str | None = None) -> str | None:
    held = Storages(storages, Sites(DEPLOYMENTS)).of(name, target, directory)
    return None if held is None else held.path


@pytest.mark.parametrize(
    ("target", "directory", "storages", "path"),
    [
        # What holds for all deployments, or for one on the driver's node, holds by the path on it.
        (required("a:1"), JOB, [storage("/scratch")], "/scratch"),
        (required("a:1"), JOB, [storage("/scratch", "here")], "/scratch"),
        (required("a:1"), JOB, [storage("/tmp")], None),
        (required("a:1"), JOB, [storage("/scratch", "one")], None),
        (required("a:1"), JOB, [storage("/scratch"), storage("/scratch/me", "here", "mine")], "/scratch/me"),
        # Without DockerRequirement it is as ever.
        (HERE, "/scratch/me/job", [storage("/scratch")], "/scratch"),
        (required("a:1", kind="singularity"), JOB, [storage("/scratch"), storage("/tmp", "one", "tmp")], "/scratch"),
        # The driver's node is one, whatever it is called.
        (required("a:1"), JOB, [storage("/scratch", "local")], "/scratch"),
        (HERE, "/scratch/me/job", [storage("/scratch", "local")], "/scratch"),
        (HERE, "/scratch/me/job", [storage("/scratch", "here")], "/scratch"),
        (HERE, "/scratch/me/job", [storage("/scratch"), storage("/scratch/me", "here", "mine")], "/scratch/me"),
        # On an SSH host: what holds for that.
        (required("a:1", ON_ONE), JOB, [storage("/tmp", "one")], "/tmp"),
        (required("a:1", ON_ONE), JOB, [storage("/tmp", "other")], None),
        (required("a:1", ON_ONE), JOB, [storage("/tmp", "here")], None),
        # What is written for a deployment of containers is as they see it, and counts first.
        (BOX, "/data/job", [storage("/scratch"), storage("/data", "box", "own")], "/data"),
        (BOX, "/data/job", [storage("/scratch"), storage("/data", "else", "own")], "/scratch"),
        # Where the host does not see it, all deployments have what is there under this path.
        (BOX, "/volume/job", [storage("/volume")], "/volume"),
        (BOX, "/overlay/job", [storage("/overlay")], "/overlay"),
        (BOX, "/overlay/job", [storage("/overlay", "here")], None),
    ],
)
def test_the_storage_of_a_directory(
    target: Target, directory: str, storages: list[StorageConfig], path: str | None
) -> None:
    assert found(target, directory, *storages) == path


NAMES = st.sampled_from(["a", "b", "tmp", "streamflow"])
PATHS = st.lists(NAMES, max_size=3).map(lambda parts: "/" + "/".join(parts))
ENTRIES = st.lists(st.tuples(PATHS, st.sampled_from([None, "one", "other", "box", "here"])), unique=True, max_size=6)


@given(ENTRIES, PATHS, PATHS.filter(lambda path: path != "/"), st.lists(NAMES, max_size=2))
def test_what_is_on_a_volume_is_on_the_storage_that_holds_it_on_the_host(
    entries: list[tuple[str, str | None]], outside: str, inside: str, below: list[str]
) -> None:
    """Unless there is an entry for the deployment of the container."""
    storages = [storage(path, deployment, str(number)) for number, (path, deployment) in enumerate(entries)]
    box = explicit("box", wraps="one", volume=[f"{outside}:{inside}"], workdir=inside)
    seen, real = (posixpath.join(path, *below) for path in (inside, outside))
    known = Storages(storages, Sites(DEPLOYMENTS))
    of_host, used = known.of(None, ON_ONE, real), known.of(None, box, seen)
    own = [entry for entry in storages if entry.deployment == "box" and is_below(seen, entry.path)]
    assert used in own if own else used == of_host
    assert used is None or used.deployment in (None, "one", "box")


def is_below(path: str, directory: str) -> bool:
    return f"{path}/".startswith(f"{directory.rstrip('/')}/")


@pytest.mark.parametrize(
    ("target", "deployment", "is_there"),
    [
        (required("a:1"), None, True),
        (required("a:1"), "here", True),
        (required("a:1"), "one", False),
        (required("a:1", ON_ONE), "one", True),
        (required("a:1", ON_ONE), "here", False),
        (BOX, "box", True),
    ],
)
def test_a_storage_that_is_named(target: Target, deployment: str | None, is_there: bool) -> None:
    assert found(target, "/elsewhere", storage("/x", deployment), name="disk") == ("/x" if is_there else None)


def test_links_are_followed_on_the_drivers_node(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to("disk")
    target = required("a:1", LocalTarget(workdir=str(tmp_path / "link")))
    assert found(target, JOB, storage(str(tmp_path / "disk"))) == str(tmp_path / "disk")


NONE = "no storage of the scheduler's config"


@pytest.mark.parametrize(
    ("target", "directory", "name", "missing"),
    [
        (required("a:1"), JOB, None, ("the driver's node", f"{NONE} holds /scratch/me/job there")),
        (required("a:1"), JOB, "tape", ("a:1", "the scheduler's config has no storage 'tape' there")),
        (required("a:1", ON_ONE), JOB, None, ("one (ssh)", f"{NONE} holds {JOB} there")),
        (BOX, "/overlay/job", None, ("box", f"{NONE} holds /overlay/job there")),
        (HERE, "/x", None, ("the driver's node", f"{NONE} holds /x there")),
    ],
)
def test_what_is_said_to_be_missing(target: Target, directory: str, name: str | None, missing: tuple[str, str]) -> None:
    assert Storages([], Sites(DEPLOYMENTS)).missing(name, target, directory) == missing


def test_the_path_of_a_storage_is_looked_up_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mount that hangs later on, as of a server that is gone, must not stop jobs that use other storages."""
    looked_up, real = list[str](), os.path.realpath

    def realpath(path: str) -> str:
        looked_up.append(path)
        return real(path)

    monkeypatch.setattr(os.path, "realpath", realpath)
    storages = storage(str(tmp_path / "gone"), name="gone"), storage(str(tmp_path / "here"))
    for _ in range(2):
        assert found(HERE, str(tmp_path / "here" / "job"), *storages) == str(tmp_path / "here")
    assert looked_up.count(str(tmp_path / "gone")) == 1


def test_a_node_has_one_name_for_its_containers_and_itself() -> None:
    """A storage that each node has, and its I/O executors, are those of the host."""
    host = AvailableLocation("host1", "one", "host1", hardware=Hardware(2, 1000))
    here, bound = (AvailableLocation("__LOCAL__", name, "localhost", local=True) for name in ("__LOCAL__", "here"))

    def location(target: Target, wraps: AvailableLocation, stacked: bool = True) -> AvailableLocation:
        return AvailableLocation("c0ffee", target.deployment.name, "", stacked=stacked, wraps=wraps)

    for target in (required("a:1"), required("a:1", kind="singularity"), BOX, explicit("all", kind="docker-compose")):
        contained = location(target, host)
        assert innermost(contained) is host
        assert innermost(contained.location) is host.location
        assert node_name(contained) == node_name(contained.location) == node_name(host) == "one/host1"
        assert node_name(location(target, here)) == node_name(here) == node_name(bound)
    queue = location(Target(DeploymentConfig("hpc", "slurm", {})), host, stacked=False)
    assert innermost(queue) is queue
    assert node_name(queue) == "hpc/c0ffee"
