"""The deployment type `sfio.allocation`: what Slurm prints, its schema, and its messages."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from asyncio.subprocess import Process
from collections.abc import Sequence
from functools import partial
from pathlib import Path, PurePosixPath

import pytest
from jsonschema import Draft202012Validator
from streamflow.core.deployment import ExecutionLocation
from streamflow.core.exception import WorkflowExecutionException

from lab.node import wait_for
from streamflow_io.adapters.deployment_sites import deployment_kind
from streamflow_io.graph.sites import SiteKind
from streamflow_io.runtime.access import Access
from streamflow_io.runtime.allocation import slurm
from streamflow_io.runtime.allocation.commands import begin
from streamflow_io.runtime.allocation.connector import AllocationConnector
from streamflow_io.runtime.allocation.managers import MANAGERS, ManagerError, Reason
from streamflow_io.runtime.node_commands import NodeRuntimeError

JOB = (
    "JobId=7 JobName=a b JobState=RUNNING Reason=None EndTime=2026-11-28T02:13:57 NodeList=n[1-3] NumNodes=3 "
    "JOB_GRES=gpu:2   Nodes=n[1-2] CPU_IDs=0-3,8 Mem=2000 GRES=    Nodes=n3 CPU_IDs=1 Mem=0 GRES=gpu:2 Command=(null)\n"
)


def test_an_allocation_has_groups_of_nodes() -> None:
    held = slurm.allocation_of(JOB, "7")
    assert held.runs
    assert held.end == time.mktime((2026, 11, 28, 2, 13, 57, 0, 0, -1))
    assert held.groups == (slurm.NodeGroup("n[1-2]", 5, 2000), slurm.NodeGroup("n3", 1, 0))


@pytest.mark.parametrize("end", ["Unknown", "(null)"])
def test_an_allocation_may_have_no_end_and_no_nodes(end: str) -> None:
    held = slurm.allocation_of(f"JobId=7 JobState=PENDING EndTime={end} NodeList=\n", "7")
    assert held == slurm.Held("PENDING", None, ())
    assert not held.runs


def test_a_task_of_an_array_is_not_another_one() -> None:
    task = "JobId={} ArrayJobId=7 ArrayTaskId={} JobState={} NodeList=n{} Nodes=n{} CPU_IDs=0 Mem=10 \n"
    printed = "".join(task.format(job, at, state, at, at) for job, at, state in TASKS)
    for job, at, state in TASKS:
        groups = (slurm.NodeGroup(f"n{at}", 1, 10),)
        assert slurm.allocation_of(printed, job) == slurm.Held(state, None, groups)
    with pytest.raises(ManagerError, match="names no state"):
        slurm.allocation_of(printed, "10")


TASKS = (("7", 3, "RUNNING"), ("8", 1, "RUNNING"), ("9", 2, "COMPLETED"))


@pytest.mark.parametrize(
    ("reason", "remedy"),
    [
        ("PartitionNodeLimit", "`nodes` or `partition`"),
        ("PartitionTimeLimit", "`time` or `partition`"),
        ("BadConstraints", "`nodes`, `cores`, `memory`, `partition` or `options`"),
        ("InvalidAccount", "`--account` in `options`, or `partition`"),
        ("QOSNotAllowed", "`--qos` in `options`, or `partition`"),
        ("AssocMaxWallDurationPerJobLimit", "`nodes`, `time`, `cores` or `memory`"),
        ("QOSMaxMemoryPerNode", "`nodes`, `time`, `cores` or `memory`"),
        ("QOSMinCpuNotSatisfied", "`nodes`, `time`, `cores` or `memory`"),
        ("DependencyNeverSatisfied", "`options`"),
    ],
)
def test_a_reason_for_which_an_allocation_never_starts(reason: str, remedy: str) -> None:
    printed = "JobId=7 JobState=PENDING Reason={} Dependency=(null) Partition={} NodeList=\n"
    assert slurm.allocation_of(printed.format(reason, "all"), "7").reason == Reason(reason, remedy)
    # The other partition may grant the allocation.
    assert slurm.allocation_of(printed.format(reason, "small,large"), "7").reason == Reason(reason)


@pytest.mark.parametrize(
    ("reason", "text", "kind"),
    [
        *((name, name, name) for name in ("Resources", "Priority", "Licenses", "JobHeldUser", "PartitionDown")),
        # Other jobs of the user, or of the account, end.
        *((name, name, name) for name in ("AssocMaxJobsLimit", "QOSMaxNodePerUserLimit", "QOSGrpCpuLimit")),
        ("ReqNodeNotAvail,_UnavailableNodes:n_1", "ReqNodeNotAvail, UnavailableNodes:n_1", "ReqNodeNotAvail"),
        ("Nodes_are_DOWN,_DRAINED", "Nodes are DOWN, DRAINED", "Nodes are DOWN"),
    ],
)
def test_a_reason_that_may_pass(reason: str, text: str, kind: str) -> None:
    found = slurm.allocation_of(f"JobId=7 JobState=PENDING Reason={reason} Partition=all\n", "7").reason
    assert found == Reason(text)
    assert found.kind == kind


def test_an_allocation_may_wait_without_a_reason() -> None:
    for state, reason in (("PENDING", "None"), ("RUNNING", "Priority")):
        assert slurm.allocation_of(f"JobId=7 JobState={state} Reason={reason} Partition=all", "7").reason is None


@pytest.mark.parametrize("printed", ["", "slurm_load_jobs error: Invalid job id specified"])
def test_what_is_not_understood_is_said(printed: str) -> None:
    with pytest.raises(ManagerError, match="names no state of the allocation"):
        slurm.allocation_of(printed, "7")
    with pytest.raises(ManagerError, match="'x' is no number"):
        slurm.allocation_of("JobId=7 JobState=RUNNING Nodes=n1 CPU_IDs=x Mem=0", "7")


@pytest.mark.parametrize(
    ("state", "gone"),
    [("ALLOCATED", False), ("MIXED+DRAIN", False), ("DOWN*", True), ("IDLE*", True), ("DOWN+NOT_RESPONDING", True)],
)
def test_a_node_may_be_gone(state: str, gone: bool) -> None:
    printed = f"NodeName=n1 Arch=x86_64 NodeAddr=10.0.0.1 RealMemory=4000 State={state} ThreadsPerCore=1\n\n"
    (node,) = slurm.nodes_of(printed)
    assert node == slurm.SlurmNode("n1", "10.0.0.1", 4000, state if gone else None)


def test_options_of_a_batch_script_do_not_reach_steps() -> None:
    """Slurm refuses `--mem` beside SLURM_MEM_PER_CPU."""
    outer = {"PATH": "/bin", "SLURM_MEM_PER_CPU": "1", "SLURM_CONF": "/etc/slurm.conf", "SLURM_JOB_ID": "7"}
    assert slurm.environment(outer) == {"PATH": "/bin", "SLURM_CONF": "/etc/slurm.conf"}


def test_nodes_are_hosts() -> None:
    """The scheduler's plugin registers the type with StreamFlow."""
    from streamflow_io.plugin import StreamFlowIOPlugin

    StreamFlowIOPlugin().register()
    assert deployment_kind("sfio.allocation") is deployment_kind("ssh") is SiteKind.HOSTS


