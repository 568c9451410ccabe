"""Work directories that each node of an allocation has for itself: files go from node to node by links."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from lab.cwl import Document, found, streamable, streaming, tool, workflow
from lab.machines.slurm import MEMORY
from lab.node import wait_for
from lab.processes import of_processes
from lab.runs import RETRY, Run, wait_for_note
from lab.sites import Site
from tests.e2e.test_allocation import (
    NODE,
    WAIT,
    check_streams_with_a_loss,
    cores,
    kill_serve,
    lose_node,
    nodes_of,
    places,
    processes_on,
    resume,
    run_in_batch_job,
    three_streams,
)
from tests.e2e.test_streaming import check_gone, check_nothing_fell_back

# A job that takes all cores of a node, and waits for the other job of its step: they run on different nodes.
BOTH = 'note began; i=0; until [ $(grep -c began "$TRACE") -ge 2 ] || [ $i = 300 ]; do i=$((i+1)); sleep 0.1; done; '
BY_DRIVER = "Files go through the driver between nodes of hpc"


@pytest.fixture
def local(allocation: Site) -> Site:
    """Two nodes that share no work directory, with each other or with the driver."""
    workdir = allocation.laboratory.directory / "local" / allocation.directory.name
    return replace(allocation, deployment={**allocation.deployment, "workdir": str(workdir)})


def check_own(site: Site) -> None:
    """Check that the driver, and with it the shared file system, has nothing of the work directory."""
    assert not os.listdir(site.laboratory.directory / "local")


def files_for_both_nodes() -> Document:
    """A job writes a program, and a directory in which a link is. Two jobs of different nodes read them."""
    first = tool(
        f"{NODE}mkdir 'd'; seq 1 300000 > d/large.txt; mkdir d/e; ln -s ../large.txt d/e/link; "
        "printf '#!/bin/sh\\necho run\\n' > run.sh; chmod +x run.sh",
        {},
        {"directory": found("d", "Directory"), "program": found("run.sh")},
        requirements=cores(2),
    )
    each = tool(
        f'{NODE}{BOTH}"$program" > out$number.txt; (cd "$directory"; find -L . -type f | sort; cat e/link) | cksum >> '
        "out$number.txt",
        {"directory": "Directory", "program": "File", "number": "int"},
        {"out": found("out*.txt")},
        requirements=cores(2),
    )
    sources = {"directory": "a/directory", "program": "a/program", "number": "numbers"}
    steps = {"a": {"run": first, "in": {}}, "b": {"run": each, "in": sources, "scatter": "number"}}
    outputs = {"out": "b/out", "directory": "a/directory", "program": "a/program"}
    return workflow({"numbers": "int[]"}, steps, outputs)


def test_files_go_from_node_to_node(local: Site) -> None:
    """The results are those of StreamFlow without the plugin's scheduler, where files go through the driver."""
    plain, ours = local.run_both(files_for_both_nodes(), {"numbers": [1, 2]}, seconds=120)
    assert len(nodes_of(ours)) == 2
    assert BY_DRIVER in plain.log
    assert BY_DRIVER not in ours.log
    check_nothing_fell_back(ours.log)
    check_gone(local)
    check_own(local)


def test_the_driver_is_on_one_of_the_nodes(slurm: Site) -> None:
    """The driver shares the work directory with one node, and not with the other."""
    workdir = slurm.laboratory.directory / "local" / slurm.directory.name
    site = replace(slurm, deployment={"type": "sfio.allocation", "config": {}, "workdir": str(workdir)})
    path = site.write(files_for_both_nodes(), {"numbers": [1, 2]}, io=True)
    log = run_in_batch_job(site, path)
    assert BY_DRIVER not in log
    check_nothing_fell_back(log)
    results = {file.name: file.read_text() for file in (path.parent / "out").glob("out*.txt")}
    large = "".join(f"{number}\n" for number in range(1, 300001))
    expected = subprocess.run(["cksum"], input=f"./e/link\n./large.txt\n{large}", capture_output=True, text=True)
    assert results == {f"out{number}.txt": f"run\n{expected.stdout}" for number in (1, 2)}
    check_gone(site)
    check_own(site)


