"""`sfio-node serve --shared` and `sfio-node run`: jobs on other machines, which share the run directory.

A machine is simulated by a directory for temporary files of its own; as root, by namespaces of its own.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from lab.node import built, output, wait_for
from lab.node_remote import (
    TREE,
    Alone,
    RemoteJob,
    RemoteNode,
    has_left_nothing,
    remote_node,
    shell,
)

#: In seconds; a `serve` that only looks when it says that it is alive does so every 15 s.
AT_ONCE = 10
#: A machine that has no inotify.
NO_INOTIFY = ["unshare", "-Ur", "sh", "-c", 'echo 0 > /proc/sys/user/max_inotify_instances; exec "$@"', "sh"]
#: A machine whose inotify tells nothing of files, as of those that other machines write.
DEAF = ["unshare", "-Ur", "sh", "-c", 'echo 2 > /proc/sys/user/max_inotify_watches; exec "$@"', "sh"]
#: A machine with processes, and a directory for temporary files, that no other machine sees. Dies with its first
#: process.
MACHINE = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c"]
MACHINE += ['mount -t tmpfs tmpfs "$TMPDIR" && exec "$@"', "sh"]


def works(wrapper: Sequence[str]) -> bool:
    environment = {**os.environ, "TMPDIR": "/mnt"}
    return subprocess.run([*wrapper, "true"], capture_output=True, check=False, env=environment).returncode == 0


# What serve does


def test_what_is_in_a_file_is_all_that_is_known(shared: RemoteNode) -> None:
    """Files that other machines write, line by line or torn, and close whenever they like: nothing is lost for it."""
    directory = shared.run / "jobs" / "t"
    directory.mkdir()
    events = directory / "events.jsonl"

    def told() -> list[object]:
        return [event["event"] for event in shared.printed if event.get("job") == "t"]

    expected = []
    pieces = {"started": '{"event":"started","pid":1,"command_pid":2}\n{"event":"op', "opened": 'ened","port":"p"}\n'}
    for event, piece in pieces.items():
        with events.open("a") as file:
            file.write(piece)
        expected.append(event)
        wait_for(lambda: told() == expected, event)
    with events.open("a") as file:
        file.write('{"event":"exit"}\n')
    wait_for(lambda: shared.printed[-1] == {"job": "t", "event": "exit"}, "exit")
    assert events.read_text().count("\n") == 3


@pytest.mark.parametrize("machine", [DEAF, NO_INOTIFY], ids=["deaf", "blind"])
def test_serve_without_inotify(tmp_path: Path, machine: Sequence[str]) -> None:
    if not works(machine):
        pytest.skip("no user namespaces")
    with remote_node(tmp_path, wrapper=machine) as shared:
        job = shell(shared, "j", f"until [ -e {tmp_path}/go ]; do sleep 0.1; done")
        wait_for(lambda: [event["event"] for event in job.served()] == ["started"], "started", AT_ONCE)
        (tmp_path / "go").touch()
        assert job.wait() == 0
        wait_for(lambda: [event["event"] for event in job.served()] == ["started", "exit"], "exit", AT_ONCE)


def test_the_end(shared: RemoteNode) -> None:
    ready = shared.base / "ready"
    job = shell(shared, "j", TREE.format(ready))
    wait_for(ready.exists, "the tree")
    job.wait_for("started")
    assert shared.leave() == 0
    assert job.wait() != 0
    assert job.served()[-1]["reason"] == "cancelled"
    assert shared.left_behind() == []


def test_a_reader_that_is_gone(tmp_path: Path) -> None:
    run, ready = tmp_path / "run", tmp_path / "ready"
    command = [str(built()), "serve", "--directory", str(run), "--shared"]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert server.stdout is not None
        assert json.loads(server.stdout.readline())["event"] == "ready"
        (run / "jobs" / "j").mkdir()
        (run / "jobs" / "j" / "job.json").write_text('{"name": "j"}')
        words = [str(built()), "run", "--job", str(run / "jobs" / "j"), "--", "sh", "-c", TREE.format(ready)]
        process = subprocess.Popen(words, env={**os.environ, "TMPDIR": str(tmp_path)})
        job = RemoteJob(Alone(run), "j", process, tmp_path)
        wait_for(ready.exists, "the tree")
        server.stdout.close()
        assert server.wait(15) == 0
        assert job.wait() != 0
        has_left_nothing(job)
        assert not run.exists()
    finally:
        server.kill()
        server.wait()


def test_requests_for_jobs_elsewhere(shared: RemoteNode) -> None:
    """Files carry the requests, and `run` copies the files."""
    assert shared.server.stdin is not None
    job = shell(shared, "j", "sleep 600")
    job.wait_for("started")
    shared.server.stdin.write(b'{"limit":"j","spec":{"rate":7}}\n{"cancel":"j"}\n')
    shared.server.stdin.flush()
    assert job.wait(40) == -signal.SIGTERM
    wait_for(lambda: job.served()[-1].get("reason") == "cancelled", "exit printed")
    assert json.loads((job.directory / "limit").read_text()) == {"rate": 7}


def test_a_slow_reader(tmp_path: Path) -> None:
    """Bytes that the reader does not take are kept for it; everything else goes on."""
    run, many = tmp_path / "run", 4000
    command = [str(built()), "serve", "--directory", str(run), "--shared"]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        wait_for((run / "heartbeat").exists, "serve")
        (run / "jobs" / "j").mkdir()
        lines = [json.dumps({"event": "opened", "port": f"{i:050}"}) for i in range(many)]
        (run / "jobs" / "j" / "events.jsonl").write_text("\n".join([*lines, '{"event":"exit"}', ""]))
        before = (run / "heartbeat").read_text()
        wait_for(lambda: (run / "heartbeat").read_text() != before, "a heartbeat")
        (run / "jobs" / "k").mkdir()
        (run / "jobs" / "k" / "events.jsonl").write_text('{"event":"exit"}\n')
        assert server.stdout is not None
        read = [json.loads(server.stdout.readline()) for _ in range(many + 3)]
        assert [event.get("port") for event in read[1:-2]] == [f"{i:050}" for i in range(many)]
        assert [event.get("job") for event in read[-2:]] == ["j", "k"]
        # Nor does it hold up the end.
        (run / "jobs" / "l").mkdir()
        (run / "jobs" / "l" / "events.jsonl").write_text("\n".join([*lines, '{"event":"exit"}', ""]))
        time.sleep(0.3)
        assert server.stdin is not None
        server.stdin.close()
        assert server.wait(40) == 0
        assert not run.exists()
    finally:
        server.kill()
        server.wait()


# Streams and gates between machines


@pytest.fixture(params=[DEAF, NO_INOTIFY], ids=["deaf", "blind"])
def consumer(request: pytest.FixtureRequest) -> Sequence[str]:
    """The wrapper of the consumer's machine: a machine that learns of nothing has to look."""
    wrapper: Sequence[str] = request.param
    if not works(wrapper):
        pytest.skip("no user namespaces")
    return wrapper


