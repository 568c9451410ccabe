"""A file that is complete, fed to a command as if it were being written: what a rehearsal does, without the driver."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from functools import cache
from pathlib import Path
from textwrap import dedent

import pytest

from lab.node import Event, Job, Node, wait_for


@cache
def data() -> bytes:
    """More than a pipe holds."""
    return b"".join(b"%07d a line\n" % number for number in range(200_000))


def replay(runtime: Node, *, stdin: bool = False, net: bool = True, content: bytes | None = None) -> Event:
    """An entry of ``inputs``."""
    file = runtime.base / "out" / "f"
    file.write_bytes(data() if content is None else content)
    target: dict[str, object] = {"stdin": True} if stdin else {"fifo": str(runtime.base / "in" / "f")}
    return {
        "name": "n",
        "port": "p",
        "path": str(file),
        "replay": True,
        "target": target,
        **({"net": True} if net else {}),
    }


def start(runtime: Node, command: list[str], entry: Event) -> Job:
    words = ["env", f"--chdir={runtime.base / 'in'}", *command]
    spec = {"name": "c", "streams": [entry], "command": {"stdout": str(runtime.base / "printed")}}
    return runtime.start("c", words, job=json.dumps(spec), stderr=subprocess.DEVNULL)


def python(script: str) -> list[str]:
    return [sys.executable, "-ISc", script]


@pytest.mark.parametrize("net", [True, False])
@pytest.mark.parametrize("stdin", [True, False])
def test_all_of_it_is_fed_and_then_its_end(runtime: Node, stdin: bool, net: bool) -> None:
    job = start(runtime, ["cat"] if stdin else ["cat", "f"], replay(runtime, stdin=stdin, net=net))
    assert job.wait() == 0
    assert (runtime.base / "printed").read_bytes() == data()
    (stream,) = job.named("stream")
    assert stream["bytes"] == len(data())
    assert not job.named("held")
    assert (runtime.base / "out" / "f").read_bytes() == data(), "it is only read"


@pytest.mark.parametrize("net", [True, False])
@pytest.mark.parametrize("size", [0, 1, 5000])
def test_small_files(runtime: Node, size: int, net: bool) -> None:
    job = start(runtime, ["cat", "f"], replay(runtime, net=net, content=b"x" * size))
    assert job.wait() == 0
    assert (runtime.base / "printed").read_bytes() == b"x" * size


@pytest.mark.parametrize("stdin", [True, False])
def test_a_short_read_is_seen_by_who_takes_it_for_the_end(runtime: Node, stdin: bool) -> None:
    opened = "0" if stdin else "os.open('f', 0)"
    script = f"import os, time\nf = {opened}\ntime.sleep(0.2)\nprint(len(os.read(f, 1 << 20)))"
    job = start(runtime, python(script), replay(runtime, stdin=stdin))
    assert job.wait() == 0
    assert (runtime.base / "printed").read_text() == "1\n"


def test_who_asks_for_more_than_bytes_gets_the_file_at_once(runtime: Node) -> None:
    job = start(runtime, python("f = open('f', 'rb'); print(f.seek(0, 2))"), replay(runtime))
    assert job.wait() == 0
    assert (runtime.base / "printed").read_text() == f"{len(data())}\n"
    (held,) = job.named("held")
    assert (held["call"], held["bytes"]) == ("lseek", 0)


def test_who_asks_by_path_gets_the_file_at_once(runtime: Node) -> None:
    job = start(runtime, ["stat", "-Lc", "%s", "f"], replay(runtime, net=False))
    assert job.wait() == 0
    assert (runtime.base / "printed").read_text() == f"{len(data())}\n"
    assert [event["input"] for event in job.named("warning")] == ["n"]


def test_who_has_its_input_watched_gets_the_file_at_once(runtime: Node) -> None:
    script = "import select; f = open('f', 'rb'); select.epoll().register(f); print(len(f.read()))"
    job = start(runtime, python(script), replay(runtime, net=False))
    assert job.wait() == 0
    assert [event["input"] for event in job.named("warning")] == ["n"]


@pytest.mark.parametrize("net", [True, False])
@pytest.mark.parametrize(
    ("sets", "told"),
    [
        ("signal.alarm(60)", {"alarm", "setitimer"}),
        ("signal.setitimer(signal.ITIMER_REAL, 60)", {"setitimer"}),
        ("signal.setitimer(signal.ITIMER_PROF, 60)", set()),
        ("subprocess.run(['timeout', '60', 'true'])", {"timer_settime"}),
    ],
)
def test_an_alarm_is_told(runtime: Node, net: bool, sets: str, told: set[str]) -> None:
    job = start(
        runtime, python(f"import signal, subprocess; {sets}; print(len(open('f').read()))"), replay(runtime, net=net)
    )
    assert job.wait() == 0
    assert (runtime.base / "printed").read_text() == f"{len(data())}\n"
    asked = job.named("asked")
    assert [event["name"] for event in asked] == (["n"] if told else [])
    assert {event["call"] for event in asked} <= told


def test_what_changes_meanwhile_is_found(runtime: Node) -> None:
    script = "import os, sys\nf = open('f', 'rb', 0); f.read(9)\nos.truncate(sys.argv[1], 5)\nwhile f.read(9): pass"
    file = runtime.base / "out" / "f"
    job = start(runtime, [*python(script), str(file)], replay(runtime, content=b"x" * 99))
    assert job.wait() == 75
    assert job.exit()["reason"] == "rewritten"


def test_a_file_that_is_not_there_ends_the_job(runtime: Node) -> None:
    entry = replay(runtime)
    (runtime.base / "out" / "f").unlink()
    job = start(runtime, ["cat", "f"], entry)
    assert job.wait() == 75
    assert job.exit()["reason"] == "producer"


def test_who_is_idle_is_the_nicest(runtime: Node) -> None:
    script = "echo $(nice) $(cat /proc/self/oom_score_adj)"
    spec = {"name": "c", "rehearsal": {"idle": True}, "command": {"stdout": str(runtime.base / "printed")}}
    job = runtime.shell("c", script, job=json.dumps(spec))
    assert job.wait() == 0
    assert (runtime.base / "printed").read_text() == "19 1000\n"


def test_who_has_had_its_time_is_ended(runtime: Node) -> None:
    job = runtime.shell("c", "sleep 600", rehearsal={"seconds": 1})
    assert job.wait() == 75
    ending = job.exit()
    assert ending["reason"] == "overtime"
    assert 0.9 < ending["ended"] - ending["started"] < 30


def test_who_gets_no_processor_does_not_lose_its_time(runtime: Node) -> None:
    """The reader ends when it has waited for longer than it is given, by the kernel's account."""
    waits = 'while read -r ran waited turns < /proc/$$/schedstat; [ "$waited" -lt 2500000000 ]; do :; done'
    one = ["taskset", "-c", str(min(os.sched_getaffinity(0)))]
    with subprocess.Popen([*one, *python("while True: pass")]) as other:
        try:
            words = [*one, "sh", "-c", waits]
            job = runtime.start("c", words, job=json.dumps({"name": "c", "rehearsal": {"idle": True, "seconds": 2}}))
            assert job.wait(60) == 0
        finally:
            other.kill()