def test_streams_go_from_node_to_node(local: Site) -> None:
    ours = local.run(three_streams(), config={"oversubscribe": "never"})
    assert ours.ok, ours.errors
    assert ours.time("begun") < ours.time("written") < ours.time("all")
    assert len(nodes_of(ours)) == 2
    assert ours.files["out.txt"].decode() == "".join(f"{number}\n" for number in range(1, 20001)) * 2
    check_nothing_fell_back(ours.log)
    check_gone(local)
    check_own(local)


def test_committed_files_go_from_node_to_node(local: Site) -> None:
    """All that goes between the nodes is encrypted."""
    first = tool(
        "mkdir d; for i in 1 2 3 4 5 6; do seq $i 1000 > d/$i.txt; sleep 0.1; done",
        {},
        {"out": found("d/*.txt", "File[]")},
        [streaming({"port": "out", "committed": "on_close"})],
        requirements=cores(1),
    )
    each = tool(
        f'{NODE}wc < "$file"; sort "$file"', {"file": "File"}, {"out": "stdout"}, stdout="s.txt", requirements=cores(1)
    )
    steps = {"a": {"run": first, "in": {}}, "b": {"run": each, "in": {"file": "a/out"}, "scatter": "file"}}
    _, ours = local.run_both(workflow({}, steps, {"out": "b/out"}), seconds=120, config={"tls": True})
    assert len(nodes_of(ours)) == 2
    assert BY_DRIVER not in ours.log
    check_nothing_fell_back(ours.log)
    check_gone(local)


def wait_then_read(number: int = 1) -> Document:
    """A job writes a file. A job of the other node waits, and some more read the file then."""
    first = tool(f"{NODE}seq 1 1000 > out.txt; note written", {}, {"out": found("out.txt")}, requirements=cores(2))
    wait = tool(
        'i=0; until [ -e "$TRACE.go" ] || [ $i = 600 ]; do i=$((i+1)); sleep 0.1; done; echo > go.txt',
        {},
        {"out": found("go.txt")},
        requirements=cores(2),
    )
    inputs = {"file": "File", "go": "File", "number": "int"}
    read = tool('note read; cat "$file" > all.txt', inputs, {"out": found("all.txt")})
    sources: Document = {"file": "a/out", "go": "b/out", "number": {"default": [*range(number)]}}
    steps = {
        "a": {"run": first, "in": {}},
        "b": {"run": wait, "in": {}},
        "c": {"run": read, "in": sources, "scatter": "number"},
    }
    return workflow({}, steps, {"out": "c/out"})


def run_with_loss(
    site: Site, lose: Callable[[Site, str], None], document: Document, **settings: Document
) -> tuple[Run, str]:
    """Lose the node that has the file, before the file is read; return the run, and the node."""
    path = site.write(document, {}, io=True, **settings)
    process = site.start(path)
    trace, log = path.parent / "trace", path.parent / "stderr"
    wait_for_note(trace, "written")
    node = trace.read_text().split()[1]
    wait_for(lambda: "COMPLETED Step /a" in log.read_text(), "the end of its job", 60)
    try:
        lose(site, node)
        wait_for(lambda: f"No more jobs start at hpc/{node}" in log.read_text(), "the loss", 60)
        Path(f"{trace.resolve()}.go").touch()
        return site.finish(process, path), node
    finally:
        resume(site, node)


def test_a_file_of_a_lost_node_is_named(local: Site) -> None:
    ours, node = run_with_loss(local, lose_node, wait_then_read())
    assert ours.code == 1
    assert ours.times("read") == []
    why = f"node {node} has failed: it is no longer in allocation {local.environment['SLURM_JOB_ID']} of Slurm"
    assert f"/out.txt cannot be copied: it is on hpc/{node}, and {why}" in ours.log


def test_a_job_whose_file_is_lost_runs_again_once_for_all_readers(local: Site) -> None:
    """StreamFlow itself runs the job again for each reader, and gives the job up as if the job had failed as often."""
    twice = {"failureManager": {"type": "default", "config": {"max_retries": 2, "retry_delay": 0}}}
    ours, _ = run_with_loss(local, lose_node, wait_then_read(3), **twice)
    assert ours.ok, ours.errors
    assert len(ours.times("written")) == 2
    assert len(ours.times("read")) == 3
    assert len({*ours.files.values()}) == 1


@pytest.mark.parametrize("lost", ["a", "b"])
def test_jobs_that_stream_run_again_elsewhere(local: Site, lost: str) -> None:
    """The other node has all that is needed."""
    check_streams_with_a_loss(local, lost, "serve", "idle")


