"""Jobs that are paused to hold them to a rate do what they do otherwise, and no process stays paused."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.node import Job, Node, built, ended, output, wait_for
from lab.processes import is_dead

MB = 10**6
STRANGER = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to see the files of the node runtime")

MMAP = """
import mmap, sys
data = open(sys.argv[1], "rb").read()
with open("out", "w+b") as file:
    file.truncate(len(data))
    mapped = mmap.mmap(file.fileno(), 0)
    for at in range(0, len(data), 1 << 16):
        mapped[at : at + (1 << 16)] = data[at : at + (1 << 16)]
"""

#: What moves 80 MB from `$0` to `out`.
TOOLS = {
    "dd": 'dd if="$0" of=out bs=4096 status=none',
    "cp": 'cp --reflink=never "$0" out',
    "tar": 'tar cf - -C "${0%/*}" "${0##*/}" | cat | tar xOf - > out',
    "mmap": f"exec {sys.executable} -ISc '{MMAP}' \"$0\"",
    "many": """for i in $(seq 0 79)
        do dd if="$0" of=out bs=1000000 skip=$i seek=$i count=1 conv=notrunc status=none; done""",
}

#: Writes 30 MB beside, so that it is paused for 3 s.
BURST = "dd if=/dev/zero of=beside bs=1000000 count=30 status=none"


def limit(megabytes: float, path: Path, direction: str = "write") -> dict[str, object]:
    return {"rate": int(megabytes * MB), "direction": direction, "path": str(path)}


def state(pid: int) -> str:
    """The state of a process, proc(5); empty when the process has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def is_paused(job: Job) -> bool:
    pids = job.processes()
    return bool(pids) and all(state(pid) == "T" for pid in pids)


def tree(job: Job) -> list[int]:
    """The processes of a job, when all of them are paused."""
    wait_for(lambda: is_paused(job), f"a pause of {job.name}")
    return job.processes()


