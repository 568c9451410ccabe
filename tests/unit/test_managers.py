"""Queue managers other than Slurm: what their commands print, and programs that a launcher starts."""

from __future__ import annotations

import asyncio
import shutil
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace
from streamflow.core.deployment import ExecutionLocation
from streamflow.core.exception import WorkflowExecutionException

from lab.node import wait_for
from lab.queue_managers import write_stand_ins
from streamflow_io.runtime.allocation import slurm
from streamflow_io.runtime.allocation.connector import AllocationConnector
from streamflow_io.runtime.allocation.launched_allocation import LaunchedAllocation, current_manager, guard, holder
from streamflow_io.runtime.allocation.managers import (
    MANAGERS,
    AllocationState,
    Asking,
    FoundAllocation,
    FoundNode,
    ManagerError,
    Wanted,
    flux_allocation,
    host_names,
    lsf_allocation,
    lsf_job,
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


def test_a_chunk_of_pbs_may_be_on_several_virtual_nodes() -> None:
    chunk = "({0}[0]:ncpus=4:mem=1gb+{0}[1]:ncpus=2:mem=2gb)"
    printed = f"    exec_host = n1/0*6+n2/0*6\n    exec_vnode = {chunk.format('n1')}+{chunk.format('n2')}\n"
    assert pbs_allocation(printed).nodes == (FoundNode("n1", 0, 6, 3072), FoundNode("n2", 1, 6, 3072))


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


def test_the_environment_tells_the_queue_manager() -> None:
    found = {
        variable: current_manager(MANAGERS, {variable: "7"}) for variable in ("PBS_JOBID", "LSB_JOBID", "FLUX_URI")
    }
    assert [manager and manager.name for manager in found.values()] == ["PBS", "LSF", "Flux"]
    assert current_manager(MANAGERS, {"PBS_JOBID": ""}) is None


@pytest.fixture
def launcher(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """A launcher that runs programs here, and names their node in NODE: with a shell in between, or without.

    The shell may print first, and may be another one than those of POSIX.
    """
    run = '"$@"' if "words" in request.param else 'sh -c "$*"'
    before = "echo 'Welcome to  the cluster'\n" if "prints" in request.param else ""
    if "csh" in request.param:
        before += 'case "$*" in *[\\\\]* | *"\n"*) echo "Unmatched." >&2; exit 1 ;; esac\n'
    (path := tmp_path / "launch").write_text(f"#!/bin/sh\nNODE=$1\nexport NODE\nshift\n{before}exec {run}\n")
    path.chmod(0o755)
    return f"{path} {{node}}"


@pytest.mark.parametrize(
    "launcher",
    ["words", "words, prints", "shell", "shell, prints", "csh", "csh, prints"],
    indirect=True,
)
async def test_words_reach_a_program_as_they_are(launcher: str) -> None:
    allocation = await LaunchedAllocation.of_nodes(["n1", "n2", "n1"], launcher)
    assert list(allocation.nodes) == ["n1", "n2"]
    script = 'printf "%s|" "$NODE" "$@"; cat'
    words = ["a  b", "$HOME", "'", "\\\\\n"]
    process = await allocation.start("n2", ["sh", "-c", script, "sh", *words], PIPE, PIPE, DEVNULL)
    printed, _ = await process.communicate(b"input")
    assert printed == b"n2|a  b|$HOME|'|\\\\\n|input"
    assert await allocation.why("n1", 0) is None
    for code, why in ((-9, "was ended by signal 9"), (255, "has lost its connection"), (137, "was ended by signal 9")):
        loss = await allocation.why("n1", code)
        assert loss is not None
        assert (loss.answers, why in loss.reason) == (True, True)


@pytest.mark.parametrize(("seconds", "left"), [(None, ""), (3600.4, "; 60 minutes are left"), (9.6, "; 9 s are left")])
def test_an_allocation_is_described(monkeypatch: pytest.MonkeyPatch, seconds: float | None, left: str) -> None:
    monkeypatch.setattr(LaunchedAllocation, "seconds_left", seconds)
    found = FoundAllocation((FoundNode("n1", 0, 1), FoundNode("n2", 1, 2)))
    assert LaunchedAllocation("it", found, "true").description == f"it: n1 (1 core), n2 (2 cores){left}"


async def test_nodes_that_do_not_answer(tmp_path: Path) -> None:
    (path := tmp_path / "launch").write_text('#!/bin/sh\necho "no route to $1" >&2\nexit 255\n')
    path.chmod(0o755)
    with pytest.raises(WorkflowExecutionException, match=r"node n1 does not answer: .* no route to n1; node n2 does"):
        await LaunchedAllocation.of_nodes(["n1", "n2"], f"{path} {{node}}")
    with pytest.raises(WorkflowExecutionException, match="needs missing-launcher, which cannot be found"):
        await LaunchedAllocation.of_nodes(["n1"], "missing-launcher {node}")


def launch(path: Path, script: str) -> str:
    """A launcher that is a script, with the node as its first argument."""
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return f"{path} {{node}}"


async def test_a_node_that_does_not_answer_takes_no_other_with_it(tmp_path: Path) -> None:
    """The others look their addresses up on a node that answers. A node whose name is not known tells its own."""
    (tmp_path / "getent").write_text(
        "#!/bin/sh\ncase $2 in n3) exit 2 ;; n5) echo 127.0.1.1 x ;; *) echo 10.0.0.${2#n} x ;; esac\n"
    )
    (tmp_path / "ip").write_text("#!/bin/sh\ntest $NODE = n3 && echo '4: eth0    inet 10.1.0.3/16 scope global eth0'\n")
    for name in ("getent", "ip"):
        (tmp_path / name).chmod(0o755)
    script = f'test $1 = n1 && exit 255; export NODE=$1; shift; export PATH={tmp_path}:$PATH; exec "$@"'
    connector = AllocationConnector(
        "nodes", "/", None, launch(tmp_path / "launch", script), ["n1", "n2", "n3", "n4", "n5"]
    )
    await connector.deploy(False)
    try:
        found = await asyncio.wait_for(connector.get_available_locations(), 60)
    finally:
        await connector.undeploy(False)
    assert {name: each.hostname for name, each in found.items()} == {
        "n2": "10.0.0.2", "n3": "10.1.0.3", "n4": "10.0.0.4", "n5": "n5"
    }  # fmt: skip


async def test_a_launcher_names_the_job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The program `pbs_attach` needs the number."""
    for variable in ("SLURM_JOB_ID", *(manager.variable for manager in MANAGERS)):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PBS_JOBID", "7.server")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    (tmp_path / "qstat").write_text("#!/bin/sh\necho 'Job Id: 7.server'; echo '    exec_host = n1/0*2'\n")
    (tmp_path / "qstat").chmod(0o755)
    words = launch(tmp_path / "launch", 'test "$2 $3" = "-j 7.server" || exit 1; shift 3; exec "$@"')
    connector = AllocationConnector("nodes", "/", None, f"{words} -j {{job}}")
    await connector.deploy(False)
    try:
        (found,) = (await connector.get_available_locations()).values()
        assert await connector.run(found.location, ["echo said"], capture_output=True) == ("said", 0)
    finally:
        await connector.undeploy(False)


async def test_programs_get_chosen_variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A batch script has set them, as by `module load`, and a launcher as SSH does not hand them on."""
    monkeypatch.setenv("FROM_MODULE", "a  'b'")
    monkeypatch.setenv("OTHER", "other")
    words = launch(tmp_path / "launch", 'shift; exec env -i PATH=/usr/bin:/bin "$@"')
    chosen = ["FROM_MODULE", "NOT_SET"]
    connector = AllocationConnector("nodes", "/", None, words, ["n1"], environment=chosen)
    await connector.deploy(False)
    try:
        node = ExecutionLocation("n1", "nodes")
        script = 'echo "$FROM_MODULE|$OTHER|${NOT_SET-not set}"'
        assert await connector.run(node, [script], capture_output=True) == ("a  'b'||not set", 0)
        assert await connector.run(node, [script], capture_output=True, job_name="/a/0") == ("a  'b'||not set", 0)
    finally:
        await connector.undeploy(False)


async def test_nodes_reach_each_other_by_a_chosen_interface(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One warning names a node that has no such interface."""
    (tmp_path / "ip").write_text(
        '#!/bin/sh\ntest "$NODE $5" = "n1 ib0" || { echo "Device \\"$5\\" does not exist." >&2; exit 1; }\n'
        "echo '4: ib0    inet 10.1.0.1/16 brd 10.1.255.255 scope global ib0'\n"
        "echo '4: ib0    inet6 fd00::1/64 scope global'\n"
    )
    (tmp_path / "ip").chmod(0o755)
    words = launch(tmp_path / "launch", f'export NODE=$1 PATH={tmp_path}:$PATH; shift; exec "$@"')
    nodes = ["n1", "127.0.0.2", "127.0.0.3"]
    connector = AllocationConnector("nodes", "/", None, words, nodes, interface="ib0")
    await connector.deploy(False)
    try:
        found = await asyncio.wait_for(connector.get_available_locations(), 60)
    finally:
        await connector.undeploy(False)
    assert [found[name].hostname for name in nodes] == ["10.1.0.1", *nodes[1:]]
    (told,) = [record.message for record in caplog.records if "ib0" in record.message]
    assert told.startswith("Nodes of nodes reach each other without the interface ib0: 127.0.0.")
    assert told.endswith('has no address there: Device "ib0" does not exist.')


async def test_a_silent_node_is_lost(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The node answers when the launcher is tried, and never again."""
    monkeypatch.setattr("streamflow_io.runtime.allocation.connector._ANSWER_SECONDS", 0.1)
    script = 'test "$2" = echo || exec sleep 600; shift; exec "$@"'
    connector = AllocationConnector("nodes", "/", None, launch(tmp_path / "launch", script), ["n1"])
    await connector.deploy(False)
    try:
        with pytest.raises(WorkflowExecutionException, match=r"no node of .*: node n1 of .* does not answer"):
            await asyncio.wait_for(connector.get_available_locations(), 60)
    finally:
        await connector.undeploy(False)


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


@pytest.mark.parametrize(
    ("printed", "nodes"),
    [
        ("a\n", (FoundNode("a", 0, 1),)),
        ("16*a:16*b\n", (FoundNode("a", 0, 16), FoundNode("b", 1, 16))),
        ("a:a:b", (FoundNode("a", 0, 2), FoundNode("b", 1, 1))),
    ],
)
def test_a_job_of_lsf_that_was_asked_for(printed: str, nodes: tuple[FoundNode, ...]) -> None:
    assert lsf_job(printed) == FoundAllocation(nodes)


@pytest.mark.parametrize("printed", ["", "-\n", "x*a"])
def test_a_job_of_lsf_without_hosts(printed: str) -> None:
    with pytest.raises(ManagerError):
        lsf_job(printed)


ASKED = {
    "slurm": "salloc --nodes=4 --time=T --partition=q --ntasks-per-node=1 --cpus-per-task=16 --no-kill "
    "--job-name=streamflow-io --x sh -c ",
    "PBS": "qsub -N streamflow-io -r n -j oe -o /dev/null -l select=4:ncpus=16 -l place=scatter -l walltime=T -q q --x "
    "-- /bin/sleep infinity",
    "LSF": "bsub -J streamflow-io -rn -o /dev/null -n 64 -R span[ptile=16] -W T -q q --x sleep infinity",
    "Flux": "flux batch --wrap --job-name=streamflow-io --output=/dev/null --nodes=4 --nslots=4 --cores-per-slot=16 "
    "--time-limit=T --queue=q --x sleep infinity",
}


@pytest.mark.parametrize("name", ASKED)
def test_the_words_that_ask(name: str) -> None:
    wanted = Wanted(4, "T", partition="q", options=("--x",), cores=16)
    asks = {"slurm": slurm.ask, **{manager.name: manager.asking.ask for manager in MANAGERS}}
    words = " ".join(asks[name](wanted))
    assert words.startswith(ASKED[name]) if name == "slurm" else words == ASKED[name]


def test_memory_is_asked_for_where_its_unit_is_known() -> None:
    pbs, lsf, flux = (manager.asking.ask for manager in MANAGERS)
    wanted = Wanted(2, "T", cores=1, memory=500)
    assert "--mem=500M" in slurm.ask(wanted)
    assert "select=2:ncpus=1:mem=500mb" in pbs(wanted)
    for ask in (lsf, flux):
        with pytest.raises(ManagerError, match="`memory`, which cannot be asked of"):
            ask(wanted)


def test_flux_gives_whole_nodes_and_the_others_need_a_number_of_cores() -> None:
    pbs, lsf, flux = (manager.asking.ask for manager in MANAGERS)
    assert "--exclusive" in flux(Wanted(2, "T"))
    for ask in (pbs, lsf):
        with pytest.raises(ManagerError, match="`submit` needs `cores`"):
            ask(Wanted(2, "T"))


@pytest.mark.parametrize(
    ("number", "printed", "state"),
    [
        (0, "Job Id: 7\n    job_state = Q\n", AllocationState.WAITS),
        (0, "Job Id: 7\n    job_state = R\n", AllocationState.RUNS),
        (0, "Job Id: 7\n    job_state = F\n", AllocationState.HAS_ENDED),
        (0, "    job_state = R\n    Variable_List = TEXT=The last Unknown Job has finished", AllocationState.RUNS),
        (0, "qstat -f 7: qstat: Unknown Job Id 7.server", AllocationState.HAS_ENDED),
        (0, "qstat -f 7: qstat: 7.server Job has finished, use -x or -H", AllocationState.HAS_ENDED),
        (0, "qstat -f 7: Connection refused", None),
        (1, "PEND\n", AllocationState.WAITS),
        (1, "RUN\n", AllocationState.RUNS),
        (1, "EXIT\n", AllocationState.HAS_ENDED),
        (1, "bjobs: Job <7> is not found", AllocationState.HAS_ENDED),
        (1, "bjobs: LSF is down. Please wait ...", None),
        (2, "SCHED\n", AllocationState.WAITS),
        (2, "RUN\n", AllocationState.RUNS),
        (2, "INACTIVE\n", AllocationState.HAS_ENDED),
        (2, "flux jobs f7: flux-jobs: ERROR: JobID f7 unknown", AllocationState.HAS_ENDED),
        (2, "flux jobs f7: flux-jobs: ERROR: Unable to connect to Flux", None),
    ],
)
def test_states(number: int, printed: str, state: AllocationState | None) -> None:
    assert MANAGERS[number].asking.read_state(printed) is state


def test_the_limit_of_lsf_is_in_minutes() -> None:
    seconds = MANAGERS[1].asking.seconds
    assert [seconds(limit) for limit in ("90", "1:30", "x")] == [5400, 5400, None]


#: A manager with its `submit`, and the call that gives back.
SUBMITS = {
    "pbs": ({"time": "01:00:00", "cores": 2}, "qdel 7.server"),
    "lsf": ({"time": "1:00", "cores": 2}, "bkill 7"),
    "flux": ({"time": "1h"}, "flux cancel f7"),
}


@pytest.fixture(params=SUBMITS)
def asking(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, request: pytest.FixtureRequest
) -> tuple[AllocationConnector, Path, str]:
    """A connector that asks a stand-in, which keeps its state in a directory; and the call that gives back."""
    manager = request.param
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    (state := tmp_path / "state").mkdir()
    write_stand_ins(manager, tmp_path, state, ["n1"], 'exec bash -c "$2"')
    fields, back = SUBMITS[manager]
    return AllocationConnector("nodes", "/", {"manager": manager, "nodes": 1, **fields}), state, back


async def test_an_allocation_is_asked_for_and_given_back(asking: tuple[AllocationConnector, Path, str]) -> None:
    connector, state, back = asking
    await connector.deploy(False)
    try:
        assert "n1 (2 cores" in connector.found
        assert connector.seconds_left is not None
        assert connector.seconds_left > 3500
        (found, *_) = (await connector.get_available_locations()).values()
        assert await connector.run(found.location, ["echo", "'a  b'"], capture_output=True) == ("a  b", 0)
    finally:
        await connector.undeploy(False)
    _, given_back = (state / "calls").read_text().splitlines()
    assert given_back == back
    assert not (state / "job").exists()


async def test_a_queue_manager_refuses(asking: tuple[AllocationConnector, Path, str]) -> None:
    connector, state, _ = asking
    (state / "refusal").write_text("no such queue")
    with pytest.raises(WorkflowExecutionException, match=r"gives no allocation to nodes: .*: no such queue"):
        await connector.deploy(False)


@pytest.mark.parametrize("asking", ["pbs"], indirect=True)
async def test_pbs_says_why_a_job_waits(
    asking: tuple[AllocationConnector, Path, str], caplog: pytest.LogCaptureFixture
) -> None:
    """Numbers in the reason change."""
    caplog.set_level("INFO", "streamflow")
    connector, state, _ = asking
    (state / "full").touch()
    (state / "comment").write_text("Not Running: Insufficient amount of resource: ncpus (R: 4 A: 0 T: 2)")
    deploying = asyncio.create_task(connector.deploy(False))
    still_waits = "still waits for allocation 7.server of PBS: Not Running: Insufficient"
    await until(lambda: still_waits in caplog.text)
    (state / "comment").write_text("Can Never Run: Not enough total nodes available")
    with pytest.raises(
        WorkflowExecutionException, match=r"7.server .* never start \(Can Never Run: Not .*\): change `nodes`"
    ):
        await asyncio.wait_for(deploying, 60)
    assert caplog.text.count("still waits") == 1
    await until(lambda: not (state / "job").exists())


async def test_a_job_that_is_removed_from_the_queue(asking: tuple[AllocationConnector, Path, str]) -> None:
    connector, state, _ = asking
    (state / "full").touch()
    deploying = asyncio.create_task(connector.deploy(False))
    await until(lambda: (state / "job").exists())
    (state / "job").unlink()
    with pytest.raises(WorkflowExecutionException, match=r"job f?7.*: (it has ended before it ran|its state)"):
        await deploying


async def test_a_run_that_ends_while_it_waits_leaves_no_job(asking: tuple[AllocationConnector, Path, str]) -> None:
    connector, state, back = asking
    (state / "full").touch()
    deploying = asyncio.create_task(connector.deploy(False))
    await until(lambda: (state / "job").exists())
    deploying.cancel()
    with pytest.raises(asyncio.CancelledError):
        await deploying
    await until(lambda: not (state / "job").exists())
    assert (state / "calls").read_text().splitlines()[-1] == back


async def test_the_end_of_an_allocation_ends_what_runs(asking: tuple[AllocationConnector, Path, str]) -> None:
    """SSH would go on."""
    connector, state, _ = asking
    await connector.deploy(False)
    try:
        (found, *_) = (await connector.get_available_locations()).values()
        processes = [
            await connector.start(found.location, ["sleep", seconds], DEVNULL, DEVNULL, DEVNULL)
            for seconds in ("0", "600")
        ]
        (state / "job").unlink()
        with pytest.raises(WorkflowExecutionException, match=r"allocation f?7.* has ended"):
            await connector.explain(found.location, processes[0])
        assert await processes[1].wait() != 0
        with pytest.raises(WorkflowExecutionException, match=r"allocation f?7.* has ended"):
            await connector.get_available_locations()
    finally:
        await connector.undeploy(False)


async def until(happens: Callable[[], bool]) -> None:
    await asyncio.to_thread(wait_for, happens, "an event", 60)


def gives_back_by(*cancel: str) -> Asking:
    """How an allocation is given back by a command; its state is never known."""
    return replace(MANAGERS[0].asking, cancel=cancel, state=("false",))


@pytest.mark.parametrize(
    ("lines", "gives_back"), [(b"", True), (b"alive\n", True), (b"alive\ndone\n", False), (b"done\n", False)]
)
async def test_a_guard_gives_back_what_nobody_needs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, lines: bytes, gives_back: bool
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    # What the guard has to read is there: the guard waits for nothing else.
    words = guard(gives_back_by("touch", f"{tmp_path}/given back"), "7", "guard", seconds=1 if gives_back else 600)
    process = await asyncio.create_subprocess_exec(*words, stdin=PIPE)
    assert process.stdin is not None
    process.stdin.write(lines)
    await asyncio.wait_for(process.wait(), 60)
    assert [file.name for file in tmp_path.iterdir()] == ["given back"] * gives_back


async def test_a_guard_that_can_write_nothing_gives_back(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "nowhere"))
    words = guard(gives_back_by("touch", f"{tmp_path}/given back"), "7", "guard", seconds=1)
    process = await asyncio.create_subprocess_exec(*words, stdin=DEVNULL)
    await asyncio.wait_for(process.wait(), 60)
    assert [file.name for file in tmp_path.iterdir()] == ["given back"]


async def test_a_guard_leaves_the_decision_to_the_next_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The other one has begun before the first one decides: a `sleep` that lasts until there is a file `decides`."""
    for name in ("programs", "node"):
        (tmp_path / name).mkdir()
    sleep, real = tmp_path / "programs" / "sleep", shutil.which("sleep")
    sleep.write_text(f"#!/bin/sh\ntouch {tmp_path}/waits\nuntil test -e {tmp_path}/decides; do {real} 0.01; done\n")
    sleep.chmod(0o755)
    monkeypatch.setenv("PATH", str(sleep.parent), prepend=":")
    monkeypatch.setenv("TMPDIR", str(tmp_path / "node"))
    words = guard(gives_back_by("touch", f"{tmp_path}/given back"), "7", "guard", seconds=600)
    first = await asyncio.create_subprocess_exec(*words, stdin=DEVNULL)
    await until((tmp_path / "waits").exists)
    (link := tmp_path / "node" / "guard").unlink()
    link.symlink_to("1")
    (tmp_path / "decides").touch()
    await asyncio.wait_for(first.wait(), 60)
    assert link.readlink() == Path("1")
    assert not (tmp_path / "given back").exists()


@pytest.mark.parametrize("guards", [1, 2])
async def test_a_guard_of_slurm_waits_for_its_answer(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, guards: int
) -> None:
    """Slurm answers when asked for the second time. With a second guard, the driver lives."""
    names = f"{slurm.GUARD}\\n" * guards
    answers = {"squeue": f"printf 'sleep\\n{names}'", "scancel": f'echo "$@" >> {tmp_path}/given-back', "sleep": ""}
    for name, answer in answers.items():
        fails = name == "squeue" or (name == "scancel" and guards == 1)
        first = f"test -e {tmp_path}/{name}.asked || {{ touch {tmp_path}/{name}.asked; exit 1; }}\n" if fails else ""
        (tmp_path / name).write_text(f"#!/bin/sh\n{first}{answer}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    process = await asyncio.create_subprocess_exec("sh", "-c", slurm.guard("7"), stdin=DEVNULL)
    await asyncio.wait_for(process.wait(), 60)
    given_back = tmp_path / "given-back"
    assert (given_back.read_text() if given_back.exists() else None) == ("7\n" if guards == 1 else None)


FAILS_ONCE = """#!/bin/sh
echo "$@" >> {directory}/asked
test $(wc -l < {directory}/asked) -gt 1
"""


@pytest.mark.parametrize("ended", [False, True])
@pytest.mark.parametrize("who", ["guard", "holder"])
async def test_an_allocation_is_given_back_again_when_that_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, who: str, ended: bool
) -> None:
    """The queue manager does not take back the job when asked first. An allocation that has ended is left."""
    programs = {"sleep": "#!/bin/sh\n", "cancel": FAILS_ONCE.format(directory=tmp_path)}
    for name, text in programs.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    state = ("echo", "qstat: Unknown Job Id {job}") if ended else ("false",)
    asking = replace(gives_back_by(f"{tmp_path}/cancel", "{job}"), ask=lambda _: ["echo", "7"], state=state)
    words = guard(asking, "7", "guard", seconds=1)
    if who == "holder":
        words = holder(replace(MANAGERS[0], asking=asking), Wanted(1, "1"))
    process = await asyncio.create_subprocess_exec(*words, stdin=DEVNULL, stdout=DEVNULL)
    await asyncio.wait_for(process.wait(), 60)
    assert (tmp_path / "asked").read_text() == ("7\n" if ended else "7\n7\n")
