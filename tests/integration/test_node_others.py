"""Jobs, and readers of their streams, that belong to other users, as those of other containers do."""

from __future__ import annotations

import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from lab.node import Node, built, job_text, node, output, wait_for
from lab.node_conversation import conversation
from streamflow_io.runtime import embedded
from streamflow_io.runtime.conversation import Conversation
from streamflow_io.runtime.embedded import EmbeddedRuntime

STRANGER = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be a second user")


@pytest.fixture
def place(public: Path) -> Path:
    return public


def as_stranger(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, user=STRANGER, group=STRANGER, extra_groups=[], capture_output=True, text=True, timeout=20, check=False
    )


def reach(run: Path) -> list[str | Path]:
    return [built(), "reach", "--run", run]


def test_reach(runtime: Node) -> None:
    """Whether a serve lives here, from before its first job to its end."""
    assert subprocess.run(reach(runtime.run), timeout=40, check=False).returncode == 0
    job = runtime.shell("j", "sleep 600")
    job.wait_for("started")
    assert subprocess.run(reach(runtime.run), timeout=40, check=False).returncode == 0
    runtime.server.kill()
    runtime.server.wait()
    assert job.wait() != 0
    for run, why in [
        (runtime.run, "No such file or directory (os error 2)"),
        (runtime.base / "nowhere", "No such file or directory (os error 2)"),
    ]:
        done = subprocess.run(reach(run), capture_output=True, text=True, timeout=40, check=False)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == f"sfio-node: serve is gone: {run}/alive: {why}\n"


def test_reach_of_one_that_was_killed(runtime: Node) -> None:
    runtime.server.kill()
    runtime.server.wait()
    done = subprocess.run(reach(runtime.run), capture_output=True, text=True, timeout=40, check=False)
    expected = f"sfio-node: serve is gone: {runtime.run}/alive: nobody holds it\n"
    assert (done.returncode, done.stderr) == (1, expected)
    shutil.rmtree(runtime.run)  # No process is left to do it.


@pytest.mark.parametrize("words", [[], ["--run", "/x", "1.1.1.1:1"], ["1.1.1.1:1"], ["--certificate", "/c"]])
def test_reach_is_of_one_or_the_other(words: list[str]) -> None:
    done = subprocess.run([built(), "reach", *words], capture_output=True, timeout=40, check=False)
    assert done.returncode == 2


@needs_root
@pytest.mark.parametrize("converses", [False, True])
def test_events_that_others_may_read(place: Path, converses: bool) -> None:
    """A process that knows their place reads them, whatever the mask of the job is; no process lists them, or changes
    anything.
    """
    (place / "out").mkdir()
    with (conversation if converses else node)(place, "--readable") as running:
        job = running.shell("j", f"echo x > {place}/out/a; sleep 600", outputs=[output(place / "out", "*", "on_close")])
        if not converses:
            job.directory.chmod(0o711)
        job.wait_for("committed")
        assert as_stranger(*reach(running.run)).returncode == 0
        events = job.directory / "events.jsonl"
        told = as_stranger("cat", events)
        assert '"committed"' in told.stdout
        for directory in (running.run, running.run / "jobs", job.directory):
            assert oct(directory.stat().st_mode & 0o777) == "0o711"
            assert as_stranger("ls", directory).returncode != 0
            assert as_stranger("touch", directory / "cancel").returncode != 0
        if converses:
            assert as_stranger("cat", job.directory / "job.json").returncode != 0
        assert as_stranger("sh", "-c", f"echo x >> {events}").returncode != 0
        assert as_stranger("sh", "-c", f"timeout 2 sh -c 'echo x > {running.run}/alive'").returncode != 0
        shown = {running.run / "alive", events}
        hidden = [path for path in running.run.rglob("*") if not path.is_dir() and path not in shown]
        if not converses:
            hidden.remove(job.directory / "job.json")
        assert {path.name for path in hidden} >= {"descriptors"}
        assert [path for path in hidden if path.lstat().st_mode & 0o077] == []
        running.server.terminate()
        assert running.server.wait(40) == 0
        assert job.wait() != 0