def test_the_schema_describes_each_field() -> None:
    schema = json.loads(AllocationConnector.get_schema())
    Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    described = [schema]
    while described:
        entry = described.pop()
        if entry["type"] == "object":
            assert entry["additionalProperties"] is False
            described += entry["properties"].values()
        assert entry["description"]


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({}, None),
        ({"submit": {"nodes": 4, "time": "04:00:00", "partition": "main", "options": ["--exclusive"]}}, None),
        ({"launcher": "ssh {node}", "nodes": ["a", "b"]}, None),
        ({"environment": ["PATH", "_A1"], "interface": "ib0"}, None),
        ({"environment": ["PATH=/bin"]}, "'PATH=/bin' does not match"),
        ({"launcher": "ssh"}, "'ssh' does not match"),
        ({"workdir": "/local"}, "'workdir' was unexpected"),
        ({"submit": {"nodes": 4, "time": "4:00", "manager": "lsf", "cores": 16, "memory": 4000}}, None),
        (
            {"submit": {"nodes": 4, "time": "1", "manager": "sge"}},
            "'sge' is not one of ['slurm', 'pbs'",
        ),
        ({"submit": {"nodes": 4, "time": "1", "max": 3, "idle": 300}}, None),
        ({"submit": {"nodes": 4, "time": "1", "idle": 300}}, "'max' is a dependency of 'idle'"),
        ({"submit": {"nodes": 0, "time": "1"}}, "0 is less than the minimum of 1"),
        ({"submit": {"nodes": 1}}, "'time' is a required property"),
    ],
)
def test_the_schema_says_what_is_wrong(config: object, why: str | None) -> None:
    errors = [
        error.message
        for error in Draft202012Validator(json.loads(AllocationConnector.get_schema())).iter_errors(config)
    ]
    assert (errors == []) if why is None else (len(errors) == 1 and why in errors[0])


