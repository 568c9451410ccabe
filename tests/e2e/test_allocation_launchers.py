"""Allocations of other queue managers: the nodes are SSH hosts, and stand-ins for the commands name them.

SSH is real. `blaunch` and `flux exec` are stand-ins, which start programs by SSH.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from lab.cwl import Document, found, tool, workflow
from lab.machines.hosts import ADDRESSES
from lab.node import wait_for
from lab.processes import of_processes
from lab.queue_managers import write_stand_ins
from lab.runs import RETRY, wait_for_note
from lab.sites import Site
from tests.e2e.test_allocation import cores
from tests.e2e.test_allocation_local import BY_DRIVER
from tests.e2e.test_streaming import check_nothing_fell_back, left_on_hosts

ONE, OTHER = ADDRESSES
FLUX = {
    "version": 1,
    "execution": {"R_lite": [{"rank": "0-1", "children": {"core": "0-1"}}], "nodelist": [ONE, OTHER], "expiration": 0},
}
#: By the variable of a queue manager: its stand-ins. `$ssh` is the SSH of the laboratory.
MANAGERS = {
    "PBS_JOBID": {
        "qstat": f"echo 'Job Id: 7'; echo '    exec_host = {ONE}/0*2+{OTHER}/0*2'",
        "ssh": 'exec $ssh "$3" "$4"',
    },
    "LSB_JOBID": {"blaunch": 'host=$1; shift; exec $ssh "$host" "$*"'},
    "FLUX_URI": {
        "flux": f"if test $1 = resource; then echo '{json.dumps(FLUX)}'; exit; fi\n"
        f"test $2 = --rank=0 && host={ONE} || host={OTHER}; shift 3\n"
        "for word; do words=\"$words '$(printf %s \"$word\" | sed \"s/'/'\\\\\\\\''/g\")'\"; done\n"
        'exec $ssh "$host" "$words"'
    },
}


#: By a queue manager: what `submit` says more than the number of nodes.
SUBMITS: dict[str, Document] = {
    "pbs": {"time": "01:00:00", "cores": 2},
    "lsf": {"time": "1:00", "cores": 2},
    "flux": {"time": "1h"},
}


def ssh_words(hosts: Site) -> str:
    """The SSH of the laboratory, in words of a shell."""
    options = ["BatchMode=yes", "StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "LogLevel=ERROR"]
    words = ["/usr/bin/ssh", "-i", str(hosts.laboratory.directory / "key"), "-l", "root"]
    return shlex.join([*words, *(word for option in options for word in ("-o", option))])


@pytest.fixture(params=["pbs", *(pytest.param(name, marks=pytest.mark.long) for name in SUBMITS if name != "pbs")])
def login_node(hosts: Site, tmp_path: Path, request: pytest.FixtureRequest) -> Site:
    """A login node: the run asks for the hosts."""
    (programs := tmp_path / "programs").mkdir()
    (tmp_path / "state").mkdir()
    write_stand_ins(request.param, programs, tmp_path / "state", ADDRESSES, f'exec {ssh_words(hosts)} "$1" "$2"')
    submit = {"manager": request.param, "nodes": 2, **SUBMITS[request.param]}
    deployment = {"type": "sfio.allocation", "config": {"submit": submit}, "workdir": "/scratch"}
    return replace(hosts, name="hpc", deployment=deployment, environment={"PATH": f"{programs}:{os.environ['PATH']}"})


@pytest.fixture(
    params=[None, *(pytest.param(name, marks=[] if name == "PBS_JOBID" else pytest.mark.long) for name in MANAGERS)],
    ids=["list", "pbs", "lsf", "flux"],
)
def nodes(hosts: Site, tmp_path: Path, request: pytest.FixtureRequest) -> Site:
    """The hosts as an allocation of a queue manager, or of none."""
    ssh = ssh_words(hosts)
    deployment = {"type": "sfio.allocation", "config": {}, "workdir": "/scratch"}
    if request.param is None:
        config = {"nodes": list(ADDRESSES), "launcher": f"{ssh} {{node}}"}
        return replace(hosts, name="hpc", deployment={**deployment, "config": config})
    (programs := tmp_path / "programs").mkdir()
    for name, script in MANAGERS[request.param].items():
        (programs / name).write_text(f"#!/bin/sh\nssh='{ssh}'\n{script}\n")
        (programs / name).chmod(0o755)
    environment = {
        "PATH": f"{programs}:{os.environ['PATH']}", request.param: "7", "LSB_MCPU_HOSTS": f"{ONE} 2 {OTHER} 2"
    }  # fmt: skip
    return replace(hosts, name="hpc", deployment=deployment, environment=environment)


def chain_over_both() -> Document:
    """A job that takes all cores of a node, and two that read its file there and on the other node at the same time."""
    both = (
        'note began; i=0; until [ $(grep -c began "$TRACE") -ge 2 ] || [ $i = 300 ]; do i=$((i+1)); sleep 0.1; done; '
    )
    first = tool("seq 1 1000 > out.txt", {}, {"out": found("out.txt")}, requirements=cores(2))
    each = tool(
        f'{both}note "$(hostname)"; wc < "$file" > out$number.txt',
        {"file": "File", "number": "int"},
        {"out": found("out*.txt")},
        requirements=cores(2),
    )
    sources = {"file": "a/out", "number": "numbers"}
    steps = {"a": {"run": first, "in": {}}, "b": {"run": each, "in": sources, "scatter": "number"}}
    return workflow({"numbers": "int[]"}, steps, {"out": "b/out"})


def test_jobs_run_on_all_nodes(nodes: Site) -> None:
    """Files go from node to node by a link, and nothing is left."""
    check_jobs_on_both(nodes)


def check_jobs_on_both(site: Site) -> None:
    ours = site.run(chain_over_both(), {"numbers": [1, 2]}, seconds=120)
    assert ours.ok, ours.errors
    assert {"host1", "host2"} <= {what for _, what in ours.trace}
    assert {content.split()[0] for content in ours.files.values()} == {b"1000"}
    assert BY_DRIVER not in ours.log
    check_nothing_fell_back(ours.log)
    assert left(site) == []


def left(site: Site) -> list[str]:
    """Return all that is left on the nodes, and the job of a stand-in that is still there."""
    job = site.directory / "state" / "job"
    return [*left_on_hosts(replace(site, deployment={"type": "ssh"})), *([str(job)] if job.exists() else [])]


def test_an_allocation_is_asked_for_and_given_back(login_node: Site) -> None:
    check_jobs_on_both(login_node)
    assert len((login_node.directory / "state" / "calls").read_text().splitlines()) == 2


def both_wait() -> Document:
    """A job on each node, for ten minutes."""
    each = tool("note runs; sleep 600", {"number": "int"}, {}, requirements=cores(2))
    return workflow({"numbers": "int[]"}, {"a": {"run": each, "in": {"number": "numbers"}, "scatter": "number"}}, {})


@pytest.mark.parametrize("login_node", ["pbs", pytest.param("flux", marks=pytest.mark.long)], indirect=True)
@pytest.mark.parametrize("pending", [True, False], ids=["pending", "running"])
def test_an_allocation_is_given_back_when_the_run_is_ended(login_node: Site, pending: bool) -> None:
    """Jobs run on both nodes."""
    if pending:
        (login_node.directory / "state" / "full").touch()
    path = login_node.write(both_wait(), {"numbers": [1, 2]}, io=True)
    process = login_node.start(path)
    said, trace = path.parent / "stderr", path.parent / "trace"
    if pending:
        wait_for(lambda: "waits in the queue of" in said.read_text(), "a run that waits", 60)
    else:
        wait_for_note(trace, "runs", 2)
    os.kill(process.pid, signal.SIGKILL)
    process.wait(60)
    wait_for(lambda: left(login_node) == [], "nothing that is left", 30)


def above(pid: int, parents: Mapping[int, int]) -> set[int]:
    """The processes that are above a process, by the parent of each."""
    found: set[int] = set()
    while (pid := parents.get(pid, 0)) and pid not in found:
        found.add(pid)
    return found


@pytest.mark.parametrize("nodes", ["PBS_JOBID"], ids=["pbs"], indirect=True)
def test_a_job_that_fitted_only_a_lost_node_does_not_wait(nodes: Site) -> None:
    """The first node has two cores, and the other one has one. A failure manager tries the job again."""
    qstat = nodes.directory / "programs" / "qstat"
    qstat.write_text(qstat.read_text().replace(f"{OTHER}/0*2", f"{OTHER}/0*1"))
    large = tool("note large; sleep 600", {}, {}, requirements=cores(2))
    path = nodes.write(workflow({}, {"a": {"run": large, "in": {}}}, {}), {}, io=True, **RETRY)
    process = nodes.start(path)
    wait_for_note(path, "large")
    parents = {pid: int(stat.rsplit(b")", 1)[1].split()[1]) for pid, (stat,) in of_processes("stat")}
    for pid, (command,) in of_processes("cmdline"):
        is_launched = command.startswith(b"/usr/bin/ssh") and ONE.encode() in command and b"serve" not in command
        # Other tests have hosts of the same addresses.
        if is_launched and process.pid in above(pid, parents):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    ours = nodes.finish(process, path)
    assert ours.code == 1
    assert len(ours.times("large")) == 1
    assert re.search(
        rf"Job /a/0 cannot start: it asks for 2 cores and 16 MiB of memory, and there are 1 core and .* on {OTHER} "
        rf"\(hpc\), because ssh to node {ONE} of allocation 7 of PBS was ended by signal 9",
        ours.log,
    )
