"""Workflows in an allocation of a real Slurm: all that SSH hosts can do, on nodes that Slurm has given."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lab.cwl import Document, found, streamable, streaming, tool, workflow
from lab.machines.laboratory import Laboratory
from lab.machines.slurm import has_cgroups
from lab.node import wait_for
from lab.runs import RETRY, STREAMFLOW, Run, wait_for_note
from lab.sites import Site, allocation_site
from tests.e2e.test_streaming import check_gone, check_nothing_fell_back

NODE = 'note "$SLURMD_NODENAME"; '


def cores(number: float) -> list[Document]:
    return [{"class": "ResourceRequirement", "coresMin": number, "ramMin": 16}]


def three_streams(said: str = "read") -> Document:
    """A chain of four jobs with three byte streams. The first writes its second half when the last has read.

    The first job takes all cores of a node.

    :param said: the word of the last job; the first one waits half a minute for the word `read`
    """
    wait = 'i=0; until [ -e "$TRACE.read" ] || [ $i = 300 ]; do i=$((i+1)); sleep 0.1; done; '
    streams = [streaming({"port": "out", "mode": "no_update"})]
    first = tool(
        f"{NODE}exec > out.txt; seq 1 20000; {wait}seq 1 20000; note written",
        {},
        {"out": found("out.txt")},
        streams,
        requirements=cores(2),
    )
    middle = tool(
        f"{NODE}tee count.txt < $file > out.txt",
        {"file": streamable()},
        {"out": found("out.txt")},
        streams,
        requirements=cores(1),
    )
    last = tool(
        NODE + '{ read line; note begun; touch "$TRACE.' + said + '"; echo $line; cat; } < $file > out.txt; note all',
        {"file": streamable()},
        {"out": found("out.txt")},
        requirements=cores(0),
    )
    steps = {
        "a": {"run": first, "in": {}},
        "b": {"run": middle, "in": {"file": "a/out"}},
        "c": {"run": middle, "in": {"file": "b/out"}},
        "d": {"run": last, "in": {"file": "c/out"}},
    }
    return workflow({}, steps, {"out": "d/out"})


def nodes_of(run: Run) -> set[str]:
    """The nodes that the jobs of a run have noted. Slurm may give any two of the nodes of the laboratory."""
    return {what for _, what in run.trace if re.fullmatch(r"n\d", what)}


def test_nothing_is_left_of_a_run_that_is_ended(allocation: Site) -> None:
    for how in (signal.SIGINT, signal.SIGKILL):
        path = allocation.write(three_streams("nothing"), {}, io=True)
        process = allocation.start(path)
        wait_for_note(path, " n", 4)
        os.kill(process.pid, how)
        process.wait(60)
        check_gone(allocation)
        wait_for(lambda: not allocation.control("squeue", "-h", "-s").split(), f"no step after {how}", 60)


@pytest.fixture
def submitting(slurm: Site) -> Iterator[Site]:
    """The login node: the run asks for an allocation of two nodes."""
    submit = {"manager": "slurm", "nodes": 2, "time": "10", "partition": "all", "options": ["--exclusive"]}
    deployment = {"type": "sfio.allocation", "config": {"submit": submit}, "workdir": slurm.deployment["workdir"]}
    yield replace(slurm, deployment=deployment)
    slurm.cancel_jobs()
    wait_for(lambda: not slurm.queue(), "empty queue")


def test_an_allocation_is_asked_for_and_given_back(submitting: Site) -> None:
    """The allocation waits until another job has ended. Then bytes stream from node to node."""
    told = submitting.control("sbatch", "--parsable", "-N4", "--exclusive", "-o", "/dev/null", "--wrap", "sleep 600")
    path = submitting.write(three_streams(), {}, io=True, config={"oversubscribe": "never"})
    process = submitting.start(path)
    waits = "waits in the queue of Slurm for allocation"
    wait_for(lambda: waits in (path.parent / "stderr").read_text(), "a run that waits", 30)
    wait_for(lambda: [*submitting.data.glob("**/telemetry.jsonl")], "telemetry", 30)
    wait_for(lambda: submitting.records("queued"), "the reason in the telemetry", 30)
    assert submitting.streamflow_io("watch")["queued"]["hpc"].startswith("allocation ")
    submitting.control("scancel", told.strip())
    ours = submitting.finish(process, path)
    assert ours.ok, ours.errors
    assert ours.log.count(waits) == 1
    assert ours.time("begun") < ours.time("written") < ours.time("all")
    assert len(nodes_of(ours)) == 2
    assert ours.files["out.txt"].decode() == "".join(f"{number}\n" for number in range(1, 20001)) * 2
    check_nothing_fell_back(ours.log)
    assert submitting.queue() == []
    check_gone(submitting)


def test_an_allocation_that_never_starts_ends_the_run(submitting: Site) -> None:
    """The laboratory has four nodes."""
    submitting.deployment["config"]["submit"]["nodes"] = 9
    ours = submitting.run(workflow({}, {"a": {"run": tool("note ran", {}, {}), "in": {}}}, {}), **RETRY)
    assert ours.code == 1
    never = (
        r"Slurm gives no allocation to hpc: allocation \d+ of Slurm can never start \(PartitionConfig\): change `nodes`"
    )
    _, end = re.findall(rf".*{never}.*", ours.log)
    assert "FAILED Workflow execution" in end
    assert "Traceback" not in ours.log
    assert submitting.queue() == []


@pytest.mark.parametrize("how", [pytest.param(signal.SIGINT, marks=pytest.mark.long), signal.SIGKILL])
@pytest.mark.parametrize("pending", [True, False], ids=["pending", "running"])
def test_an_allocation_is_given_back_when_the_run_is_ended(
    submitting: Site, how: signal.Signals, pending: bool
) -> None:
    if pending:
        submitting.control("sbatch", "-N4", "--exclusive", "-o", "/dev/null", "--wrap", "sleep 600")
    path = submitting.write(three_streams(), {}, io=True)
    process = submitting.start(path)
    said = "for allocation" if pending else "COMPLETED deployment"
    wait_for(lambda: said in (path.parent / "stderr").read_text(), said, 30)
    others = submitting.queue()[:-1]
    os.kill(process.pid, how)
    process.wait(60)
    # Slurm takes 36 s for a step whose `srun` has ended while the step was launched.
    wait_for(lambda: submitting.queue() == others, "the allocation is given back", 60)
    check_gone(submitting)


@pytest.mark.long
@pytest.mark.timeout(240)
def test_the_guard_gives_the_allocation_back_when_the_login_node_is_lost(submitting: Site) -> None:
    """All programs of the login node stop. No connection ends, as when a machine is switched off."""
    document = workflow({}, {"a": {"run": tool(f"{NODE}sleep 600", {}, {}), "in": {}}}, {})
    path = submitting.write(document, {}, io=True)
    process = submitting.start(path)
    wait_for_note(path, " n")
    guards = ("squeue", "-h", "-s", "-o", "%j")
    wait_for(lambda: "sfio-guard" in submitting.control(*guards), "a guard", 30)
    lost = [process.pid, *launchers(submitting)]
    try:
        for pid in lost:
            os.kill(pid, signal.SIGSTOP)
        # Slurm waits for the `srun` that have stopped before the allocation leaves the queue.
        running = ("squeue", "-h", "-t", "RUNNING", "-o", "%i")
        wait_for(lambda: submitting.control(*running).split() == [], "the allocation is given back", 120)
    finally:
        for pid in lost:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait(60)
    wait_for(lambda: submitting.queue() == [], "the nodes are free", 100)
    check_gone(submitting)


def launchers(site: Site) -> list[int]:
    """The processes of `salloc` and `srun` of a driver."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (process / "cmdline").read_bytes().split(b"\0")
            is_ours = f"SLURM_CONF={site.environment['SLURM_CONF']}".encode() in (process / "environ").read_bytes()
            if is_ours and words[0] in (b"salloc", b"srun"):
                found.append(int(process.name))
    return found