async def deploy_error(**config: object) -> str:
    connector = AllocationConnector("nodes", "/", **config)
    with pytest.raises(WorkflowExecutionException) as raised:
        await connector.deploy(False)
    return str(raised.value)


async def test_outside_of_an_allocation(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("SLURM_JOB_ID", *(manager.variable for manager in MANAGERS)):
        monkeypatch.delenv(variable, raising=False)
    said = await deploy_error()
    assert said.startswith("nodes has the type sfio.allocation, and StreamFlow runs in no allocation: none of SLURM_")
    assert "sbatch" in said


async def test_submit_goes_with_no_other_nodes_and_launcher() -> None:
    submit = {"nodes": 1, "time": "1"}
    assert "`submit` beside `nodes`" in await deploy_error(submit=submit, nodes=["n1"])
    assert "`launcher` beside `submit`" in await deploy_error(submit=submit, launcher="ssh {node}")


async def test_slurm_has_its_own_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert "where srun is the launcher" in await deploy_error(launcher="ssh {node}")


async def test_without_the_programs_of_slurm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "srun and scontrol of Slurm cannot be found" in await deploy_error()


async def test_a_queue_manager_is_named_that_is_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without a name, the queue manager is Slurm."""
    monkeypatch.setenv("PATH", str(tmp_path))
    submit = {"nodes": 1, "time": "1", "cores": 1}
    assert (await deploy_error(submit=submit)).endswith("cannot be found: add the directory of the programs to PATH")
    (tmp_path / "qdel").touch(mode=0o755)
    assert (await deploy_error(submit=submit)).endswith("to PATH, or write `manager: pbs` in `submit`")
    assert await deploy_error(submit={**submit, "manager": "pbs"}) == (
        "PBS gives no allocation to nodes: qsub cannot be found: add its directory to PATH"
    )


#: Stand-ins for the programs of Slurm: the nodes are not ready at the first look.
SLURM = {
    "salloc": """if test -e $0.waits; then echo "salloc: Pending job allocation 7" >&2
        until test -e $0.granted; do sleep 0.01; done; fi
        echo "salloc: Granted job allocation 7" >&2; exec cat""",
    "scancel": 'echo "$*" >> $0.calls',
    "srun": """echo "$*" >> $0.calls
        case $* in *=n1*) until test -e $0.lost; do sleep 0.01; done; exit 1; esac
        exec sed /done/q""",
    "scontrol": """case $2$(cat $0.reason 2> /dev/null) in
        job?*) touch $0.told; echo "JobId=7 JobState=PENDING Reason=$(cat $0.reason) Partition=all" ;;
        job) test -e $0.looked && state={then} || state=CONFIGURING; touch $0.looked
            echo "JobId=7 JobState=$state EndTime=Unknown Nodes=n[1-2] CPU_IDs=0-1 Mem=100 GRES=" ;;
        node) for node in 1 2; do echo "NodeName=n$node NodeAddr=10.0.0.$node State=ALLOCATED"; done ;;
        hostnames) echo n1 n2 ;;
        esac""",
}


@pytest.fixture(params=["RUNNING"])
def stand_ins(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The directory of the stand-ins. The parameter is the state of the allocation from the second look on."""
    for pause in ("_BOOT_PAUSE_SECONDS", "_FIRST_LOOK_SECONDS", "_LONGEST_LOOK_SECONDS"):
        monkeypatch.setattr(f"streamflow_io.runtime.allocation.slurm_allocation.{pause}", 0.01)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    for name, script in SLURM.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script.replace('{then}', request.param)}\n")
        (tmp_path / name).chmod(0o755)
    return tmp_path


async def test_nodes_may_boot_after_the_allocation_is_granted(stand_ins: Path) -> None:
    connector = AllocationConnector("nodes", "/", {"nodes": 2, "time": "1"})
    await connector.deploy(False)
    assert connector.found == "allocation 7 of Slurm: n1 (2 cores, 100 MiB), n2 (2 cores, 100 MiB)"
    await connector.undeploy(False)