def test_who_finds_directories_at_other_places_is_told_these(runtime: Node) -> None:
    first, second = (runtime.base / name for name in ("first", "second"))
    for place in (first, second):
        (place / "in").mkdir(parents=True)
        (place / "where").write_text(place.name)
    entry = {**replay(runtime), "target": {"fifo": str(second / "in" / "f")}}
    spec = {
        "name": "c",
        "streams": [entry],
        "command": {"stdout": str(second / "printed")},
        "rehearsal": {"mounts": [{"path": str(second), "at": str(first)}]},
    }
    script = f'echo "$0" "$HOME" "$(pwd -P)" "$(cat where)" "$(cat "$0" | cksum)"; cat {first}/where; : > made'
    words = ["sh", "-c", script, str(second / "in" / "f")]
    surroundings = ["env", f"--chdir={second}", f"HOME={second}"]
    job = runtime.start("c", words, job=json.dumps(spec), wrapper=surroundings)
    assert job.wait() == 0
    sums = subprocess.run(["cksum"], input=data(), capture_output=True, check=True).stdout.decode().strip()
    if job.named("warning"):
        pytest.skip("no mount namespaces")
    said = (second / "printed").read_text()
    assert said == f"{first}/in/f {first} {first} second {sums}\nsecond"
    assert (second / "made").exists()
    assert not (first / "made").exists()


