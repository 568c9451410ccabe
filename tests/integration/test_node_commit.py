"""Commit rules of sfio-node with real commands: when files are committed, and that death commits nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest

from lab.node import Job, Node, node, output, wait_for


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[Node]:
    with node(tmp_path) as running:
        yield running


@pytest.fixture
def out(tmp_path: Path) -> Path:
    directory = tmp_path / "out"
    directory.mkdir()
    return directory


def finish(job: Job, expected: list[str], *, before_end: list[str]) -> None:
    """Checks what is committed while the job runs (it waits for a file ``go``) and after it."""
    wait_for(lambda: len(job.committed()) >= len(before_end), f"commits {before_end}: {job.events()}")
    time.sleep(0.08)
    assert job.committed() == before_end
    (job.directory / "go").touch()
    assert job.wait() == 0
    assert job.committed() == expected
    assert job.named("complete")
    assert job.exit()["success"] is True


HOLD = 'while [ ! -e "$SFIO_JOB/go" ]; do sleep 0.02; done'


def test_on_termination(runtime: Node, out: Path) -> None:
    job = runtime.shell("j", f"echo x > {out}/a.txt; {HOLD}", outputs=[output(out, "*.txt")])
    finish(job, ["a.txt"], before_end=[])
    assert [event["event"] for event in job.events()] == ["started", "opened", "committed", "complete", "exit"]
    assert job.named("committed")[0]["size"] == 2


def test_on_close(runtime: Node, out: Path) -> None:
    job = runtime.shell("j", f"echo x > {out}/a.txt; {HOLD}", outputs=[output(out, "*.txt", "on_close")])
    finish(job, ["a.txt"], before_end=["a.txt"])
    assert [event["event"] for event in job.events()] == [
        "started",
        "opened",
        "closed",
        "committed",
        "complete",
        "exit",
    ]


def test_directory_made_and_filled_at_once(runtime: Node, out: Path) -> None:
    script = f"mkdir -p {out}/d/e/f; for i in 1 2 3; do echo $i > {out}/d/e/f/$i; done; echo 4 > {out}/d/4; {HOLD}"
    job = runtime.shell("j", script, outputs=[output(out, "d", "on_n_files", "directory", n_files=4)])
    wait_for(lambda: job.named("complete"), f"complete: {job.events()}")
    assert sorted(job.committed()) == ["1", "2", "3", "4"]
    (job.directory / "go").touch()
    assert job.wait() == 0


def test_standard_output(runtime: Node, out: Path) -> None:
    both = str(out / "log")
    job = runtime.shell(
        "j", "echo to-out; echo to-err >&2", job=json.dumps({"name": "j", "command": {"stdout": both, "stderr": both}})
    )
    assert job.wait() == 0
    assert (out / "log").read_text() == "to-out\nto-err\n"


def test_standard_output_is_committed_with_success_only(runtime: Node, out: Path) -> None:
    for name, code, expected in (("good", 0, ["good"]), ("bad", 1, [])):
        fields = {"name": name, "command": {"stdout": str(out / name)}, "outputs": [output(out, name, "on_close")]}
        job = runtime.shell(name, f"echo x; exit {code}", job=json.dumps(fields))
        assert job.wait() == code
        assert job.committed() == expected


def test_a_file_from_before_is_no_news(runtime: Node, out: Path) -> None:
    (out / "a").write_text("old")
    script = f"sleep 0.1; echo new > {out}/a; {HOLD}"
    job = runtime.shell("j", script, outputs=[output(out, "a", "on_close")])
    time.sleep(0.05)
    assert not job.named("opened") or len((out / "a").read_text()) != 3
    finish(job, ["a"], before_end=["a"])


def test_failure_commits_nothing_more(runtime: Node, out: Path) -> None:
    job = runtime.shell("j", f"echo x > {out}/a; exit 3", outputs=[output(out, "*")])
    assert job.wait() == 3
    assert job.committed() == []
    assert (job.exit()["success"], job.exit()["code"]) == (False, 3)


def test_success_codes(runtime: Node, out: Path) -> None:
    job = runtime.shell("j", f"echo x > {out}/a; exit 3", outputs=[output(out, "*")], command={"success_codes": [0, 3]})
    assert job.wait() == 3
    assert job.committed() == ["a"]


@pytest.mark.parametrize(
    "name", ["two words", "new\nline", "caf\u00e9 \U0001f9ec", 'quote"s\\', os.fsdecode(b"\xff\xfe\x80")]
)
def test_any_file_name(runtime: Node, out: Path, name: str) -> None:
    script = "import sys,os,time; f = open(sys.argv[1], 'w'); f.write('x'); f.close(); time.sleep(0.3)"
    job = runtime.python("j", script, out / name, outputs=[output(out, name, "on_close")])
    assert job.wait() == 0
    assert [event["path"] for event in job.named("committed")] == [str(out / name)]
    wait_for(lambda: job.served()[-1]["event"] == "exit", "exit printed")
    assert next(event for event in job.served() if event["event"] == "committed")["path"] == str(out / name)


def test_commit_is_prompt_when_the_writer_lives(runtime: Node, out: Path) -> None:
    """Each file is committed before the next one is made."""
    names = [f"{number}" for number in range(20)]
    script = f'for i in {" ".join(names)}; do echo x > {out}/$i; until [ -e "$SFIO_JOB/$i" ]; do sleep 0.01; done; done'
    job = runtime.shell("j", script, outputs=[output(out, "[0-9]*", "on_close", "files")])
    for number, name in enumerate(names, start=1):
        wait_for(lambda: job.committed() == names[:number], f"the commit of {name}")  # noqa: B023
        (job.directory / name).touch()
    assert job.wait() == 0


KILL_SELF = "import os,sys; f = open(sys.argv[1], 'w'); f.write('x' * 10); f.flush(); os.kill(os.getpid(), 9)"
EXCEPTION = "import os,sys; f = open(sys.argv[1], 'w'); f.write('x' * 10); f.flush(); raise ValueError"
IN_FUNCTION = """
import sys
def work():
    with open(sys.argv[1], "w") as f:
        f.write("x" * 10)
        raise ValueError