@pytest.mark.long
def test_tools_do_the_same_at_their_rate(runtime: Node, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(os.urandom(80 * MB))
    jobs = {}
    for name, script in TOOLS.items():
        (place := tmp_path / "out" / name).mkdir()
        command = ["sh", "-c", f'cd "$1" && {{ {script}; }}', source, place]
        jobs[name] = runtime.start(name, command, limit=limit(20, place))
    paused = 0.0
    for name, job in jobs.items():
        assert job.wait(120) == 0, name
        assert (tmp_path / "out" / name / "out").read_bytes() == source.read_bytes(), name
        exit_event = job.exit()
        seconds = float(str(exit_event["ended"])) - float(str(exit_event["started"]))
        # What is written in the last moment before the end is not waited for: much of it where all cores are busy.
        assert seconds >= 1, (name, seconds)
        usage = exit_event["usage"]
        assert isinstance(usage, dict)
        assert (usage["paused"] > 0) == (usage["pauses"] > 0), (name, usage)
        paused += usage["paused"]
        assert job.named("warning") == []
    assert paused > 2


def test_who_has_moved_all_that_was_expected_is_not_held_for_it(runtime: Node, tmp_path: Path) -> None:
    """For 12 MB at 2 MB/s pauses of 5 s or more are due; if they are all, nothing is spared by it."""
    place = tmp_path / "out"
    script = """
import os, sys, time
with open(sys.argv[1], "wb", buffering=0) as file:
    file.write(bytes(12 * 10**6))
# What is written in the last moment before the end is not waited for.
while not os.path.exists(sys.argv[2]):
    time.sleep(0.01)
"""
    jobs = {
        name: runtime.python(name, script, place / name, place / "go", limit={**limit(2, place), **expected})
        for name, expected in (("all", {"expected": 12 * MB}), ("more", {"expected": 120 * MB}), ("unknown", {}))
    }
    wait_for(lambda: is_paused(jobs["more"]) and is_paused(jobs["unknown"]), "two pauses")
    wait_for(lambda: (place / "all").exists() and (place / "all").stat().st_size == 12 * MB, "all")
    (place / "go").touch()
    assert all(job.wait(60) == 0 for job in jobs.values())
    paused = {name: json.loads(json.dumps(job.exit()["usage"]))["paused"] for name, job in jobs.items()}
    assert paused["all"] < 2.5
    assert min(paused["more"], paused["unknown"]) > 4


def test_a_job_that_is_slower_is_never_paused(runtime: Node, tmp_path: Path) -> None:
    job = runtime.shell(
        "j", f"cd {tmp_path}/out; dd if=/dev/zero of=a bs=100000 count=3; sleep 0.3", limit=limit(1000, tmp_path)
    )
    assert job.wait() == 0
    usage = job.exit()["usage"]
    assert isinstance(usage, dict)
    assert (usage["paused"], usage["pauses"]) == (0, 0)
    other = runtime.shell("k", "true")
    assert other.wait() == 0
    assert "paused" not in str(other.exit()["usage"])


def test_a_close_before_a_failure_is_no_commit_however_long_the_pause_between(runtime: Node, tmp_path: Path) -> None:
    """A process that is paused between its close and its end has not lived on."""
    out = tmp_path / "out"
    script = f"""
import os
import resource
beside = os.open("{out}/beside", os.O_CREAT | os.O_WRONLY)
file = open("{out}/a", "w")
file.write("part")
file.close()
os.write(beside, bytes(30_000_000))
os._exit(1)
"""
    watched = [output(out, "a", "on_close")]
    job = runtime.python("j", script, outputs=watched, limit=limit(10, out))
    wait_for(lambda: is_paused(job), "the pause")
    assert job.wait() == 1
    assert (job.exit()["reason"], job.committed()) == ("exited", [])


def test_closes_are_believed_between_pauses(runtime: Node, tmp_path: Path) -> None:
    """A job that is paused all the time commits what it has closed long before its end."""
    out = tmp_path / "out"
    script = f"""
import os
def write(name):
    with open("{out}/" + name, "wb") as file:
        file.write(bytes(200_000))
write("a")
while not os.path.exists("{out}/seen"):
    write("beside")
"""
    job = runtime.python("j", script, outputs=[output(out, "a", "on_close")], limit=limit(20, out))
    job.wait_for("committed")
    assert job.process.poll() is None
    (out / "seen").touch()
    assert job.wait() == 0
    committed = [event for event in job.commits() if event["path"] == f"{out}/a"]
    assert [event["at_end"] for event in committed] == [False]


def test_who_is_paused_hears_that_it_is_cancelled(runtime: Node, tmp_path: Path) -> None:
    out = tmp_path / "out"
    job = runtime.shell(
        "j", f"cd {out}; trap 'echo heard > heard; exit 7' TERM; {BURST}; sleep 600", limit=limit(0.2, out)
    )
    tree(job)
    job.cancel()
    job.wait()
    assert (job.exit()["reason"], job.exit()["code"]) == ("cancelled", 7)
    assert (out / "heard").read_text() == "heard\n"


def test_who_was_stopped_by_somebody_else_stays_stopped(runtime: Node, tmp_path: Path) -> None:
    out = tmp_path / "out"
    stop = "kill -STOP $!; until grep -q '^State:.T' /proc/$!/status; do sleep 0.01; done"
    end = "touch written; until [ -e seen ]; do sleep 0.01; done; kill -KILL $!"
    job = runtime.shell("j", f"cd {out}; sleep 600 & echo $! > pid; {stop}; {BURST}; {end}", limit=limit(60, out))
    wait_for((out / "written").exists, "the end of writing")
    pid = int((out / "pid").read_text())
    wait_for(lambda: not is_paused(job), "the end of the pause")
    assert state(pid) == "T"
    (out / "seen").touch()
    assert job.wait() == 0


def test_who_is_about_to_stop_stops(runtime: Node, tmp_path: Path) -> None:
    """A process waits in the kernel for its child, and has not taken the signal of another process yet."""
    out = tmp_path / "out"
    os.mkfifo(out / "fifo")
    spawn = """
import os
actions = [(os.POSIX_SPAWN_OPEN, 5, "fifo", os.O_RDONLY, 0)]
os.posix_spawn("/bin/true", ["true"], {}, file_actions=actions)
open("went on", "w")
"""
    begin = f"{sys.executable} -ISc '{spawn}' & echo $! > new; mv new pid"
    wait = "until grep -q '^State:.D' /proc/$!/status; do sleep 0.01; done; kill -STOP $!"
    end = "touch written; until [ -e seen ]; do sleep 0.01; done; kill -KILL $!"
    job = runtime.shell("j", f"cd {out}; {begin}; {wait}; {BURST}; {end}", limit=limit(60, out))
    wait_for((out / "written").exists, "the end of writing")
    pid = int((out / "pid").read_text())
    wait_for(lambda: not is_paused(job), "the end of the pause")
    went_on = out / "went on"
    with (out / "fifo").open("w"):
        wait_for(lambda: went_on.exists() or state(pid) == "T", "the child")
    assert not went_on.exists()
    (out / "fifo").unlink()
    (out / "seen").touch()
    assert job.wait() == 0


@pytest.fixture
def strangers(public: Path) -> Iterator[Node]:
    """A `serve` of another user than root, for what is killed."""
    if os.geteuid() != 0:
        pytest.skip("needs a second user")
    (base := public / "home").mkdir()
    shutil.chown(base, STRANGER, STRANGER)
    binary = public / "sfio-node"
    shutil.copy(built(), binary)
    binary.chmod(0o755)
    with ended(Node(binary, base, wrapper=WRAPPER)) as running:
        yield running


WRAPPER = ["setpriv", f"--reuid={STRANGER}", f"--regid={STRANGER}", "--clear-groups"]


def start(running: Node, script: str) -> Job:
    """A job of the other user."""
    running.place("j", json.dumps({"name": "j", "limit": limit(0.2, running.base)}))
    directory = running.run / "jobs" / "j"
    for path in (directory, directory / "job.json"):
        os.chown(path, STRANGER, STRANGER)
    words = [*WRAPPER, str(running.binary), "exec", "--job", str(directory), "--", "sh", "-c", script]
    running.jobs.append(Job(running, "j", subprocess.Popen(words, stdin=subprocess.DEVNULL, start_new_session=True)))
    return running.jobs[-1]


@pytest.mark.parametrize("killed", [("exec",), ("serve",), ("exec", "serve"), ("serve", "exec"), ("driver",)])
def test_nobody_stays_paused_whoever_is_killed(strangers: Node, killed: tuple[str, ...]) -> None:
    """One of the processes has none of our environment, and is not the first of its group."""
    base = strangers.base
    first = f"(env -i sleep 61 & echo $! > pid; exec {BURST})"
    # The second burst pauses the whole job: it may begin when the first process has told the number.
    job = start(strangers, f"cd {base}; {first} & until [ -s pid ]; do sleep 0.01; done; {BURST}; wait; sleep 600")
    wait_for(lambda: (base / "pid").exists() and (base / "pid").read_text(), "the process")
    cleared = int((base / "pid").read_text())
    wait_for(lambda: is_paused(job) and state(cleared) == "T", "the pause")
    pids = [cleared, *job.processes()]
    for who in killed:
        if who == "driver":
            assert strangers.server.stdin is not None
            strangers.server.stdin.close()
        else:
            os.kill(job.process.pid if who == "exec" else strangers.server.pid, signal.SIGKILL)
    wait_for(lambda: all(map(is_dead, pids)), "the end of all")
    if "serve" in killed:
        strangers.server.wait()
    if "exec" in killed:
        shutil.rmtree(strangers.run, ignore_errors=True)


def test_who_is_dead_may_not_be_looked_into_and_the_job_is_held_all_the_same(strangers: Node) -> None:
    """The first process is never waited for: it stays a zombie, and a user sees none of its counters."""
    job = start(strangers, f"cd {strangers.base}; true & exec {BURST.replace('count=30', 'count=300')}")
    command = int(str(job.wait_for("started")["command_pid"]))
    wait_for(lambda: state(command) == "T", "the pause")
    # The test looks at it for longer than `exec` tries a program of another user.
    time.sleep(0.5)
    assert state(command) == "T"
    assert not job.named("warning")
    job.cancel()
    job.wait()


def test_a_job_that_may_not_be_looked_into_runs_as_it_does(strangers: Node) -> None:
    """The program runs as its owner, until the test opens its input."""
    program = strangers.binary.with_name("cat")
    shutil.copy("/bin/cat", program)
    program.chmod(0o4755)
    os.mkfifo(fifo := strangers.base / "fifo")
    job = start(strangers, f"{program} {fifo}")
    job.wait_for("warning")
    fifo.open("w").close()
    fifo.unlink()
    assert job.wait() == 0
    [warning] = job.named("warning")
    assert "it is not held to its storageBW" in str(warning["message"])
    assert "Permission denied" in str(warning["message"])


@needs_root
def test_nobody_stays_paused_or_is_left_where_exec_can_open_nothing(runtime: Node, tmp_path: Path) -> None:
    jobs = []
    for rate in (0.2, 6):
        (place := tmp_path / "out" / str(rate)).mkdir()
        job = runtime.shell(place.name, f"cd {place}; {BURST}; touch done; sleep 600", limit=limit(rate, tmp_path))
        jobs.append(job)
        tree(job)
        used = {int(name) for name in os.listdir(f"/proc/{job.process.pid}/fd")}
        most = next(number for number in range(3, 1000) if number not in used)
        resource.prlimit(job.process.pid, resource.RLIMIT_NOFILE, (most, most))
    jobs[0].cancel()
    wait_for((place / "done").exists, "the end of the pauses")
    jobs[1].cancel()
    for job in jobs:
        job.wait()
        assert job.processes() == []
