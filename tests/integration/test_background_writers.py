"""Processes that a command leaves running write on as with plain StreamFlow."""

from __future__ import annotations

from pathlib import Path

from lab.cwl import Document, found, streamable, streaming, tool, workflow
from lab.node import wait_for
from lab.runs import Bench

IO_TASK = {"class": "sfio:IOTask"}
LIMITED = {"class": "sfio:StorageBandwidth", "storageBW": 10}
STORAGES = [{"name": "disk", "path": "/", "write": 100}]
# The job has ended when the command has: only a job that waits for the daemon gets what it writes.
LATE = "( sleep 1; {} ) & exit 0"
# Closes what the command prints to, and answers as long as it is asked to.
DAEMON = """
( i=0
  while [ $i -lt 200 ]; do
    if [ -e $place/ask ]; then cat $place/ask > $place/answer.part; mv $place/answer.part $place/answer; exit; fi
    i=$((i + 1)); sleep 0.1
  done
) < /dev/null > /dev/null 2>&1 &
"""
ASK = """
echo question > $place/ask.part; mv $place/ask.part $place/ask
i=0; until [ -e $place/answer ] || [ $i = 50 ]; do i=$((i + 1)); sleep 0.1; done
cat $place/answer || echo nobody
"""


def every_kind() -> Document:
    """A job of each kind that ends before all that it writes is written."""
    lines = "for i in 1 2 3; do echo line $i; sleep 0.5; done"
    rules = {
        "bytes": {"committed": "on_close", "mode": "no_update"},
        "gate": {"committed": "on_termination", "start": "producer"},
    }
    zipped = "bash -c 'seq 1 30000 > >(sleep 0.5; gzip -9n > {}.gz)'"
    steps: dict[str, Document] = {
        "io": {"run": tool(zipped.format("io"), {}, {"out": found("io.gz")}, [IO_TASK]), "in": {}},
        "limited": {"run": tool(zipped.format("limited"), {}, {"out": found("limited.gz")}, [LIMITED]), "in": {}},
        "optional": {"run": tool(LATE.format("echo > late"), {}, {"out": found("late", "File?")}, [IO_TASK]), "in": {}},
        "held": {
            "run": tool(
                LATE.format("echo > late").replace("sleep 1", "sleep 10"),
                {},
                {"out": found("late", "File?")},
                [IO_TASK],
            ),
            "in": {},
        },
    }
    # No process holds the pipe for which StreamFlow waits.
    steps["held"]["run"]["stdout"] = "printed.txt"
    for name, rule in rules.items():
        out, copy = f"{name}.txt", f"{name}.copy.txt"
        first = tool(f"( {lines} > {out} ) & exit 0", {}, {"out": found(out)}, [streaming({"port": "out", **rule})])
        second = tool(LATE.format(f"cat $file > {copy}"), {"file": streamable()}, {"out": found(copy, "File?")})
        steps[f"write_{name}"] = {"run": first, "in": {}}
        steps[f"read_{name}"] = {"run": second, "in": {"file": f"write_{name}/out"}}
    document = workflow({}, steps, {name: f"{name}/out" for name in steps})
    for name, step in steps.items():
        document["outputs"][name]["type"] = step["run"]["outputs"]["out"]["type"]
    return document


def test_a_job_ends_when_what_it_prints_to_is_closed(bench: Bench) -> None:
    configs: list[Document] = [{}, {"storages": STORAGES}, {"storages": STORAGES, "observe": True}]
    runs = bench.run_all([bench.write(every_kind(), {}, bool(config), config) for config in configs])
    plain, *others = runs
    assert plain.ok, plain.errors
    for ours in others:
        assert ours.ok, ours.errors
        assert ours.results == plain.results
    wait_for(lambda: bench.leftovers() == [], "the end of what the jobs left")
    assert plain.outputs["optional"] is not None
    assert plain.outputs["held"] is None
    assert plain.files["bytes.copy.txt"] == b"line 1\nline 2\nline 3\n"


def with_daemon(place: Path) -> tuple[Document, Document]:
    """A job that leaves a daemon behind, gated or an I/O task, and a job that asks the daemon."""
    rule = streaming({"port": "out", "committed": "on_termination", "start": "producer"})
    made = tool("sleep 0.5; echo made > out.txt", {}, {"out": found("out.txt")}, [rule])
    inputs = {"file": "File", "place": "string"}
    start = tool(f"{DAEMON} cat $file > copy.txt", inputs, {"out": found("copy.txt")}, [IO_TASK])
    ask = tool(ASK, inputs, {"out": "stdout"}, stdout="answer.txt")
    steps = {
        "make": {"run": made, "in": {}},
        "start": {"run": start, "in": {"file": "make/out", "place": "place"}},
        "ask": {"run": ask, "in": {"file": "start/out", "place": "place"}},
    }
    document = workflow({"place": "string"}, steps, {name: f"{name}/out" for name in steps})
    return document, {"place": str(place)}


def test_a_daemon_outlives_its_job(bench: Bench) -> None:
    """Also one that was gated, and observed."""

    def write(name: str, io: bool) -> Path:
        place = bench.directory / name
        place.mkdir()
        return bench.write(*with_daemon(place), io, {"observe": True} if io else {})

    plain, ours = bench.run_all([write("plain", False), write("ours", True)])
    assert plain.files["answer.txt"] == b"question\n"
    assert ours.ok, ours.errors
    assert ours.results == plain.results
    assert bench.leftovers() == []
