"""The usage of a job that sfio-node reports."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lab.node import Job, Node, output, wait_for

#: Writes and fsyncs for 1.5 s, and prints how long it slept meanwhile, by the scheduler's account. Nothing else that it
#: does sleeps, so this is its time in I/O; time in a queue for a CPU is not.
FSYNC = """
import os, sys, time
def awake():
    with open("/proc/self/schedstat") as file:
        run, queued, _ = file.read().split()
    return (int(run) + int(queued)) / 1e9
began, before = time.monotonic(), awake()
while time.monotonic() < began + 1.5:
    descriptor = os.open(sys.argv[1], os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
    os.write(descriptor, bytes(1 << 22))
    os.fsync(descriptor)
    os.close(descriptor)
os.unlink(sys.argv[1])
print(time.monotonic() - began - (awake() - before))
"""

#: A thread waits as for a device until another process opens the FIFO; then all sleep for some seconds. No device is
#: needed: a thread that starts a process is in the same state until the child has opened its files.
WAIT = """
import os, sys, threading, time
action = (os.POSIX_SPAWN_OPEN, 0, sys.argv[1], os.O_RDONLY, 0)
spawn = threading.Thread(target=lambda: os.waitpid(os.posix_spawn("/bin/true", ["true"], {}, file_actions=[action]), 0))
spawn.start()
spawn.join()
time.sleep(float(sys.argv[2]))
"""


def used(job: Job) -> dict[str, float]:
    """Returns the usage of a job, which has to succeed."""
    assert job.wait() == 0
    usage = job.exit()["usage"]
    assert isinstance(usage, dict)
    return usage


def duration(job: Job) -> float:
    """Returns the seconds that the job took."""
    ended, started = job.exit()["ended"], job.exit()["started"]
    assert isinstance(ended, float)
    assert isinstance(started, float)
    return ended - started


def is_on_disk(directory: Path) -> bool:
    """Whether ``directory`` is backed by a block device."""
    return os.path.exists(f"/sys/dev/block/{os.major(directory.stat().st_dev)}:{os.minor(directory.stat().st_dev)}")


def others(tasks: Path) -> list[Path]:
    """The threads of a process but its first."""
    return [task for task in tasks.iterdir() if task.name != tasks.parent.name]


def waits_for_device(task: Path) -> bool:
    """Whether a thread is in the state in which one waits for a device."""
    return (task / "stat").read_text().rpartition(")")[2].split()[0] == "D"


def test_usage(runtime: Node) -> None:
    big = runtime.base / "big"
    script = f"head -c 5000000 /dev/urandom > {big}; cat {big} > /dev/null; (cat {big} > /dev/null)"
    job = runtime.shell("j", script)
    assert job.wait() == 0
    usage = job.exit()["usage"]
    assert isinstance(usage, dict)
    assert 15_000_000 <= usage["rchar"] < 15_500_000
    assert 15_000_000 <= usage["wchar"] < 15_500_000
    assert 0 < usage["user"] + usage["system"] < 5
    assert 500_000 < usage["max_rss"] < 100_000_000
    assert usage["wrapper_cpu"] < 0.1


def test_streamed_bytes_are_not_the_commands(runtime: Node) -> None:
    base = runtime.base
    producer = runtime.shell("p", f"head -c 8000000 /dev/zero > {base}/out/p", outputs=[output(base / "out", "p")])
    stream = runtime.stream("p", base / "out" / "p", None)
    job = runtime.shell("c", "cat > /dev/null", inputs=[stream])
    assert (producer.wait(), job.wait()) == (0, 0)
    usage = job.exit()["usage"]
    assert isinstance(usage, dict)
    assert usage["streamed"] == 8_000_000
    assert 8_000_000 <= usage["rchar"] < 8_100_000
    assert 8_000_000 <= usage["wchar"] < 8_100_000


def test_bytes_of_many_short_lived_processes(runtime: Node) -> None:
    """The shell waits for children and grandchildren; only the wrapper waits for the others."""
    out = runtime.base / "out"
    piece = f"head -c 10000 /dev/zero >> {out}"
    # The last program ends when all of these have closed the pipe that they have, too.
    script = (
        f"for i in $(seq 100); do {piece}/a; ({piece}/b); done; "
        f"{{ exec 3>&1; for i in $(seq 20); do (setsid {piece}/c$i &) ; done; }} | cat"
    )
    usage = used(runtime.shell("j", script, observation={"io": True}))
    assert [(out / name).stat().st_size for name in ("a", "b", "c1", "c20")] == [1_000_000, 1_000_000, 10_000, 10_000]
    assert 2_200_000 <= usage["wchar"] < 2_210_000
    assert usage["rchar"] >= 2_200_000


def test_bytes_from_and_to_a_disk(runtime: Node) -> None:
    if not is_on_disk(runtime.base):
        pytest.skip("the directory for temporary files is on no disk")
    file = runtime.base / "out" / "f"
    script = f"dd if=/dev/zero of={file} bs=1M count=1 oflag=append conv=notrunc,fsync; "
    read = f"dd if={file} of=/dev/null bs=1M iflag=direct; "
    usage = used(runtime.shell("j", script * 8 + read * 2, stderr=subprocess.DEVNULL))
    assert 8 << 20 <= usage["write_bytes"] < 10 << 20
    assert 16 << 20 <= usage["read_bytes"] < 40 << 20


def test_memory_and_time_of_the_wrapper(runtime: Node) -> None:
    jobs = [
        runtime.shell(f"j{i}", "sleep 0.3; exit 0", outputs=[output(runtime.base / "out", "*", "on_close")])
        for i in range(5)
    ]
    for job in jobs:
        job.wait_for("started")
    sizes = [
        int(Path(f"/proc/{job.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") for job in jobs
    ]
    assert max(sizes) < 5 << 20
    assert [job.wait() for job in jobs] == [0] * 5
    spent = sorted(float(str(job.exit()["usage"]["wrapper_cpu"])) for job in jobs)  # type: ignore[index]
    assert spent[2] < 0.01


#: Computes, reads and writes, in threads and in a child, and becomes the command that follows.
PAST = """
import os, sys, threading, time
def work():
    end = time.thread_time() + 0.3
    while time.thread_time() < end:
        with open("/dev/zero", "rb", 0) as file: file.read(1 << 20)
        with open("/dev/null", "wb", 0) as file: file.write(bytes(1 << 20))
thread = threading.Thread(target=work)
thread.start()
thread.join()
if os.fork() == 0:
    work()
    os._exit(0)
os.wait()
os.execv(sys.argv[1], sys.argv[1:])
"""


def test_what_the_process_has_used_before_is_not_the_jobs(runtime: Node) -> None:
    """Under `docker exec` the init of the container's runtime becomes the program in the same way."""
    past = [sys.executable, "-ISc", PAST]
    usage = used(runtime.shell("j", "head -c 3000000 /dev/zero > /dev/null; exit 0", wrapper=past))
    assert usage["wrapper_cpu"] < 0.1
    assert usage["user"] + usage["system"] < 0.2
    assert 3_000_000 <= usage["rchar"] < 3_100_000
    assert 3_000_000 <= usage["wchar"] < 3_100_000


def test_time_in_io_only_when_asked_for(runtime: Node) -> None:
    for index, fields in enumerate(({}, {"observation": {"io": False}})):
        assert "io" not in used(runtime.shell(f"j{index}", "sleep 0.1; true", **fields))
    assert used(runtime.shell("measured", "true", observation={"io": True}))["io"] <= duration(runtime.jobs[-1])


@pytest.mark.parametrize("outputs", [True, False], ids=["watching", "plain"])
def test_time_in_io_of_fsync(runtime: Node, outputs: bool) -> None:
    if not is_on_disk(runtime.base) or not os.path.exists("/proc/self/schedstat"):
        pytest.skip(
            "the directory for temporary files is on no disk, or the kernel does not tell how long a process slept"
        )
    watched = [output(runtime.base / "out", "f", "on_close")] if outputs else []
    file = runtime.base / "out" / "f"
    job = runtime.python("j", FSYNC, file, stdout=subprocess.PIPE, observation={"io": True}, outputs=watched)
    slept = float(job.process.communicate(timeout=30)[0])
    time_in_io = used(job)["io"]
    if slept < 0.6:
        pytest.skip(f"the disk is too quick: it was waited for during {slept} s")
    assert 0 < time_in_io <= duration(job)
    # Four times the standard error.
    assert slept - 0.5 < time_in_io < slept + 0.5


@pytest.mark.parametrize("wait", [0.3, 1.0])
def test_time_in_io_of_one_thread_among_others(runtime: Node, wait: float) -> None:
    fifo = runtime.base / "in" / "fifo"
    os.mkfifo(fifo)
    job = runtime.python("j", WAIT, fifo, str(wait), observation={"io": True})
    tasks = Path(f"/proc/{job.command_pid()}/task")
    wait_for(lambda: any(map(waits_for_device, others(tasks))), "the thread that waits")
    time.sleep(wait)
    fifo.open("w").close()
    fifo.unlink()
    assert 0.5 * wait < used(job)["io"] < duration(job) - 0.5 * wait


@pytest.mark.parametrize(
    "script",
    ["sleep 0.8; true", "timeout 0.8 sh -c 'while :; do :; done'; true", "sleep 0.8 | cat; true"],
    ids=["sleep", "compute", "pipe"],
)
def test_no_time_in_io(runtime: Node, script: str) -> None:
    job = runtime.shell("j", script, observation={"io": True})
    assert 0 <= used(job)["io"] < 0.2


def test_measuring_is_cheap(runtime: Node) -> None:
    """Also for many processes, which are looked at less often."""
    scripts = {"one": "sleep 3; true", "many": "for i in $(seq 60); do sleep 3 & done; wait"}
    jobs = [runtime.shell(name, script, observation={"io": True}) for name, script in scripts.items()]
    for job in jobs:
        # About 0.01 + 0.01 * 3, when nothing disturbs.
        assert used(job)["wrapper_cpu"] < 0.1


def test_a_measured_job_is_cancelled_at_once(runtime: Node) -> None:
    job = runtime.shell("j", "sleep 600", observation={"io": True})
    job.wait_for("started")
    job.cancel()
    assert job.wait() < 0
    wait_for(lambda: job.exit()["reason"] == "cancelled", "its end")
    assert 0 <= job.exit()["usage"]["io"] < 5  # type: ignore[index]
