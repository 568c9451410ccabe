"""Limits of jobs that change while these run."""

from __future__ import annotations

import json
import os
import signal
import time
from itertools import pairwise
from pathlib import Path

from lab.node import Event, Node, output, wait_for
from lab.node_conversation import conversation
from lab.node_remote import RemoteNode, shell
from tests.integration.test_node_limit import BURST, MB, is_paused, limit


def later(path: Path, direction: str = "write", **fields: object) -> Event:
    """The entry of `job.json` for a limit that comes later."""
    return {**limit(1, path, direction), "rate": None, **fields}


def writing(place: Path, megabytes: int = 400) -> str:
    """Writes 1 MB every 10 ms, and says so."""
    return f"""
import time
with open("{place}/a", "wb", buffering=0) as file:
    for number in range({megabytes}):
        file.write(bytes({MB}))
        time.sleep(0.01)
"""


def size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def goes_on(path: Path, rate: float) -> bool:
    """Whether a file grows at more than this many bytes per second."""
    before, began = size(path), time.monotonic()
    time.sleep(0.5)
    return size(path) - before > rate * (time.monotonic() - began)


def test_a_limit_comes_changes_and_goes(runtime: Node, tmp_path: Path) -> None:
    file = tmp_path / "out" / "a"
    job = runtime.python("j", writing(tmp_path / "out"), limit=later(tmp_path, expected=100 * MB))
    wait_for(lambda: size(file) > 30 * MB, "data")
    assert not is_paused(job)
    # What was moved before does not count: otherwise it would be paused for 30 s.
    job.limit(rate=MB)
    wait_for(lambda: is_paused(job), "a pause")
    time.sleep(0.2)
    before = size(file)
    wait_for(lambda: not goes_on(file, 6 * MB), "the limit")
    wait_for(lambda: size(file) > before, "that it goes on")
    job.limit(rate=5 * MB)
    wait_for(lambda: not goes_on(file, 15 * MB), "the other limit")
    job.limit(rate=0.001)  # No number that is allowed.
    wait_for(lambda: job.named("warning"), "the warning")
    job.limit(rate=1)
    wait_for(lambda: is_paused(job), "a pause")
    job.limit(rate=None)
    wait_for(lambda: goes_on(file, 10 * MB), "the end of all limits")
    assert job.wait() == 0
    [warning] = job.named("warning")
    assert str(warning["message"]).startswith("its limits are as before: ")
    usage = job.exit()["usage"]
    assert isinstance(usage, dict)
    assert usage["pauses"] > 0
    assert usage["paused"] > 0.5
    moved = job.named("moved")
    assert moved
    for one, other in pairwise(moved):
        assert float(str(other["time"])) - float(str(one["time"])) > 1.9
        assert int(str(other["bytes"])) - int(str(one["bytes"])) >= 10 * MB


def test_one_signal_stands_for_several_changes(runtime: Node, tmp_path: Path) -> None:
    """The last content counts; content that cannot be read changes nothing."""
    job = runtime.shell("j", f"cd {tmp_path}/out; {BURST}; touch done; sleep 600", limit=limit(0.1, tmp_path))
    wait_for(lambda: is_paused(job) and size(tmp_path / "out" / "beside") >= MB, "the pause")
    os.kill(job.process.pid, signal.SIGSTOP)
    for rate in (7, 3 * MB, None):
        job.limit(rate=rate)
        os.kill(job.process.pid, signal.SIGURG)
    assert is_paused(job)
    os.kill(job.process.pid, signal.SIGCONT)
    wait_for((tmp_path / "out" / "done").exists, "the end of the pause")
    os.kill(job.process.pid, signal.SIGURG)
    job.limit('{"rate": ')
    wait_for(lambda: job.named("warning"), "the warning")
    (job.directory / "limit").unlink()
    os.kill(job.process.pid, signal.SIGURG)
    time.sleep(0.1)
    assert len(job.named("warning")) == 1
    job.cancel()
    job.wait()
    other = runtime.shell("k", f"{BURST.replace('beside', '/dev/null')}; sleep 1")
    other.limit(rate=1)
    assert other.wait() == 0
    other.limit(rate=2)


def test_who_is_ended_in_a_pause_of_a_later_limit(runtime: Node, tmp_path: Path) -> None:
    out = tmp_path / "out"
    jobs = {}
    for how in ("cancel", "exec"):
        (place := out / how).mkdir()
        script = f"cd {place}; trap 'echo heard > heard; exit 7' TERM; touch up; while :; do {BURST}; sleep 0.1; done"
        jobs[how] = runtime.shell(how, script, limit=later(out))
        wait_for((place / "up").exists, "the trap")
    for job in jobs.values():
        job.limit(rate=1000)
    for job in jobs.values():
        wait_for(lambda job=job: is_paused(job), "the pause")  # type: ignore[misc]
    jobs["cancel"].cancel()
    os.kill(jobs["exec"].process.pid, signal.SIGKILL)
    for job in jobs.values():
        job.limit(rate=1)
        job.wait()
    assert (jobs["cancel"].exit()["reason"], jobs["cancel"].exit()["code"]) == ("cancelled", 7)
    wait_for(lambda: not jobs["exec"].processes(), "the end of all")