LOCKING = """
import fcntl, os, struct, sys
os.setgroups([])
os.setgid(int(sys.argv[2]))
os.setuid(int(sys.argv[2]))
events = open(sys.argv[1])
fcntl.flock(events, fcntl.LOCK_EX)
fcntl.fcntl(events, fcntl.F_OFD_SETLKW, struct.pack("hhqqi4x", fcntl.F_RDLCK, 0, 0, 0, 0))
print("locked", flush=True)
sys.stdin.read()
"""


@needs_root
def test_who_reads_the_events_and_locks_them_hides_no_end(place: Path) -> None:
    """A stranger gets all locks that a reader can have, before serve sees that the job has ended."""
    with node(place, "--readable") as running:
        go = place / "go"
        job = running.shell("j", f"until [ -e {go} ]; do sleep 0.01; done")
        job.directory.chmod(0o711)
        job.wait_for("started")
        words = [sys.executable, "-ISc", LOCKING, job.directory / "events.jsonl", str(STRANGER)]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as stranger:
            assert stranger.stdout is not None
            running.server.send_signal(signal.SIGSTOP)
            go.touch()
            assert stranger.stdout.readline() == b"locked\n"
            running.server.send_signal(signal.SIGCONT)
            assert job.wait() == 0
            wait_for(lambda: [event["event"] for event in job.served()][-1:] == ["exit"], "the end of the job")
            stranger.communicate()


@needs_root
def test_events_that_others_may_not_read(place: Path) -> None:
    with node(place) as running:
        job = running.shell("j", "sleep 600")
        job.wait_for("started")
        done = as_stranger(*reach(running.run))
        expected = f"sfio-node: serve is gone: {running.run}/alive: Permission denied (os error 13)\n"
        assert (done.returncode, done.stderr) == (1, expected)
        assert as_stranger("cat", job.directory / "events.jsonl").returncode != 0
        job.cancel()
        assert job.wait() != 0


def jobs_for_all(base: Path) -> Path:
    """Directories of a job as StreamFlow makes them on hosts, whatever the mask is."""
    for directory in (job := base / "job", job / "one"):
        directory.mkdir()
        directory.chmod(0o777)
    return job


@needs_root
def test_nobody_puts_anything_in_the_place_of_a_stream(place: Path) -> None:
    """Where directories of jobs are made for all."""
    job = jobs_for_all(place)
    with node(place) as running:
        (running.base / "out").mkdir()
        fifo, go = job / "one" / "f", running.base / "go"
        stream = running.stream("p", running.base / "out" / "p", fifo)
        script = f"until [ -e {go} ]; do sleep 0.01; done; cat {fifo} > {running.base}/copy"
        reader = running.shell("c", script, inputs=[stream], command={"directories": [str(job)]})
        reader.wait_for("started")
        assert fifo.is_fifo()
        assert as_stranger("mv", fifo, fifo.with_name("moved")).returncode != 0
        assert as_stranger("mv", fifo.parent, job / "moved").returncode != 0
        go.touch()
        written = output(running.base / "out", "p")
        assert running.shell("p", f"echo ours > {running.base}/out/p", outputs=[written]).wait() == 0
        assert reader.wait() == 0
        assert (running.base / "copy").read_text() == "ours\n"


@needs_root
def test_a_directory_that_another_user_has_put_there_gets_no_stream(place: Path) -> None:
    job = jobs_for_all(place)
    (job / "one").rename(job / "moved")
    as_stranger("mkdir", "-m", "777", job / "one")
    with node(place) as running:
        stream = running.stream("p", place / "p", job / "one" / "f")
        reader = running.shell(
            "c", "exit 0", inputs=[stream], command={"directories": [str(job)]}, stderr=subprocess.DEVNULL
        )
        assert reader.wait() != 0
        assert reader.exit()["message"] == f"{job}/one: user {STRANGER} has put a directory there [SFIO-S027]"
        assert os.listdir(job / "one") == []


@pytest.mark.parametrize("ends", ["exit 0", "rm {fifo}", "head -c 1 {fifo}"])
def test_a_command_need_not_read_its_stream(runtime: Node, ends: str) -> None:
    (place := runtime.base / "in" / "one").mkdir()
    (runtime.base / "out" / "p").touch()
    runtime.shell("p", f"echo ours > {runtime.base}/out/p", outputs=[output(runtime.base / "out", "p")])
    stream = runtime.stream("p", runtime.base / "out" / "p", place / "f")
    reader = runtime.shell("c", ends.format(fifo=place / "f"), inputs=[stream])
    assert (reader.wait(), reader.exit()["success"]) == (0, True)


