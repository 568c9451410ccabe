"""All that the plugin does on hosts, on the nodes of an allocation, which share their file system."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from lab.cwl import Document, found, streamable, tool, workflow
from lab.node import wait_for
from lab.runs import RETRY, wait_for_note
from lab.sites import Site, at_once
from lab.splits import job
from tests.e2e.test_allocation import NODE, cores, lose_node, nodes_of, resume
from tests.e2e.test_intermediates_elsewhere import LIMITED, files
from tests.e2e.test_intermediates_elsewhere import chain as removed_chain
from tests.e2e.test_parts_elsewhere import check_sums, check_virtual, cold_selecting
from tests.e2e.test_parts_elsewhere import scattered as split_and_count
from tests.e2e.test_storage_bandwidth import IO_TASK, bandwidth
from tests.e2e.test_streaming import chain as two_steps
from tests.e2e.test_streaming import check_gone, check_nothing_fell_back, consumer, producer
from tests.e2e.test_streaming_without_hints import READS, Learning
from tests.e2e.test_streaming_without_hints import chain as unhinted
from tests.integration.test_read_sessions import SIZE, told


def scattered(hints: list[Document], script: str, needed: float = 0.1) -> Document:
    """Jobs that write a small file, and note when and on which node."""
    write = tool(
        f'note "start $SLURMD_NODENAME"; {script} echo $part > out.txt; note "end $SLURMD_NODENAME"',
        {"part": "int"},
        {"out": found("out.txt")},
        hints,
        requirements=cores(needed),
    )
    steps = {"a": {"run": write, "scatter": "part", "in": {"part": "parts"}}}
    return workflow({"parts": "int[]"}, steps, {"out": "a/out"})


def test_each_node_has_a_storage_of_its_own(allocation: Site) -> None:
    """Two jobs of 40 MB/s fit a node's 100, and I/O tasks take no core."""
    config = {"storages": [allocation.storage(100, scope="node")]}
    parts = {"parts": list(range(6))}
    # Four are at once, and half a second later others would be there, too.
    four = 'i=0; until [ $(grep -c start "$TRACE") -ge 4 ] || [ $i = 300 ]; do i=$((i+1)); sleep 0.1; done; sleep 0.5;'
    ours = allocation.run(scattered([IO_TASK, bandwidth(40)], four, needed=2), parts, config=config)
    assert ours.ok, ours.errors
    assert sorted(ours.files.values()) == [b"%d\n" % part for part in range(6)]
    # Slurm may give any two of the nodes of the laboratory.
    nodes = {what.removeprefix("start ") for _, what in ours.trace if what.startswith("start ")}
    assert [at_once(ours, f"start {node}", f"end {node}") for node in nodes] == [2, 2]
    assert at_once(ours) == 4
    check_nothing_fell_back(ours.log)
    check_gone(allocation)


def test_a_limit_is_learned(allocation: Site) -> None:
    """The bytes of a job are measured on its node. Commands know the deployment, its jobs, and what these have said."""
    config: Document = {"storages": [allocation.storage(8)], "ioExecutors": 4}
    script = "echo loud and clear >&2; head -c 300000 /dev/zero > more.bin; sleep 0.5;"
    document = scattered([IO_TASK, bandwidth("auto(2,4,2)")], script)
    ours = allocation.run(document, {"parts": list(range(8))}, config=config)
    assert ours.ok, ours.errors
    assert [(epoch["constraint"], epoch["registered"]) for epoch in allocation.records("epoch")] == [
        (2, True),
        (4, True),
    ]
    usages = [record["usage"] for record in allocation.records("ended")]
    assert [300_000 <= usage["bytesWritten"] < 310_000 for usage in usages] == [True] * 8
    check_nothing_fell_back(ours.log)
    check_gone(allocation)
    (learned,) = allocation.streamflow_io("learned", "list")["learned"]
    assert learned["step"] == "/a"
    plan = allocation.streamflow_io("plan", str(allocation.directory / "run1" / "streamflow.yml"))
    assert '"deployment": "hpc"' in json.dumps(plan)
    report = allocation.streamflow_io("report", "last")
    assert [step["jobs"] for run in report["runs"] for step in run["steps"]] == [8]
    assert "/a" in json.dumps(allocation.streamflow_io("watch", "last"))
    logs = allocation.streamflow_io("logs", "last", "/a")
    assert ["loud and clear" in json.dumps(one) for one in logs["jobs"]] == [True] * 8


