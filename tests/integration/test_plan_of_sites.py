"""Where steps run is read from the bindings of a StreamFlow file, before anything runs, and decides what streams."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from lab.cwl import Document, found, streamable, streaming, tool, workflow
from lab.runs import Bench
from lab.wording import uncoded
from streamflow_io.cli import main as main_program
from streamflow_io.commands.plan import plan_file
from streamflow_io.commands.plan_proofs import prospects
from streamflow_io.commands.sites import known_locations
from streamflow_io.commands.streamflow_file import quiet_streamflow
from streamflow_io.graph.io_graph import Delivery, StreamEdge

UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-")
DEPLOYMENTS = {
    "one": {"type": "ssh", "config": {"nodes": ["one"], "username": "me", "sshKey": "key"}},
    "other": {"type": "ssh", "config": {"nodes": ["other", "third"], "username": "me", "sshKey": "key"}},
    "hpc": {"type": "slurm", "config": {}, "wraps": "one", "workdir": "/scratch"},
    "farm": {"type": "pbs", "config": {}, "workdir": "/scratch"},
    "box": {"type": "docker", "config": {"image": "debian"}},
    "mate": {"type": "docker", "config": {"image": "debian", "volume": ["/scratch:/data"]}, "workdir": "/data"},
    "match": {"type": "docker", "config": {"image": "busybox", "volume": ["/scratch:/tmp/streamflow"]}},
    "caged": {"type": "singularity", "config": {"image": "x.sif", "bind": ["/scratch:/w"]}, "workdir": "/w"},
    "inside": {"type": "docker", "config": {"image": "debian"}, "wraps": "box"},
    "pods": {"type": "kubernetes", "config": {"files": ["pods.yml"]}},
    "scratch": {"type": "local", "config": {}, "workdir": "/scratch"},
    "here": {"type": "local", "config": {}},
}

POD = {"deployment": "pods", "service": "box"}
AUTO = {"streaming": "auto"}
INPLACE = {"class": "InplaceUpdateRequirement", "inplaceUpdate": True}


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


def bound(
    bench: Bench,
    document: Document,
    *,
    deployments: Document = DEPLOYMENTS,
    config: Document | None = None,
    **targets: Any,
) -> str:
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
    return str(bench.write(document, {}, True, config, deployments=deployments, workflows={"main": main}))


def planned(bench: Bench, document: Document, **targets: Any) -> StreamEdge:
    (edge,) = plan_file(Path(bound(bench, document, **targets))).plans["main"].graph.edges
    return edge


@pytest.mark.parametrize(
    ("place", "glob", "streams"),
    [
        ("one", "$(inputs.file.path)", False),
        ("one", "$(inputs.file.basename)", True),
        ("here", "$(inputs.file.path)", True),
    ],
)
def test_an_output_that_is_the_input_needs_a_file_at_its_path(
    bench: Bench, place: str, glob: str, streams: bool
) -> None:
    """A stream from the same host leaves a link to the file. A host of several may read from another one."""
    written = document()
    written["steps"]["b"]["run"] = tool("cat $file", {"file": streamable()}, {"out": found(glob)})
    edge = planned(bench, written, a=place, b=place)
    assert (edge.delivery is Delivery.STREAM) is streams
    needs = "/b/file is used in the expression 'inputs.file.path', which needs the whole file"
    assert streams or needs in str(edge.fallback)


def planned_all(bench: Bench, every: Sequence[dict[str, Any]]) -> list[StreamEdge]:
    """The edges of one workflow with a pair of steps for each mapping of targets: the steps `/a0` and `/b0`, ..."""
    steps: dict[str, Document] = {}
    for number in range(len(every)):
        pair = document()["steps"]
        steps |= {f"a{number}": pair["a"], f"b{number}": pair["b"] | {"in": {"file": f"a{number}/out"}}}
    together = workflow({}, steps, {f"out{number}": f"b{number}/out" for number in range(len(every))})
    targets = {f"{step}{number}": each for number, one in enumerate(every) for step, each in one.items()}
    edges = plan_file(Path(bound(bench, together, **targets))).plans["main"].graph.edges
    by_step = {edge.route.output.step: edge for edge in edges}
    assert len(by_step) == len(edges)
    return [by_step[f"/a{number}"] for number in range(len(every))]


@pytest.mark.parametrize(
    ("target", "kind", "requirements", "expected"),
    [
        ("here", "Directory", [], None),
        ("one", "File", [], None),
        ("one", "Directory?", [], None),
        ("one", "Directory", [], "nothing is proven on one (ssh) for a job with the Directory `other`"),
        ("one", "Directory[]", [], "nothing is proven on one (ssh) for a job with the Directory `other`"),
        ("box", "Directory", [], "nothing is proven on box (docker) for a job with the Directory `other`"),
        ("farm", "File", [], "nothing is tried on farm (pbs); a proof from elsewhere holds with the same programs"),
        ("one", "File", [INPLACE], "the tool has InplaceUpdateRequirement, and does not run twice"),
    ],
)
def test_what_is_never_tried_is_planned(
    target: str, kind: str, requirements: list[Document], expected: str | None, bench: Bench
) -> None:
    write = tool("echo 1", {}, {"out": "stdout"}, stdout="a.txt")
    read = tool("cat $file", {"file": "File", "other": kind}, {"out": "stdout"}, stdout="b.txt")
    read["requirements"] = [*read.get("requirements", []), *requirements]
    steps = {"a": {"run": write, "in": {}}, "b": {"run": read, "in": {"file": "a/out", "other": "other"}}}
    path = bound(bench, workflow({"other": kind}, steps, {"out": "b/out"}), a=target, b=target, config=AUTO)
    found = {one.input: one for one in prospects(plan_file(Path(path)).plans["main"])}["/b/file"]
    if expected is None:
        assert found.state == "unknown"
    else:
        assert (found.state, uncoded(found.reason or "")) == ("refused", expected)


def test_what_streams(bench: Bench) -> None:
    every: list[dict[str, Any]] = [
        {},
        {"a": "here"},
        {"a": "one", "b": "one"},
        {"a": "one", "b": "other"},
        {"a": ["one", "other"], "b": "other"},
        {"a": "hpc", "b": "hpc"},
        {"a": "hpc", "b": [{"deployment": "hpc", "workdir": "/scratch/b"}]},
        {"a": "farm", "b": "farm"},
        {"a": "box", "b": "box"},
        {"a": "mate", "b": "match"},
        {"a": "mate", "b": "caged"},
        {"a": "mate", "b": "scratch"},
        {"a": "scratch", "b": ["mate", "match"]},
        {"a": {"deployment": "box", "workdir": "/a"}, "b": {"deployment": "box", "workdir": "/b"}},
    ]
    found = planned_all(bench, every)
    assert [(edge.delivery, edge.fallback) for edge in found] == [(Delivery.STREAM, None)] * len(every)


def test_what_falls_back(bench: Bench) -> None:
    every: list[tuple[dict[str, Any], Delivery, str]] = [
        ({"a": "one"}, Delivery.COMMIT, "/a runs on one (ssh), /b on the driver's node: "),
        ({"a": "hpc", "b": "one"}, Delivery.COMMIT, "/a runs on hpc (slurm), /b on one (ssh): "),
        ({"a": "hpc", "b": "farm"}, Delivery.COMMIT, "/a runs on hpc (slurm), /b on farm (pbs): "),
        ({"a": "one", "b": ["one", "here"]}, Delivery.COMMIT, "/b runs on one (ssh) or the driver's node: "),
        ({"a": "one", "b": "box"}, Delivery.COMMIT, "/a runs on one (ssh), /b on box (docker): a container streams"),
        ({"a": "box"}, Delivery.COMMIT, "/a runs on box (docker), /b on the driver's node: they share no directory; "),
        ({"a": ["one", "box"], "b": "one"}, Delivery.COMMIT, "/a runs on one (ssh) or box (docker): to stream, "),
        (
            {"a": POD, "b": "one"},
            Delivery.COMMIT,
            "/a runs on pods/box (kubernetes), /b on one (ssh): pods stream with ",
        ),
        (
            {"a": ["one", POD], "b": "one"},
            Delivery.COMMIT,
            "/a runs on one (ssh) or pods/box (kubernetes): to stream, ",
        ),
        ({"a": "inside", "b": "inside"}, Delivery.TERMINATION, "/a runs on inside (docker): only jobs of "),
        (
            {"a": {"deployment": "other", "locations": 2}, "b": "other"},
            Delivery.TERMINATION,
            "/a takes 2 locations of other (ssh) for each job: ",
        ),
    ]
    found = planned_all(bench, [targets for targets, _, _ in every])
    for number, (edge, (_, delivery, why)) in enumerate(zip(found, every, strict=True)):
        assert edge.delivery is delivery
        assert edge.fallback is not None
        assert edge.fallback.startswith(re.sub("(/[ab]) ", rf"\g<1>{number} ", why))


def test_a_container_of_a_tool_is_no_host(bench: Bench) -> None:
    """StreamFlow runs it in a deployment of its own, around that of the binding."""
    contained = document()
    contained["steps"]["a"]["run"]["requirements"].append({"class": "DockerRequirement", "dockerPull": "debian"})
    assert planned(bench, contained, a="one", b="one").delivery is Delivery.STREAM
    edge = planned(bench, contained, a="one", b="other")
    assert edge.delivery is Delivery.COMMIT
    assert (edge.fallback or "").startswith("/a runs in a container of debian (docker, on one), /b on other (ssh): ")


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


@pytest.mark.parametrize(
    ("container", "delivery", "fallback"),
    [
        ({"type": "docker", "config": {}}, Delivery.STREAM, None),
        (
            {"type": "kubernetes", "config": {}},
            Delivery.COMMIT,
            "/a runs in a container of debian:12 (kubernetes), /b in one of debian:12 (kubernetes): they share",
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
    (edge,) = plan_file(path).plans["main"].graph.edges
    assert edge.delivery is delivery
    assert (edge.fallback or "").startswith(fallback or "") is True
    assert (edge.fallback is None) is (fallback is None)
    for command in (["plan"], ["plan", "--json"]):
        assert main_program([*command, str(path)]) == 0
        out = capsys.readouterr().out
        assert not UUID.search(out)
        assert "debian:12" in out


DEBIAN, BUSYBOX = ({"class": "DockerRequirement", "dockerPull": image} for image in ("debian", "busybox"))


def in_containers(where: str) -> Document:
    """The document, with images for both of its steps; a nearer requirement holds."""
    inner = document()
    if where == "tools":
        for step, image in zip(inner["steps"].values(), (DEBIAN, BUSYBOX), strict=True):
            step["run"]["hints"].append(image)
    elif where == "requirement of the workflow":
        inner["requirements"].append(DEBIAN)
        inner["steps"]["b"]["run"]["requirements"].append(BUSYBOX)
    elif where == "hint of the workflow":
        inner["hints"] = [DEBIAN]
    else:
        for step in inner["steps"].values():
            step["run"]["hints"].append(DEBIAN)
        inner["steps"]["b"]["requirements"] = [BUSYBOX]
    return inner


@pytest.mark.parametrize(
    ("where", "subworkflow"),
    [
        ("tools", False),
        ("requirement of the workflow", True),
        ("hint of the workflow", False),
        ("a step", True),
    ],
)
def test_wherever_a_docker_requirement_stands(
    bench: Bench, capsys: pytest.CaptureFixture[str], where: str, subworkflow: bool
) -> None:
    contained = in_containers(where)
    if subworkflow:
        contained = workflow({}, {"sub": {"run": contained, "in": {}}}, {})
    path = bench.write(contained, {}, True)
    assert main_program(["plan", str(path), "--json"]) == 0
    planned = json.loads(capsys.readouterr().out)["workflows"]["main"]
    (edge,), steps = planned["edges"], planned["steps"]
    assert (edge["delivery"], edge["fallback"]) == ("stream", None)
    assert {name[-1]: (step["site"], step["deployments"]) for name, step in steps.items()} == {
        "a": ("containers", ["debian"]),
        "b": ("containers", ["debian" if where == "hint of the workflow" else "busybox"]),
    }
    assert main_program(["plan", str(path)]) == 0
    assert re.search("containers of (busybox, )?debian", " ".join(capsys.readouterr().out.split()))


@pytest.mark.parametrize(
    ("step", "delivery", "container"), [("a", Delivery.TERMINATION, "docker"), ("b", Delivery.COMMIT, "none")]
)
def test_a_directory_that_attempts_share_is_left_alone(
    bench: Bench, step: str, delivery: Delivery, container: str
) -> None:
    """StreamFlow would collect the files of a failed attempt there with those of the next one."""
    contained = in_containers("tools")
    contained["steps"][step]["run"]["hints"][-1] = {**DEBIAN, "dockerOutputDirectory": "/out"}
    docker = [{"step": "/", "deployment": {"type": container, "config": {}}}]
    main = {"type": "cwl", "config": {"file": "main.cwl", "settings": "job.json", "docker": docker}}
    (edge,) = plan_file(bench.write(contained, {}, True, workflows={"main": main})).plans["main"].graph.edges
    assert edge.delivery is delivery
    assert uncoded(edge.fallback) == f"/{step} has a dockerOutputDirectory, which a job shares with its next attempt"


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


def test_a_storage_of_the_host_holds_what_containers_write_there(bench: Bench) -> None:
    contained = in_containers("tools")
    contained["steps"]["a"]["run"]["hints"].append({"class": "sfio:StorageBandwidth", "storageBW": 1})
    storages = [{"name": "disk", "deployment": "here", "path": "/", "write": 10}]
    main = {"type": "cwl", "config": {"file": "main.cwl", "settings": "job.json"}}
    path = bench.write(contained, {}, True, {"storages": storages}, deployments=DEPLOYMENTS, workflows={"main": main})
    plan = plan_file(path).plans["main"]
    assert plan.bandwidth.storages is not None
    (step,) = plan.bandwidth.storages.steps
    assert (step.step, step.storage, step.deployment) == ("/a", "disk", "debian")
    assert plan.bandwidth.storages.warnings == ()


def test_what_is_said_of_storages_that_containers_do_not_write_to(bench: Bench) -> None:
    contained = in_containers("tools")
    contained["steps"]["a"]["run"]["hints"].append({"class": "sfio:StorageBandwidth", "storageBW": 1})
    Path("/tmp/streamflow").mkdir(mode=0o777, exist_ok=True)
    storages = [
        # Not the path in the container.
        {"name": "inside", "path": "/tmp/streamflow", "write": 10},
        {"name": "gone", "path": "/nowhere/at/all", "deployment": "local", "write": 10},
        {"name": "tape", "path": "/tape", "deployment": "one", "write": 10},
    ]
    deployments = {**DEPLOYMENTS, "scratch-here": {"type": "local", "config": {}, "workdir": "/scratch/me"}}
    main = {
        "type": "cwl",
        "config": {"file": "main.cwl", "settings": "job.json"},
        "bindings": [{"step": "/", "target": {"deployment": "scratch-here"}}],
    }
    path = bench.write(contained, {}, True, {"storages": storages}, deployments=deployments, workflows={"main": main})
    plan = plan_file(path).plans["main"]
    assert plan.bandwidth.storages is not None
    not_applied = "The storageBW of /a is not applied on the driver's node: no storage of the scheduler's config holds"
    assert [step.storage for step in plan.bandwidth.storages.steps] == [None]
    assert plan.bandwidth.storages.warnings == (
        f"{not_applied} /scratch/me there [SFIO-B001]",
        "Storage 'gone': /nowhere/at/all does not exist on the driver's node",
        "Storage 'tape' is on deployment 'one', where no step runs (steps run on busybox, debian, the driver's node)",
    )


def test_where_parts_are_read(bench: Bench) -> None:
    """One workflow has a split and its reader for each pair of deployments."""
    every = [
        ("one", "other", "if its readers see it by the same path, or reach where it is split; else real"),
        ("here", "one", "if its readers see it by the same path; else real"),
        ("hpc", "hpc", "parts of /split2/reads, reported by the program"),
        ("mate", "mate", "if its readers see it by the same path; else real"),
        ("pods", "pods", "/split4 runs on pods (kubernetes): parts are not read in pods"),
        ("here", "hpc", "name the storage that hpc shares, with `scope: shared`, among the `storages`"),
    ]
    rule = {"class": "sfio:ReadSession", "rules": [{"port": "chunks", "of": "reads"}]}
    run = tool("true", {"reads": "File"}, {"chunks": found("*.txt", "File[]")}, hints=[rule])
    reader = tool("true", {"chunk": "File"}, {"counted": "stdout"}, stdout="counted.txt")
    steps: dict[str, Document] = {}
    targets: dict[str, str] = {}
    for number, (split, count, _) in enumerate(every):
        steps[f"split{number}"] = {"run": run, "in": {"reads": "reads"}}
        steps[f"count{number}"] = {"run": reader, "in": {"chunk": f"split{number}/chunks"}, "scatter": "chunk"}
        targets |= {f"split{number}": split, f"count{number}": count}
    outputs = {f"counted{number}": f"count{number}/counted" for number in range(len(every))}
    plans = plan_file(Path(bound(bench, workflow({"reads": "File"}, steps, outputs), **targets)))
    shown = io.StringIO()
    plans.show(Console(width=300, file=shown))
    rows = shown.getvalue().splitlines()
    partitions = {partition.step: partition for partition in plans.plans["main"].parts.partitions}
    for number, (split, count, outcome) in enumerate(every):
        assert any(f"/split{number}" in row and outcome in row for row in rows), shown.getvalue()
        is_virtual = split != "pods" and (split, count) != ("here", "hpc")
        assert partitions[f"/split{number}"].is_virtual is is_virtual


ALLOCATION = {"type": "sfio.allocation", "workdir": "/scratch"}
SUBMIT = {"nodes": 4, "time": "04:00:00", "cores": 16}
ASKED = "4 locations, 16 cores each, asked of slurm for 04:00:00"
SLURM = {"SLURM_JOB_ID": "7", "SLURM_JOB_CPUS_PER_NODE": "2(x3),4"}


@pytest.mark.parametrize(
    ("deployment", "environment", "count", "cores", "said"),
    [
        ({**ALLOCATION, "config": {"submit": SUBMIT}}, {}, 4, 16, ASKED),
        ({**ALLOCATION, "config": {"nodes": ["a", "b"]}}, SLURM, 2, None, "2 locations"),
        ({**ALLOCATION, "config": {}}, SLURM, 4, 4, "4 locations, at most 4 cores each, allocation 7 of Slurm"),
        ({**ALLOCATION, "config": {}}, {}, None, None, "the nodes of the job that StreamFlow runs in"),
        (DEPLOYMENTS["other"], {}, 2, None, "2 locations"),
        ({"type": "slurm", "config": {}}, {}, None, None, None),
    ],
)  # fmt: skip
def test_the_locations_that_are_known(
    deployment: Document, environment: dict[str, str], count: int | None, cores: int | None, said: str | None
) -> None:
    with quiet_streamflow():  # The look loads the plugins of StreamFlow.
        known = known_locations({"nodes": deployment}, environment).get("nodes")
    if said is None:
        assert known is None
    else:
        assert known is not None
        assert (known.count, known.cores, str(known)) == (count, cores, said)


@pytest.mark.parametrize(
    ("cores", "meets", "said"),
    [
        (1, True, "if one has 2 cores free; else a reader may read by TCP"),
        (9, False, "no, with 18 cores: a reader may run elsewhere, and read by TCP"),
        ("$(inputs.n)", None, "if one has"),
    ],
)
def test_whether_steps_meet_on_one_location(bench: Bench, cores: object, meets: bool | None, said: str) -> None:
    pair = document()
    for step in pair["steps"].values():
        step["run"]["requirements"] = [{"class": "ResourceRequirement", "coresMin": cores}]
        if isinstance(cores, str):
            step["run"]["inputs"]["n"] = {"type": "int", "default": 2}
    nodes = {"nodes": {**ALLOCATION, "config": {"submit": SUBMIT}}}
    path = Path(bound(bench, pair, a="nodes", b="nodes", deployments=DEPLOYMENTS | nodes))
    plans = plan_file(path)
    assert [gang["on_one_location"] for gang in plans.to_json()["workflows"]["main"]["gangs"]] == [meets]
    plans.show(console := Console(file=io.StringIO(), width=200))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert said in shown
    assert ASKED in shown
