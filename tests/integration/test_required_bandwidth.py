"""The bytes that I/O tasks move, and the waits for them: from real runs to `streamflow-io bandwidth`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import pytest

from lab import forked
from lab.cwl import Document, found, streaming, tool, workflow
from lab.runs import Bench

IO_TASK = {"class": "sfio:IOTask"}
BYTES = 2_000_000


# In pieces of 5 MB, so that it is looked at before all is written, also where all cores are busy.
SLOWLY = 'for n in $(seq 0 11); do dd if="$state" bs=5000000 skip=$n count=1 status=none; sleep 0.02; done > saved.bin'


def save(source: str = "state", *hints: Document, script: str | None = None) -> Document:
    """An I/O task that copies a file."""
    script = script or f'cat "${source}" > saved.bin'
    return tool(script, {source: "File"}, {"saved": found("saved.bin")}, [IO_TASK, *hints])


def compute(seconds: float | str, inputs: Mapping[str, Any], file: str = "made.bin", size: int = BYTES) -> Document:
    script = f"sleep {seconds}; head -c {size} /dev/zero > {file}"
    return tool(script, inputs, {"out": found(file)})


def looped(
    *hints: Document, times: int = 3, seconds: float | str = 0.4, size: int = BYTES, script: str | None = None
) -> Document:
    """Iterations that compute, and save beside the next; then one more job that computes.

    :param hints: of the step that saves
    :param script: that saves
    """
    steps = {
        "compute": {"run": compute(seconds, {"number": "int"}, size=size), "in": {"number": "number"}},
        "save": {"run": save("state", *hints, script=script), "in": {"state": "compute/out"}},
        "count": {
            "run": {
                "class": "ExpressionTool",
                "inputs": {"number": "int", "state": "File", "trace": "string"},
                "outputs": {"next": "int"},
                "expression": "${return {next: inputs.number + 1};}",
            },
            "in": {"number": "number", "state": "compute/out"},
        },
    }
    inner = workflow({"number": "int"}, steps, {"next": "count/next", "state": "compute/out", "saved": "save/saved"})
    iteration = {
        "run": inner,
        "in": {"number": {"default": 0}},
        "requirements": {
            "cwltool:Loop": {
                "loopWhen": f"$(inputs.number < {times})",
                "loop": {"number": "next"},
                "outputMethod": "last",
            }
        },
    }
    last = {"run": compute(seconds, {"state": "File"}), "in": {"state": "iteration/state"}}
    return workflow({}, {"iteration": iteration, "last": last}, {"saved": "iteration/saved", "out": "last/out"})


def requests(bench: Bench) -> list[Document]:
    """The requests of I/O tasks of the last run, in the order in which they were ready."""
    found = [record for record in bench.telemetry() if record["event"] == "request" and record["kind"] == "task"]
    return sorted(found, key=lambda record: record["ready"])


def at(bench: Bench, event: str, job: str) -> float:
    [time] = [record["time"] for record in bench.telemetry() if record["event"] == event and record.get("job") == job]
    return float(time)


def test_what_is_said_of_a_run(bench: Bench) -> None:
    """The table of the saves of a loop; 6 MB in all."""
    run = bench.run(looped())
    assert run.ok, run.errors
    environment = {"XDG_DATA_HOME": str(bench.data)}

    def asked(*arguments: str) -> Document:
        done = forked.run("streamflow-io", *arguments, "--json", cwd=bench.directory, environment=environment)
        assert done.returncode == 0, done.stdout + done.stderr
        found: Document = json.loads(done.stdout)
        return found

    found, told = asked("bandwidth", "last"), requests(bench)
    [step] = found["steps"]
    assert (step["step"], step["phases"], step["channels"], step["exposed"]) == ("/iteration/save", 3, 1, 0)
    needed = [one["bytes"] / (one["required"] - one["ready"]) / 1e6 for one in told]
    assert step["required"] == pytest.approx(sorted(needed)[1])
    assert step["mostRequired"] == pytest.approx(max(needed))


def test_an_io_task_that_is_held_to_its_storage_bandwidth(bench: Bench) -> None:
    """1 s for 2 MB at 2 MB/s; the same with a rule for its output, for which it runs under a step of ours."""
    held = {"class": "sfio:StorageBandwidth", "storageBW": BYTES / 1e6, "limited": True}

    def held_copy(name: str, *hints: Document) -> Document:
        script = f'head -c 1900000 "$state" > {name}; sleep 0.2; tail -c +1900001 "$state" >> {name}'
        return tool(script, {"state": "File"}, {"saved": found(name)}, [IO_TASK, held, *hints])

    rule = streaming({"port": "saved", "committed": "on_close:2"})
    steps = {
        "compute": {"run": compute(0, {}), "in": {}},
        "save": {"run": held_copy("saved.bin"), "in": {"state": "compute/out"}},
        "rule": {"run": held_copy("other.bin", rule), "in": {"state": "compute/out"}},
        "read": {"run": compute(0, {"state": "File"}), "in": {"state": "rule/saved"}},
    }
    bench.run_both(workflow({}, steps, {"saved": "save/saved", "other": "rule/saved", "out": "read/out"}))
    usages = {record["job"]: record["usage"] for record in bench.telemetry() if "usage" in record}
    for job in ("/save/0", "/rule/0"):
        assert 0.5 < usages[job]["pausedSeconds"] < 3, usages[job]
        assert usages[job]["pauses"] >= 1


def check_limit(
    bench: Bench, one: Document, window: float, overhead: tuple[float, float], before: float | None = None
) -> float:
    """A request of 60 MB began with ten percent more than its window requires; or with more, where it began so late.

    A lower limit than that of the phase before goes half of the way.

    :param window: that it could expect
    :param overhead: StreamFlow's own time before a command, and after it, at most: that is no time to move in
    :param before: the most that the limit of the phase before may be
    :return: the most that the limit of this phase may be
    """
    required = 1.1 * one["bytes"] / 1e6
    most = 1.01 * required / max(window - sum(overhead), 0.05)
    most = most if before is None else max(most, (most + before) / 2)
    rates = [record for record in bench.telemetry() if record["event"] == "rate" and record["job"] == one["job"]]
    first = rates[0]
    if first["reason"] == "share":
        # The one before is late, and has the storage for itself until it ends: on a busy machine after this has begun.
        first = rates[1]
        one = {**one, "limit": first.get("rate")}
    due = one["ready"] + window
    if "rate" not in first:
        assert (first["reason"], first["time"] >= due - overhead[1]) == ("late", True)
        return most
    assert one["limit"] == first["rate"] >= 0.99 * required / window
    if first["reason"] == "strategy":
        assert one["limit"] <= most
    else:
        assert first["reason"] == "need"
        assert one["limit"] <= required / max(due - overhead[1] - one["started"], 0.05)
    # The save is done in time, and not much sooner, unless a job waits for it before that.
    if all("rate" in record for record in rates):
        highest = max(record["rate"] for record in rates)
        assert one["ended"] - one["started"] >= 0.5 * one["bytes"] / 1e6 / highest, (one, bench.telemetry())
    return most


def test_a_loop_that_is_kept_to_what_is_required(bench: Bench) -> None:
    """The first phase has no limit.

    Each further one has the limit of the window before it, until no job computes any more.
    """
    size = 60_000_000
    disk = {"name": "disk", "path": "/", "write": 400}
    required = {"class": "sfio:StorageBandwidth", "storageBW": "required"}
    document = looped(required, times=4, seconds=2, size=size, script=SLOWLY)
    # What is observed of a job is told to the same reader as what it has moved.
    ours = bench.run_ours(document, config={"storages": [disk], "observe": True})
    assert ours.files == {"made.bin": bytes(BYTES), "saved.bin": bytes(size)}
    told = requests(bench)
    assert [one["phase"] for one in told] == [0, 1, 2, 3]
    assert told[0].get("limit") is None
    # How long StreamFlow takes is measured, too; before it is, that is a quarter of a second each time.
    before = max(0.25, *(one["started"] - one["ready"] for one in told))
    after = max(0.25, *(at(bench, "ended", one["job"]) - one["ended"] for one in told))
    most = None
    for last, one in pairwise(told):
        most = check_limit(bench, one, last["required"] - last["ready"], (before, after), most)
    limited = sum("limit" in one for one in told)
    assert limited >= 1
    said = forked.run(
        "streamflow-io", "bandwidth", "last", cwd=bench.directory, environment={"XDG_DATA_HOME": str(bench.data)}
    )
    assert f"/iteration/save: {limited} of 4 phases ({25 * limited}%) had a limit" in said.stdout, said.stdout
    # The window of the first phase is remembered for that of the next run.
    document = looped(required, times=1, seconds=2, size=size, script=SLOWLY)
    again = bench.run(document, config={"storages": [disk]})
    assert again.ok, again.errors
    [first] = requests(bench)
    check_limit(bench, first, told[0]["required"] - told[0]["ready"], (0.25, 0.25))


def test_a_job_that_waits_for_what_is_moved(bench: Bench) -> None:
    join = tool('cat "$one" "$other" > joined', {"one": "File", "other": "File"}, {"out": found("joined")})
    tiny = tool("echo done > tiny", {"state": "File"}, {"out": found("tiny")}, [IO_TASK])
    steps = {
        "first": {"run": compute(0, {}), "in": {}},
        "stage": {"run": save(), "in": {"state": "first/out"}},
        "tiny": {"run": tiny, "in": {"state": "first/out"}},
        "slow": {"run": compute(1, {"state": "File"}, "slow.bin"), "in": {"state": "first/out"}},
        "join": {"run": join, "in": {"one": "stage/saved", "other": "slow/out"}},
    }
    bench.run_both(workflow({}, steps, {"out": "join/out", "tiny": "tiny/out"}))
    told = {one["step"]: one for one in requests(bench)}
    assert told.keys() == {"/stage", "/tiny"}
    assert (told["/stage"]["rule"], told["/stage"]["channel"]) == ("need", "/stage/0")
    # From then on it lacked nothing else, whatever it was submitted for.
    slow = min(at(bench, "ended", "/slow/0"), at(bench, "submitted", "/join/0"))
    assert told["/stage"]["required"] == pytest.approx(slow, abs=0.05)
    assert told["/tiny"]["rule"] == "exposed"


def test_files_that_are_saved_as_they_are_committed(bench: Bench) -> None:
    rules = streaming({"port": "files", "committed": "on_close"})
    script = f"for n in 1 2 3; do head -c {BYTES} /dev/zero > $n.bin; sleep 0.7; done"
    produce = tool(script, {}, {"files": found("*.bin", "File[]")}, [rules])
    steps = {
        "produce": {"run": produce, "in": {}},
        "save": {"run": save("file"), "scatter": "file", "in": {"file": "produce/files"}},
    }
    bench.run_both(workflow({}, steps, {"saved": "save/saved"}))
    told = requests(bench)
    assert {one["channel"] for one in told} == {"/save of /produce/0"}
    assert [(one["phase"], one["rule"]) for one in told] == [(0, "next"), (1, "next"), (2, "end")]
    assert told[2]["required"] == at(bench, "ended", "/produce/0")


def test_what_a_job_writes_is_measured_where_it_is_observed(bench: Bench) -> None:
    """Also of a step without hints, whatever else StreamFlow asks of its location: two bursts."""
    script = f"head -c {BYTES} /dev/zero > out; sleep 1; head -c {BYTES} /dev/zero >> out; sleep 0.5"
    make = {"run": tool(script, {}, {"out": found("out")}), "in": {}}
    run = bench.run(workflow({}, {"make": make}, {"out": "make/out"}), config={"observe": True})
    assert run.ok, run.errors
    assert any(one["event"] == "output" for one in bench.telemetry())
    told = [one for one in bench.telemetry() if one["event"] == "request"]
    assert {(one["job"], one["kind"], one["rule"]) for one in told} == {("/make/0", "write", "exposed")}
    assert sum(one["bytes"] for one in told) >= 2 * BYTES


def test_no_io_tasks_no_requests(bench: Bench) -> None:
    run = bench.run(
        workflow({}, {"only": {"run": compute(0, {}), "in": {}}}, {"out": "only/out"}), config={"observe": True}
    )
    assert run.ok, run.errors
    assert requests(bench) == []