def test_a_core_is_lent(allocation: Site) -> None:
    """All cores are held by jobs that wait for a file, which a job of another step makes."""
    wait = f'{NODE}note waits; i=0; until [ -e "$TRACE.go" ] || [ $i = 300 ]; do i=$((i+1)); sleep 0.1; done; note went'
    sleeper = tool(f"{wait}; echo $part > out.txt", {"part": "int"}, {"out": found("out.txt")}, requirements=cores(2))
    held = 'i=0; until [ $(grep -c waits "$TRACE") -ge 2 ] || [ $i = 300 ]; do i=$((i+1)); sleep 0.1; done'
    begin = tool(f"{held}; echo go > go.txt", {}, {"out": found("go.txt")}, requirements=cores(0))
    worker = tool(
        'note works; touch "$TRACE.go"; cat "$file" > w.txt', {"file": "File"}, {"out": found("w.txt")},
        requirements=cores(1),
    )  # fmt: skip
    steps = {
        "a": {"run": sleeper, "scatter": "part", "in": {"part": "parts"}},
        "b": {"run": begin, "in": {}},
        "c": {"run": worker, "in": {"file": "b/out"}},
    }
    document = workflow({"parts": "int[]"}, steps, {"out": "a/out", "work": "c/out"})
    ours = allocation.run(document, {"parts": [1, 2]})
    assert ours.ok, ours.errors
    assert ours.time("works") < min(ours.times("went"))
    assert len(allocation.records("lent")) == 1
    offered = [record["location"] for record in allocation.records("location")]
    assert offered == sorted({*offered})
    assert len(offered) == 2
    check_gone(allocation)
    assert allocation.control("squeue", "-h", "-s").split() == []


def test_what_is_proven_streams_in_the_next_run(allocation: Site, tmp_path: Path) -> None:
    learning = Learning(tmp_path, unhinted("cat"))
    plain = learning.run(allocation, "never")
    learning.run(allocation)
    assert learning.known == [("net", None, 0)]
    ours = learning.run(allocation)
    assert READS in ours.log
    assert learning.known == [("net", None, 1)]
    assert ours.results == plain.results
    check_gone(allocation)


@pytest.mark.parametrize("is_bound", [True, False])
def test_jobs_that_select_their_own_part(allocation: Site, tmp_path: Path, is_bound: bool) -> None:
    """The file is bound to the nodes, or these see the file of the driver."""
    (directory := tmp_path / "data").mkdir()
    document, values = cold_selecting(directory)
    site = allocation
    if is_bound:
        port = {"port": "/of", "target": {"deployment": "hpc", "workdir": str(tmp_path)}}
        site = replace(allocation, ports=(port,))
    else:
        values["of"] = {"class": "File", "path": str(directory / "reads.bin")}
    ours = site.run(document, values)
    assert ours.ok, ours.errors
    assert told(site, "session")
    assert sum(record["bytes"] for record in told(site, "chunk")) <= SIZE
    assert " WARNING " not in ours.log, ours.errors
    check_gone(site)


def test_a_split_writes_nothing(allocation: Site, tmp_path: Path) -> None:
    check_virtual(allocation.run_ours(split_and_count(), job(tmp_path)))
    check_gone(allocation)


def test_the_gate_is_a_delivery_at_the_commit(allocation: Site) -> None:
    """One message says so."""
    rule = {"committed": "on_close", "start": "producer"}
    first = producer("note write; echo done > out.txt", rule)
    second = consumer("hostname > host.txt; cat $file > copy.txt; note read")
    ours = allocation.run(two_steps(first, second))
    assert ours.ok, ours.errors
    assert ours.files["last.txt"] == b"done\n"
    assert [line.count("the gate needs") for line in ours.log.splitlines() if " WARNING " in line] == [1]
    check_gone(allocation)