work()
"""


@pytest.mark.parametrize("script", [KILL_SELF, EXCEPTION, IN_FUNCTION], ids=["kill", "exception", "with"])
@pytest.mark.parametrize("shape", ["main", "set -e", "last"])
def test_death_commits_nothing(runtime: Node, out: Path, script: str, shape: str) -> None:
    scripts = out.parent / "script.py"
    scripts.write_text(script)
    python = f"python3 -IS {scripts} {out}/a 2>/dev/null"
    command = {"main": f"exec {python}", "set -e": f"set -e; {python}; sleep 1", "last": f"{python}; exit 4"}[shape]
    job = runtime.shell("j", command, outputs=[output(out, "a", "on_close")])
    assert job.wait() != 0
    assert job.committed() == []
    assert (out / "a").stat().st_size == 10


@pytest.mark.parametrize("shape", ["exec sleep 30 > {}", "sleep 30 > {}; exit 1", "set -e; sleep 30 > {}; sleep 5"])
def test_kill_from_outside_commits_nothing(runtime: Node, out: Path, shape: str) -> None:
    job = runtime.shell("j", shape.format(out / "a"), outputs=[output(out, "a", "on_close")])
    job.wait_for("opened")

    def sleepers() -> list[int]:
        names = {pid: Path(f"/proc/{pid}/comm").read_text().strip() for pid in job.processes()}
        return [pid for pid, name in names.items() if name == "sleep"]

    wait_for(sleepers, "the writer")
    os.kill(sleepers()[0], signal.SIGKILL)
    assert job.wait() != 0
    assert job.committed() == []


def test_what_a_killed_child_has_written_is_committed_with_success(runtime: Node, out: Path) -> None:
    job = runtime.shell("j", f"sh -c 'echo x; kill -9 $$' > {out}/a; exit 0", outputs=[output(out, "a", "on_close")])
    assert job.wait() == 0
    assert job.committed() == ["a"]


def test_lost_notices(runtime: Node, out: Path) -> None:
    """More closes than inotify's queue holds, while exec is stopped: a scan finds what was missed."""
    queue = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    if queue > 100_000:
        pytest.skip("the queue of inotify is too long to be filled in a test")
    script = f"""
import os, sys, time
os.chdir(sys.argv[1])
open("begin", "w").close()
while not os.path.exists(sys.argv[2]): time.sleep(0.01)
for i in range({queue // 2 + 100}):
    for name in "xy": os.close(os.open(name, os.O_CREAT | os.O_WRONLY))
os.mkdir("d")
for name in ("last", "d/deep"): open(name, "w").close()
open("../filled", "w").close()
while not os.path.exists(sys.argv[3]): time.sleep(0.01)
"""
    outputs = [output(out, ["last", "*/deep", "begin", "x", "y"], "on_close", "files")]
    job = runtime.python("j", script, out, out.parent / "go", out.parent / "end", outputs=outputs)
    wait_for(job.committed, "the first commit")
    job.process.send_signal(signal.SIGSTOP)
    (out.parent / "go").touch()
    wait_for((out.parent / "filled").exists, "a full queue")
    job.process.send_signal(signal.SIGCONT)
    wait_for(lambda: {"last", "deep"} <= set(job.committed()), "what was missed")
    assert job.process.poll() is None
    (out.parent / "end").touch()
    assert job.wait() == 0


