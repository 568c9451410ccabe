"""`streamflow-io doctor`: tries what jobs need, says why something does not work, and leaves nothing."""

from __future__ import annotations

import json
import os
import re
import tempfile
from pathlib import Path

import pytest

from lab import forked
from streamflow_io.commands.doctor import _work_directory


def doctor(workdir: Path, **environment: str) -> tuple[int, dict[str, dict[str, object]]]:
    """Runs it; returns the exit code, and the findings by name."""
    ended = forked.run("streamflow-io", "doctor", "--json", "--workdir", workdir, environment=environment, seconds=120)
    findings = json.loads(ended.stdout)["findings"]
    assert json.loads(ended.stdout)["ok"] is (ended.returncode == 0)
    return ended.returncode, {finding["name"]: finding for finding in findings}


def test_a_machine_where_all_works(tmp_path: Path) -> None:
    code, found = doctor(tmp_path)
    assert {name for name, finding in found.items() if finding["works"] is False} == set()
    assert code == 0
    may, has = map(int, re.findall(r"\d+", str(found["limits"]["detail"])))
    assert may == 20
    assert has < 40
    assert list(tmp_path.iterdir()) == []


def test_without_a_gate(tmp_path: Path) -> None:
    code, found = doctor(tmp_path, SFIO_NODE_WITHOUT_GATE="1")
    assert code == 1
    assert found["gate"]["works"] is False
    assert "SFIO_NODE_WITHOUT_GATE is set" in str(found["gate"]["detail"])
    assert found["byte streams"]["works"] is True
    assert list(tmp_path.iterdir()) == []


def test_without_the_node_runtime(tmp_path: Path) -> None:
    code, found = doctor(tmp_path, SFIO_NODE=str(tmp_path / "missing"))
    assert code == 1
    assert found["node runtime"]["works"] is False
    assert "sfio-node is not installed" in str(found["node runtime"]["detail"])
    assert "gate" not in found


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    code, found = doctor(tmp_path / "missing")
    assert code == 1
    assert "--workdir" in str(found["jobs"]["otherwise"])


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to give a directory away")
def test_a_work_directory_of_another_user(tmp_path: Path) -> None:
    """The directory below TMPDIR is that of jobs without another one."""
    (theirs := tmp_path / "streamflow").mkdir()
    os.chown(theirs, 65534, -1)
    code, found = doctor(tmp_path, TMPDIR=str(tmp_path))
    assert (code, found["work directory"]["works"]) == (1, False)
    assert found["work directory"]["detail"] == f"{theirs} belongs to user 65534"


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_a_data_directory_that_cannot_be_written(tmp_path: Path) -> None:
    tmp_path.joinpath("data").mkdir(mode=0o500)
    code, found = doctor(tmp_path, XDG_DATA_HOME=str(tmp_path / "data"))
    assert (code, found["data directory"]["works"]) == (1, False)


def test_a_location_that_is_not_there(tmp_path: Path) -> None:
    deployments = {
        "hpc": {"type": "ssh", "config": {"nodes": ["a"], "username": "me"}},
        "here": {"type": "local", "config": {}},
    }
    streamflow_file = tmp_path / "streamflow.yml"
    streamflow_file.write_text(json.dumps({"version": "v1.0", "workflows": {}, "deployments": deployments}))
    for file, name, message in (
        (tmp_path / "missing.yml", "hpc", "No such file"),
        (streamflow_file, "cluster", "allowed: here, hpc"),
        (streamflow_file, "here", "it is this machine"),
    ):
        ended = forked.run("streamflow-io", "doctor", "--location", name, file, seconds=120)
        assert ended.returncode == 1
        assert message in ended.stderr


def test_a_location_that_cannot_be_reached(tmp_path: Path) -> None:
    config = {"nodes": ["127.0.0.1:1"], "username": "me", "checkHostKey": False, "retries": 1, "retryDelay": 0}
    deployments = {"hpc": {"type": "ssh", "config": config}}
    (tmp_path / "streamflow.yml").write_text(
        json.dumps({"version": "v1.0", "workflows": {}, "deployments": deployments})
    )
    ended = forked.run("streamflow-io", "doctor", "--json", "--location", "hpc", cwd=tmp_path, seconds=120)
    assert ended.returncode == 1, ended.stderr
    (finding,) = json.loads(ended.stdout)["findings"]
    assert (finding["name"], finding["works"]) == ("connection", False)


def test_a_node_that_does_not_answer(tmp_path: Path) -> None:
    """The others are tried all the same."""
    (launch := tmp_path / "launch").write_text('#!/bin/sh\nshift; test "$1" != n2 && shift && exec "$@"\n')
    launch.chmod(0o755)
    config = {"nodes": ["n1", "n2"], "launcher": f"{launch} to {{node}}"}
    deployments = {"hpc": {"type": "sfio.allocation", "workdir": str(tmp_path), "config": config}}
    (tmp_path / "streamflow.yml").write_text(
        json.dumps({"version": "v1.0", "workflows": {}, "deployments": deployments})
    )
    ended = forked.run("streamflow-io", "doctor", "--json", "--location", "hpc", cwd=tmp_path, seconds=120)
    assert ended.returncode == 1, ended.stderr
    found = {finding["name"]: finding for finding in json.loads(ended.stdout)["findings"]}
    assert (found["connection"]["works"], found["gate"]["works"]) == (True, True)
    assert found["lost nodes"]["works"] is False
    assert "node n2 of the list of nodes does not answer" in found["lost nodes"]["detail"]


def test_a_work_directory_that_the_user_may_not_write_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first user of a machine has made it for herself."""
    work = tmp_path / "streamflow"
    work.mkdir()
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != work)
    found = _work_directory(tmp_path)
    assert (found.works, found.detail) == (False, f"you may not write to {work}")