def test_a_directory_is_delivered_at_its_commit(allocation: Site) -> None:
    """A job of the other node reads the directory while its producer runs."""
    wait = 'i=0; until [ -e "$TRACE.read" ] || [ $i = 300 ]; do i=$((i+1)); sleep 0.1; done; '
    make = tool(
        f"{NODE}mkdir d; echo 1 > d/1.txt; echo 2 > d/2.txt; {wait}note end", {}, {"out": found("d", "Directory")},
        [streaming_directory()], requirements=cores(2),
    )  # fmt: skip
    read = tool(
        f'{NODE}note read; touch "$TRACE.read"; cat "$d"/* > all.txt', {"d": "Directory"}, {"out": found("all.txt")},
        requirements=cores(2),
    )  # fmt: skip
    steps = {"a": {"run": make, "in": {}}, "b": {"run": read, "in": {"d": "a/out"}}}
    ours = allocation.run(workflow({}, steps, {"out": "b/out"}))
    assert ours.ok, ours.errors
    assert ours.files["all.txt"] == b"1\n2\n"
    assert ours.time("read") < ours.time("end")
    assert len(nodes_of(ours)) == 2
    check_nothing_fell_back(ours.log)
    check_gone(allocation)


def streaming_directory() -> Document:
    return {"class": "sfio:Streaming", "rules": [{"port": "out", "committed": "on_n_files", "nFiles": 2}]}


def test_intermediate_files_go(allocation: Site) -> None:
    run = allocation.run(removed_chain(f"{allocation.deployment['workdir']}/*"), config=LIMITED, seconds=120)
    assert run.ok, run.errors
    assert run.files == {"d.txt": b"a\na\n"}
    assert "SFIO-B008" not in run.log
    assert [name for name in files(allocation.workdir) if not name.startswith("sfio-node-")] == ["d.txt"]


def test_a_job_does_not_wait_for_the_checksum_of_a_file_that_its_node_sees(allocation: Site) -> None:
    """The checksum takes minutes."""
    (large := allocation.directory / "large.bin").touch()
    os.truncate(large, 400 << 30)
    read = tool('note began; head -c 9 < "$of"; sleep 600', {"of": streamable()}, {"out": "stdout"}, stdout="out.txt")
    document = workflow({"of": "File"}, {"read": {"run": read, "in": {"of": "of"}}}, {"out": "read/out"})
    path = allocation.write(document, {"of": {"class": "File", "path": str(large)}}, io=True)
    process = allocation.start(path)
    wait_for_note(path, "began", 1, seconds=60)
    os.kill(process.pid, signal.SIGINT)
    process.wait(60)
    check_gone(allocation)


@pytest.mark.parametrize("is_split", [False, True])
def test_an_input_of_the_workflow_is_looked_at_on_another_node_when_its_node_is_lost(
    allocation: Site, is_split: bool
) -> None:
    """The node is lost while the input is read for its checksum. Jobs do not wait for that of a file that is split."""
    (programs := allocation.directory / "bin").mkdir()
    began, goes_on = programs / "began", programs / "goes-on"
    (program := programs / "sha1sum").write_text(
        f'#!/bin/sh\n[ $# = 0 ] || echo "$SLURMD_NODENAME" >> {began}\n'
        f'until [ -e {goes_on} ]; do sleep 0.1; done\nPATH=${{PATH#*:}}\nexec sha1sum "$@"\n'
    )
    program.chmod(0o755)
    (inputs := allocation.directory / "inputs").mkdir()
    if is_split:
        document, values = cold_selecting(inputs)
    else:
        (inputs / "data.txt").write_text("data\n")
        read = tool('cat "$of" > out.txt', {"of": "File"}, {"out": found("out.txt")})
        document = workflow({"of": "File"}, {"a": {"run": read, "in": {"of": "of"}}}, {"out": "a/out"})
        values = {"of": {"class": "File", "path": "inputs/data.txt"}}
    port = {"port": "/of", "target": {"deployment": "hpc", "workdir": str(allocation.directory)}}
    site = replace(allocation, ports=(port,))
    path = site.write(document, values, io=True, **RETRY)
    process = site.start(path, PATH=f"{programs}:{os.environ['PATH']}")
    wait_for(lambda: began.exists() and began.read_text().endswith("\n"), "a look at the input", 60)
    lost = began.read_text().strip()
    try:
        lose_node(site, lost)
        wait_for(lambda: "No more jobs start at" in (path.parent / "stderr").read_text(), "the loss", 60)
        goes_on.touch()
        ours = site.finish(process, path)
    finally:
        resume(site, lost)
    if is_split:
        check_sums(ours, inputs)
    else:
        assert ours.ok, ours.errors
        assert ours.files == {"out.txt": b"data\n"}
    assert len({*began.read_text().split()}) == 2