@pytest.mark.parametrize(
    "replaced",
    [
        "mv one moved; mkdir one; echo theirs > one/f",
        "mv one/f moved; echo theirs > one/f",
        "mv one/f moved; mkfifo one/f; touch ../go; echo theirs > one/f",
        "mv one moved",
    ],
)
def test_what_was_read_in_the_place_of_a_stream_does_not_count(runtime: Node, replaced: str) -> None:
    """Whoever has put it there."""
    (place := runtime.base / "in" / "one").mkdir()
    stream = runtime.stream("p", runtime.base / "out" / "p", place / "f")
    reader = runtime.shell(
        "c", f"until [ -e {runtime.base}/go ]; do sleep 0.01; done; cat {place}/f; true", inputs=[stream]
    )
    reader.wait_for("started")
    attack = subprocess.Popen(["sh", "-c", f"cd {runtime.base}/in; {replaced}; touch ../go"])
    assert reader.wait() != 0
    message = (
        f"input from in: no program has opened the stream {place}/f, and something else is in its place [SFIO-S027]"
    )
    assert (reader.exit()["success"], reader.exit()["message"]) == (False, message)
    assert attack.wait(40) == 0
    for moved in runtime.base.glob("in/**/*"):
        if moved.is_fifo():
            moved.unlink()  # No other process knows where it is.


@needs_root
def test_a_user_who_is_trusted(place: Path) -> None:
    """The driver owns what the serve of a container works in."""
    theirs = place / "theirs"
    theirs.mkdir()
    os.chown(theirs, STRANGER, -1)
    for trusted, works in [([], False), ([STRANGER - 1], False), ([STRANGER - 1, STRANGER], True)]:
        options = [word for uid in trusted for word in ("--trust", str(uid))]
        command = [built(), "serve", "--directory", theirs / "run", *options]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=40, check=False)
        assert done.returncode == (0 if works else 1), done.stderr
        assert os.listdir(theirs) == []
    theirs.chmod(0o777)
    done = subprocess.run([*command], stdin=subprocess.DEVNULL, capture_output=True, timeout=40, check=False)
    assert b"others may write to" in done.stderr
    theirs.chmod(0o755)
    with conversation(theirs, "--trust", str(STRANGER)) as running:
        assert running.shell("j", "exit 0").wait() == 0


@needs_root
def test_a_serve_of_another_user_says_who_it_is(place: Path) -> None:
    place.chmod(0o777 | 0o1000)
    who = ["setpriv", f"--reuid={STRANGER}", f"--regid={STRANGER}", "--clear-groups"]
    with conversation(place, wrapper=who) as running:
        assert running.uid == STRANGER
        wait_for(lambda: running.ask("j")["event"] == "ready", "the job")


@needs_root
def test_each_file_that_is_moved_into_place_is_committed(place: Path) -> None:
    """`mv` exits then. The kernel lets no user but root examine a process that exits."""
    place.chmod(0o1777)
    (out := place / "out").mkdir()
    os.chown(out, STRANGER, STRANGER)
    script = f"cd {out}; for i in $(seq 40); do echo $i > new; mv new f$i; done; exec sleep 600"
    with conversation(place, wrapper=AS_STRANGER) as running:
        job = running.shell("j", script, wrapper=AS_STRANGER, outputs=[output(out, "f*", "on_close")])
        wait_for(lambda: len(job.named("committed")) == 40, "all commits")
        assert not any(event["at_end"] for event in job.named("committed"))
        job.cancel()
        assert job.wait() != 0


# Stands for a file with a capability, as `setcap cap_net_raw+p` makes it.
CAPABLE = 0
AS_STRANGER = ["setpriv", f"--reuid={STRANGER}", f"--regid={STRANGER}", "--clear-groups"]


