"""A run is watched while it goes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lab import forked
from lab.cwl import Document, found, streamable, streaming, tool, workflow
from lab.node import wait_for
from lab.runs import Bench, kill_group
from streamflow_io.commands import watch as watch_command
from streamflow_io.commands.watch import FollowedRun
from streamflow_io.records.records import VERSION
from streamflow_io.records.runs import PROGRESS_FILE, create_run_directory
from streamflow_io.report.analysis.live import LiveRun, RunView
from streamflow_io.report.live_view import waits_text

STALLED = "head -c 100000 /dev/zero; while [ ! -e $go ]; do sleep 0.1; done; head -c 100000 /dev/zero"


def stalling() -> Document:
    """`/b` reads what `/a` writes, which stands until there is a file `go`."""
    steps: dict[str, Document] = {
        "a": {
            "run": tool(f"({STALLED}) > out.txt", {"go": "string"}, {"out": found("out.txt", streamable=True)}),
            "in": {"go": "go"},
        },
        "b": {
            "run": tool("wc -c < $file", {"file": streamable()}, {"out": "stdout"}, stdout="b.txt"),
            "in": {"file": "a/out"},
        },
    }
    return workflow({"go": "string"}, steps, {"b": "b/out"})


def watch(bench: Bench, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {"XDG_DATA_HOME": str(bench.data)}
    return forked.run("streamflow-io", "watch", *arguments, cwd=bench.directory, environment=environment)


def telemetry(bench: Bench) -> Path:
    """The file of the only run, as soon as it is there."""
    files: list[Path] = []

    def there() -> bool:
        files[:] = [path for path in bench.data.glob("**/telemetry.jsonl") if path.stat().st_size]
        return bool(files)

    wait_for(there, "telemetry")
    return files[0]


def looked(following: FollowedRun) -> RunView:
    following.look()
    return following.view(time.time())


def test_a_stream_that_stands_is_seen_and_the_end(bench: Bench) -> None:
    go = bench.directory / "go"
    path = bench.write(stalling(), {"go": str(go)}, True)
    process = bench.start(path)
    file = telemetry(bench)
    following = FollowedRun(file, LiveRun("run"))

    def stalled() -> bool:
        view = looked(following)
        return [(each.bytes, each.stalled is not None, each.waits) for each in view.streams] == [
            (100_000, True, "producer")
        ]

    wait_for(stalled, "a stream that stands")
    view = looked(following)
    assert [(step.name, step.running) for step in view.steps] == [("/a", 1), ("/b", 1)]
    go.touch()
    # `watch` ends with the run, without a terminal.
    done = watch(bench, "last")
    run = bench.finish(process, path)
    assert run.ok, run.errors
    assert "has succeeded after" in done.stdout
    assert done.returncode == 0
    wait_for(lambda: looked(following).state == "completed", "the end")
    assert (view.streamed, looked(following).streamed_bytes) == (0, 200_000)
    assert not file.with_name(PROGRESS_FILE).exists()
    following.close()
    nothing = watch(bench, "another")
    assert nothing.returncode == 1
    assert "there is no such run" in nothing.stderr
    assert "no run goes on" in watch(bench, "--json").stdout


def test_the_next_run_is_waited_for(bench: Bench) -> None:
    environment = {**os.environ, "XDG_DATA_HOME": str(bench.data)}
    command = [sys.executable, "-m", "streamflow_io.cli", "watch"]
    waiting = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    assert waiting.stderr is not None
    assert waiting.stderr.readline() == "No run is active. Waiting for the next run; Ctrl-C stops waiting\n"
    (go := bench.directory / "go").touch()
    path = bench.write(stalling(), {"go": str(go)}, True)
    run = bench.finish(bench.start(path), path)
    assert run.ok, run.errors
    output, errors = waiting.communicate(timeout=60)
    assert "has succeeded after" in output
    assert errors == ""
    assert waiting.returncode == 0


def test_a_run_that_is_just_starting_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run has its time before it has a file: a watch that begins in between shows the run."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    began = time.time() - 1

    def starts(_: float) -> None:
        create_run_directory("new")
        run = {"event": "run", "time": began, "version": VERSION, "name": "new", "workflow": "w.cwl"}
        (tmp_path / "streamflow-io/runs/new/telemetry.jsonl").write_text(json.dumps(run) + "\n")

    monkeypatch.setattr(watch_command.time, "sleep", starts)
    assert watch_command._next_run().parent.name == "new"
    assert "No run is active" in capsys.readouterr().err


def test_a_job_that_is_held_at_the_gate_is_seen(bench: Bench) -> None:
    go = bench.directory / "go"
    rule = streaming({"port": "out", "committed": "on_close", "start": "producer"})
    first = tool(
        "while [ ! -e $go ]; do sleep 0.1; done; echo 1 > out.txt", {"go": "string"}, {"out": found("out.txt")}, [rule]
    )
    steps: dict[str, Document] = {
        "a": {"run": first, "in": {"go": "go"}},
        "b": {
            "run": tool("cat $file", {"file": "File"}, {"out": "stdout"}, stdout="b.txt"),
            "in": {"file": "a/out"},
        },
    }
    path = bench.write(workflow({"go": "string"}, steps, {"b": "b/out"}), {"go": str(go)}, True)
    process = bench.start(path)
    following = FollowedRun(telemetry(bench), LiveRun("run"))
    wait_for(lambda: [dict(step.waits) for step in looked(following).steps] == [{}, {"gate": 1}], "the gate")
    assert waits_text(looked(following).steps[1]) == "the gate (1)"
    go.touch()
    run = bench.finish(process, path)
    assert run.ok, run.errors
    (usage,) = [
        record["usage"] for record in bench.telemetry() if record["event"] == "ended" and record["step"] == "/b"
    ]
    assert usage["heldSeconds"] > 0.7
    following.close()


def test_a_run_that_was_killed_is_not_waited_for(bench: Bench) -> None:
    path = bench.write(stalling(), {"go": str(bench.directory / "go")}, True)
    process = bench.start(path)
    telemetry(bench)
    kill_group(process)
    done = watch(bench, "last")
    assert "was KILLED" in done.stdout
    assert done.returncode == 1
    wait_for(lambda: bench.leftovers() == [], "nothing is left", 60)
