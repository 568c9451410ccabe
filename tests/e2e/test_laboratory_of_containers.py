"""A laboratory with containers has the engines that it should, and nothing of it is left, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest

from lab.machines.containers import BUSYBOX
from lab.machines.deployments import docker_environment, podman_environment, singularity_environment
from lab.machines.images import IMAGES
from lab.machines.keeper import CGROUPS
from lab.machines.laboratory import Laboratory, LaboratoryError, keep_containers, podman_obstacle, start_containers
from lab.node import wait_for
from tests.e2e.conftest import require_containers
from tests.e2e.test_laboratory import check_gone, network_links

# What a container is asked for: a user by name, and what another has written.
SCRIPT = 'read -r line; echo "$line"; id -un; cat /shared/file; exit 3'


@pytest.fixture(autouse=True)
def _required() -> None:
    require_containers()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_text("of the driver\n")
    return path


@pytest.mark.parametrize(
    ("engine", "image"),
    [(engine, image) for engine in ("docker", "singularity") for image in IMAGES] + [("podman", BUSYBOX)],
)
def test_every_engine_runs_what_it_is_told(
    containers_laboratory: Laboratory, file: Path, engine: str, image: str
) -> None:
    if engine == "podman" and (reason := podman_obstacle()) is not None:
        pytest.skip(reason)
    name = f"{image}-{os.getpid()}"
    options = f"--name {name} -v {file.parent}:/shared --network none --rm --init -d -i"
    start, inside, stop = {
        "singularity": (
            f"singularity instance start --bind {file.parent}:/shared docker://{image}:latest {name}",
            f"singularity exec instance://{name}",
            f"singularity instance stop {name}",
        )
    }.get(engine, (f"docker run {options} {image}:latest", f"docker exec -i {name}", f"docker kill {name}"))
    environments = {"docker": docker_environment, "podman": podman_environment, "singularity": singularity_environment}
    environment = os.environ | environments[engine](containers_laboratory)
    subprocess.run(start.split(), env=environment, check=True, stdout=subprocess.DEVNULL)
    try:
        told = subprocess.run(
            [*inside.split(), "sh", "-c", SCRIPT],
            env=environment,
            input="input\n",
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        assert told.returncode == 3
        assert told.stdout == "input\nroot\nof the driver\n"
    finally:
        subprocess.run(stop.split(), env=environment, check=True, stdout=subprocess.DEVNULL)


@pytest.mark.long
def test_dockerd_is_started_again_and_nothing_is_left_although_containers_run() -> None:
    links = network_links()
    with start_containers([BUSYBOX]) as running:
        start_container(running)
        assert cgroups(running)
        (first,) = daemons(running)
        os.kill(first, signal.SIGKILL)
        wait_for(lambda: daemons(running) not in ([], [first]), "another dockerd")
        wait_for(lambda: docker(running, "version").returncode == 0, "its answer", 20)
        start_container(running)
    assert not running.directory.exists()
    check_removed(running)
    assert network_links() == links


@pytest.mark.long
def test_it_lasts_as_long_as_a_process() -> None:
    process = subprocess.Popen(["sleep", "100"])
    try:
        running = keep_containers(process.pid, [BUSYBOX])
        start_container(running)
    finally:
        process.kill()
        process.wait()
    check_removed(running)


def test_its_start_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("lab.machines.laboratory.START_SECONDS", 0.3)
    with pytest.raises(LaboratoryError, match="not ready in"):
        keep_containers(os.getpid())
    assert list(tmp_path.iterdir()) == []


def docker(running: Laboratory, *words: str) -> subprocess.CompletedProcess[bytes]:
    environment = os.environ | docker_environment(running)
    return subprocess.run(["docker", *words], env=environment, capture_output=True, check=False)


def start_container(running: Laboratory) -> None:
    started = docker(running, "run", "-d", "-i", "--init", "--network", "none", BUSYBOX)
    assert started.returncode == 0, started.stderr


def daemons(running: Laboratory) -> list[int]:
    """Process ids of dockerd."""
    option = f"--host=unix://{running.directory}/docker.sock"
    words = (b"dockerd", option.encode())
    return [
        int(path.parent.name)
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if path.exists() and tuple(path.read_bytes().split(b"\0")[:2]) == words
    ]


def cgroups(running: Laboratory) -> list[Path]:
    name = running.directory.name
    return [path for path in (CGROUPS / name, *CGROUPS.glob(f"*/{name}")) if path.exists()]


def check_removed(running: Laboratory) -> None:
    check_gone(running.directory)
    assert not cgroups(running)