@needs_root
@pytest.mark.parametrize(
    ("who", "mode", "script", "warns"),
    [
        (AS_STRANGER, 0o4755, "{}", True),
        (AS_STRANGER, 0o2755, "PATH=$(dirname {}):$PATH; program", True),
        (AS_STRANGER, CAPABLE, "{}", True),
        (AS_STRANGER, 0o4755, "{} || true", False),
        (AS_STRANGER, 0o755, "{}", False),
        ([*AS_STRANGER, "--no-new-privs"], 0o4755, "{}", False),
        ([], 0o4755, "{}", False),
    ],
)
def test_a_failed_job_names_programs_without_privileges(
    place: Path, who: list[str], mode: int, script: str, warns: bool
) -> None:
    """Not those that have their privileges, or have none without `sfio-node`, and not those of a job that succeeds."""
    place.chmod(0o1777)
    program = shutil.copy("/bin/false", place / "program")
    program.chmod(mode or 0o755)
    if mode == CAPABLE:
        os.setxattr(program, "security.capability", struct.pack("<5I", 0x2000000, 1 << 13, 0, 0, 0))
    with conversation(place, wrapper=who) as running:
        job = running.shell("j", script.format(program), wrapper=who, observation={"reads": []})
        job.wait()
        told = [str(event["message"]) for event in job.named("warning")]
    assert [message.split(" had no privileges ")[0] for message in told] == ([str(program)] if warns else [])


@pytest.fixture
def theirs(place: Path) -> Iterator[Path]:
    """A directory that a stranger has put in the place of a run directory that is gone."""
    (place / "data").mkdir()
    (place / "data" / "file").touch()
    with tempfile.TemporaryDirectory(prefix="streamflow-io-", dir="/dev/shm") as memory:
        job = place / "run" / "jobs" / "j"
        job.mkdir(parents=True)
        spec = {"rehearsal": {"scratch": [str(place / "data")]}, "outputs": [output(place, "out")]}
        (job / "job.json").write_text(job_text("j", **spec))
        (job.parents[1] / "memory").symlink_to(memory)
        for path in (place / "run", *(place / "run").rglob("*")):
            os.chown(path, STRANGER, STRANGER, follow_symlinks=False)
        yield place / "run"
        assert os.path.exists(memory)
        assert (place / "data" / "file").exists()


@needs_root
def test_what_a_stranger_says_in_the_place_of_a_run_directory_is_not_removed(theirs: Path) -> None:
    done = subprocess.run(
        [built(), "clear", "--directory", theirs], capture_output=True, text=True, timeout=40, check=False
    )
    expected = f"sfio-node: {theirs}: {theirs} belongs to user {STRANGER}\n"
    assert (done.returncode, done.stderr) == (1, expected)


@needs_root
def test_a_job_does_not_begin_in_the_directory_of_a_stranger(theirs: Path) -> None:
    words = [built(), "exec", "--job", theirs / "jobs" / "j", "--", "true"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=40, check=False)
    assert done.returncode == 125
    assert done.stderr == f"sfio-node: job {theirs}/jobs/j: {theirs} belongs to user {STRANGER}\n"
    assert os.listdir(theirs / "jobs" / "j") == ["job.json"]


def test_a_link_in_the_place_of_a_run_directory_is_not_followed(place: Path) -> None:
    (place / "data").mkdir()
    (place / "run").symlink_to(place / "data")
    done = subprocess.run([built(), "clear", "--directory", place / "run"], timeout=40, check=False)
    assert done.returncode == 1
    assert (place / "data").exists()


@pytest.mark.parametrize("killed", [False, True])
async def test_what_comes_after_a_serve_is_not_cleared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed: bool
) -> None:
    """Only what a `serve` that was killed has left."""
    cleared, original = list[Path](), embedded.follow

    async def follow(output: Conversation, runtime: EmbeddedRuntime, program: str, ended: str) -> None:
        await original(output, runtime, program, ended)
        runtime.directory.mkdir(exist_ok=True)  # As another user may do at this moment.

    async def clear(runtime: EmbeddedRuntime) -> None:
        cleared.append(runtime.directory)

    monkeypatch.setattr(embedded, "follow", follow)
    monkeypatch.setattr(EmbeddedRuntime, "clear", clear)
    runtime = await EmbeddedRuntime.start(tmp_path)
    (serve,) = (child for child in psutil.Process().children() if str(runtime.directory) in child.cmdline())
    if killed:
        serve.kill()
    await runtime.close()
    assert cleared == ([runtime.directory] if killed else [])