def test_a_file_that_was_delivered_early_is_lost_with_its_node(local: Site) -> None:
    """The file of another attempt cannot be compared with it. The run ends, and names the job."""
    streams = [streaming({"port": "out", "mode": "no_update", "committed": "on_close"})]
    writes = f"{NODE}seq 1 20000 > out.txt; note closed; sleep 600"
    reads = 'wc -l < "$file" > n.txt; note read'
    steps = {
        "a": {"run": tool(writes, {}, {"out": found("out.txt")}, streams, requirements=cores(2)), "in": {}},
        "b": {
            "run": tool(reads, {"file": streamable()}, {"out": found("n.txt")}, requirements=cores(1)),
            "in": {"file": "a/out"},
        },
    }
    path = local.write(workflow({}, steps, {"out": "b/out"}), {}, io=True, **RETRY)
    process = local.start(path)
    trace = path.parent / "trace"
    wait_for_note(trace, " read")
    first = trace.read_text().split()[1]
    try:
        lose_node(local, first)
        ours = local.finish(process, path)
    finally:
        resume(local, first)
    assert ours.code == 1
    assert ours.times("closed") == ours.times("closed")[:1]
    assert re.search(
        rf"FAILED Job /a/0 with error:\n\tnode {first} has failed.*: the files that other jobs", ours.errors
    )


def test_the_driver_copies_from_a_node_whose_serve_was_killed(local: Site) -> None:
    """The node itself still answers."""
    ours, node = run_with_loss(local, kill_serve, wait_then_read())
    assert ours.ok, ours.errors
    assert ours.files["all.txt"].decode() == "".join(f"{number}\n" for number in range(1, 1001))
    assert re.search(rf"{BY_DRIVER}: hpc/n\d cannot get .*/out.txt from hpc/{node}: ", ours.log)
    check_gone(local)


@pytest.mark.parametrize("how", [pytest.param(signal.SIGINT, marks=pytest.mark.long), signal.SIGKILL])
def test_nothing_is_left_of_a_copy_that_is_ended(local: Site, how: signal.Signals) -> None:
    """The driver ends while a large file goes from node to node."""
    first = tool("truncate -s 200M out.bin", {}, {"out": found("out.bin")}, requirements=cores(2))
    each = tool(f'{BOTH}wc -c < "$file"', {"file": "File", "number": "int"}, {}, requirements=cores(2))
    sources = {"file": "a/out", "number": "numbers"}
    steps = {"a": {"run": first, "in": {}}, "b": {"run": each, "in": sources, "scatter": "number"}}
    path = local.write(workflow({"numbers": "int[]"}, steps, {}), {"numbers": [1, 2]}, io=True)
    process = local.start(path)

    def receives() -> bool:
        ours = str(local.directory).encode()
        return any(
            b"\0receive\0" in words and ours in names for _, (words, names) in of_processes("cmdline", "environ")
        )

    wait_for(receives, "a copy by a link", 90)
    os.kill(process.pid, how)
    process.wait(60)
    check_gone(local)


def test_a_job_whose_node_is_lost_with_its_file_on_the_way_runs_elsewhere(local: Site) -> None:
    """StreamFlow places the job anew, and runs its command in the directory of the first place.

    Another job has the cores and the memory of the node that is left, and waits for its file meanwhile.
    """
    all_of_a_node = [{"class": "ResourceRequirement", "coresMin": 2, "ramMin": MEMORY}]
    first = tool("truncate -s 200M out.bin", {}, {"out": found("out.bin")}, requirements=all_of_a_node)
    each = tool('wc -c < "$file"', {"file": "File", "number": "int"}, {"out": "stdout"}, stdout="n.txt",
        requirements=all_of_a_node)  # fmt: skip
    sources = {"file": "a/out", "number": "numbers"}
    steps = {"a": {"run": first, "in": {}}, "b": {"run": each, "in": sources, "scatter": "number"}}
    document = workflow({"numbers": "int[]"}, steps, {"out": "b/out"})
    path = local.write(document, {"numbers": [1, 2, 3]}, io=True, **RETRY)
    process = local.start(path)
    receiving: list[str] = []

    def receives() -> bool:
        ours = str(local.directory).encode()
        for _, (words, variables) in of_processes("cmdline", "environ"):
            if b"\0receive\0" in words and ours in variables:
                receiving.extend(re.findall(r"SLURMD_NODENAME=(n\d)", variables.decode(errors="replace")))
        return bool(receiving)

    wait_for(receives, "a copy by a link", 90)
    try:
        lose_node(local, receiving[0])
        ours = local.finish(process, path)
    finally:
        resume(local, receiving[0])
    assert ours.ok, ours.errors
    assert [content.split() for content in ours.files.values()] == [[b"%d" % (200 << 20)]] * 3
    assert "can't cd" not in ours.log


