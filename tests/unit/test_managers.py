"""Queue managers other than Slurm: what their commands print, and programs that a launcher starts."""

from __future__ import annotations

from asyncio.subprocess import DEVNULL, PIPE
from pathlib import Path

import pytest
from streamflow.core.exception import WorkflowExecutionException

from streamflow_io.runtime.allocation.connector import AllocationConnector
from streamflow_io.runtime.allocation.launched_allocation import LaunchedAllocation, current_manager
from streamflow_io.runtime.allocation.managers import (
    MANAGERS,
    FoundAllocation,
    FoundNode,
    ManagerError,
    flux_allocation,
    host_names,
    lsf_allocation,
    numbers,
    pbs_allocation,
)

# As `qstat -f` of OpenPBS prints a job; it folds long lines.
PBS = """Job Id: 7.server
    Job_Name = run.sh
    resources_used.walltime = 00:10:00
    job_state = R
    exec_host = n1/0*8+n1/1*8+n2/0
\t*4
    exec_vnode = (n1[0]:ncpus=8:mem=8192mb)+(n1[1]:mem=1gb:ncpus=8)+(n2:ncpus=4:
\tmem=2097152kb:ngpus=1)
    Resource_List.walltime = 04:00:00
    Variable_List = PBS_O_HOME=/home/me,
\tPBS_O_LANG=C
"""


def test_a_job_of_pbs() -> None:
    nodes = (FoundNode("n1", 0, 16, 9216), FoundNode("n2", 1, 4, 2048))
    assert pbs_allocation(PBS) == FoundAllocation(nodes, 3 * 3600 + 50 * 60)


@pytest.mark.parametrize("taken", ["a/0+a/1+a/2+b/0", "a/0-2+b/3", "a/0,2,5+b/1"])
def test_a_job_of_torque(taken: str) -> None:
    found = pbs_allocation(f"Job Id: 7\n    exec_host = {taken}\n")
    assert found == FoundAllocation((FoundNode("a", 0, 3), FoundNode("b", 1, 1)))


def test_a_job_of_lsf() -> None:
    assert lsf_allocation("a 4 b 2 a 1\n") == FoundAllocation((FoundNode("a", 0, 5), FoundNode("b", 1, 2)))


def test_a_resource_set_of_flux() -> None:
    printed = (
        '{"version": 1, "execution": {"R_lite": [{"rank": "0-1", "children": {"core": "0-3", "gpu": "0"}}, '
        '{"rank": "4", "children": {"core": "0,2"}}], "starttime": 5.0, "expiration": 99.5, '
        '"nodelist": ["n[09-10]", "x"]}}'
    )
    nodes = (FoundNode("n09", 0, 4), FoundNode("n10", 1, 4), FoundNode("x", 4, 2))
    assert flux_allocation(printed) == FoundAllocation(nodes, end=99.5)
    assert flux_allocation(printed.replace("99.5", "0.0")).end is None


@pytest.mark.parametrize("manager", MANAGERS, ids=lambda manager: manager.name)
@pytest.mark.parametrize(
    "printed",
    [
        "",
        "error",
        "a b",
        "{}",
        "    exec_host = n1/x",
        '{"execution": {"nodelist": [], "R_lite": [{"rank": "0"}]}}',
        "[1]",
    ],
)
def test_another_text_is_an_error(manager: object, printed: str) -> None:
    with pytest.raises(ManagerError):
        manager.read(printed)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a", ["a"]),
        ("a,a", ["a", "a"]),
        ("n[1-3,7],b", ["n1", "n2", "n3", "n7", "b"]),
        ("n[08-11].x", ["n08.x", "n09.x", "n10.x", "n11.x"]),
        ("", []),
    ],
)
def test_lists_of_hosts(text: str, names: list[str]) -> None:
    assert host_names(text) == names


def test_lists_of_numbers() -> None:
    assert numbers("0-3,8") == [0, 1, 2, 3, 8]
    for text in ("", "a", "1-", "-1"):
        with pytest.raises(ManagerError):
            numbers(text)