def test_a_close_before_a_failure_is_no_commit_when_the_limit_comes_between(runtime: Node, tmp_path: Path) -> None:
    out = tmp_path / "out"
    script = f"""
import os
beside = os.open("{out}/beside", os.O_CREAT | os.O_WRONLY)
file = open("{out}/a", "w")
file.write("part")
while not os.path.exists("{out}/go"):
    os.pwrite(beside, bytes(1_000_000), 0)
file.close()
os.write(beside, bytes(30_000_000))
os._exit(1)
"""
    job = runtime.python("j", script, outputs=[output(out, "a", "on_close")], limit=later(out))
    wait_for((out / "a").exists, "the file")
    job.limit(rate=10 * MB)
    wait_for(lambda: is_paused(job), "the limit")
    (out / "go").touch()
    wait_for(lambda: size(out / "beside") == 30_000_000 and is_paused(job), "the pause")
    job.limit(rate=20 * MB)
    time.sleep(0.2)
    job.limit(rate=None)
    assert job.wait() == 1
    assert (job.exit()["reason"], job.committed()) == ("exited", [])


def test_a_job_whose_writes_go_out_keeps_to_limits_that_change_all_the_time(runtime: Node, tmp_path: Path) -> None:
    """Writes that the kernel is made to do meanwhile are no reason to wait."""
    out, source = tmp_path / "out", tmp_path / "source"
    source.write_bytes(os.urandom(60 * MB))
    copies = f"dd if={source} of=a bs=65536 conv=fsync status=none & cat {source} > b; wait"
    script = f"cd {out}; for i in 1 2 3; do {copies}; done"
    job = runtime.shell("j", script, limit=limit(50, out))
    number = 0
    while job.process.poll() is None:
        number += 1
        job.limit(rate=[10 * MB, 200 * MB, 40 * MB, None, 90 * MB][number % 5])
        time.sleep(0.03)
    assert job.wait() == 0
    assert [(out / name).read_bytes() == source.read_bytes() for name in "ab"] == [True, True]
    assert job.named("warning") == []
    usage = job.exit()["usage"]
    assert isinstance(usage, dict)
    assert usage["pauses"] > 3


def test_limits_by_request(tmp_path: Path) -> None:
    """Limits of a job that is not there, or has ended, are no mistake."""
    with conversation(tmp_path) as running:
        job = running.shell("j", f"cd {tmp_path}/out; {BURST}; touch done; sleep 600", limit=limit(0.1, tmp_path))
        wait_for(lambda: is_paused(job), "the pause")
        running.say({"limit": "j", "spec": {"rate": 7}}, {"limit": "j", "spec": {"rate": None}})
        wait_for((tmp_path / "out" / "done").exists, "the end of the pause")
        running.say({"cancel": "j"})
        job.wait()
        for name in ("j", "k"):
            running.say({"limit": name, "spec": {"rate": 7}})
        assert running.ask("last")["event"] == "ready"
        assert running.complaints() == []
        running.say({"limit": "../x", "spec": {}}, {"limit": "j", "rate": 7})
        wait_for(lambda: len(running.complaints()) == 2, "complaints")


def test_limits_of_a_job_on_another_machine(shared: RemoteNode) -> None:
    """The job's `run` copies them; limits that are there before it begins count, too."""
    out = shared.base / "out"
    out.mkdir(exist_ok=True)
    job = shell(shared, "j", f"cd {out}; {BURST}; touch done; sleep 600", limit=limit(0.1, out))
    wait_for(lambda: is_paused(job), "the pause")
    job.limit(rate=MB)
    time.sleep(1.2)
    job.limit(rate=None)
    wait_for((out / "done").exists, "the end of the pause")
    job.cancel()
    job.wait()
    shared.place("k", "{}")
    (shared.run / "jobs" / "k" / "limit").write_text(json.dumps({"rate": MB}))
    # What is written in the last moment before the end is not waited for.
    script = f"cd {out}; head -c {30 * MB} /dev/zero > waited; until [ -e go ]; do sleep 0.01; done"
    waited = shell(shared, "k", script, limit=later(out))
    wait_for(lambda: is_paused(waited), "the pause")
    time.sleep(0.3)
    waited.limit(rate=None)
    (out / "go").touch()
    assert waited.wait() == 0
    usage = waited.exit()["usage"]
    assert isinstance(usage, dict)
    assert usage["paused"] > 0.2
