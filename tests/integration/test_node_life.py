"""The life of jobs under sfio-node: nothing of the command is changed, and nothing is left of it."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lab.node import Node, built, ended, lock_events, node_binary, output, wait_for

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to see the files of the node runtime")

#: A tree of processes that each ignore SIGTERM or do not; the main one tells when all run.
TREE = "(sleep 600 & sleep 600) & sleep 600 & sh -c 'setsid sleep 600 & wait' & echo up > {}; wait"


@pytest.mark.parametrize("code", [0, 1, 75, 126, 255])
def test_exit_code(runtime: Node, code: int) -> None:
    job = runtime.shell("j", f"exit {code}")
    assert job.wait() == code
    assert (job.exit()["code"], job.exit()["reason"], job.exit()["success"]) == (code, "exited", code == 0)


@pytest.mark.parametrize("name", ["KILL", "TERM", "SEGV", "PIPE", "USR1"])
def test_exit_by_signal(runtime: Node, name: str) -> None:
    number = signal.Signals["SIG" + name]
    job = runtime.shell("j", f"ulimit -c 0; kill -{name} $$")
    assert job.wait() == -number
    assert (job.exit()["signal"], job.exit()["reason"]) == (number, "exited")


def test_what_it_keeps_is_for_its_user_alone(runtime: Node) -> None:
    job = runtime.shell("j", "umask; sleep 600", stdout=subprocess.PIPE)
    job.wait_for("started")
    assert job.process.stdout is not None
    mask = int(job.process.stdout.readline(), 8)
    job.cancel()
    job.wait()
    written_by_us = (job.directory, job.directory / "job.json", job.directory / "cancel")
    paths = {path for path in (runtime.run, *runtime.run.rglob("*")) if path not in written_by_us}
    assert {path.name for path in paths} >= {"alive", "descriptors", "events.jsonl"}
    assert {path: oct(path.lstat().st_mode) for path in paths if path.lstat().st_mode & 0o077} == {}
    assert mask == current_umask()  # The command has the umask of its user.


def current_umask() -> int:
    text = Path("/proc/self/status").read_text()
    return int(next(line.split()[1] for line in text.splitlines() if line.startswith("Umask:")), 8)


def test_standard_streams(runtime: Node) -> None:
    job = runtime.shell(
        "j", "cat; echo error >&2", stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    data = os.urandom(300_000)
    assert job.process.communicate(data, timeout=40) == (data, b"error\n")


def test_streams_from_files(runtime: Node) -> None:
    base = runtime.base
    (base / "given").write_text("given\n")
    fields = {"stdin": str(base / "given"), "stdout": str(base / "o"), "stderr": str(base / "e")}
    job = runtime.shell("j", "cat; echo bad >&2", job=json.dumps({"name": "j", "command": fields}))
    assert job.wait() == 0
    assert ((base / "o").read_text(), (base / "e").read_text()) == ("given\n", "bad\n")


def test_environment_and_directory_are_the_commands(runtime: Node) -> None:
    job = runtime.shell("j", "env; pwd", stdout=subprocess.PIPE, environment={"PATH": os.environ["PATH"], "X": "a b\n"})
    assert job.process.stdout is not None
    text = job.process.stdout.read().decode()
    assert "X=a b\n" in text
    assert f"SFIO_JOB={job.directory.resolve()}\n" in text
    assert text.endswith(os.getcwd() + "\n")


def test_signal_mask_and_actions_are_the_commands(runtime: Node) -> None:
    script = "grep -E 'Sig(Blk|Ign)' /proc/self/status"
    # From 3.13 on, Python starts a program that has a path in another way, which sets other signals.
    expected = subprocess.run(["/bin/sh", "-c", script], capture_output=True, check=True).stdout
    job = runtime.shell("j", script, stdout=subprocess.PIPE)
    assert job.process.stdout is not None
    assert job.process.stdout.read() == expected


@pytest.mark.parametrize(("command", "code"), [("/no/such/command", 127), ("/etc/passwd", 126)])
def test_a_command_that_cannot_run(runtime: Node, command: str, code: int) -> None:
    job = runtime.start("j", [command], stderr=subprocess.PIPE)
    assert job.process.stderr is not None
    assert command.encode() in job.process.stderr.read()
    assert job.wait() == code
    assert (job.exit()["reason"], job.exit()["code"]) == ("error", code)
    assert command in str(job.exit()["message"])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", ["job.json", "line 1"]),
        (
            '{"name": "n", "outputs": [{"port": "p", "root": "/nowhere/at/all", "kind": "file", "globs": ["*"]}]}',
            ["/nowhere/at/all", "p"],
        ),
        (
            '{"name": "n", "outputs": [{"port": "p", "root": "/", "kind": "fil", "globs": ["*"]}]}',
            ["outputs[0].kind", "directory"],
        ),
        ('{"name": "n", "outptus": []}', ["outptus", "outputs"]),
        ('{"name": "n", "command": {"stdin": "/nowhere"}}', ["/nowhere"]),
    ],
)
def test_a_bad_job_is_one_clear_message(runtime: Node, text: str, words: list[str]) -> None:
    job = runtime.shell("j", f"touch {runtime.base}/ran", job=text, stderr=subprocess.PIPE)
    assert job.process.stderr is not None
    message = job.process.stderr.read().decode()
    assert job.wait() == 125
    assert all(word in message for word in words), message
    assert message.count("\n") == 1
    assert job.exit()["reason"] == "error"
    assert not (runtime.base / "ran").exists()


@pytest.mark.parametrize("name", ["USR1", "USR2", "QUIT", "CONT"])
def test_other_signals_are_passed_on(runtime: Node, name: str) -> None:
    ready = runtime.base / "ready"
    script = f"trap 'exit 7' {name}; touch {ready}; while :; do sleep 0.02; done"
    job = runtime.shell("j", script)
    wait_for(ready.exists, "the trap")
    job.process.send_signal(signal.Signals["SIG" + name])
    assert job.wait() == 7
    assert job.exit()["reason"] == "exited"


def test_a_job_whose_parent_ignores_the_end_of_children(runtime: Node) -> None:
    ignoring = "import os, sys; from signal import *; signal(SIGCHLD, SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
    job = runtime.shell("j", "exit 3", wrapper=[sys.executable, "-ISc", ignoring])
    assert job.wait() == 3
    assert job.exit()["reason"] == "exited"


@pytest.mark.parametrize("name", ["TERM", "INT", "HUP"])
def test_signals_cancel_the_whole_tree(runtime: Node, name: str) -> None:
    ready = runtime.base / "ready"
    job = runtime.shell("j", TREE.format(ready))
    wait_for(ready.exists, "the tree")
    job.process.send_signal(signal.Signals["SIG" + name])
    assert job.wait() != 0
    assert job.exit()["reason"] == "cancelled"
    assert job.processes() == []


def program(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


@pytest.mark.parametrize("outputs", [True, False], ids=["watching", "plain"])
def test_cancel(runtime: Node, outputs: bool) -> None:
    ready = runtime.base / "ready"
    watched = [output(runtime.base / "out", "*")] if outputs else []
    job = runtime.shell("j", TREE.format(ready), outputs=watched)
    wait_for(ready.exists, "the tree")
    # One that is forked just then gets no signal but the last.
    wait_for(lambda: list(map(program, job.processes())).count("sleep") == 4, "all of the tree")
    job.cancel()
    assert job.wait() == -signal.SIGTERM
    assert (job.exit()["reason"], job.exit()["signal"]) == ("cancelled", signal.SIGTERM)
    assert job.processes() == []


def test_cancel_is_one_signal(runtime: Node) -> None:
    log, ready = runtime.base / "log", runtime.base / "ready"
    os.mkfifo(fifo := runtime.base / "fifo")
    # The shell starts one program after the signal: many would take longer than the job has until it is killed.
    wait = f"exec 3<> {fifo}; touch {ready}; until [ -e {log} ]; do read -r line <&3; done; sleep 0.4"
    script = f"trap 'echo t >> {log}' TERM; {wait}"
    job = runtime.shell("j", script, outputs=[output(runtime.base / "out", "*")])
    wait_for(ready.exists, "the trap")
    job.cancel()
    assert job.wait() == 75
    assert log.read_text() == "t\n"
    fifo.unlink()


def test_cancel_kills_who_does_not_listen(runtime: Node) -> None:
    ready = runtime.base / "ready"
    job = runtime.shell("j", f"trap '' TERM; touch {ready}; while :; do sleep 0.1; done")
    wait_for(ready.exists, "the trap")
    began = time.monotonic()
    job.cancel()
    assert job.wait() == -signal.SIGKILL
    assert time.monotonic() - began > 1.9


def test_a_cancelled_job_is_no_success(runtime: Node) -> None:
    ready = runtime.base / "ready"
    script = f"trap 'exit 0' TERM; echo x > {runtime.base}/out/a; touch {ready}; while :; do sleep 0.02; done"
    job = runtime.shell("j", script, outputs=[output(runtime.base / "out", "a")])
    wait_for(ready.exists, "the trap")
    job.cancel()
    assert job.wait() == 75
    assert (job.exit()["code"], job.exit()["success"], job.committed()) == (0, False, [])


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_who_holds_what_the_command_prints_to_is_waited_for(runtime: Node, stream: str) -> None:
    closed = "2> /dev/null" if stream == "stdout" else "> /dev/null"
    script = f"(sleep 0.5; echo x > {runtime.base}/out/a) {closed} & exit 0"
    kinds = {"plain": [], "watching": [output(runtime.base / "out", "a")]}
    for name, outputs in kinds.items():
        job = runtime.shell(name, script, outputs=outputs, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert job.wait() == 0
        assert job.exit()["success"] is True
        assert job.committed() == (["a"] if outputs else [])
        (runtime.base / "out" / "a").unlink()


def test_a_socket_is_waited_for_like_a_pipe(runtime: Node) -> None:
    """SSH servers give a socket."""
    here, there = socket.socketpair()
    with here, there:
        began = time.monotonic()
        job = runtime.shell("j", "sleep 0.5 & exit 0", stdout=there.fileno(), stderr=there.fileno())
        assert job.wait() == 0
        assert time.monotonic() - began > 0.3


def test_who_has_closed_it_goes_on(runtime: Node) -> None:
    go, done = runtime.base / "go", runtime.base / "done"
    daemon = f"(until [ -e {go} ]; do sleep 0.02; done; touch {done})"
    for stdout in (subprocess.PIPE, subprocess.DEVNULL):
        closed = "< /dev/null > /dev/null 2>&1" if stdout == subprocess.PIPE else ""
        job = runtime.shell("j", f"{daemon} {closed} & exit 0", stdout=stdout, stderr=stdout)
        assert job.wait() == 0
        assert job.processes() != []
        go.touch()
        wait_for(done.exists, "the daemon")
        wait_for(lambda: job.processes() == [], "its end")  # noqa: B023
        go.unlink()
        done.unlink()
        (job.directory / "events.jsonl").rename(runtime.base / "events")
        runtime.jobs.remove(job)


def test_what_a_failure_leaves_behind_is_ended(runtime: Node) -> None:
    job = runtime.shell("j", "setsid sleep 600 & sleep 600 & exit 3", stdout=subprocess.PIPE)
    assert job.wait() == 3
    assert job.processes() == []


def test_who_is_waited_for_can_be_cancelled(runtime: Node) -> None:
    job = runtime.shell("j", "sleep 600 & exit 0", stdout=subprocess.PIPE)
    pid = job.command_pid()
    wait_for(lambda: not Path(f"/proc/{pid}").exists(), "the end of the command")
    job.cancel()
    assert job.wait() == 75
    assert (job.exit()["reason"], job.processes()) == ("cancelled", [])


def test_a_stream_is_not_cut_for_who_is_left(runtime: Node) -> None:
    """The reader reads from a slow producer, and no process holds the pipe to which the command prints."""
    base = runtime.base
    outputs = [output(base / "out", "p")]
    runtime.shell("p", f"(for i in 1 2 3; do echo $i; sleep 0.3; done) > {base}/out/p", outputs=outputs)
    fifo = base / "in" / "f"
    inputs = [runtime.stream("p", base / "out" / "p", fifo)]
    job = runtime.shell("c", f"(cat {fifo}; sleep 0.2; echo end) > {base}/copy & sleep 0.1", inputs=inputs)
    assert job.wait() == 0
    assert (base / "copy").read_text() == "1\n2\n3\nend\n"


@pytest.mark.parametrize("stream", [True, False], ids=["streaming", "plain"])
def test_kill_of_exec(runtime: Node, stream: bool) -> None:
    ready, fifo = runtime.base / "ready", runtime.base / "in" / "f"
    inputs = [runtime.stream("nobody", runtime.base / "x", fifo)] if stream else []
    job = runtime.shell("j", TREE.format(ready), inputs=inputs)
    wait_for(ready.exists, "the tree")
    job.process.kill()
    wait_for(lambda: job.served() and job.served()[-1]["event"] == "exit", "exit printed")
    assert job.served()[-1]["reason"] == "lost"
    assert job.exit()["reason"] == "lost"
    assert job.processes() == []
    assert not fifo.exists()


def test_kill_of_serve(runtime: Node) -> None:
    ready, fifo = runtime.base / "ready", runtime.base / "in" / "f"
    jobs = [runtime.shell(f"j{i}", TREE.format(ready)) for i in range(2)]
    jobs.append(runtime.shell("s", TREE.format(ready), inputs=[runtime.stream("nobody", runtime.base / "x", fifo)]))
    wait_for(ready.exists, "the tree")
    for job in jobs:
        job.wait_for("started")
    runtime.server.kill()
    runtime.server.wait(40)
    assert [job.wait() for job in jobs] == [-signal.SIGTERM] * 3
    assert not fifo.exists()
    assert not runtime.run.exists(), "the last job removes the run directory"


def test_term_ends_serve_and_ctrl_c_does_not(runtime: Node) -> None:
    job = runtime.shell("j", "sleep 600")
    job.wait_for("started")
    for number in (signal.SIGINT, signal.SIGHUP):
        runtime.server.send_signal(number)
    time.sleep(0.1)
    assert runtime.server.poll() is None
    runtime.server.terminate()
    assert runtime.server.wait(40) == 0
    assert job.wait() == -signal.SIGTERM


def test_exec_without_serve_is_refused(tmp_path: Path) -> None:
    binary = node_binary()
    assert binary is not None
    directory = tmp_path / "run" / "jobs" / "j"
    directory.mkdir(parents=True)
    (directory / "job.json").write_text('{"name": "j"}')
    for fifo in (False, True):
        if fifo:
            os.mkfifo(tmp_path / "run" / "alive")
        command: list[str | Path] = [binary, "exec", "--job", directory, "--", "touch", tmp_path / "ran"]
        result = subprocess.run(command, capture_output=True, timeout=40, check=False)
        assert result.returncode == 125
        assert b"serve is gone" in result.stderr
        assert not (tmp_path / "ran").exists()
        again = subprocess.run(command, capture_output=True, timeout=40, check=False)
        assert (again.returncode, b"it has events already" in again.stderr) == (125, True)
        (directory / "events.jsonl").unlink()


def test_serve_needs_a_new_directory(tmp_path: Path) -> None:
    binary = node_binary()
    assert binary is not None
    (tmp_path / "precious").touch()
    command: list[str | Path] = [binary, "serve", "--directory", tmp_path]
    result = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, timeout=40, check=False)
    assert result.returncode != 0
    assert str(tmp_path).encode() in result.stderr
    assert (tmp_path / "precious").exists()


def test_torn_lines_are_held(runtime: Node) -> None:
    directory = runtime.run / "jobs" / "t"
    directory.mkdir()
    with (directory / "events.jsonl").open("wb", buffering=0) as events:
        lock_events(events)
        events.write(b'{"event":"opened",')
        time.sleep(0.1)
        assert not [event for event in runtime.printed if event.get("job") == "t"]
        events.write(b'"port":"p"}\n{"event":"exit"}\n')
    wait_for(lambda: len([event for event in runtime.printed if event.get("job") == "t"]) == 2, "both lines")
    assert runtime.printed[-2] == {"job": "t", "event": "opened", "port": "p"}


def test_serve_is_quick(runtime: Node) -> None:
    directory = runtime.run / "jobs" / "t"
    directory.mkdir()
    delays = []
    with (directory / "events.jsonl").open("wb", buffering=0) as events:
        lock_events(events)
        for i in range(50):
            written = time.time()
            events.write(b'{"event":"opened","port":"%d"}\n' % i)
            wait_for(lambda count=i: len(runtime.printed) == count + 2, "the line")  # type: ignore[misc]
            delays.append(runtime.arrived[-1] - written)
        events.write(b'{"event":"exit"}\n')
    # On a busy machine some come late; if serve looked again and again, hardly any would come so soon.
    assert sorted(delays)[len(delays) // 10] < 0.005, delays


@needs_root
def test_finished_jobs_cost_serve_nothing(runtime: Node) -> None:
    def descriptors() -> int:
        return len(os.listdir(f"/proc/{runtime.server.pid}/fd"))

    def finish(name: str) -> None:
        directory = runtime.run / "jobs" / name
        directory.mkdir()
        (directory / "events.jsonl").write_text('{"event":"started","pid":1}\n{"event":"exit"}\n')

    # What serve opens after it has said that it is ready is open after its first job.
    finish("first")
    wait_for(lambda: len(runtime.printed) == 3, "the events of the first job")
    before = descriptors()
    for i in range(300):
        finish(f"t{i}")
    wait_for(lambda: len(runtime.printed) == 603, "all events")
    inotify = [
        Path(f"/proc/{runtime.server.pid}/fdinfo/{fd}").read_text()
        for fd in os.listdir(f"/proc/{runtime.server.pid}/fd")
    ]
    assert sum(len(re.findall("^inotify wd", text, re.MULTILINE)) for text in inotify) == 1
    wait_for(lambda: descriptors() <= before, "the end of what was opened for them")


NO_INOTIFY = ["unshare", "-Ur", "sh", "-c", 'echo 0 > /proc/sys/user/max_inotify_instances; exec "$@"', "sh"]


def test_without_inotify_everything_is_only_later(runtime: Node) -> None:
    """In a user namespace that may have no instance of inotify."""
    if subprocess.run([*NO_INOTIFY, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no user namespaces")
    base = runtime.base
    outputs = [output(base / "out", "p", "on_close")]
    producer = runtime.shell("p", f"echo x > {base}/out/p; sleep 0.2", outputs=outputs, wrapper=NO_INOTIFY)
    fifo = base / "in" / "f"
    inputs = [runtime.stream("p", base / "out" / "p", fifo)]
    consumer = runtime.shell("c", f"cat {fifo} > {base}/copy", inputs=inputs, wrapper=NO_INOTIFY)
    cancelled = runtime.shell("x", "sleep 600", outputs=outputs, wrapper=NO_INOTIFY)
    cancelled.wait_for("started")
    cancelled.cancel()
    assert (producer.wait(), consumer.wait(), cancelled.wait()) == (0, 0, -signal.SIGTERM)
    assert "inotify" in str(producer.named("warning")[0]["message"])
    assert producer.committed() == ["p"]
    assert (base / "copy").read_text() == "x\n"


@pytest.mark.parametrize("watches", [0, 1])
def test_with_too_few_watches_everything_is_only_later(tmp_path: Path, watches: int) -> None:
    """The user may have too many: then no watch is left for a job, or for its outputs."""
    few = ["unshare", "-Ur", "sh", "-c", f'echo {watches} > /proc/sys/user/max_inotify_watches; exec "$@"', "sh"]
    if subprocess.run([*few, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no user namespaces")
    (tmp_path / "out").mkdir()
    with ended(Node(built(), tmp_path, wrapper=few)) as running:
        outputs = [output(tmp_path / "out", "p", "on_close")]
        job = running.shell("p", f"echo x > {tmp_path}/out/p", outputs=outputs, wrapper=few)
        assert job.wait() == 0
        assert job.committed() == ["p"]
        wait_for(lambda: [event["event"] for event in job.served()][-1:] == ["exit"], "the end")


def test_events_of_many_jobs_are_printed_once(runtime: Node) -> None:
    """Jobs that write at the same time, and end: their events come interleaved, and the last ones with their end."""
    script = "for i in $(seq 300); do echo > out/f-$i; done"
    jobs = []
    for number in range(6):
        base = runtime.base / f"many{number}"
        (base / "out").mkdir(parents=True)
        outputs = [output(base / "out", "f-*", committed="on_close", kind="files")]
        jobs.append(runtime.shell(f"j{number}", f"cd {base}; {script}", outputs=outputs))
    assert [job.wait(60) for job in jobs] == [0] * 6
    assert runtime.leave() == 0
    for job in jobs:
        printed = [{**event} for event in job.served()]
        assert [event["event"] for event in printed].count("exit") == 1
        assert len([event for event in printed if event["event"] == "committed"]) == 300