def kill_launchers(site: Site, node: str) -> None:
    """Kill all `srun` of the driver to a node."""
    for pid in launchers(site):
        with contextlib.suppress(OSError):
            if f"--nodelist={node}".encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                os.kill(pid, signal.SIGKILL)


def processes_on(site: Site, node: str, word: bytes | None = None) -> list[int]:
    """The processes that Slurm has started on a node.

    :param word: of their command lines; None: any
    """
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words, variables = ((process / name).read_bytes().split(b"\0") for name in ("cmdline", "environ"))
            is_ours = f"SLURM_CONF={site.environment['SLURM_CONF']}".encode() in variables
            if is_ours and f"SLURMD_NODENAME={node}".encode() in variables and (word is None or word in words):
                found.append(int(process.name))
    return found


def kill_serve(site: Site, node: str) -> None:
    """Kill the node runtime of a node."""
    for pid in processes_on(site, node, b"serve"):
        os.kill(pid, signal.SIGKILL)


def end_serve(site: Site, node: str) -> None:
    """End the node runtime of a node by the signal that it handles."""
    for pid in processes_on(site, node, b"serve"):
        os.kill(pid, signal.SIGTERM)


def lose_node(site: Site, node: str) -> None:
    site.control("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=test")


def resume(site: Site, node: str) -> None:
    """Let Slurm use a lost node again, which may have come back by itself."""
    with contextlib.suppress(subprocess.CalledProcessError):
        site.control("scontrol", "update", f"NodeName={node}", "State=RESUME")


