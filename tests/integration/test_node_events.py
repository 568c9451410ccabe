"""A job that writes its own events. It fails at once and says so, no job waits for ever, and nothing is made of it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from lab.cwl import streamable, tool, workflow
from lab.node import Job, Node, node_binary, output, wait_for
from lab.runs import Bench

FOREIGN = "a program other than sfio-node has changed its events"
EXIT = {"event": "exit", "success": True, "code": 0, "reason": "exited", "time": 1.0, "ended": 1.0, "started": 1.0}


def said(**event: object) -> str:
    """A script that writes an event as `exec` does; `$SFIO_JOB` is the job's directory."""
    return f"echo '{json.dumps(event)}' >> $SFIO_JOB/events.jsonl"


def last(job: Job) -> tuple[object, ...]:
    """Return the report about the end of a job that the driver gets."""
    wait_for(lambda: job.served() and job.served()[-1]["event"] == "exit", "the exit")
    return tuple(job.served()[-1].get(name) for name in ("success", "reason", "message"))


ATTACKS = {
    "a success": said(**EXIT),
    "a success of another job": said(job="other", **EXIT),
    "a line of another job": said(event="opened", port="out", path="/x", time=1.0, job="other"),
    "nonsense": "printf '{' >> $SFIO_JOB/events.jsonl",
    "a long line": "head -c 3000000 /dev/zero | tr '\\0' x >> $SFIO_JOB/events.jsonl",
    "a cut": ": > $SFIO_JOB/events.jsonl",
    "a removal": "rm $SFIO_JOB/events.jsonl",
    "a replacement": "cp $SFIO_JOB/events.jsonl $SFIO_JOB/new; mv $SFIO_JOB/new $SFIO_JOB/events.jsonl",
}


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
@pytest.mark.parametrize("watches", [True, False])
def test_a_job_that_changes_its_events_fails_at_once(runtime: Node, attack: str, watches: bool) -> None:
    outputs = [output(runtime.base, "out")] if watches else []
    job = runtime.shell("j", f"sleep 0.2; {attack}; sleep 600", outputs=outputs)
    assert job.wait() == 75
    assert last(job) == (False, "error", FOREIGN)
    assert [event["event"] for event in job.served()].count("exit") == 1
    assert not any(event.get("job") == "other" or event.get("path") == "/x" for event in runtime.printed)
    assert job.processes() == []


def test_what_is_written_over_is_found_at_the_end(runtime: Node) -> None:
    job = runtime.shell("j", "printf '[' | dd of=$SFIO_JOB/events.jsonl conv=notrunc 2> $SFIO_JOB/dd")
    assert job.wait() == 75
    assert last(job) == (False, "error", FOREIGN)


def test_who_only_opens_the_events_does_no_harm(runtime: Node) -> None:
    job = runtime.shell("j", "for i in 1 2; do : >> $SFIO_JOB/events.jsonl; cat $SFIO_JOB/events.jsonl; done; sleep 1")
    assert job.wait() == 0
    assert last(job) == (True, "exited", None)
    assert [event["event"] for event in job.served()] == ["started", "exit"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a second user")
def test_exec_is_shielded_from_its_job(public: Path) -> None:
    """A process of the same user can neither look into it nor take its open files, also when the job is to be idle."""
    user = 65534
    (base := public / "home").mkdir()
    shutil.chown(base, user, user)
    wrapper = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]
    node = Node(unprivileged(public), base, wrapper=wrapper)
    try:
        look = f"ls /proc/$PPID/fd; cat /proc/$PPID/environ; cat /proc/{node.server.pid}/mem"
        directory = node.run / "jobs" / "j"
        directory.mkdir()
        spec = {"name": "j", "outputs": [output(base, "out")], "rehearsal": {"idle": True}}
        (directory / "job.json").write_text(json.dumps(spec))
        for path in (directory, directory / "job.json"):
            os.chown(path, user, user)
        command = [*wrapper, str(node.binary), "exec", "--job", str(directory), "--", "sh", "-c"]
        ran = subprocess.run(
            [*command, f"cat /proc/self/oom_score_adj; {look}; echo text > {base}/out"],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        assert ran.stdout == "1000\n"
        assert ran.stderr.count("Permission denied") == 3, ran.stderr
        usage = json.loads((directory / "events.jsonl").read_text().splitlines()[-1])["usage"]
        assert usage["wchar"] >= 5
    finally:
        assert node.server.stdin is not None
        node.server.stdin.close()
        assert node.server.wait(15) == 0


def unprivileged(directory: Path) -> Path:
    """A copy of the binary that others may run."""
    binary = node_binary()
    assert binary is not None
    copy = directory / "sfio-node"
    shutil.copy(binary, copy)
    copy.chmod(0o755)
    return copy


FORGED = {
    "another job's success": said(job="other", **EXIT),
    "a success": said(**EXIT),
    "a commit": said(event="committed", port="out", path="WHERE/out.txt", size=2, time=1.0).replace("WHERE", "'$PWD'"),
    "a success, and the death of exec": said(**EXIT) + "; kill -9 $PPID",
}


@pytest.mark.parametrize(
    "forgery",
    [pytest.param(text, id=what, marks=() if "death" in what else pytest.mark.long) for what, text in FORGED.items()],
)
def test_a_run_with_a_job_that_forges_events_fails(bench: Bench, forgery: str) -> None:
    script = f'echo 1; [ -z "$SFIO_JOB" ] || {{ sleep 0.5; {forgery}; sleep 0.5; }}; echo 2'
    producer = tool(script, {}, {"out": streamable("stdout")}, stdout="out.txt")
    consumer = tool("cat $file", {"file": streamable()}, {"read": "stdout"}, stdout="read.txt")
    steps = {"a": {"run": producer, "in": {}}, "b": {"run": consumer, "in": {"file": "a/out"}}}
    document = workflow({}, steps, {"read": "b/read"})
    assert bench.run(document, io=False).files == {"read.txt": b"1\n2\n"}
    run = bench.run(document)
    assert not run.ok
    assert "FAILED Job /a/0" in run.log
    assert "kill" in forgery or f"FAILED Job /a/0: {FOREIGN}" in run.log, run.errors
    assert run.files == {}
    assert bench.leftovers() == []
