"""`sfio-node serve`: a driver that has nothing of the node but its standard streams, as in a container."""

from __future__ import annotations

import itertools
import json
import os
import signal
import stat
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.node import built, output, wait_for
from lab.node_conversation import ConversingNode, conversation
from lab.node_remote import TREE

#: The longest line that is taken, without its newline.
LONGEST = 32 << 20
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be a second user")


@pytest.fixture
def node(tmp_path: Path) -> Iterator[ConversingNode]:
    with conversation(tmp_path) as running:
        yield running


def mode(path: Path) -> str:
    return oct(stat.S_IMODE(path.lstat().st_mode))


def padded(name: str, length: int) -> bytes:
    """A request for a job, as a line of this many bytes."""
    line = json.dumps({"job": name, "spec": {"name": "j"}}).encode()
    return line[:-2] + b" " * (length - len(line)) + line[-2:]


# Jobs


def test_a_job_by_request(node: ConversingNode) -> None:
    job = node.shell("j", f"echo text > {node.base}/out/a; exit 3", outputs=[output(node.base / "out", "*")])
    assert job.wait() == 3
    wait_for(lambda: job.served()[-1]["event"] == "exit", "exit")
    assert [event["event"] for event in job.served()] == ["ready", "started", "opened", "exit"]
    assert node.uid == os.geteuid()
    assert (mode(node.run), mode(job.directory), mode(job.directory / "job.json")) == ("0o700", "0o700", "0o600")
    assert sorted(os.listdir(job.directory)) == ["events.jsonl", "job.json"]


def test_the_spec_is_written_as_it_came(node: ConversingNode) -> None:
    spec = b'{ "name" : "\\udcff\\u00e9",  "x": [1.50, {"y": null}] , "x": 2}'
    node.say(b'{"spec":' + spec + b', "job":"j"}')
    assert node.answer("j")["event"] == "ready"
    assert (node.run / "jobs" / "j" / "job.json").read_bytes() == spec


ODD = ["a b", "-n", "--", ".hidden", "é🧬", '"\\', "a\nb", "\x01\x7f", "\udc80\udcff", "{}", "*", "x" * 255, "job.json"]


def test_odd_names(node: ConversingNode) -> None:
    for name in ODD:
        job = node.shell(name, "exit 0", job='{"name":"j"}')
        assert job.wait() == 0, name
        wait_for(lambda: job.served()[-1]["event"] == "exit", "exit")  # noqa: B023
        assert job.served()[-1]["success"], name
    assert sorted(node.jobs_there()) == sorted(ODD)


def test_names_that_are_none(node: ConversingNode) -> None:
    (node.base / "outside").mkdir()
    names = ["", ".", "..", "/", "a/b", "a/", "../outside", "../../outside/x", str(node.base / "outside/y"), "a\0b"]
    for name in [*names, "x" * 256, "\udcff" * 256]:
        answer = node.ask(name)
        assert (answer["event"], bool(answer["message"])) == ("refused", True), name
        node.say({"cancel": name})
    assert node.ask("last")["event"] == "ready"
    assert (node.jobs_there(), os.listdir(node.base / "outside")) == (["last"], [])
    assert sorted(os.listdir(node.run)) == ["alive", "descriptors", "jobs"]


def test_a_name_is_used_once(node: ConversingNode) -> None:
    assert node.shell("j", "exit 0").wait() == 0
    (node.run / "jobs" / "foreign").mkdir()
    for name in ("j", "foreign"):
        before = sorted(os.listdir(node.run / "jobs" / name))
        node.say({"job": name, "spec": {"name": "another"}})
        answer = node.answers(name, 2 if name == "j" else 1)[-1]
        assert answer["event"] == "refused"
        assert "File exists" in str(answer["message"])
        assert sorted(os.listdir(node.run / "jobs" / name)) == before


# Lines


def test_torn_lines_wait(node: ConversingNode) -> None:
    line = json.dumps({"job": "j", "spec": {"name": "j"}}).encode()
    for place in range(len(line)):
        node.write(line[place : place + 1])
        if place % 16 == 0:
            time.sleep(0.002)
    time.sleep(0.1)
    assert node.jobs_there() == []
    node.write(b"\n" + padded("k", 70_000) + b"\n" + padded("l", 100) + b"\n" + line[:9])
    assert [node.answer(name)["event"] for name in "jkl"] == ["ready"] * 3
    assert node.complaints() == []