def test_a_job_that_takes_both_nodes(local: Site) -> None:
    """The job knows the addresses of both. Its outputs come from the first, and it does not stream."""
    streams = [streaming({"port": "out", "mode": "no_update"})]
    first = tool(
        "echo $STREAMFLOW_HOSTS | tr , '\\n' | wc -l > out.txt", {}, {"out": found("out.txt")}, streams,
        requirements=cores(2),
    )  # fmt: skip
    read = tool('cat "$file" > all.txt', {"file": streamable()}, {"out": found("all.txt")}, requirements=cores(2))
    steps = {"a": {"run": first, "in": {}}, "b": {"run": read, "in": {"file": "a/out"}}}
    path = local.write(workflow({}, steps, {"out": "b/out"}), {}, io=True)
    streamflow = json.loads(path.read_text())
    target = {"deployment": "hpc", "locations": 2}
    streamflow["workflows"]["main"]["bindings"].append({"step": "/a", "target": target})
    path.write_text(json.dumps(streamflow))
    ours = local.finish(local.start(path), path)
    assert ours.ok, ours.errors
    assert ours.files["all.txt"].split() == [b"2"]
    plan = json.dumps(local.streamflow_io("plan", str(path)))
    assert "/a takes 2 locations of hpc (sfio.allocation) for each job: only jobs on one location stream yet" in plan
    check_gone(local)


@contextmanager
def small_disk_at(site: Site, node: str, free: int, files: int | None = None) -> Iterator[Path]:
    """Leave little space in the work directories of a node; yield their place, as the test sees it.

    :param free: bytes
    :param files: how many more files, directories and links there may be; None: any number
    """
    own = str(site.laboratory.directory / "local")
    process_there = Path("/proc", str(processes_on(site, node, b"serve")[0]))
    space = os.statvfs(f"{process_there}/root{own}")
    # Other tests may have left programs there.
    size = (space.f_blocks - space.f_bfree) * space.f_frsize + free
    most = space.f_files if files is None else space.f_files - space.f_ffree + files
    with (process_there / "ns" / "mnt").open("rb") as mounts:

        def inside(*words: str) -> None:
            entered = ["nsenter", f"--mount=/proc/self/fd/{mounts.fileno()}", *words]
            subprocess.run(entered, check=True, pass_fds=[mounts.fileno()])

        inside("mount", "-o", f"remount,size={size},nr_inodes={most}", own)
        try:
            yield Path(f"{process_there}/root{own}")
        finally:
            inside("mount", "-o", f"remount,size=50%,nr_inodes={space.f_files}", own)
            inside("find", own, "-name", "filler", "-delete")


def test_a_node_without_space_for_a_file_is_named(local: Site) -> None:
    """The file does not go through the driver then, and no part of it is left."""
    first = tool(f"{NODE}{WAIT}truncate -s 64M filler", {}, {"out": found("filler")}, requirements=cores(2))
    other = tool('note "c $SLURMD_NODENAME"; echo', {}, {"out": "stdout"}, stdout="c.txt", requirements=cores(2))
    each = tool(f'{NODE}{BOTH}wc -c < "$file"', {"file": "File", "number": "int"}, {}, requirements=cores(2))
    sources = {"file": "a/out", "number": "numbers"}
    steps = {
        "a": {"run": first, "in": {}},
        "b": {"run": each, "in": sources, "scatter": "number"},
        "c": {"run": other, "in": {}},
    }
    path = local.write(workflow({"numbers": "int[]"}, steps, {}), {"numbers": [1, 2]}, io=True)
    process, trace = local.start(path), path.parent / "trace"
    wait_for_note(trace, " c n")
    (node,) = re.findall(r" c (n\d)", trace.read_text())
    with small_disk_at(local, node, 2**25) as disk:
        Path(f"{os.path.realpath(trace)}.go").touch()
        ours = local.finish(process, path)
        assert list(disk.glob(f"{local.directory.name}/*/*/filler*")) == []
    assert ours.code == 1
    end = ours.log.partition("FAILED Workflow execution: ")[2]
    assert re.match(rf"/.*/filler cannot be written at hpc/{node}: tar: filler: .*\(is the disk full\?\)", end)
    assert BY_DRIVER not in ours.log
    check_gone(local)


