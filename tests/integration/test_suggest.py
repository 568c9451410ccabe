"""A run with `observe: true` gives the results of plain StreamFlow, and what it proposes is right."""

from __future__ import annotations

import json
import sys
from typing import Any

from lab import forked
from lab.cwl import Document, found, streamable, streaming, tool, workflow
from lab.gates import MEET
from lab.runs import Bench

OBSERVE = {"observe": True}
PYTHON = sys.executable

# Closes its first file at once, goes on for 1.5 seconds, and writes to its standard output all the time. Where the test
# wants so, it goes on until it has readers.
PREPARE = f"""{MEET}note prepare; echo settings > first.txt
for i in 1 2 3 4 5 6 7 8 9 10; do echo "line $i"; sleep 0.15; done
[ ! -e "$TRACE.meets" ] || {{ meet map; meet read; }}; note prepared"""
MAP = """import mmap, sys, time
with open(sys.argv[1], "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
    time.sleep(0.5)
    sys.stdout.write(data[:].decode())
"""
# Makes every block durable, one after the other.
SAVE = """import os, sys, time
end = time.monotonic() + 1.3
with open("saved", "wb", buffering=0) as file:
    while time.monotonic() < end:
        file.write(b"x" * 4096)
        os.fsync(file.fileno())
os.truncate("saved", 4096)
"""


def python(script: str) -> str:
    return f"{PYTHON} -S -E -c '{script}'"


def suggest(bench: Bench, *arguments: str) -> Any:
    result = forked.run("streamflow-io", "suggest", "last", *arguments, environment={"XDG_DATA_HOME": str(bench.data)})
    assert result.returncode == 0, result.stdout + result.stderr
    return json.loads(result.stdout) if "--json" in arguments else result.stdout


def known() -> Document:
    """A workflow with known ways to make it faster."""
    prepare = tool(
        PREPARE, {}, {"first": found("first.txt"), "table": "stdout"}, stdout="table.txt"
    )  # standard output that is written all the time, and a file that is closed early
    mapped = tool(f"note map; {python(MAP)} $first", {"first": "File"}, {"out": "stdout"}, stdout="mapped.txt")
    reader = tool("note read; cat $table; sleep 0.5", {"table": "File"}, {"out": "stdout"}, stdout="read.txt")
    twice = tool("note twice; cat $table $table", {"table": "File"}, {"out": "stdout"}, stdout="twice.txt")
    save = tool(f"note save; {python(SAVE)}; cat $out > /dev/null", {"out": "File"}, {"saved": found("saved")})
    steps = {
        "prepare": {"run": prepare, "in": {}},
        "map": {"run": mapped, "in": {"first": "prepare/first"}},
        "read": {"run": reader, "in": {"table": "prepare/table"}},
        "twice": {"run": twice, "in": {"table": "prepare/table"}},
        "save": {"run": save, "in": {"out": "map/out"}},
    }
    outputs = {"mapped": "map/out", "read": "read/out", "twice": "twice/out", "saved": "save/saved"}
    return workflow({}, steps, outputs)