def produce(node: RemoteNode, script: str) -> RemoteJob:
    outputs = [output(node.base / "out", "data", "on_close")]
    return shell(node, "p", f"cd {node.base}/out; {script}", outputs=outputs, machine="producer")


def stream_of(node: RemoteNode, consumer: Sequence[str]) -> RemoteJob:
    fifo = node.base / "in" / "fifo"
    inputs = [node.stream("p", node.base / "out" / "data", fifo)]
    script = f"cat {fifo} > {node.base}/copy"
    return shell(node, "s", script, inputs=inputs, machine="consumer", wrapper=consumer)


def gate_of(node: RemoteNode, consumer: Sequence[str]) -> RemoteJob:
    target = node.base / "in" / "data"
    events = node.run / "jobs" / "p" / "events.jsonl"
    names = {"name": "in", "port": "out", "kind": "file"}
    gates = [{**names, "path": str(node.base / "out" / "data"), "events": str(events), "target": str(target)}]
    return shell(node, "g", f"cat {target} > {node.base}/copy", gates=gates, machine="consumer", wrapper=consumer)


WAYS = pytest.mark.parametrize("way", [stream_of, gate_of], ids=["stream", "gate"])
Way = Callable[[RemoteNode, Sequence[str]], RemoteJob]


@WAYS
def test_a_consumer_before_its_producer(shared: RemoteNode, way: Way, consumer: Sequence[str]) -> None:
    data = random.Random(1).randbytes(3_000_000)
    (shared.base / "data").write_bytes(data)
    reader = way(shared, consumer)
    reader.wait_for("started")
    time.sleep(0.3)
    given = f"dd if={shared.base}/data status=none bs=100k"
    writer = produce(shared, f"({given} count=10; sleep 0.3; {given} skip=10) > data; sleep 0.2")
    assert (writer.wait(), reader.wait()) == (0, 0)
    assert (shared.base / "copy").read_bytes() == data
    assert writer.exit()["success"] is reader.exit()["success"] is True