STAND = """
import os, signal, sys
file, how, place = sys.argv[1:]
def freeze():
    group = f"{place}/sfio-test-{os.path.basename(os.path.dirname(os.environ['SFIO_JOB']))}-{os.getpid()}"
    os.mkdir(group)
    for process in [os.getpid()] + [os.getppid()] * ("all" in how):
        open(f"{group}/cgroup.procs", "w").write(str(process))
    with open(f"{file}.frozen", "w") as note:
        note.write(group)
    return open(f"{group}/{'cgroup.freeze' if 'v2' in how else 'freezer.state'}", "w")
switch = None if how == "stopped" else freeze()
with open(file, "w") as out:
    out.write("part")
if how == "stopped":
    os.kill(os.getpid(), signal.SIGSTOP)
else:
    switch.write("1" if "v2" in how else "FROZEN")
    switch.close()
sys.exit(1)
"""
# In a namespace of its own, as root: where else would be a freezer that one may use.
MOUNT = ["unshare", "-m", "sh", "-c", 'mount -t $0 ${1:+-o $1} none "$2" && shift 2 && exec "$@"']
VERSIONS = {"v1": ("cgroup", "freezer"), "v2": ("cgroup2", "")}


def with_freezer(how: str, place: Path) -> list[str]:
    """A command before a command that has a freezer at `place`."""
    return [*MOUNT, *VERSIONS[how[:2]], str(place)]


@pytest.mark.parametrize("how", ["stopped", "v1", "v2", "v2 all"])
def test_a_job_that_stands_still_commits_nothing(runtime: Node, out: Path, how: str) -> None:
    """The job is stopped or frozen, or all of it with `exec`, between a close and its failure."""
    place, wrapper = runtime.base / "cgroup", []
    place.mkdir()
    if how != "stopped":
        wrapper = with_freezer(how, place)
        if subprocess.run(
            [*wrapper, "test", "-w", place / "cgroup.procs"], capture_output=True, check=False
        ).returncode:
            pytest.skip("no freezer that one may use")
    outputs = [output(out, "a", "on_close")]
    job = runtime.start("j", [sys.executable, "-ISc", STAND, out / "a", how, place], outputs=outputs, wrapper=wrapper)
    try:
        wait_for(lambda: stands_still(job, out / "a.frozen", wrapper), "a job that stands still")
        time.sleep(0.3)
        assert job.committed() == []
    finally:
        go_on(job, out / "a.frozen", wrapper)
    assert job.wait() == 1
    assert job.committed() == []
    if how != "stopped":
        # A process leaves a cgroup when the process has been waited for.
        subprocess.run([*wrapper, "rmdir", (out / "a.frozen").read_text()], check=True)


