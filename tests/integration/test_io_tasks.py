"""I/O tasks take no core; a storageBW limits how many jobs run at once; results are those of plain StreamFlow."""

from __future__ import annotations

import os
import signal
import time
from hashlib import sha1
from typing import Any

import pytest

from lab.cwl import Document, found, tool, workflow
from lab.gates import MEET, TOGETHER
from lab.runs import RETRY, Bench, Run, wait_for_note
from lab.telemetry import write
from streamflow_io.cli import main
from streamflow_io.records.records import EndRecord, RunRecord
from streamflow_io.records.runs import KEPT_RUNS

CORES = len(os.sched_getaffinity(0))
IO_TASK = {"class": "sfio:IOTask"}


def bandwidth(value: float | str, **fields: Any) -> Document:
    return {"class": "sfio:StorageBandwidth", "storageBW": value, **fields}


def storage(write: float = 100, **fields: Any) -> Document:
    return {"name": "disk", "path": "/", "write": write, **fields}


def writer(
    hints: list[Document],
    seconds: float = 0.5,
    cores: float = 1,
    script: str = "",
    file: str = "out.txt",
    together: int = 1,
) -> Document:
    """A step that takes its time to write a small file, and notes when.

    :param together: the number of its jobs that have to begin before one of them ends
    """
    return tool(
        f"{TOGETHER}note start; together {together}; {script} sleep {seconds}; echo $part > {file}; note end",
        {"part": "int"},
        {"out": found(file)},
        hints,
        requirements=[{"class": "ResourceRequirement", "coresMin": cores, "ramMin": 16}],
    )


def scattered(run: Document) -> Document:
    steps = {"a": {"run": run, "scatter": "part", "in": {"part": "parts"}}}
    return workflow({"parts": "int[]"}, steps, {"out": "a/out"})


def run_jobs(bench: Bench, run: Document, count: int, **settings: Any) -> Run:
    """Run a number of jobs of a step. Their files are in the order of the parts."""
    ours = bench.run_ours(scattered(run), {"parts": list(range(count))}, **settings)
    texts = [b"%d\n" % part for part in range(count)]
    assert [file["checksum"] for file in ours.outputs["out"]] == [f"sha1${sha1(text).hexdigest()}" for text in texts]
    return ours


def test_old_runs_are_removed_when_a_run_begins(bench: Bench) -> None:
    runs = bench.data / "streamflow-io" / "runs"
    for age in range(KEPT_RUNS + 1):
        begin = time.time() - 3600 - age
        file = runs / f"old-{age}" / "telemetry.jsonl"
        write(file, [RunRecord(time=begin, name=f"old-{age}", workflow="main.cwl"), EndRecord(time=begin)])
        os.utime(file, (begin, begin))
    run = bench.run(scattered(writer([IO_TASK], seconds=0)), {"parts": [1]})
    assert run.ok, run.errors
    left = {path.name for path in runs.iterdir()}
    assert len(left) == KEPT_RUNS + 1
    assert f"old-{KEPT_RUNS - 1}" in left
    assert f"old-{KEPT_RUNS}" not in left


@pytest.mark.parametrize(
    ("hints", "cores", "cause"),
    [([bandwidth(100), IO_TASK], 0, "storage"), ([bandwidth(1)], CORES, "cores")],
    ids=["I/O task", "cores"],
)
def test_what_a_job_has_waited_for(bench: Bench, hints: list[Document], cores: int, cause: str) -> None:
    run = bench.run(scattered(writer(hints, cores=cores)), {"parts": [1, 2]}, config={"storages": [storage()]})
    assert run.ok, run.errors
    first, second = (record.get("waited", {}) for record in records(bench, "started"))
    # To ask the storage takes a moment, too.
    others = {"storage"} - {cause}
    assert max(0.4, sum(first.values())) < second[cause] < 30
    assert first.keys() <= {"storage"}
    assert second.keys() <= {cause} | others


def at_once(run: Run, start: str = "start", end: str = "end") -> int:
    """The most jobs that ran at once."""
    changes = sorted([(time, 1) for time in run.times(start)] + [(time, -1) for time in run.times(end)])
    running = most = 0
    for _, change in changes:
        running += change
        most = max(most, running)
    return most


def records(bench: Bench, event: str) -> list[Document]:
    return [record for record in bench.telemetry() if record["event"] == event]