def test_the_environment_tells_the_queue_manager() -> None:
    found = {
        variable: current_manager(MANAGERS, {variable: "7"}) for variable in ("PBS_JOBID", "LSB_JOBID", "FLUX_URI")
    }
    assert [manager and manager.name for manager in found.values()] == ["PBS", "LSF", "Flux"]
    assert current_manager(MANAGERS, {"PBS_JOBID": ""}) is None


@pytest.fixture
def launcher(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """A launcher that runs programs here, and names their node in NODE: with a shell in between, or without."""
    run = '"$@"' if request.param == "words" else 'sh -c "$*"'
    (path := tmp_path / "launch").write_text(f"#!/bin/sh\nNODE=$1\nexport NODE\nshift\nexec {run}\n")
    path.chmod(0o755)
    return f"{path} {{node}}"


@pytest.mark.parametrize("launcher", ["words", "shell"], indirect=True)
async def test_words_reach_a_program_as_they_are(launcher: str) -> None:
    allocation = await LaunchedAllocation.of_nodes(["n1", "n2", "n1"], launcher)
    assert list(allocation.nodes) == ["n1", "n2"]
    script = 'printf "%s|" "$NODE" "$@"; cat'
    process = await allocation.start("n2", ["sh", "-c", script, "sh", "a  b", "$HOME", "'"], PIPE, PIPE, DEVNULL)
    printed, _ = await process.communicate(b"input")
    assert printed == b"n2|a  b|$HOME|'|input"
    assert await allocation.why("n1", 0) is None
    for code, why in ((-9, "was ended by signal 9"), (255, "has lost its connection"), (137, "was ended by signal 9")):
        loss = await allocation.why("n1", code)
        assert loss is not None
        assert (loss.answers, why in loss.reason) == (True, True)


async def test_nodes_that_do_not_answer(tmp_path: Path) -> None:
    (path := tmp_path / "launch").write_text('#!/bin/sh\necho "no route to $1" >&2\nexit 255\n')
    path.chmod(0o755)
    with pytest.raises(WorkflowExecutionException, match=r"node n1 does not answer: .* no route to n1; node n2 does"):
        await LaunchedAllocation.of_nodes(["n1", "n2"], f"{path} {{node}}")
    with pytest.raises(WorkflowExecutionException, match="needs missing-launcher, which cannot be found"):
        await LaunchedAllocation.of_nodes(["n1"], "missing-launcher {node}")


@pytest.mark.parametrize(
    ("variable", "commands", "nodes"),
    [
        (
            "PBS_JOBID",
            {"qstat": f"cat <<'END'\n{PBS}END", "ssh": 'shift 3; exec sh -c "$*"'},
            "n1 (16 cores, 9,216 MiB)",
        ),
        ("LSB_JOBID", {"blaunch": 'shift; exec sh -c "$*"'}, "n1 (4 cores)"),
        (
            "FLUX_URI",
            {
                "flux": 'test $1 = exec && { shift 3; exec "$@"; }; echo \'{"execution": {"nodelist": ["n1"], '
                '"R_lite": [{"rank": "3", "children": {"core": "0-1"}}], "expiration": 4e9}}\''
            },
            "n1 (2 cores)",
        ),
    ],
)
async def test_stand_ins_of_queue_managers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str, commands: dict[str, str], nodes: str
) -> None:
    for manager in ("SLURM_JOB_ID", *(manager.variable for manager in MANAGERS)):
        monkeypatch.delenv(manager, raising=False)
    monkeypatch.setenv(variable, "7")
    monkeypatch.setenv("LSB_MCPU_HOSTS", "n1 4")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    for name, script in commands.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    connector = AllocationConnector("nodes", "/")
    await connector.deploy(False)
    try:
        assert nodes in connector.found
        assert (connector.seconds_left is None) == (variable == "LSB_JOBID")
        (found, *_) = (await connector.get_available_locations()).values()
        assert found.hardware is not None
        assert (found.name, found.hardware.memory > 0) == ("n1", True)
        assert await connector.run(found.location, ["echo", "'a  b'"], capture_output=True) == ("a  b", 0)
    finally:
        await connector.undeploy(False)
