"""`sfio-node run`: a job on a machine that shares the run directory with its `serve`.

A machine is simulated by a directory for temporary files of its own.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from lab.node import built, output, wait_for
from lab.node_remote import (
    TREE,
    RemoteNode,
    has_left_nothing,
    make_run,
    run_alone,
    shell,
)

# What a job is


@pytest.mark.parametrize("code", [0, 1, 75, 255])
def test_exit_code(shared: RemoteNode, code: int) -> None:
    job = shell(shared, "j", f"exit {code}")
    assert job.wait() == code
    assert (job.exit()["code"], job.exit()["reason"], job.exit()["success"]) == (code, "exited", code == 0)
    assert job.local() == []


def test_streams_environment_and_directory_are_the_commands(shared: RemoteNode) -> None:
    script = "cat; echo error >&2; pwd; echo $X $SFIO_JOB; grep -E 'Sig(Blk|Ign)' /proc/self/status"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    job = shell(shared, "j", script, environment={"PATH": os.environ["PATH"], "X": "a  b"}, **pipes)
    said, errors = job.process.communicate(b"given\n", timeout=40)
    given, directory, variables, *signals = said.decode().splitlines()
    assert (given, directory, errors) == ("given", os.getcwd(), b"error\n")
    assert variables.startswith("a b ")
    assert f"/streamflow-io-{job.process.pid}-" in variables
    assert variables.endswith("/jobs/j")
    assert not variables.endswith(f"{shared.run}/jobs/j")
    plain = subprocess.run(["/bin/sh", "-c", script.split(";")[-1]], capture_output=True, check=True).stdout
    assert signals == plain.decode().splitlines()


def test_events_are_mirrored_in_order_and_once(shared: RemoteNode) -> None:
    out = shared.base / "out"
    (out / "d").mkdir()
    outputs = [output(out, "f-*", "on_close", "files"), output(out, "d", "on_n_files", "directory", "dir", n_files=300)]
    script = f"cd {out}; for i in $(seq 300); do echo $i > f-$i; echo $i > d/$i; done"
    job = shell(shared, "j", script, outputs=outputs)
    assert job.wait() == 0
    events = job.events()
    lines = (job.directory / "events.jsonl").read_text().splitlines()
    assert len(set(lines)) == len(lines) == len(events)
    assert events[0]["event"] == "started"
    assert job.exit()["success"] is True
    assert [event["time"] for event in events] == sorted(float(str(event["time"])) for event in events)
    assert len(job.named("committed")) == len(job.named("entry")) == 300
    assert len(job.named("complete")) == 2
    assert shared.leave() == 0
    assert job.served() == [{"job": "j", **event} for event in events if event["event"] != "entry"]


def test_events_are_created_at_once_and_for_us_alone(tmp_path: Path) -> None:
    directory = make_run(tmp_path)
    job = run_alone(directory, ["sleep", "0.2"])
    wait_for((directory / "events.jsonl").exists, "the events")
    assert (directory / "events.jsonl").stat().st_mode & 0o777 == 0o600
    assert job.wait() == 0


def test_a_job_is_started_once(shared: RemoteNode) -> None:
    """A queue manager starts jobs of a machine that failed again: its readers may have what it has written."""
    first = shell(shared, "j", "true")
    assert first.wait() == 0
    before = first.events()
    again = shared.start("j", ["touch", shared.base / "ran"], stderr=subprocess.PIPE)
    assert again.process.stderr is not None
    assert b"started before" in again.process.stderr.read()
    assert again.wait() == 125
    assert first.events() == before
    assert not (shared.base / "ran").exists()


def test_without_its_directory_nothing_runs(tmp_path: Path) -> None:
    directory = make_run(tmp_path)
    gone = run_alone(directory.with_name("gone"), ["touch", str(tmp_path / "ran")])
    assert gone.process.stderr is not None
    message = gone.process.stderr.read()
    assert gone.wait() == 125
    assert str(directory.with_name("gone")).encode() in message
    assert message.count(b"\n") == 1
    (directory / "job.json").unlink()
    empty = run_alone(directory, ["touch", str(tmp_path / "ran")])
    assert empty.wait() == 125
    assert b"job.json" in empty.process.communicate()[1]
    assert (empty.exit()["reason"], empty.local()) == ("error", [])
    assert not (tmp_path / "ran").exists()


# How it is ended


def test_a_signal_at_any_moment_leaves_nothing(tmp_path: Path) -> None:
    directory, ran = make_run(tmp_path), tmp_path / "ran"
    for number in range(12):
        job = run_alone(directory, ["sh", "-c", f"sleep 600; touch {ran}"])
        time.sleep(number * 0.002)
        job.process.terminate()
        assert job.wait() != 0
        has_left_nothing(job)
        assert not [event for event in job.events() if event.get("success")]
        (directory / "events.jsonl").unlink(missing_ok=True)
    assert not ran.exists()


def test_cancel_file(shared: RemoteNode) -> None:
    ready = shared.base / "ready"
    job = shell(shared, "j", TREE.format(ready))
    wait_for(ready.exists, "the tree")
    job.cancel()
    assert job.wait() == -signal.SIGTERM
    assert (job.exit()["reason"], job.exit()["signal"]) == ("cancelled", signal.SIGTERM)
    has_left_nothing(job)


def test_cancelled_before_the_start(tmp_path: Path) -> None:
    directory = make_run(tmp_path)
    (directory / "cancel").touch()
    job = run_alone(directory, ["touch", str(tmp_path / "ran")])
    assert job.wait() == 75
    assert (job.exit()["reason"], job.exit()["success"]) == ("cancelled", False)
    assert not (tmp_path / "ran").exists()
    assert job.local() == []


def test_a_heartbeat_that_stands_still(tmp_path: Path) -> None:
    directory = make_run(tmp_path)
    heartbeat = directory.parents[1] / "heartbeat"
    heartbeat.write_text("0\n")
    job = run_alone(directory, ["sleep", "60"], "--patience", "2")
    for number in range(1, 7):
        time.sleep(0.4)
        (tmp_path / "new").write_text(f"{number}\n")
        (tmp_path / "new").rename(heartbeat)
    assert job.process.poll() is None
    assert job.wait(40) != 0
    assert job.exit()["reason"] == "driver"
    has_left_nothing(job)


def test_without_a_heartbeat_until_the_run_directory_vanishes(tmp_path: Path) -> None:
    directory = make_run(tmp_path)
    job = run_alone(directory, ["sh", "-c", TREE.format(tmp_path / "ready")], "--patience", "1")
    wait_for((tmp_path / "ready").exists, "the tree")
    time.sleep(2.2)
    assert job.process.poll() is None
    directory.parents[1].rename(tmp_path / "elsewhere")
    assert job.wait(40) != 0
    has_left_nothing(job)


KILLED = [("run",), ("exec",), ("serve",), ("exec", "serve"), ("run", "serve")]


@pytest.mark.parametrize("stream", [True, False], ids=["streaming", "plain"])
@pytest.mark.parametrize("killed", KILLED, ids="+".join)
def test_kill(shared: RemoteNode, killed: Sequence[str], stream: bool) -> None:
    ready, fifo = shared.base / "ready", shared.base / "in" / "f"
    inputs = [shared.stream("nobody", shared.base / "x", fifo)] if stream else []
    job = shell(shared, "j", TREE.format(ready), inputs=inputs)
    wait_for(ready.exists, "the tree")
    pids = {**job.attendants(), "run": job.process.pid}
    for name in killed:
        os.kill(pids[name], signal.SIGKILL)
    assert job.wait() != 0
    has_left_nothing(job)
    assert not fifo.exists()
    if "run" in killed:
        # No process is left that could say it.
        assert not job.named("exit")
        # An exit event spares `serve` the wait for one.
        with (job.directory / "events.jsonl").open("a") as events:
            events.write('{"event":"exit"}\n')
    else:
        assert (job.exit()["reason"], job.exit()["success"]) == ("lost" if "exec" in killed else "driver", False)
        wait_for(lambda: job.served()[-1]["event"] == "exit", "exit printed")


def test_no_space_for_events(tmp_path: Path) -> None:
    """An untold success is none: in a run directory that is full, in a mount that only the job sees."""
    script = """
    mount -t tmpfs -o size=64k tmpfs "$1" && mkdir -p "$1/run/jobs/j" && echo '{"name": "j"}' > "$1/run/jobs/j/job.json"
    dd if=/dev/zero of="$1/full" 2> "$1.said"; exec "$0" run --job "$1/run/jobs/j" -- true
    """
    full = tmp_path / "full"
    full.mkdir()
    words = ["unshare", "--mount", "sh", "-c", script, str(built()), str(full)]
    if os.geteuid() != 0 or subprocess.run([*words[:3], "-c", "true"], check=False).returncode:
        pytest.skip("needs root, and a namespace for mounts")
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    result = subprocess.run(words, capture_output=True, check=False, timeout=30, env=environment)
    assert result.returncode == 75
    assert b"No space left" in result.stderr
    assert not list(tmp_path.glob("streamflow-io-*"))