def test_an_io_task_takes_no_core(bench: Bench) -> None:
    jobs = 2 * CORES
    run = scattered(writer([IO_TASK], seconds=0.2, together=CORES + 1))
    plain, ours = bench.run_both(run, {"parts": list(range(jobs))})
    assert at_once(plain) <= CORES
    assert at_once(ours) > CORES


def test_it_overlaps_with_compute_on_all_cores(bench: Bench) -> None:
    """Each waits until the other has begun."""
    compute = tool(
        f"{MEET}note busy; meet start; note free; echo done > busy.txt",
        {},
        {"out": found("busy.txt")},
        requirements=[{"class": "ResourceRequirement", "coresMin": CORES, "ramMin": 16}],
    )
    task = tool(f"{MEET}note start; meet busy; note end; echo > out.txt", {}, {"out": found("out.txt")}, [IO_TASK])
    steps: dict[str, Document] = {"a": {"run": compute, "in": {}}, "b": {"run": task, "in": {}}}
    _, ours = bench.run_both(workflow({}, steps, {"a": "a/out", "b": "b/out"}), config={"observe": True})
    assert max(ours.times("busy") + ours.times("start")) < min(ours.times("free") + ours.times("end"))


def test_io_executors_limit_io_tasks(bench: Bench) -> None:
    assert at_once(run_jobs(bench, writer([IO_TASK], together=2), 6, config={"ioExecutors": 2})) == 2


@pytest.mark.parametrize(
    ("scope", "hints"),
    [
        ("node", [IO_TASK]),
        pytest.param("shared", [], marks=pytest.mark.long),
        pytest.param("shared", [IO_TASK], marks=pytest.mark.long),
        pytest.param("node", [], marks=pytest.mark.long),
    ],
)
def test_a_storage_bandwidth_limits_jobs(bench: Bench, scope: str, hints: list[Document]) -> None:
    cores = 0.01 if hints else 0
    run = writer([*hints, bandwidth(40)], cores=cores, together=2)
    ours = run_jobs(bench, run, 6, config={"storages": [storage(100, scope=scope)]})
    assert at_once(ours) == 2
    admitted = records(bench, "admitted")
    assert len(admitted) == 6
    assert {record["constraint"] for record in admitted} == {40}
    assert max(record["allocated"] for record in admitted) == 80
    ended = records(bench, "ended")
    assert [record["status"] for record in ended] == ["completed"] * 6
    assert all(record["usage"]["bytesWritten"] > 0 for record in ended)


def test_read_and_write_are_separate(bench: Bench) -> None:
    steps = {
        name: {
            "run": writer([IO_TASK, bandwidth(60, direction=direction)], file=f"{name}.txt", together=2),
            "in": {"part": {"default": 1}},
        }
        for name, direction in (("a", "read"), ("b", "write"))
    }
    config = {"storages": [storage(100, read=100)]}
    _, ours = bench.run_both(workflow({}, steps, {"a": "a/out", "b": "b/out"}), config=config)
    assert at_once(ours) == 2


def test_a_large_job_does_not_starve(bench: Bench) -> None:
    """Small jobs that arrive later would always fit beside each other: they wait behind the large one."""
    large = tool(
        "note large; echo > large.txt", {"part": "int"}, {"out": found("large.txt")}, [IO_TASK, bandwidth(100)]
    )
    first = tool("note first; sleep 1; echo > first.txt", {}, {"out": found("first.txt")}, [IO_TASK, bandwidth(10)])
    delay = tool("sleep 0.3; echo > out.txt", {}, {"out": found("out.txt")})
    small = tool(
        "note small; sleep 0.3; echo > out.txt",
        {"part": "int", "after": "File"},
        {"out": found("out.txt")},
        [IO_TASK, bandwidth(10)],
    )
    steps = {
        "first": {"run": first, "in": {}},
        "large": {"run": large, "in": {"part": {"default": 1}}},
        "delay": {"run": delay, "in": {}},
        "small": {"run": small, "scatter": "part", "in": {"part": "parts", "after": "delay/out"}},
    }
    outputs = {name: f"{name}/out" for name in ("first", "large", "small")}
    config = {"storages": [storage(100)]}
    ours = bench.run_ours(workflow({"parts": "int[]"}, steps, outputs), {"parts": list(range(12))}, config=config)
    assert [*ours.files.values()] == [b"\n"] * 14
    late = [time for time in ours.times("small") if time > ours.time("large")]
    assert len(late) >= 6, ours.trace