@pytest.mark.parametrize("stand_ins", ["CANCELLED"], indirect=True)
@pytest.mark.usefixtures("stand_ins")
async def test_nodes_may_not_boot() -> None:
    assert "no nodes that can be used: CANCELLED" in await deploy_error(submit={"nodes": 2, "time": "1"})


async def test_an_allocation_that_never_starts_is_not_waited_for(stand_ins: Path) -> None:
    (stand_ins / "salloc.waits").touch()
    (stand_ins / "scontrol.reason").write_text("PartitionNodeLimit")
    assert await asyncio.wait_for(deploy_error(submit={"nodes": 9, "time": "1"}), 60) == (
        "Slurm gives no allocation to nodes: allocation 7 of Slurm can never start (PartitionNodeLimit): change "
        "`nodes` or `partition` in `submit`"
    )
    assert (stand_ins / "scancel.calls").read_text().split() == ["7"]


async def test_the_reasons_why_an_allocation_waits_are_told(stand_ins: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "streamflow")
    (stand_ins / "salloc.waits").touch()
    connector = AllocationConnector("nodes", "/", {"nodes": 2, "time": "1"})
    deploying = asyncio.create_task(connector.deploy(False))
    for reason in ("Priority", "Resources"):
        (stand_ins / "new").write_text(reason)
        (stand_ins / "new").rename(stand_ins / "scontrol.reason")
        await asyncio.to_thread(wait_for, partial(_ends_with, caplog, f"allocation 7 of Slurm: {reason}"), reason)
    (stand_ins / "scontrol.reason").unlink()
    (stand_ins / "salloc.granted").touch()
    await asyncio.wait_for(deploying, 60)
    await connector.undeploy(False)
    told = [record.getMessage() for record in caplog.records if "still waits" in record.getMessage()]
    assert told == [
        f"The deployment nodes still waits for allocation 7 of Slurm: {reason}" for reason in ("Priority", "Resources")
    ]


def _ends_with(caplog: pytest.LogCaptureFixture, text: str) -> bool:
    return any(record.getMessage().endswith(text) for record in [*caplog.records])


async def test_the_signal_that_ends_salloc_is_named(stand_ins: Path) -> None:
    """`salloc` waits in the queue then, and cannot give the allocation back."""
    (stand_ins / "salloc.waits").touch()
    killing = 'echo $$ > "$0.pid"; '
    (stand_ins / "salloc").write_text((stand_ins / "salloc").read_text().replace("if test", f"{killing}if test", 1))
    deploying = asyncio.create_task(deploy_error(submit={"nodes": 2, "time": "1"}))
    pid = stand_ins / "salloc.pid"
    # A look comes after the line that names the allocation.
    (stand_ins / "scontrol.reason").write_text("Priority")
    await asyncio.to_thread(wait_for, lambda: (stand_ins / "scontrol.told").exists(), "a look")
    os.kill(int(pid.read_text()), signal.SIGKILL)
    said = await asyncio.wait_for(deploying, 60)
    assert said == "Slurm gives no allocation to nodes: salloc was ended by signal 9"
    assert (stand_ins / "scancel.calls").read_text().split() == ["7"]


@pytest.mark.parametrize("most", [{}, {"max": 2}])
async def test_the_guard_leaves_a_node_that_is_lost(stand_ins: Path, most: dict[str, int]) -> None:
    connector = AllocationConnector("nodes", "/", {"nodes": 2, "time": "1", **most})
    await connector.deploy(False)
    calls = stand_ins / "srun.calls"
    try:
        for node in ("n1", "n2"):
            guards = partial(lambda node: calls.exists() and f"={node}" in calls.read_text(), node)
            await asyncio.to_thread(wait_for, guards, f"a guard on {node}")
            connector.lose("n1", "n1 is DOWN")
            (stand_ins / "srun.lost").touch()
    finally:
        await connector.undeploy(False)


