"""Runs that use one storage at the same time have its bandwidth together, whatever becomes of one of them."""

from __future__ import annotations

import fcntl
import json
import os
import pwd
import signal
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from lab.cwl import Document, found, tool, workflow
from lab.gates import TOGETHER
from lab.node import wait_for
from lab.runs import Bench, Run, kill_group, wait_for_note
from streamflow_io.storage.sharing.directory import make_shared
from streamflow_io.storage.sharing.entries import LedgerFile

IO_TASK = {"class": "sfio:IOTask"}
MOST = 20.0
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be another user")


def bandwidth(value: float | str, **fields: Any) -> Document:
    return {"class": "sfio:StorageBandwidth", "storageBW": value, **fields}


def config(**fields: Any) -> Document:
    return {"storages": [{"name": "disk", "path": "/", "write": MOST, "read": MOST, **fields}], "ioExecutors": 8}


def tasks(
    hints: Sequence[Document], seconds: float = 0.3, cores: float = 1, together: int = 1, script: str = ""
) -> Document:
    """A scattered step that takes its time, and notes when.

    :param together: the number of jobs of all runs that have to begin before one of them ends
    """
    run = tool(
        f"{TOGETHER}note start; together {together}; {script} sleep {seconds}; echo $part > out.txt; note end",
        {"part": "int"},
        {"out": found("out.txt")},
        hints,
        requirements=[{"class": "ResourceRequirement", "coresMin": cores, "ramMin": 16}],
    )
    steps = {"a": {"run": run, "scatter": "part", "in": {"part": "parts"}}}
    return workflow({"parts": "int[]"}, steps, {"out": "a/out"})


def parts(count: int) -> Document:
    return {"parts": list(range(count))}


def write(bench: Bench, document: Document, jobs: int, **fields: Any) -> Path:
    return bench.write(document, parts(jobs), io=True, config=config(**fields))


def at_once(runs: Iterable[Run]) -> int:
    """The most jobs of all runs that ran at the same time."""
    changes = sorted(
        change
        for run in runs
        for change in [(when, 1) for when in run.times("start")] + [(when, -1) for when in run.times("end")]
    )
    running = most = 0
    for _, change in changes:
        running += change
        most = max(most, running)
    return most


def telemetry(bench: Bench) -> list[list[Document]]:
    """The telemetry of each run."""
    files = sorted((bench.data / "streamflow-io" / "runs").glob("*/telemetry.jsonl"))
    return [[json.loads(line) for line in file.read_text().splitlines()] for file in files]


def leases(bench: Bench) -> list[list[Document]]:
    """The records of each run about its leases."""
    return [[record for record in records if record["event"] == "lease"] for records in telemetry(bench)]


def most_held(bench: Bench) -> float:
    """The most that all runs together held, in one direction."""
    most = 0.0
    for direction in ("read", "write"):
        changes = sorted(
            (record["time"], number, record["held"])
            for number, records in enumerate(leases(bench))
            for record in records
            if record["direction"] == direction
        )
        held: dict[int, float] = {}
        for _, number, now in changes:
            held[number] = now
            most = max(most, sum(held.values()))
    return most


def shared_directories(bench: Bench) -> list[Path]:
    return [*(bench.data / "streamflow-io" / "shared").glob("*")]


def entries(bench: Bench) -> list[Path]:
    return [*(bench.data / "streamflow-io" / "shared").glob("*/runs/*")]


@pytest.mark.parametrize(
    "hints",
    [
        [IO_TASK, bandwidth(10)],
        pytest.param([bandwidth(10, direction="both")], marks=pytest.mark.long),
        pytest.param([IO_TASK, bandwidth(10, direction="read")], marks=pytest.mark.long),
    ],
)
def test_runs_have_the_bandwidth_together(bench: Bench, hints: list[Document]) -> None:
    document = tasks(hints, cores=0.1, together=2)
    paths = [write(bench, document, 6), write(bench, document, 6), bench.write_plain(document, parts(6))]
    one, other, plain = bench.run_all(paths)
    assert (one.ok, other.ok) == (True, True), one.errors + other.errors
    assert one.results == other.results == plain.results
    assert at_once([one, other]) == 2
    assert most_held(bench) <= MOST
    assert all(records[-1]["held"] == 0 for records in leases(bench))
    assert entries(bench) == []
    assert bench.leftovers() == []


