"""`streamflow-io doctor --image`: what works in containers of an image, tried in real ones."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from lab import forked
from lab.container_sites import BUSYBOX, DEBIAN
from lab.cwl import Document
from lab.machines.deployments import docker_environment
from lab.machines.laboratory import Laboratory
from streamflow_io.runtime.self_test import INSTEAD

Findings = dict[str, dict[str, Any]]
NAMES = [
    "containers", "node runtime", "commit tokens", "byte streams", "gate", "gate, Directory", "second opening",
    "system calls", "byte streams between two", "gate between two",
]  # fmt: skip


def doctor(
    directory: Path, environment: Mapping[str, str], image: str, *options: str, file: Document | None = None
) -> tuple[int, Findings]:
    """Runs it; returns the exit code, and the findings by name. Nothing is left of it."""
    (directory / "tmp").mkdir(exist_ok=True)
    environment = {**environment, "TMPDIR": str(directory / "tmp")}
    if file is not None:
        (directory / "streamflow.yml").write_text(json.dumps({"version": "v1.0", "workflows": {}, **file}))
    words = ("doctor", "--json", "--image", image, *options)
    ended = forked.run("streamflow-io", *words, cwd=directory, environment=environment, seconds=180)
    assert ended.stdout, ended.stderr
    found = json.loads(ended.stdout)
    assert found["ok"] is (ended.returncode == 0)
    left = [path for path in directory.glob("tmp/streamflow/*") if not path.name.startswith(".streamflow-io-")]
    assert left == []
    assert not list(directory.glob("tmp/streamflow/.streamflow-io-*/streamflow-io-*"))
    return ended.returncode, {finding["name"]: finding for finding in found["findings"]}


def of_workflow(**docker: Any) -> Document:
    """A StreamFlow file that says how containers are deployed; its CWL is not looked at."""
    config = {"file": "main.cwl", "docker": [{"step": "/align", "deployment": docker}]}
    return {"workflows": {"main": {"type": "cwl", "config": config}}}


def check_all_works(found: Findings, user: str) -> None:
    """Check what a profile refuses, and what is done instead: not all of it by each version of an engine, but kcmp by
    all.
    """
    assert list(found) == NAMES
    lacking = {name: finding for name, finding in found.items() if finding["works"] is not True}
    assert lacking.keys() <= {"system calls"}
    assert f" as user {user}, " in found["node runtime"]["detail"]
    refused = found["system calls"]["detail"].removeprefix("refused: ").split(", ")
    assert "kcmp" in refused
    assert set(refused) <= INSTEAD.keys()
    assert found["system calls"]["otherwise"] == "; ".join(INSTEAD[call] for call in refused)


def test_containers_as_the_streamflow_file_says(containers_laboratory: Laboratory, tmp_path: Path) -> None:
    """The command finds the file in the present directory."""
    file = of_workflow(type="docker", config={"user": "1234", "readOnly": True})
    (tmp_path / "tmp" / "streamflow").mkdir(parents=True)
    (tmp_path / "tmp" / "streamflow").chmod(0o1777)
    code, found = doctor(tmp_path, docker_environment(containers_laboratory), BUSYBOX, file=file)
    check_all_works(found, "1234")
    assert code == 0


@pytest.mark.parametrize(("options", "message"), [({"securityOpt": ["x"]}, "securityOpt"), ({"volme": []}, "volme")])
def test_options_that_streamflow_does_not_take(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    """Also such as its schema has, but not what it gives them to."""
    (tmp_path / "streamflow.yml").write_text(
        json.dumps({"version": "v1.0", **of_workflow(type="docker", config=options)})
    )
    ended = forked.run("streamflow-io", "doctor", "--image", DEBIAN, cwd=tmp_path, seconds=60)
    assert ended.returncode == 1
    assert "streamflow.yml" in ended.stderr
    assert message in ended.stderr
    assert "Traceback" not in ended.stdout + ended.stderr


def test_a_volume_from_which_nothing_can_be_run(containers_laboratory: Laboratory, tmp_path: Path) -> None:
    workdir = containers_laboratory.directory / "noexec" / tmp_path.name
    workdir.mkdir()
    local = {"here": {"type": "local", "config": {}, "workdir": str(workdir)}}
    file = of_workflow(type="docker", config={"readOnly": True})
    file["workflows"]["main"]["bindings"] = [{"step": "/", "target": {"deployment": "here"}}]
    file["deployments"] = local
    code, found = doctor(tmp_path, docker_environment(containers_laboratory), DEBIAN, file=file)
    assert list(found) == ["containers", "node runtime"], found
    assert found["node runtime"]["works"] is False
    assert found["node runtime"]["otherwise"] == "everything is as with plain StreamFlow in these containers"
    assert code == 1


def test_an_image_that_is_not_there(containers_laboratory: Laboratory, tmp_path: Path) -> None:
    environment = docker_environment(containers_laboratory)
    code, found = doctor(tmp_path, environment, "sfio-missing:latest")
    assert list(found) == ["containers"]
    assert code == 1
    assert found["containers"]["otherwise"] == "steps with this image cannot run at all"


def test_without_an_engine(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    code, found = doctor(tmp_path, {"PATH": str(tmp_path / "bin")}, DEBIAN)
    assert list(found) == ["containers"]
    assert "Docker must be installed" in found["containers"]["detail"]
    assert code == 1


def test_where_the_streamflow_file_wants_no_containers(tmp_path: Path) -> None:
    code, found = doctor(tmp_path, {}, DEBIAN, file=of_workflow(type="none", config={}))
    assert (code, found["containers"]["works"]) == (0, None)
    assert found["containers"]["detail"] == (
        "by the StreamFlow file, tools with a DockerRequirement run on the driver's node"
    )


def test_a_streamflow_file_that_is_not_there(tmp_path: Path) -> None:
    ended = forked.run("streamflow-io", "doctor", "--image", DEBIAN, tmp_path / "missing.yml", seconds=60)
    assert ended.returncode == 1
    assert "missing.yml" in ended.stderr