def test_lines_of_all_lengths(node: ConversingNode) -> None:
    node.say(padded("a", LONGEST))
    assert node.answer("a")["event"] == "ready"
    for name, length in [("b", LONGEST + 1), ("c", LONGEST + 65_536), ("d", 2 * LONGEST)]:
        node.say(padded(name, length))
    assert node.ask("e")["event"] == "ready"
    assert node.jobs_there() == ["a", "e"]
    assert node.complaints() == [f"sfio-node: a line of the input: more than {LONGEST} bytes"] * 3
    memory = Path(f"/proc/{node.server.pid}/statm").read_text().split()[1]
    assert int(memory) * os.sysconf("SC_PAGE_SIZE") < 3 * LONGEST


GARBAGE = [
    b"{",
    b"\xff\xfe\0",
    b"7",
    b"[]",
    b"{}",
    b"[" * 100_000,
    b'{"job":"x"}',
    b'{"job":"x","spec":}',
    b'{"job":"x","spec":{}} x',
    b'{"job":"x","spec":{},"other":1}',
    b'{"job":7,"spec":{}}',
    b'{"job":"\\ud800","spec":{}}',
    b'{"cancel":"nobody"}',
    b'{"cancel":"../jobs"}',
    b'{"' + b"\x1b[31m" + b"x" * 100_000 + b'":1}',
]


def test_what_is_not_understood_is_said_and_nothing_else(node: ConversingNode) -> None:
    for number, line in enumerate(GARBAGE):
        node.say(line)
        assert node.ask(f"j{number}")["event"] == "ready", line
        complaints = node.complaints()
        assert len(complaints) == number + 1, line
        assert complaints[-1].startswith("sfio-node: a line of the input: "), line
        assert len(complaints[-1]) < 400, line
        assert complaints[-1].isprintable(), line
    assert sorted(node.jobs_there()) == sorted(f"j{number}" for number in range(len(GARBAGE)))
    assert all(os.listdir(path) == ["job.json"] for path in (node.run / "jobs").iterdir())


def test_nobody_has_to_read_what_is_not_understood(tmp_path: Path) -> None:
    """The standard error is a pipe that is full, or a pipe without a reader."""
    reader, writer = os.pipe()
    for closed in (False, True):
        if closed:
            os.close(reader)
        run = tmp_path / f"run{closed}"
        command = [built(), "serve", "--directory", run]
        lines = b"garbage\n" * 100_000 + b'{"job":"j","spec":{}}\n'
        done = subprocess.run(command, input=lines, stdout=subprocess.PIPE, stderr=writer, timeout=20, check=False)
        assert done.returncode == 0
        assert b'{"event":"ready","job":"j"}\n' in done.stdout
        assert not run.exists()
    os.close(writer)


# The end


def test_silence_is_the_end(tmp_path: Path) -> None:
    """A machine that pauses is silent, too: then the driver speaks once more from the beginning."""
    patience = 2.0
    for number in itertools.count():
        (place := tmp_path / str(number)).mkdir()
        begun = said = time.monotonic()
        silence = 0.0
        with conversation(place, "--patience", f"{patience:.0f}") as node:
            ready = place / "ready"
            job = node.shell("j", TREE.format(ready))
            while silence < patience / 2 and not (
                said - begun > 1.5 * patience and node.printed.count({"event": "alive"}) >= 5 and ready.exists()
            ):
                silence, said = time.monotonic() - said, time.monotonic()
                node.say({"alive": 1})
                time.sleep(0.25)
            lives = node.server.poll() is None
            if max(silence, time.monotonic() - said) >= patience / 2:
                continue
            assert lives
            assert node.server.wait(20) == 0
            assert time.monotonic() - said > 1.9
            assert job.wait() != 0
            wait_for(lambda: job.served()[-1].get("reason") == "driver", "exit")  # noqa: B023
            return