@pytest.mark.parametrize("streams", [False, True], ids=["plain", "streams"])
def test_a_job_whose_disk_is_full_runs_again_where_there_is_space(local: Site, streams: bool) -> None:
    script = f'note "a $SLURMD_NODENAME"; {WAIT}head -c 64M /dev/zero > filler || exit 3; seq 1 1000 > out.txt'
    hints = [streaming({"port": "out", "mode": "no_update"})] if streams else []
    first = tool(script, {}, {"out": found("out.txt")}, hints, requirements=cores(1))
    kind = streamable() if streams else "File"
    last = tool('cat "$file"', {"file": kind}, {"out": "stdout"}, stdout="read.txt", requirements=cores(1))
    steps = {"a": {"run": first, "in": {}}, "b": {"run": last, "in": {"file": "a/out"}}}
    path = local.write(workflow({}, steps, {"out": "b/out"}), {}, io=True, **RETRY)
    process, trace = local.start(path), path.parent / "trace"
    wait_for_note(path, " a n", 1)
    (node,) = re.findall(r" a (n\d)", trace.read_text())
    with small_disk_at(local, node, 2**25):
        Path(f"{os.path.realpath(trace)}.go").touch()
        ours = local.finish(process, path)
    assert ours.ok, ours.errors
    (other,) = {*places(ours, "a")} - {node}
    assert places(ours, "a") == [node, other]
    assert ours.log.count("Job /a/0 is tried again on another location. Its file system is full: ") == 1
    assert ours.files["read.txt"].decode() == "".join(f"{number}\n" for number in range(1, 1001))
    check_gone(local)
    check_own(local)


@pytest.mark.parametrize("lacks", ["bytes", "files"])
def test_a_reader_of_a_job_that_runs_starts_where_there_is_space(local: Site, lacks: str) -> None:
    """On the node of its producer, its other input cannot be copied, or its directories cannot be made."""
    size = "64M" if lacks == "bytes" else "1k"
    other = tool(f'note "f $SLURMD_NODENAME"; {WAIT}head -c {size} /dev/zero > filler', {}, {"out": found("filler")},
        requirements=cores(2))  # fmt: skip
    writes = 'i=0; until grep -q read "$TRACE" || [ $i = 300 ]; do i=$((i+1)); echo $i; sleep 0.1; done'
    first = tool(f'note "a $SLURMD_NODENAME"; {writes}; note end', {}, {"out": streamable("stdout")}, stdout="out.txt",
        requirements=cores(1))  # fmt: skip
    last = tool(
        'note "b $SLURMD_NODENAME"; read line < "$file"; note read; wc -c < "$other"; echo $line',
        {"file": streamable(), "other": "File"}, {"out": "stdout"}, stdout="read.txt", requirements=cores(1),
    )  # fmt: skip
    steps = {
        "f": {"run": other, "in": {}},
        "a": {"run": first, "in": {}},
        "b": {"run": last, "in": {"file": "a/out", "other": "f/out"}},
    }
    path = local.write(workflow({}, steps, {"out": "b/out"}), {}, io=True, **RETRY)
    process, trace = local.start(path), path.parent / "trace"
    wait_for_note(path, " a n")
    wait_for_note(path, " f n")
    (node,) = re.findall(r" a (n\d)", trace.read_text())
    with small_disk_at(local, node, 2**25, 0 if lacks == "files" else None):
        Path(f"{os.path.realpath(trace)}.go").touch()
        ours = local.finish(process, path)
    assert ours.ok, ours.errors
    (place,) = places(ours, "f")
    assert (places(ours, "a"), places(ours, "b")) == ([node], [place])
    words = [what for _, what in ours.trace]
    assert words.index("read") < words.index("end")
    check_gone(local)
    check_own(local)
