"""The parts of the workload `cluster` that need no cluster."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from benchmarks import cluster
from benchmarks.cluster_sites import measured
from benchmarks.processes import CommandError
from benchmarks.tools import ALL_CORES, WAIT, work_of
from benchmarks.workflows import job_times
from lab.machines.hosts import link_shape

TOOL = (sys.executable, "-S", "-E", str(Path(cluster.__file__).with_name("cluster_tools.py")))
# Makes a file in the directory of its job, if it is given one. Sleeps much longer than a process takes to start, on a
# busy machine, too.
FAKE = """#!/bin/sh
test "$1" = exec || exit 9
touch "$3/seen"
sleep 0.2
"""


def call(*arguments: object) -> float:
    command = [*TOOL, *map(str, arguments)]
    return float(subprocess.run(command, capture_output=True, check=True, timeout=20, text=True).stdout)


def test_a_command_is_timed_from_file_to_file(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"abc")
    seconds = call("timed", tmp_path / "in", tmp_path / "out", "sh", "-c", "sleep 0.2; cat")
    assert 0.2 <= seconds < 5
    assert (tmp_path / "out").read_bytes() == b"abc"


def test_a_file_is_copied(tmp_path: Path) -> None:
    data = bytes(range(256)) * 10_000
    (tmp_path / "in").write_bytes(data)
    with subprocess.Popen([*TOOL, "send-file", "127.0.0.1", tmp_path / "in"], stdout=subprocess.DEVNULL):
        assert call("receive-file", tmp_path / "out") > 0
    assert (tmp_path / "out").read_bytes() == data


def test_the_wrapper_is_timed_and_serve_is_ended(tmp_path: Path) -> None:
    (binary := tmp_path / "sfio-node").write_text(FAKE)
    binary.chmod(0o755)
    (tmp_path / "job.json").write_text("{}")
    (run := tmp_path / "run" / "jobs").mkdir(parents=True)
    milliseconds = call("time-wrapper", 3, run.parent, tmp_path / "job.json", binary, "exec")
    assert 150 < milliseconds < 1000
    assert (run.parent / "end").exists()
    assert [(job / "seen").exists() for job in sorted(run.iterdir())] == [True] * 3
    assert json.loads((run / "0" / "job.json").read_text()) == {}
    assert run.joinpath("0").stat().st_mode & 0o777 == 0o700


def test_a_wrapper_that_fails_is_no_measurement(tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text("{}")
    (tmp_path / "run" / "jobs").mkdir(parents=True)
    with pytest.raises(subprocess.CalledProcessError):
        call("time-wrapper", 3, tmp_path / "run", tmp_path / "job.json", "/bin/false", "exec")
    assert (tmp_path / "run" / "end").exists()


def test_what_is_no_number_is_no_measurement(tmp_path: Path) -> None:
    assert measured(tmp_path, ["echo", "else"], ["echo", "1.5"]) == 1.5
    with pytest.raises(CommandError, match="has measured nothing: 'else'"):
        measured(tmp_path, ["echo", "else"])


def test_work_that_waits_uses_no_cpu() -> None:
    start, used = time.monotonic(), time.process_time()
    work_of(f"{WAIT}0.05")()
    assert time.monotonic() - start >= 0.05
    assert time.process_time() - used < 0.04


def test_work_on_all_cores_uses_them() -> None:
    used = os.times()
    work_of(f"{ALL_CORES}0.05")()
    now = os.times()
    children = now.children_user + now.children_system - used.children_user - used.children_system
    assert children >= 0.05 * len(os.sched_getaffinity(0)) * 0.9


def write_times(directory: Path, *times: tuple[str, float, float]) -> None:
    """Write times as the database of a run has them."""
    with closing(sqlite3.connect(directory / "streamflow.db")) as connection:
        connection.execute("CREATE TABLE step (id INTEGER, name TEXT)")
        connection.execute("CREATE TABLE execution (step INTEGER, start_time INTEGER, end_time INTEGER)")
        for number, (name, start, end) in enumerate(times):
            connection.execute("INSERT INTO step VALUES (?, ?)", (number, name))
            connection.execute("INSERT INTO execution VALUES (?, ?, ?)", (number, int(start * 1e9), int(end * 1e9)))
        connection.commit()


def test_steps_that_overlap_have_streamed(tmp_path: Path) -> None:
    write_times(tmp_path, ("/a", 1, 4), ("/c", 3, 6), ("/b", 2, 5))
    cluster.check_streamed(tmp_path)
    assert [job.step for job in job_times(tmp_path)] == ["/a", "/b", "/c"]


def test_steps_one_after_the_other_have_not(tmp_path: Path) -> None:
    write_times(tmp_path, ("/a", 1, 4), ("/b", 2, 5), ("/c", 5.5, 6))
    (tmp_path / "errors.0").write_text("INFO fine\nWARNING no way\nWARNING no way\n")
    with pytest.raises(CommandError, match=r"nothing streamed from /b to /c, which started 0.5 s .*:\nWARNING no way$"):
        cluster.check_streamed(tmp_path)


def test_links_hold_ten_milliseconds_of_burst() -> None:
    assert link_shape(1000) == "root tbf rate 1000mbit burst 1250000b latency 50ms"