def test_what_is_said_to_a_process_that_is_stopped_is_no_silence(tmp_path: Path) -> None:
    with conversation(tmp_path, "--patience", "1") as node:
        for _ in range(5):
            node.server.send_signal(signal.SIGSTOP)
            time.sleep(0.2)
            node.say({"alive": 1})
            time.sleep(1.2)
            node.server.send_signal(signal.SIGCONT)
        assert node.ask("j")["event"] == "ready"


def test_the_end_of_the_input(node: ConversingNode) -> None:
    ready = node.base / "ready"
    jobs = [node.shell(f"j{number}", TREE.format(ready)) for number in range(2)]
    for job in jobs:
        job.wait_for("started")
    wait_for(ready.exists, "the tree")
    node.write(b'{"job":"torn","spec":{}}')
    assert node.leave() == 0
    assert [job.wait() for job in jobs] == [-signal.SIGTERM] * 2
    assert [job.served()[-1]["reason"] for job in jobs] == ["driver"] * 2
    assert not [event for event in node.printed if event.get("job") == "torn"]
    assert node.left_behind() == []


def test_requests_before_the_end_of_the_input_are_answered(tmp_path: Path) -> None:
    lines = b"".join(b'{"job":"%d","spec":{}}\n' % number for number in range(300))
    command = [built(), "serve", "--directory", tmp_path / "run"]
    done = subprocess.run(command, input=lines, stdout=subprocess.PIPE, timeout=20, check=False)
    assert (done.returncode, done.stdout.count(b'"event":"ready"')) == (0, 301)
    assert not (tmp_path / "run").exists()


def test_a_reader_who_takes_nothing_stops_the_printing_only(tmp_path: Path) -> None:
    run = tmp_path / "run"
    command = [built(), "serve", "--directory", run]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    assert server.stdin is not None
    assert server.stdout is not None
    try:
        # The answers do not fit into the pipe.
        count = 400
        server.stdin.write(b"".join(b'{"job":"%0200d","spec":{"name":"j"}}\n' % number for number in range(count)))
        server.stdin.flush()
        last = run / "jobs" / f"{count - 1:0200}"
        wait_for((last / "job.json").exists, "all jobs")
        job = subprocess.Popen([built(), "exec", "--job", last, "--", "sleep", "60"])
        events = last / "events.jsonl"
        wait_for(lambda: events.exists() and "started" in events.read_text(), "started")
        server.stdin.write(b'{"cancel":"%0200d"}\n' % (count - 1))
        server.stdin.flush()
        assert job.wait(40) == -signal.SIGTERM
        lines = [json.loads(server.stdout.readline()) for _ in range(count + 1)]
        assert [line["event"] for line in lines] == ["ready"] * (count + 1)
        server.stdin.close()
        rest = [json.loads(line) for line in server.stdout]
        assert [line["event"] for line in rest if "job" in line] == ["started", "exit"]
        assert server.wait(40) == 0
        assert not run.exists()
    finally:
        server.kill()
        server.wait()


def test_a_reader_who_is_gone_is_the_end(tmp_path: Path) -> None:
    run = tmp_path / "run"
    command = [built(), "serve", "--directory", run]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    assert server.stdout is not None
    try:
        server.stdout.readline()
        server.stdout.close()
        assert server.wait(40) == 0
        assert not run.exists()
    finally:
        server.kill()
        server.wait()


def test_patience_is_at_least_a_second(tmp_path: Path) -> None:
    command = [built(), "serve", "--directory", tmp_path / "run", "--patience", "0"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=40, check=False)
    assert done.returncode == 2
    assert os.listdir(tmp_path) == []


def test_a_driver_that_asks_while_jobs_end(node: ConversingNode) -> None:
    """Many at once: each is answered, and each event is printed once."""

    def ask() -> None:
        for number in range(300):
            node.say({"job": f"x{number}", "spec": {"name": "x"}})

    asking = threading.Thread(target=ask)
    asking.start()
    jobs = [node.shell(f"j{number}", "exit 0") for number in range(10)]
    assert [job.wait() for job in jobs] == [0] * 10
    asking.join()
    assert [node.answer(f"x{number}")["event"] for number in range(300)] == ["ready"] * 300
    wait_for(lambda: all(job.served()[-1]["event"] == "exit" for job in jobs), "all ends")
    assert [[event["event"] for event in job.served()] for job in jobs] == [["ready", "started", "exit"]] * 10