def test_what_is_proposed_is_right_and_helps(bench: Bench) -> None:
    plain, observed = bench.run_both(known(), config=OBSERVE)
    assert observed.time("map") > observed.time("prepared")
    result = suggest(bench, "--json")
    proposals = {one["subject"]: one for one in result["proposals"] if one["sure"]}
    refusals = {(one["subject"], one["what"]): one["reason"] for one in result["notProposed"]}
    streams = {"/prepare/table -> /read/table", "/map/out -> /save/out"}
    assert proposals.keys() - {"/save"} == {"/prepare/first", *streams}, result
    assert proposals["/prepare/first"]["hint"] == "committed: on_close"
    assert proposals["/prepare/first"]["lead"] > 0.7
    assert proposals["/prepare/table -> /read/table"]["hint"] == "streamable"
    assert refusals["/prepare/first -> /map/first", "streamable"] == "/map maps it into memory"
    assert refusals["/prepare/table -> /twice/table", "streamable"] == "/twice reads it twice"
    assert refusals["/prepare/table", "on_close"] == "it is closed when its job ends"
    # How long the kernel waits for a device is a matter of the device: on some nothing is I/O-bound.
    waited = next(one["usage"] for one in bench.telemetry() if one["event"] == "ended" and one["step"] == "/save")
    seconds = waited["ended"] - waited["started"]
    if waited["ioSeconds"] > 0.5 * seconds > waited["cpuSeconds"]:
        assert proposals["/save"]["hint"] == "IOTask"
    assert 0 < result["saved"] < result["seconds"]

    file = bench.directory / "annotations.yml"
    suggest(bench, "--output", str(file))
    cwl = bench.directory / "run1" / "main.cwl"
    assert forked.run("streamflow-io", "validate", cwl, "--annotations", file).returncode == 0
    path = bench.write(known(), {}, True, {"annotations": str(file)})
    planned = json.loads(forked.run("streamflow-io", "plan", path, "--json").stdout)
    edges = planned["workflows"]["main"]["edges"]
    deliveries = {edge["input"]: edge["delivery"] for edge in edges}
    assert deliveries == {"/map/first": "commit", "/read/table": "stream", "/save/out": "stream"}
    (path.parent / "trace.meets").touch()
    applied = bench.finish(bench.start(path), path)
    assert applied.ok, applied.errors
    assert applied.results == plain.results
    for reader in ("map", "read"):
        assert observed.time("prepared") < observed.time(reader)
        assert applied.time(reader) < applied.time("prepared")
    assert bench.leftovers() == []


def test_jobs_that_stream_are_observed_too(bench: Bench) -> None:
    write = tool(
        "echo early > early.txt; for i in 1 2 3 4 5; do echo $i; sleep 0.1; done",
        {},
        {
            "table": {"type": "stdout", "streamable": True},
            "early": found("early.txt"),
            "late": found("late.txt", "File?"),
        },
        [streaming({"port": "early", "committed": "on_close"})],
        stdout="table.txt",
    )
    read = tool("cat $table $early", {"table": streamable(), "early": "File"}, {"out": "stdout"}, stdout="out.txt")
    steps = {
        "write": {"run": write, "in": {}},
        "read": {"run": read, "in": {"table": "write/table", "early": "write/early"}},
    }
    bench.run_both(workflow({}, steps, {"out": "read/out"}), config=OBSERVE)
    records = bench.telemetry()
    assert {one["port"] for one in records if one["event"] == "output" and one["step"] == "/write"} == {
        "table",
        "early",
    }
    (used,) = [one for one in records if one["event"] == "input"]
    assert (used["input"], used["source"], used["opens"]) == ("early", "/write/0", 1)
    result = suggest(bench, "--json")
    assert result["proposals"] == []
    reasons = {one["subject"]: one["reason"] for one in result["notProposed"]}
    assert reasons["/write/early"] == "is delivered early to /read/early already"


def test_a_job_that_fails_is_tried_again(bench: Bench) -> None:
    once = tool(
        'test -e "$TRACE.1" || { touch "$TRACE.1"; exit 1; }; echo done > out.txt', {}, {"out": found("out.txt")}
    )
    document = workflow({}, {"a": {"run": once, "in": {}}}, {"out": "a/out"})
    retry = {"type": "default", "config": {"max_retries": 2, "retry_delay": 0}}
    ours = bench.run(document, config=OBSERVE, failureManager=retry)
    assert ours.ok, ours.errors
    records = bench.telemetry()
    assert [one["status"] for one in records if one["event"] == "ended"] == ["failed", "completed"]
    assert len([one for one in records if one["event"] == "output"]) == 1
    assert bench.leftovers() == []


def test_without_the_node_runtime_it_is_a_warning(bench: Bench) -> None:
    document = workflow({}, {"a": {"run": tool("echo x", {}, {"out": "stdout"}), "in": {}}}, {"out": "a/out"})
    path = bench.write(document, {}, True, {**OBSERVE, "runtime": "off"})
    ours = bench.finish(bench.start(path), path)
    assert ours.ok
    assert "Nothing is observed in this run: `runtime: off`" in ours.log
    path = bench.write(document, {}, True, OBSERVE)
    ours = bench.finish(bench.start(path, SFIO_NODE=str(bench.directory / "none")), path)
    assert ours.ok
    assert "Nothing is observed in this run: sfio-node is not installed" in ours.log