LOSSES = {
    "srun": (kill_launchers, "srun to node {} of allocation {} of Slurm was ended by signal 9"),
    "serve": (kill_serve, "the program on node {} of allocation {} of Slurm was ended by signal 9"),
    "ended": (end_serve, "sfio-node serve has ended at hpc/{}"),
    "node": (lose_node, "node {} has failed: it is no longer in allocation {} of Slurm"),
}


WAIT = 'until [ -e "$TRACE.go" ]; do sleep 0.1; done; '


def run_with_a_loss(site: Site, document: Document, lost: str, what: str, again: str, **config: str) -> Run:
    """Run a workflow whose jobs note their names and nodes, and wait for :data:`WAIT`. A failure manager tries again.

    :param lost: the job whose node is lost when all jobs run. The node gets no more jobs
    :param again: the job that has to begin once more before the wait has an end; empty: none
    """
    lose, cause = LOSSES[what]
    path = site.write(document, {}, io=True, config=config, **RETRY)
    process = site.start(path)
    trace = path.parent / "trace"
    for name in document["steps"]:
        wait_for_note(trace, f" {name} n")
    node = dict(re.findall(r" ([abc]) (n\d)", trace.read_text()))[lost]
    try:
        lose(site, node)
        if again:
            wait_for_note(trace, f" {again} n", 2)
        Path(f"{os.path.realpath(trace)}.go").touch()
        ours = site.finish(process, path)
    finally:
        if what == "node":
            resume(site, node)
    assert ours.ok, ours.errors
    why = cause.format(node, site.environment["SLURM_JOB_ID"])
    assert f"No more jobs start at hpc/{node}: {why}" in ours.log
    assert what == "ended" or f"the connection to hpc/{node} is lost: {why}" in ours.log
    if what != "node":  # A node that dies may leave files.
        check_gone(site)
    return ours


def places(run: Run, name: str) -> list[str]:
    """The nodes of the attempts of a job."""
    return [what.split()[1] for _, what in run.trace if what.startswith(f"{name} ")]


@pytest.mark.parametrize("what", ["serve", "node"])
def test_a_job_whose_node_is_lost_runs_again_elsewhere(allocation: Site, what: str) -> None:
    script = f'note "a $SLURMD_NODENAME"; {WAIT}echo done > out.txt'
    document = workflow({}, {"a": {"run": tool(script, {}, {"out": found("out.txt")}), "in": {}}}, {"out": "a/out"})
    assert len(set(places(run_with_a_loss(allocation, document, "a", what, "a"), "a"))) == 2


def test_the_loss_of_all_nodes_ends_the_run(allocation: Site) -> None:
    """The failure manager would try the jobs again without end."""
    each = tool('note "a $SLURMD_NODENAME"; sleep 600', {"number": "int"}, {}, requirements=cores(2))
    steps = {"a": {"run": each, "in": {"number": "numbers"}, "scatter": "number"}}
    without_end = {"failureManager": {"type": "default", "config": {"retry_delay": 0}}}
    path = allocation.write(workflow({"numbers": "int[]"}, steps, {}), {"numbers": [1, 2]}, io=True, **without_end)
    process = allocation.start(path)
    wait_for_note(path, " a n", 2)
    nodes = re.findall(r" a (n\d)", (path.parent / "trace").read_text())
    for node in nodes:
        kill_serve(allocation, node)
    ours = allocation.finish(process, path)
    assert ours.code == 1
    first, second = (LOSSES["serve"][1].format(node, allocation.environment["SLURM_JOB_ID"]) for node in nodes)
    told, end = (line for line in ours.log.splitlines() if "cannot start: no node of allocation" in line)
    assert "FAILED Workflow execution" in end
    assert first in told
    assert second in told
    check_gone(allocation)