@WAYS
def test_a_consumer_after_its_producer(shared: RemoteNode, way: Way) -> None:
    assert produce(shared, "echo text > data").wait() == 0
    assert way(shared, ()).wait() == 0
    assert (shared.base / "copy").read_text() == "text\n"


@WAYS
@pytest.mark.parametrize("how", ["fails", "is killed"])
def test_a_producer_that_fails_is_no_end(shared: RemoteNode, way: Way, how: str, consumer: Sequence[str]) -> None:
    reader = way(shared, consumer)
    writer = produce(shared, "exec > data; echo half; sleep 0.3; " + ("exit 3" if how == "fails" else "sleep 600"))
    writer.wait_for("opened")
    if how == "is killed":
        os.kill(writer.attendants()["exec"], signal.SIGKILL)
    assert writer.wait() == (3 if how == "fails" else -signal.SIGKILL)
    assert reader.wait() == 75
    assert (reader.exit()["reason"], reader.exit()["input"]) == ("producer", "in")


def test_a_machine_of_its_own(shared: RemoteNode) -> None:
    """Namespaces for processes and mounts: the number of a process says nothing to others, and all end at once."""
    if os.geteuid() != 0 or not works(MACHINE):
        pytest.skip("needs root, and namespaces")
    reader = stream_of(shared, MACHINE)
    reader.wait_for("started")
    assert produce(shared, "echo text > data; sleep 0.3").wait() == 0
    assert reader.wait() == 0
    assert (shared.base / "copy").read_text() == "text\n"
    ready = shared.base / "ready"
    lost = shell(shared, "l", TREE.format(ready), machine="lost", wrapper=MACHINE)
    wait_for(ready.exists, "the tree")
    wait_for(lost.served, "its start, told by serve")
    lost.process.kill()
    lost.process.wait()
    time.sleep(0.5)
    assert [event["event"] for event in lost.served()] == ["started"]
    assert shared.server.poll() is None
    # An exit event spares `serve` the wait for one.
    with (lost.directory / "events.jsonl").open("a") as events:
        events.write('{"event":"exit"}\n')


def test_waiting_takes_no_cpu_and_there_are_signs_of_life(shared: RemoteNode) -> None:
    jobs = [way(shared, ()) for way in (stream_of, gate_of)]
    for job in jobs:
        job.wait_for("started")
    attendants = [pid for job in jobs for pid in (job.process.pid, *job.attendants().values())]
    pids = [shared.server.pid, *attendants]
    assert len(pids) == 7

    def used() -> float:
        fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
        return sum(int(field[11]) + int(field[12]) for field in fields) / os.sysconf("SC_CLK_TCK")

    heartbeats = set()

    def alive() -> bool:
        heartbeats.add((shared.run / "heartbeat").read_text())
        return {"event": "alive"} in shared.printed

    before, began = used(), time.monotonic()
    wait_for(alive, "alive", 25, lambda: len(heartbeats))
    assert used() - before < 0.05 * (time.monotonic() - began)
    assert 3 <= len(heartbeats) <= 5
    for job in jobs:
        job.cancel()
    assert [job.wait() for job in jobs] == [-signal.SIGTERM] * 2