def stands_still(job: Job, group: Path, wrapper: list[str]) -> bool:
    if not wrapper:
        status = Path(f"/proc/{job.command_pid()}/status").read_text()
        return "State:\tT" in status
    look = "cd $0 && grep -qs 'frozen 1' cgroup.events || grep -qs FROZEN $0/freezer.state"
    if not group.exists():
        return False
    return subprocess.run([*wrapper, "sh", "-c", look, group.read_text()], check=False).returncode == 0


def go_on(job: Job, group: Path, wrapper: list[str]) -> None:
    if not wrapper:
        os.kill(job.command_pid(), signal.SIGCONT)
        return
    thaw = "cd $0; if [ -e cgroup.freeze ]; then echo 0 > cgroup.freeze; else echo THAWED > freezer.state; fi"
    subprocess.run([*wrapper, "sh", "-c", thaw, group.read_text()], check=True)


def test_process_substitution_is_waited_for(runtime: Node, out: Path) -> None:
    script = f"seq 1 100000 > >(sleep 0.2; gzip > {out}/a.gz)"
    job = runtime.start("j", ["bash", "-c", script], outputs=[output(out, "a.gz")])
    assert job.wait() == 0
    assert job.committed() == ["a.gz"]
    assert os.system(f"gzip -t {out}/a.gz") == 0


def test_a_hard_link_of_a_file_that_is_written_waits(runtime: Node, out: Path) -> None:
    script = f"exec 3> {out}/tmp; ln {out}/tmp {out}/a; {HOLD}"
    job = runtime.shell("j", script, outputs=[output(out, "a", "on_close")])
    finish(job, ["a"], before_end=[])


def test_a_fifo_is_no_output(runtime: Node, out: Path) -> None:
    job = runtime.shell("j", f"mkfifo {out}/a; sleep 0.1; rm {out}/a", outputs=[output(out, "a", "on_close")])
    assert job.wait() == 0
    assert job.named("opened") == []


def test_a_removed_file_cannot_close_another_of_its_name(runtime: Node, out: Path) -> None:
    script = f"exec 3> {out}/a; rm {out}/a; exec 4> {out}/a; exec 3>&-; {HOLD}"
    job = runtime.shell("j", script, outputs=[output(out, "a", "on_close")])
    finish(job, ["a"], before_end=[])


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ({"committed": "on_close"}, [["opened a", "entry a"], ["entry b"], ["closed a"], ["complete"]]),
        (
            {"committed": "on_close", "closes": 2},
            [["opened a", "closed a"], ["closed b", "entry a", "entry b", "complete"], ["closed a"], []],
        ),
        (
            {"committed": "on_n_files", "n_files": 2},
            [["opened a", "entry a"], ["entry b", "complete"], ["closed a"], []],
        ),
        ({"committed": "on_termination"}, [[], [], [], ["opened a", "entry a", "entry b", "complete"]]),
    ],
)
def test_what_is_told_of_the_entries_of_a_directory(
    runtime: Node, out: Path, rule: dict[str, object], told: list[list[str]]
) -> None:
    """A close that commits is told as a commit. Serve leaves commits of entries to the readers of the events.

    :param told: after each of the three writes, and at the end
    """

    def found() -> list[str]:
        events = [event for event in job.events() if event["event"] not in ("started", "exit", "changed")]
        return [" ".join([str(e["event"]), os.path.basename(str(e.get("path", "")))]).strip() for e in events]

    write = 'for f in a b a; do echo x >> $f; n=$((n + 1)); until [ -e "$SFIO_JOB/$n" ]; do sleep 0.01; done; done'
    script = f"mkdir {out}/d; cd {out}/d; n=0; {write}"
    job = runtime.shell("j", script, outputs=[output(out, "d", kind="directory", **rule)])  # type: ignore[arg-type]
    for number in (1, 2, 3):
        expected = [*chain.from_iterable(told[:number])]
        wait_for(lambda: found() == expected, f"{expected}: {found()}")  # noqa: B023
        (job.directory / str(number)).touch()
    assert job.wait() == 0
    wait_for(lambda: job.served() and job.served()[-1]["event"] == "exit", "the last event")
    assert found() == [*chain.from_iterable(told)]
    assert [event["event"] for event in job.served()] == [e["event"] for e in job.events() if e["event"] != "entry"]