def waiting_streams() -> Document:
    """A chain of three jobs with two byte streams. The first writes its second half when the note `go` is there."""
    streams = [streaming({"port": "out", "mode": "no_update"})]
    writes = f'note "a $SLURMD_NODENAME"; exec > out.txt; seq 1 20000; {WAIT}seq 1 20000'
    first = tool(writes, {}, {"out": found("out.txt")}, streams, requirements=cores(2))

    def reader(name: str, hints: list[Document]) -> Document:
        script = f'{{ read -r line; note "{name} $SLURMD_NODENAME"; echo "$line"; cat; }} < $file > out.txt'
        return tool(script, {"file": streamable()}, {"out": found("out.txt")}, hints, requirements=cores(1))

    steps = {
        "a": {"run": first, "in": {}},
        "b": {"run": reader("b", streams), "in": {"file": "a/out"}},
        "c": {"run": reader("c", []), "in": {"file": "b/out"}},
    }
    return workflow({}, steps, {"out": "c/out"})


def check_streams_with_a_loss(site: Site, lost: str, what: str, oversubscribe: str) -> None:
    """Run :func:`waiting_streams`: the writer takes a whole node, and its readers have the other."""
    again = lost if lost == "a" or oversubscribe == "idle" else ""
    ours = run_with_a_loss(site, waiting_streams(), lost, what, again, oversubscribe=oversubscribe)
    of_a, of_b, of_c = (places(ours, name) for name in "abc")
    assert of_a[0] != of_b[0] == of_c[0]
    assert {"a": of_a, "b": of_b}[lost] == ([of_a[0], of_b[0]] if lost == "a" else [of_b[0], of_a[0]])
    assert ours.files["out.txt"].decode() == "".join(f"{number}\n" for number in range(1, 20001)) * 2


@pytest.mark.parametrize(
    ("lost", "what", "oversubscribe"),
    [
        ("a", "srun", "idle"),
        ("b", "node", "idle"),
        ("b", "ended", "idle"),
        ("a", "serve", "never"),
        ("b", "serve", "never"),
    ],
)
def test_jobs_that_stream_run_again_elsewhere(allocation: Site, lost: str, what: str, oversubscribe: str) -> None:
    """With `never`, the readers get cores of the other node when the writer has ended."""
    check_streams_with_a_loss(allocation, lost, what, oversubscribe)


def test_a_reader_that_waits_for_the_file_lets_its_writer_move(allocation: Site) -> None:
    """The reader fails with the stream, and holds a core of the node that is left: the writer needs both cores."""
    writes = f'note "a $SLURMD_NODENAME"; exec > out.txt; seq 1 20000; {WAIT}seq 1 20000'
    reads = 'note "b $SLURMD_NODENAME"; head -n 1 $file > first.txt; cat $file > out.txt'
    streams = [streaming({"port": "out", "mode": "no_update"})]
    steps = {
        "a": {"run": tool(writes, {}, {"out": found("out.txt")}, streams, requirements=cores(2)), "in": {}},
        "b": {
            "run": tool(reads, {"file": streamable()}, {"out": found("out.txt")}, requirements=cores(1)),
            "in": {"file": "a/out"},
        },
    }
    path = allocation.write(
        workflow({}, steps, {"out": "b/out"}), {}, io=True, config={"oversubscribe": "never"}, **RETRY
    )
    process = allocation.start(path)
    trace, log = path.parent / "trace", path.parent / "stderr"
    wait_for(lambda: "Job /b/0 has failed with a stream" in log.read_text(), "a reader that needs the file", 60)
    nodes = dict(re.findall(r" ([ab]) (n\d)", trace.read_text()))
    kill_serve(allocation, nodes["a"])
    wait_for_note(trace, f" a {nodes['b']}")
    Path(f"{os.path.realpath(trace)}.go").touch()
    ours = allocation.finish(process, path)
    assert ours.ok, ours.errors
    assert ours.files["out.txt"].decode() == "".join(f"{number}\n" for number in range(1, 20001)) * 2
    check_gone(allocation)