@pytest.mark.parametrize(("script", "is_left"), [("exit 0", True), ("exit 3", False)])
def test_scratch_is_there_until_the_job_fails(runtime: Node, script: str, is_left: bool) -> None:
    scratch = runtime.base / "scratch"
    (scratch / "deep").mkdir(parents=True)
    (scratch / "deep" / "file").touch()
    job = runtime.shell("c", script, rehearsal={"scratch": [str(scratch)]})
    assert (job.wait() == 0) == is_left
    assert scratch.exists() == is_left


def test_scratch_of_a_job_that_is_killed_is_removed(runtime: Node) -> None:
    (runtime.base / "scratch").mkdir()
    job = runtime.shell("c", "sleep 600", rehearsal={"scratch": [str(runtime.base / "scratch")]})
    job.command_pid()
    job.process.kill()
    wait_for(lambda: not (runtime.base / "scratch").exists(), "its removal")


def test_scratch_is_removed_with_the_driver(runtime: Node) -> None:
    (runtime.base / "scratch").mkdir()
    job = runtime.shell("c", "sleep 600", rehearsal={"scratch": [str(runtime.base / "scratch")]})
    job.command_pid()
    assert runtime.leave() == 0
    assert not (runtime.base / "scratch").exists()


def test_who_is_confined_changes_nothing_but_its_scratch(runtime: Node) -> None:
    scratch, outside = runtime.base / "scratch", runtime.base / "outside"
    (scratch / "a").mkdir(parents=True)
    outside.mkdir()
    (outside / "file").write_text("as it was")
    script = f"""
    cd {scratch}
    for change in 'echo x > file' 'mkdir d' 'mv file d/file' 'ln d/file a/file' 'echo x > /dev/null' \\
      'cat {outside}/file > copy' 'echo x > {outside}/new' 'echo x >> {outside}/file' 'rm {outside}/file' \\
      'mv {outside}/file .' 'mkdir {outside}/d' 'mv copy {outside}' 'truncate -s 0 {outside}/file'
    do sh -c "$change" 2> /dev/null; echo $?; done"""
    bounds = {"confined": True, "scratch": [str(scratch)]}
    spec = {"name": "c", "rehearsal": bounds, "command": {"stdout": str(runtime.base / "printed")}}
    job = runtime.shell("c", script, job=json.dumps(spec))
    assert job.wait() == 0
    said = (runtime.base / "printed").read_text().split()
    if set(said) == {"0"}:
        pytest.skip("no Landlock")
    assert said[:6] == ["0"] * 6
    assert "0" not in said[6:]
    assert [path.name for path in outside.iterdir()] == ["file"]
    assert (outside / "file").read_text() == "as it was"


def test_who_is_confined_reaches_nobody(runtime: Node) -> None:
    script = """
    import socket, sys
    try: socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    except PermissionError: print("refused")
    else: print("reached")"""
    with socket.create_server(("127.0.0.1", 0)) as server:
        printed = str(runtime.base / "printed")
        spec = {"name": "c", "rehearsal": {"confined": True}, "command": {"stdout": printed}}
        port = str(server.getsockname()[1])
        job = runtime.python("c", dedent(script), port, job=json.dumps(spec))
        assert job.wait() == 0
    if (runtime.base / "printed").read_text() != "refused\n":
        pytest.skip("no Landlock for networks")


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"events": "/e"}, 'exactly one of "events", "link" and "replay"'),
        ({"progress": True}, '"progress" and "most" do not go with "replay"'),
        ({"replay": False}, 'exactly one of "events", "link" and "replay"'),
    ],
)
def test_fields_that_do_not_go_together(runtime: Node, fields: dict[str, object], told: str) -> None:
    job = start(runtime, ["cat", "f"], {**replay(runtime), **fields})
    assert job.wait() == 125
    assert told in str(job.exit()["message"])


def test_relative_scratch_is_refused(runtime: Node, tmp_path: Path) -> None:
    job = runtime.shell("c", "true", rehearsal={"scratch": [os.curdir]}, stderr=subprocess.DEVNULL)
    assert job.wait() == 125
    assert "scratch" in str(job.exit()["message"])