def test_a_small_run_does_not_wait_for_a_large_one(bench: Bench) -> None:
    """A job's returned bandwidth goes to the run that is due first, though its own run has more to do with it."""
    hints = [IO_TASK, bandwidth(MOST)]
    until = 'until [ -e "$TRACE.go" ]; do sleep 0.1; done;'
    paths = [write(bench, tasks(hints, script=until), 6), write(bench, tasks(hints, seconds=0.1), 1)]
    large = bench.start(paths[0])
    try:
        wait_for_note(paths[0], " start\n")
        started = bench.start(paths[1])
        wait_for(lambda: len(wanted := [*map(wants, entries(bench))]) == 2 and all(wanted), "two that wait", 60)
        paths[0].with_name("trace.go").touch()
        small = bench.finish(started, paths[1])
        run = bench.finish(large, paths[0])
    finally:
        kill_group(large)
    assert small.ok, small.errors
    assert run.ok, run.errors
    assert at_once([run, small]) == 1
    assert len([when for when in run.times("start") if when > small.time("end")]) >= 2


def test_a_storage_need_not_be_shared(bench: Bench) -> None:
    document = tasks([IO_TASK, bandwidth(10)], seconds=0.5, together=4)
    one, other = bench.run_all([write(bench, document, 4, share="off") for _ in range(2)])
    assert at_once([one, other]) == 4
    assert leases(bench) == [[], []]
    assert shared_directories(bench) == []


def test_a_run_without_bandwidth_opens_nothing(bench: Bench) -> None:
    ours = bench.run(tasks([IO_TASK]), parts(2), config=config())
    assert ours.ok, ours.errors
    assert shared_directories(bench) == []


@pytest.mark.parametrize("how", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.long)])
def test_what_a_run_held_that_was_killed_is_free(bench: Bench, how: signal.Signals) -> None:
    """A SIGKILL tells no run; the job of the killed run goes on."""
    whole = write(bench, tasks([IO_TASK, bandwidth(MOST)], seconds=30), 1)
    first = bench.start(whole)
    try:
        wait_for_note(whole, " start\n")
        second = write(bench, tasks([IO_TASK, bandwidth(10)]), 2)
        process = bench.start(second)
        time.sleep(1)
        assert not second.with_name("trace").exists()
        os.kill(first.pid, how)
        run = bench.finish(process, second)
        assert run.ok, run.errors
    finally:
        kill_group(first)


def wants(entry: Path) -> object:
    """Return the wants of the entry of a run; None while the entry is being written."""
    try:
        return json.loads(entry.read_text()).get("wanted")
    except (json.JSONDecodeError, FileNotFoundError):
        return None


@needs_root
def test_a_run_ends_beside_another_user_that_holds_all(public: Path) -> None:
    """The run has half of the bandwidth after a while, names the user that holds more, and has the results of plain
    StreamFlow.
    """
    bench = Bench(public)
    shared = bench.directory / "ledger"
    make_shared(shared, LedgerFile(path="/", write=20 * 10**6), 0)
    times = {"started": 0.0, "now": 0.0, "asked": 0.0, "due": -1e11, "beat": 1}
    held = {"held": {"read": 10**18, "write": 10**18}, "wanted": {"write": 1}}
    entry = shared / "runs" / f"{0:032x}.json"
    entry.write_text(
        json.dumps({"version": 1, "run": "greedy", "host": "h", "pid": 7, "bandwidth": {}, **times, **held})
    )
    os.chown(entry, pwd.getpwnam("daemon").pw_uid, 0)
    document = tasks([IO_TASK, bandwidth(5)], cores=0.1, together=2)
    with entry.open("rb") as locked:
        fcntl.flock(locked, fcntl.LOCK_EX)
        paths = [bench.write_plain(document, parts(4)), write(bench, document, 4, share=str(shared))]
        plain, ours = bench.run_all(paths)
    assert plain.ok
    assert ours.ok, ours.errors
    assert ours.results == plain.results
    assert at_once([ours]) == 2
    (said,) = (line for line in ours.log.splitlines() if "[SFIO-B007]" in line)
    assert "of user daemon" in said
    assert str(entry) in said