# Cancel


def test_cancel(node: ConversingNode) -> None:
    ready = node.base / "ready"
    job = node.shell("j", TREE.format(ready))
    wait_for(ready.exists, "the tree")
    node.say({"cancel": "j"})
    assert job.wait() == -signal.SIGTERM
    assert job.exit()["reason"] == "cancelled"
    node.say({"cancel": "j"})
    assert node.ask("k")["event"] == "ready"
    assert node.complaints() == []


def test_cancelled_before_it_starts(node: ConversingNode) -> None:
    node.say({"job": "j", "spec": {"name": "j"}}, {"cancel": "j"})
    assert node.ask("k")["event"] == "ready"
    job = node.shell("j", f"touch {node.base}/ran; sleep 600")
    assert job.wait() == 75
    assert job.exit()["reason"] == "cancelled"
    assert not (node.base / "ran").exists()


@pytest.fixture
def full(tmp_path: Path) -> Iterator[tuple[ConversingNode, Path]]:
    """A node in a file system whose last inode can be taken; its directory as others see it."""
    place = tmp_path / "small"
    place.mkdir()
    mount = f'mount -t tmpfs -o nr_inodes=40 tmpfs {place} && mkdir {place}/run-above && exec "$@"'
    alone = ["unshare", "--mount", "sh", "-c", mount, "sh"]
    if os.geteuid() != 0 or subprocess.run([*alone, "true"], capture_output=True, check=False).returncode:
        pytest.skip("needs root, for a file system of its own")
    with conversation(tmp_path, wrapper=[*alone, *_elsewhere(place / "run-above" / "run")]) as node:
        yield node, Path(f"/proc/{node.server.pid}/root{place}")


def _elsewhere(run: Path) -> list[str]:
    """A wrapper of serve that puts another run directory for the one that follows ``--directory``."""
    return ["sh", "-c", f'node=$1; shift 4; exec "$node" serve --directory {run} "$@"', "sh"]


@needs_root
@pytest.mark.parametrize("started", [True, False])
def test_without_space(full: tuple[ConversingNode, Path], started: bool) -> None:
    """Jobs are refused, and cancelled all the same: also one that begins later."""
    node, place = full
    run = place / "run-above" / "run"
    assert node.ask("j", {"name": "j", "outputs": []})["event"] == "ready"
    events = run / "jobs" / "j" / "events.jsonl"
    enter = ["nsenter", f"--mount=/proc/{node.server.pid}/ns/mnt"]
    inside = Path(str(run).split("/root", 1)[1])
    command = [*enter, built(), "exec", "--job", inside / "jobs" / "j", "--", "sleep", "60"]

    def fill() -> None:
        made = subprocess.run(
            ["mkdir", *(place / str(number) for number in range(50))], capture_output=True, check=False
        )
        assert b"No space left" in made.stderr

    if started:
        job = subprocess.Popen(command)
        wait_for(lambda: events.exists() and "started" in events.read_text(), "started")
        fill()
        node.say({"cancel": "j"})
    else:
        fill()
        node.say({"cancel": "j"})
        assert node.ask("before")["event"] == "refused"
        (place / "9").rmdir()
        job = subprocess.Popen(command)
        wait_for(events.exists, "its events, which take the last inode")
    answer = node.ask("k")
    assert answer["event"] == "refused"
    assert "No space left" in str(answer["message"])
    assert job.wait(40) == -signal.SIGTERM
    wait_for(lambda: [event for event in node.printed if event["event"] == "exit"], "exit")
    assert [event["reason"] for event in node.printed if event["event"] == "exit"] == ["cancelled"]
    assert sorted(os.listdir(run / "jobs")) == ["j"]
    (place / "0").rmdir()
    (place / "1").rmdir()
    (place / "2").rmdir()
    node.say({"job": "k", "spec": {}})
    assert node.answers("k", 2)[-1]["event"] == "ready"
