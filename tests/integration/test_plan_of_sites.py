"""Where steps run is read from the bindings of a StreamFlow file, before anything runs, and decides what streams."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from streamflow_io.cli import main as main_program
from streamflow_io.commands.plan import plan_file
from streamflow_io.graph.io_graph import Delivery, StreamEdge
from tests.cwl import Bench, Document, found, streamable, streaming, tool, workflow

UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-")
DEPLOYMENTS = {
    "one": {"type": "ssh", "config": {"nodes": ["one"], "username": "me", "sshKey": "key"}},
    "other": {"type": "ssh", "config": {"nodes": ["other", "third"], "username": "me", "sshKey": "key"}},
    "hpc": {"type": "slurm", "config": {}, "wraps": "one", "workdir": "/scratch"},
    "farm": {"type": "pbs", "config": {}, "workdir": "/scratch"},
    "box": {"type": "docker", "config": {"image": "debian"}},
    "here": {"type": "local", "config": {}},
}


def document(mode: str = "no_update", **rule: Any) -> Document:
    writer = tool(
        "true",
        {},
        {"out": found("a.txt")},
        [streaming({"port": "out", "committed": "on_close", "mode": mode, "start": "producer", **rule})],
    )
    reader = tool("cat $file", {"file": streamable()}, {"out": "stdout"}, stdout="read.txt")
    steps = {"a": {"run": writer, "in": {}}, "b": {"run": reader, "in": {"file": "a/out"}}}
    return workflow({}, steps, {"out": "b/out"})


def bound(bench: Bench, document: Document, **targets: Any) -> str:
    """A StreamFlow file with steps on deployments.

    :param targets: by step: the name of a deployment, several, or targets as they are written
    """

    def target(value: Any) -> Any:
        if isinstance(value, list):
            return [target(element) for element in value]
        return {"deployment": value} if isinstance(value, str) else value

    main = {
        "type": "cwl",
        "config": {"file": "main.cwl", "settings": "job.json"},
        "bindings": [{"step": f"/{step}", "target": target(value)} for step, value in targets.items()],
    }
    return str(bench.write(document, {}, True, deployments=DEPLOYMENTS, workflows={"main": main}))


def planned(bench: Bench, document: Document, **targets: Any) -> StreamEdge:
    (edge,) = plan_file(Path(bound(bench, document, **targets))).plans["main"].edges
    return edge


@pytest.mark.parametrize(
    "targets",
    [
        {},
        {"a": "here"},
        {"a": "one", "b": "one"},
        {"a": "one", "b": "other"},
        {"a": ["one", "other"], "b": "other"},
        {"a": "hpc", "b": "hpc"},
        {"a": "hpc", "b": [{"deployment": "hpc", "workdir": "/scratch/b"}]},
        {"a": "farm", "b": "farm"},
    ],
)
def test_what_streams(bench: Bench, targets: dict[str, Any]) -> None:
    edge = planned(bench, document(), **targets)
    assert (edge.delivery, edge.fallback) == (Delivery.STREAM, None)


@pytest.mark.parametrize(
    ("targets", "delivery", "why"),
    [
        ({"a": "one"}, Delivery.COMMIT, "/a runs on one (ssh), /b on the driver's node: "),
        ({"a": "hpc", "b": "one"}, Delivery.COMMIT, "/a runs on hpc (slurm), /b on one (ssh): "),
        ({"a": "hpc", "b": "farm"}, Delivery.COMMIT, "/a runs on hpc (slurm), /b on farm (pbs): "),
        ({"a": "one", "b": ["one", "here"]}, Delivery.COMMIT, "/b runs on one (ssh) or the driver's node: "),
        ({"a": "one", "b": "box"}, Delivery.COMMIT, "/b runs on box (docker): "),
        ({"a": "box"}, Delivery.TERMINATION, "/a runs on box (docker): "),
        ({"a": ["one", "box"], "b": "one"}, Delivery.TERMINATION, "/a runs on box (docker): "),
        (
            {"a": {"deployment": "other", "locations": 2}, "b": "other"},
            Delivery.TERMINATION,
            "/a takes 2 locations of other (ssh) for each job: ",
        ),
    ],
)
def test_what_falls_back(bench: Bench, targets: dict[str, Any], delivery: Delivery, why: str) -> None:
    edge = planned(bench, document(), **targets)
    assert edge.delivery is delivery
    assert edge.fallback is not None
    assert edge.fallback.startswith(why)


def test_the_gate(bench: Bench) -> None:
    held = document("update")
    assert planned(bench, held, a="hpc", b="hpc").delivery is Delivery.GATE
    edge = planned(bench, held, a="one", b="one")
    assert edge.delivery is Delivery.COMMIT
    assert "the gate needs" in (edge.fallback or "")


def test_a_container_of_a_tool_is_no_host(bench: Bench) -> None:
    """StreamFlow runs it in a deployment of its own, around that of the binding."""
    contained = document()
    contained["steps"]["a"]["run"]["requirements"].append({"class": "DockerRequirement", "dockerPull": "debian"})
    edge = planned(bench, contained, a="one", b="one")
    assert edge.delivery is Delivery.TERMINATION
    assert "(docker)" in (edge.fallback or "")


def test_plan_shows_where_steps_run(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    path = bound(bench, document(), a=["one", "other"], b="farm")
    assert main_program(["plan", path, "--json"]) == 0
    steps = json.loads(capsys.readouterr().out)["workflows"]["main"]["steps"]
    assert steps["/a"] == {"cores": 1.0, "memory": 256.0, "site": "hosts", "deployments": ["one", "other"]}
    assert steps["/b"] == {"cores": 1.0, "memory": 256.0, "site": "queue manager", "deployments": ["farm"]}
    assert main_program(["plan", path]) == 0
    shown = capsys.readouterr().out
    assert "Where steps run" in shown
    assert "farm (pbs)" in shown
    assert main_program(["plan", bound(bench, document())]) == 0
    assert "Where steps run" not in capsys.readouterr().out


def test_coordination_says_where_steps_run(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    assert main_program(["coordination", bound(bench, document(), a="one", b="here"), "--format", "json"]) == 0
    written = json.loads(capsys.readouterr().out)
    assert written["sites"] == {
        "/a": {"site": "hosts", "deployments": ["one"]},
        "/b": {"site": "local", "deployments": ["here"]},
    }
    assert written["fallbacks"][0]["why"].startswith("/a runs on one (ssh), /b on the driver's node: ")


@pytest.mark.parametrize(
    ("container", "delivery", "fallback"),
    [
        ({"type": "none", "config": {}}, Delivery.STREAM, None),
        ({"type": "docker", "config": {}}, Delivery.TERMINATION, "/a runs on debian:12 (docker): only jobs of"),
        (
            {"type": "singularity", "config": {}},
            Delivery.TERMINATION,
            "/a runs on docker://debian:12 (singularity): only jobs of",
        ),
    ],
)
def test_containers_are_those_of_the_streamflow_file(
    bench: Bench, capsys: pytest.CaptureFixture[str], container: Document, delivery: Delivery, fallback: str | None
) -> None:
    contained = document()
    for step in contained["steps"].values():
        step["run"]["requirements"].append({"class": "DockerRequirement", "dockerPull": "debian:12"})
        step["run"]["hints"].append({"class": "sfio:StorageBandwidth", "storageBW": 1})
    docker = [{"step": "/", "deployment": container}]
    main = {"type": "cwl", "config": {"file": "main.cwl", "settings": "job.json", "docker": docker}}
    path = bench.write(contained, {}, True, workflows={"main": main})
    (edge,) = plan_file(path).plans["main"].edges
    assert edge.delivery is delivery
    assert (edge.fallback or "").startswith(fallback or "") is True
    assert (edge.fallback is None) is (fallback is None)
    for command in (["plan"], ["plan", "--json"], ["coordination", "--json"]):
        assert main_program([*command, str(path)]) == 0
        assert not UUID.search(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("site", "delivery"), [("hpc", Delivery.COMMIT), ("one", Delivery.STREAM)], ids=["queue manager", "host"]
)
def test_a_time_limit_that_a_queue_manager_counts(bench: Bench, site: str, delivery: Delivery) -> None:
    limited = document()
    limited["steps"]["b"]["run"]["requirements"].append({"class": "ToolTimeLimit", "timelimit": 60})
    edge = planned(bench, limited, a=site, b=site)
    assert edge.delivery is delivery
    assert ("/b has a ToolTimeLimit" in str(edge.fallback)) == (site == "hpc")


def test_a_run_streams_where_the_streamflow_file_wants_no_container(bench: Bench) -> None:
    contained = document()
    contained["steps"]["a"]["run"]["baseCommand"] = ["sh", "-c", "echo 1 > a.txt"]
    for step in contained["steps"].values():
        step["run"]["requirements"].append({"class": "DockerRequirement", "dockerPull": "debian:12"})
    docker = [{"step": "/", "deployment": {"type": "none", "config": {}}}]
    main = {"type": "cwl", "config": {"file": "main.cwl", "settings": "job.json", "docker": docker}}
    plain, ours = (bench.run(contained, io=io, workflows={"main": main}) for io in (False, True))
    assert plain.ok, plain.errors
    assert ours.ok, ours.errors
    assert ours.results == plain.results
    assert "is delivered at" not in ours.log
