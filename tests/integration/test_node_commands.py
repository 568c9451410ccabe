"""Commands of jobs that `sfio-node serve` starts: the engine of a container need not be asked for each."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.node import built, wait_for
from lab.node_conversation import ConversingNode, conversation

#: In seconds; `serve` looks for itself, without news, every 15 s.
AT_ONCE = 10


@pytest.fixture
def node(tmp_path: Path) -> Iterator[ConversingNode]:
    with conversation(tmp_path) as running:
        yield running


def said(node: ConversingNode, name: str) -> str:
    """Return what a command has printed so far."""
    return "".join(event["text"] for event in node.printed if (event.get("job"), event["event"]) == (name, "printed"))


def returned(node: ConversingNode, name: str) -> list[int]:
    return [event["code"] for event in node.printed if (event.get("job"), event["event"]) == (name, "returned")]


def run(node: ConversingNode, name: str, script: str) -> tuple[str, int]:
    """Makes a job and runs a script in its name; what it has printed, and its exit code."""
    assert node.ask(name)["event"] == "ready"
    node.say({"run": name, "command": script})
    wait_for(lambda: returned(node, name), "the end of a command")
    return said(node, name), returned(node, name)[0]


@pytest.mark.parametrize(
    ("script", "text", "code"),
    [
        ("echo out; echo error >&2; exit 3", "out\nerror\n", 3),
        ("exit 0", "", 0),
        ("kill -9 $$", "", 137),
        ("printf 'a\\n\\377\\303\\251'; cat; exec true", "a\n\udcffé", 0),
        ("exec 1>&- 2>&-; sleep 0.3; exit 4", "", 4),
        ("nonexistent-program", None, 127),
        ("readlink /proc/self/fd/0", "/dev/null\n", 0),
        # The command leads a session, so that only its own processes get a signal to its group.
        ("trap 'exit 5' TERM; kill 0; sleep 0.5", "", 5),
        # Signals that `serve` ignores are none of its business.
        ("kill -INT $$; sleep 5", "", 130),
        ("kill -HUP $$; sleep 5", "", 129),
    ],
)
def test_what_a_command_prints_and_how_it_ends(node: ConversingNode, script: str, text: str | None, code: int) -> None:
    begun = time.monotonic()
    found, ended = run(node, "j", script)
    assert (ended, time.monotonic() - begun < AT_ONCE) == (code, True)
    assert found == text or (text is None and "nonexistent-program" in found)
    assert node.server.poll() is None


def test_a_command_ignores_and_blocks_what_its_parent_was_given(node: ConversingNode) -> None:
    script = "grep -E '^Sig(Blk|Ign)' /proc/self/status"
    given = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout
    assert run(node, "j", script) == (given, 0)


def test_a_command_may_open_as_many_files_as_without_us(tmp_path: Path) -> None:
    with conversation(tmp_path, "--listen", "127.0.0.1", wrapper=["prlimit", "--nofile=200:1000"]) as node:
        assert run(node, "j", "ulimit -n") == ("200\n", 0)


def test_files_have_the_modes_that_they_have_without_us(node: ConversingNode) -> None:
    path = node.base / "out" / "made"
    before = os.umask(0)
    os.umask(before)
    assert run(node, "j", f"umask; touch {path}") == (f"{before:04o}\n", 0)
    assert path.stat().st_mode & 0o777 == 0o666 & ~before


def test_a_job_whose_command_serve_starts(node: ConversingNode) -> None:
    (node.base / "out").mkdir(exist_ok=True)
    assert node.ask("j", {"name": "j"})["event"] == "ready"
    words = [str(node.binary), "exec", "--job", str(node.run / "jobs" / "j"), "--", "sh", "-c", "echo out; exit 3"]
    node.say({"run": "j", "command": f"cd {node.base}/out && export X=1 && exec {shlex.join(words)}"})
    wait_for(lambda: returned(node, "j"), "the end of a job")
    wait_for(lambda: [event for event in node.printed if event["event"] == "exit"], "exit")
    assert (said(node, "j"), returned(node, "j")) == ("out\n", [3])


def test_much_is_printed_and_others_go_on(node: ConversingNode) -> None:
    """Two commands at once, and one that ends before."""
    megabytes = 20
    for name in ("a", "b"):
        assert node.ask(name)["event"] == "ready"
        node.say({"run": name, "command": f"yes {name} | head -c {megabytes}000000; echo; echo end {name}"})
    assert run(node, "c", "echo c") == ("c\n", 0)
    for name in ("a", "b"):
        wait_for(
            lambda name=name: returned(node, name),  # type: ignore[misc]
            "the end of what prints much",
            timeout=60,
            progress=lambda: len(node.printed),
        )
        text = said(node, name)
        assert len(text) == megabytes * 10**6 + len(f"\nend {name}\n")
        assert text.endswith(f"\nend {name}\n")


def test_what_a_command_leaves_behind_is_not_waited_for(node: ConversingNode) -> None:
    begun = time.monotonic()
    pid, code = run(node, "j", "sleep 600 & echo $!")
    try:
        assert (code, time.monotonic() - begun < AT_ONCE) == (0, True)
        os.kill(int(pid), 0)
    finally:
        os.kill(int(pid), signal.SIGKILL)


def test_a_command_that_cannot_be_started(node: ConversingNode) -> None:
    text, code = run(node, "long", f"true {'x' * 200_000}")
    assert (text, code) == ("sfio-node: cannot run sh: Argument list too long (os error 7)\n", 126)
    node.say({"run": "nobody", "command": "touch there"}, {"run": "../x", "command": "touch there"})
    for name in ("nobody", "../x"):
        wait_for(lambda name=name: returned(node, name), "an answer")  # type: ignore[misc]
        assert (returned(node, name), "job" in said(node, name)) == ([125], True)
    assert json.dumps(node.complaints()) == "[]"


def test_a_reader_who_takes_nothing_is_waited_for(tmp_path: Path) -> None:
    """The output stays in the pipes, not in the memory of `serve`."""
    size = 20_000_000
    command = [built(), "serve", "--directory", tmp_path / "run"]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    assert server.stdin is not None
    assert server.stdout is not None
    try:
        for request in ({"job": "j", "spec": {"name": "j"}}, {"run": "j", "command": f"yes | head -c {size}"}):
            server.stdin.write(json.dumps(request).encode() + b"\n")
        server.stdin.flush()
        time.sleep(1)
        status = Path(f"/proc/{server.pid}/status").read_text()
        (resident,) = re.findall(r"VmHWM:\s*(\d+) kB", status)
        assert int(resident) < 30_000
        taken = 0
        while (event := json.loads(server.stdout.readline()))["event"] != "returned":
            taken += len(event.get("text", ""))
        assert (taken, event["code"]) == (size, 0)
        server.stdin.close()
        assert server.wait(40) == 0
    finally:
        server.kill()
        server.wait()