def test_a_committed_entry_that_is_removed_counts_no_more(runtime: Node, out: Path) -> None:
    removed = 'until [ -e "$SFIO_JOB/remove" ]; do sleep 0.01; done; rm a'
    script = f"mkdir {out}/d; cd {out}/d; echo x > a; {removed}; echo x > b; {HOLD}; echo x > c"
    job = runtime.shell("j", script, outputs=[output(out, "d", "on_n_files", "directory", n_files=2)])
    wait_for(lambda: job.committed() == ["a"], "the first commit")
    (job.directory / "remove").touch()
    wait_for(lambda: job.committed() == ["a", "b"], "two commits")
    time.sleep(0.08)
    assert not job.named("complete")
    (job.directory / "go").touch()
    assert job.wait() == 0
    assert [(os.path.basename(str(event["path"])), event["how"]) for event in job.named("changed")] == [
        ("a", "removed")
    ]


AFTERWARDS = {
    "append": ("echo y >> a", "written"),
    "rewrite": ("printf z | dd of=a conv=notrunc status=none", "written"),
    "truncate": (": > a", "written"),
    "replace": ("echo x > new; mv new a", "written"),
    "remove": ("rm a", "removed"),
    "remake": ("rm a; echo x > a", "written"),
    "other name": ("ln a b; echo y >> b", "written"),
    "again without writing": (": >> a", None),
    "time": ("touch -d @1 a", None),
    "mode": ("chmod 600 a", None),
    "read": ("cat a", None),
}


@pytest.mark.parametrize("how", list(AFTERWARDS))
def test_a_change_after_the_commit_is_told(runtime: Node, out: Path, how: str) -> None:
    act, told = AFTERWARDS[how]
    script = f"cd {out}; echo x > a; {HOLD}; {act}; exit 0"
    job = runtime.shell("j", script, outputs=[output(out, "a", "on_close")], stdout=subprocess.DEVNULL)
    wait_for(lambda: job.committed() == ["a"], "the commit")
    time.sleep(0.1)
    (job.directory / "go").touch()
    assert job.wait() == 0
    changed = [(event["port"], event["path"], event["how"]) for event in job.named("changed")]
    if how == "time":
        # `touch` opens the file for writing, where it can: that is not told from writing the same again.
        assert changed in ([], [("out", str(out / "a"), "written")])
    else:
        assert changed == ([("out", str(out / "a"), told)] if told else [])


def test_nothing_is_told_of_a_change_before_the_commit(runtime: Node, out: Path) -> None:
    script = f"cd {out}; echo x > a; echo y >> a; echo z > b; rm b; {HOLD}"
    job = runtime.shell("j", script, outputs=[output(out, "*", "on_termination", "files")])
    finish(job, ["a"], before_end=[])
    assert job.named("changed") == []


def test_why_there_is_no_window_is_told_though_the_job_ends_at_once(runtime: Node) -> None:
    (out := runtime.base / "linked").mkdir()
    linked = {**output(out, "a"), "window": {"size": 1 << 20, "readers": 1}}
    job = runtime.shell("j", f"cd {out}; echo text > b; exec ln -s b a", outputs=[linked])
    assert job.wait() == 0
    assert [event["message"] for event in job.named("warning")] == [
        f"{out}/a is kept whole, without a window: it is a symbolic link [SFIO-N004]"
    ]