def test_the_reader_of_a_window_runs_again_elsewhere(allocation: Site) -> None:
    """The writer holds all cores of the node that is left, and waits for its reader, which needs the window again."""
    streams = [streaming({"port": "out", "mode": "no_update", "window": "16MB"})]
    writes = f'note "a $SLURMD_NODENAME"; exec > out.txt; seq 1 3000000; {WAIT}seq 3000001 3100000'
    reads = f'{{ head -c 20000000; note "b $SLURMD_NODENAME"; {WAIT}cat; }} < $file > out.txt'
    steps = {
        "a": {"run": tool(writes, {}, {"out": found("out.txt")}, streams, requirements=cores(2)), "in": {}},
        "b": {
            "run": tool(reads, {"file": streamable()}, {"out": found("out.txt")}, requirements=cores(1)),
            "in": {"file": "a/out"},
        },
    }
    config = {"oversubscribe": "never", "intermediates": "window"}
    ours = run_with_a_loss(allocation, workflow({}, steps, {"out": "b/out"}), "b", "serve", "a", **config)
    assert len(set(places(ours, "a"))) == 1
    assert ours.files["out.txt"].decode() == "".join(f"{number}\n" for number in range(1, 3100001))


def test_a_job_that_takes_too_much_memory_fails_alone(slurm_laboratory: Laboratory, tmp_path: Path) -> None:
    """The memory of all jobs at a node is limited, and that of the node runtime with it. The node gets more jobs."""
    if not has_cgroups():
        pytest.skip("Slurm limits memory by cgroups, which are missing")
    eats = "head -c 1000000000 /dev/zero | tail > /dev/null || exit 1"
    script = f'{NODE}[ $(wc -l < "$TRACE") = 2 ] || {{ {eats}; }}; echo done > out.txt'
    with allocation_site(slurm_laboratory, tmp_path, nodes=1, options=["--mem=300"]) as allocation:
        small = [{"class": "ResourceRequirement", "ramMin": 100}]
        eater = tool(script, {}, {"out": found("out.txt")}, requirements=small)
        document = workflow({}, {"a": {"run": eater, "in": {}}}, {"out": "a/out"})
        path = allocation.write(document, {}, io=True, **RETRY)
        ours = allocation.finish(allocation.start(path), path)
        assert ours.ok, ours.errors
        assert len(ours.trace) == 2, "the first attempt was killed"
        assert "No more jobs start at" not in ours.log
        check_gone(allocation)


def test_the_end_of_the_allocation_is_named(allocation: Site) -> None:
    path = allocation.write(three_streams("nothing"), {}, io=True, **RETRY)
    process = allocation.start(path)
    wait_for_note(path, " n", 4)
    job = allocation.environment["SLURM_JOB_ID"]
    allocation.control("scancel", job)
    ours = allocation.finish(process, path)
    assert ours.code == 1
    assert f"allocation {job} of Slurm has ended: CANCELLED" in ours.log
    assert ours.log.count("No more jobs start at") == 1
    assert "could not be removed" not in ours.log
    check_gone(allocation)


def test_a_job_that_takes_longer_than_the_allocation_does_not_start(allocation: Site) -> None:
    limited = tool("note ran", {}, {}, requirements=[{"class": "ToolTimeLimit", "timelimit": 7200}])
    ours = allocation.run(workflow({}, {"a": {"run": limited, "in": {}}}, {}))
    assert ours.code == 1
    assert ours.times("ran") == []
    assert re.search(
        r"Job /a/0 cannot start: it has a ToolTimeLimit of 7200 s, and the allocation of hpc ends in 3\d\d\d s",
        ours.log,
    )


def run_in_batch_job(site: Site, path: Path) -> str:
    """Run a StreamFlow file in a batch job with two nodes; return its log.

    The options of the batch script do not hinder the steps: Slurm refuses some of them together.
    """
    run = [str(STREAMFLOW), "run", str(path), "--outdir", str(path.parent / "out")]
    (script := path.parent / "run.sh").write_text(
        "#!/bin/sh\n#SBATCH --nodes=2 --ntasks-per-node=2 --cpus-per-task=1 --mem-per-cpu=100 --exclusive\n"
        f"#SBATCH --chdir={path.parent} --output={path.parent}/stderr\n"
        f"export TMPDIR={path.parent}/tmp XDG_DATA_HOME={site.data}\nexec {shlex.join(run)}\n"
    )
    site.control("sbatch", "--parsable", str(script))
    wait_for(lambda: not site.queue(), "the end of the batch job", 90)
    log = (path.parent / "stderr").read_text()
    assert "COMPLETED workflow execution" in log, log
    return log