def test_bandwidth_is_returned_by_failed_jobs(bench: Bench) -> None:
    """Each job fails once; with StreamFlow's failure manager it is tried again, and finds the bandwidth free."""
    script = 'test -e "$TRACE.$part" || { touch "$TRACE.$part"; note failed; exit 1; };'
    run = scattered(writer([IO_TASK, bandwidth(60)], seconds=0.1, script=script))
    path = bench.write(
        run,
        {"parts": [1, 2, 3]},
        True,
        {"storages": [storage(100)]},
        **RETRY,
    )
    ours = bench.finish(bench.start(path), path)
    assert ours.ok, ours.errors
    assert len(ours.times("failed")) == 3
    assert {record["status"] for record in records(bench, "ended")} == {"failed", "completed"}
    assert bench.leftovers() == []


def test_a_failure_ends_the_run_though_others_wait(bench: Bench) -> None:
    run = scattered(writer([IO_TASK, bandwidth(60)], seconds=0.2, script="test $part != 1 || exit 1;"))
    ours = bench.run(run, {"parts": list(range(8))}, config={"storages": [storage(100)]})
    assert not ours.ok
    assert bench.leftovers() == []


def test_control_c_ends_jobs_that_run_and_jobs_that_wait(bench: Bench) -> None:
    run = scattered(writer([IO_TASK, bandwidth(60)], seconds=30))
    path = bench.write(run, {"parts": list(range(4))}, True, {"storages": [storage(100)]})
    process = bench.start(path)
    wait_for_note(path, "start")
    process.send_signal(signal.SIGINT)
    bench.finish(process, path)
    assert bench.leftovers() == []
    assert len(records(bench, "ended")) == len(records(bench, "submitted"))
    assert {record["status"] for record in records(bench, "ended")} == {"cancelled"}


def test_without_the_node_runtime_limits_hold(bench: Bench) -> None:
    run = writer([IO_TASK, bandwidth(40)], seconds=2)
    ours = run_jobs(bench, run, 4, config={"storages": [storage(100)], "runtime": "off"})
    assert at_once(ours) == 2
    assert all("usage" not in record for record in records(bench, "ended"))


def test_a_limit_is_learned_and_remembered(bench: Bench) -> None:
    most = 4 * CORES
    run = writer([IO_TASK, bandwidth("auto")], seconds=0.7)
    config = {"storages": [storage(most)], "ioExecutors": most, "learned": "../learned.db"}
    ours = run_jobs(bench, run, 3 * most, config=config)
    # One job per core at first. The time of a job does not depend on how many run: each time, twice as many are tried.
    assert [(epoch["constraint"], epoch["registered"]) for epoch in records(bench, "epoch")] == [
        (4, True),
        (2, True),
        (1, True),
    ]
    assert [record["constraint"] for record in records(bench, "choice") if record["reason"] == "learned"] == [1]
    assert at_once(ours) > 2 * CORES
    run_jobs(bench, run, most, config=config)
    assert records(bench, "epoch") == []
    first = records(bench, "choice")[0]
    assert (first["reason"], first["constraint"]) == ("remembered", 1)


@pytest.mark.parametrize(
    ("hint", "storages", "message"),
    [
        (bandwidth("20MB"), [storage()], "'20MB' is no storage bandwidth"),
        (bandwidth(0), [storage()], "0 MB/s is not above 0"),
        (bandwidth("auto(50,10,4)"), [storage()], "min 50 is above max 10"),
        (bandwidth(20, storage="tape"), [storage()], "unknown storage 'tape'"),
        (bandwidth(200), [storage()], "200 is above the write bandwidth of storage 'disk'"),
        (bandwidth(20), [storage(0)], "write"),
        (bandwidth(20), [storage(), storage(name="other")], "have one path"),
        # More than the storage with the output directory has, though another storage has more.
        (bandwidth(150), [storage(), {"name": "fast", "path": "/nowhere", "write": 500}], "at most 100 MB/s"),
    ],
)
def test_mistakes_are_found_by_the_plan(
    bench: Bench, capsys: pytest.CaptureFixture[str], hint: Document, storages: Any, message: str
) -> None:
    document = scattered(writer([IO_TASK, hint]))
    assert main(["plan", str(bench.write(document, {"parts": [1]}, True, {"storages": storages}))]) == 1
    assert message in capsys.readouterr().err


def test_a_bandwidth_without_a_storage_is_a_warning(bench: Bench) -> None:
    ours = run_jobs(bench, writer([IO_TASK, bandwidth(20)]), 2)
    assert "The storageBW of /a is not applied" in ours.log