class Here(AllocationConnector):
    """Starts the programs of nodes on this machine."""

    async def start(
        self, location: ExecutionLocation, words: Sequence[str], stdin: int, stdout: int, stderr: int
    ) -> Process:
        return await begin(words, stdin, stdout, stderr)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["echo", "a;", "echo", "b", ">&2;", "exit", "3"], ("a\nb", 3)),
        (["printf", "'%s'", '"$NAME"'], ("it's", 0)),
        (["test", "-e", "/", "&&", "pwd"], ("/usr", 0)),
        (["sh", "-c", "'case x in x) echo in;; esac # end'"], ("in", 0)),
        (["false", "# a comment"], ("", 1)),
    ],
)
async def test_a_shell_runs_commands_one_after_the_other(command: list[str], said: tuple[str, int]) -> None:
    connector = Here("nodes", "/")
    location = ExecutionLocation("n1", "nodes")
    try:
        for _ in range(2):
            ran = await connector.run(location, command, {"NAME": "it's"}, "/usr", capture_output=True)
            assert ran == said
        assert await connector.run(location, command) is None
    finally:
        await connector.undeploy(False)


async def test_a_file_for_which_no_space_is_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "df").write_text("#!/bin/sh\necho /dev/x 20 20 0 100% /\n")
    (tmp_path / "df").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    (tmp_path / "file.part").symlink_to("/dev/full")
    connector = Here("nodes", "/")
    access = Access(connector, ExecutionLocation("n1", "nodes"))
    try:
        # The pipe breaks while it is written, or afterwards.
        error = r"(BrokenPipeError|\[Errno 32\] Broken pipe)"
        with pytest.raises(
            NodeRuntimeError, match=rf"file cannot be written: nodes/n1: {error}, and only 0 KiB are free there"
        ):
            await asyncio.wait_for(access.write(PurePosixPath(tmp_path / "file"), bytes(2**22)), 60)
        assert not (tmp_path / "file.part").is_symlink(), "it takes space"
    finally:
        await connector.undeploy(False)


async def test_a_quote_that_is_not_closed_is_an_error() -> None:
    """StreamFlow does not quote a pattern that has the name of a file."""
    connector = Here("nodes", "/")
    location = ExecutionLocation("n1", "nodes")
    try:
        said = await asyncio.wait_for(connector.run(location, ["set -- /it's"], capture_output=True), 20)
        assert said is not None
        assert said[1] == 2
        assert await connector.run(location, ["echo", "on"], capture_output=True) == ("on", 0)
    finally:
        await connector.undeploy(False)


class Losing(Here):
    """A launcher that loses what it has not handed on yet when the program ends, and still has the exit code 0."""

    async def start(
        self, location: ExecutionLocation, words: Sequence[str], stdin: int, stdout: int, stderr: int
    ) -> Process:
        script = (
            'exec 3<&0; "$@" <&3 3<&- > "$0" & program=$!; exec 3<&-; '
            'while cat "$0" > "$0.all"; kill -0 $program 2>/dev/null; do '
            'tail -c "+$((${sent:-0} + 1))" "$0.all"; sent=$(stat -c %s "$0.all"); sleep 0.01; done'
        )
        return await begin(["sh", "-c", script, str(self.file), *words], stdin, stdout, stderr)

    file: Path


@pytest.mark.parametrize("size", [0, 65_536, 300_000])
@pytest.mark.parametrize("most", [None, 1000])
async def test_a_copy_has_the_end_of_its_file(size: int, most: int | None, tmp_path: Path) -> None:
    connector = Losing("nodes", "/")
    connector.file = tmp_path / "printed"
    command = ["head", "-c", str(size), "/dev/zero"]
    read = bytearray()
    async with await connector.get_stream_reader(command, ExecutionLocation("n1", "nodes")) as stream:
        while content := await stream.read(most):
            assert most is None or len(content) <= most
            read += content
    assert bytes(read) == bytes(size)


async def read_from(connector: AllocationConnector, command: list[str], most: int | None) -> bytes:
    async with await connector.get_stream_reader(command, ExecutionLocation("n1", "nodes")) as stream:
        content: bytes = await stream.read(most)
        return content


async def test_a_reader_may_need_no_more() -> None:
    """The archive of a file has an end of its own."""
    assert await read_from(Here("nodes", "/"), ["seq", "100000"], 4) == b"1\n2\n"


async def test_the_lost_end_of_a_copy_is_an_error() -> None:
    with pytest.raises(WorkflowExecutionException, match="The end of the output of 'exec seq 9' on nodes/n1 is lost"):
        await read_from(Here("nodes", "/"), ["exec", "seq", "9"], None)
