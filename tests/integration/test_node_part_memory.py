"""Parts as files in memory: nothing of them is left, whoever is killed, and where there is no room they are on disk."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from lab.node import Job, Node, node, wait_for
from lab.node_parts import CONTENT, MEMORY, part, placed, read


@pytest.fixture
def of(runtime: Node) -> Path:
    path = runtime.base / "all"
    path.write_bytes(CONTENT)
    return path


def hold(runtime: Node, of: Path, kind: str = "file") -> Job:
    """Starts a job that keeps its part until it is killed."""
    job = read(runtime, of, [[0, 4_000_000]], kind, script=f"touch {runtime.base}/runs; sleep 600")
    wait_for((runtime.base / "runs").exists, "the command")
    return job


@pytest.mark.parametrize("kind", ["file", "disk"])
def test_a_killed_exec_leaves_nothing(runtime: Node, of: Path, kind: str) -> None:
    job = hold(runtime, of, kind)
    memory = runtime.run / "memory"
    assert not memory.exists() or os.listdir(memory / "c")
    job.process.kill()
    wait_for(lambda: [event["event"] for event in job.served()][-1:] == ["exit"], "the last event")
    assert job.served()[-1]["reason"] == "lost"
    assert not os.path.lexists(placed(runtime))
    assert not memory.exists() or os.listdir(memory) == []


def test_a_killed_serve_leaves_nothing(tmp_path: Path) -> None:
    base = tmp_path.resolve()
    for name in ("in", "out"):
        (base / name).mkdir()
    (base / "all").write_bytes(CONTENT)
    with node(base) as running:
        job = hold(running, base / "all")
        # Other runs of this machine have their own.
        memory = (running.run / "memory").resolve(strict=True)
        assert memory.is_relative_to(MEMORY)
        running.server.kill()
        running.server.wait()
        job.wait()
        wait_for(lambda: not running.run.exists(), "the end of the run directory")
        assert not memory.exists()
        assert not os.path.lexists(placed(running))


def test_the_end_of_the_driver_ends_placing(tmp_path: Path) -> None:
    base = tmp_path.resolve()
    (base / "in").mkdir()
    with open(base / "all", "wb") as file:
        file.truncate(200 << 30)
    with node(base) as running:
        stream = part(base / "all", [[0, 200 << 30]], {"file": str(base / "in" / "c")})
        for how in ("cancel", "signal"):
            job = running.shell(how, "true", inputs=[stream])
            wait_for((base / "in" / "c").exists, "the file")
            job.cancel() if how == "cancel" else job.process.terminate()
            assert job.wait() == 75
            assert job.exit()["reason"] == "cancelled"
            assert not (base / "in" / "c").exists()
        job = running.shell("driver", "true", inputs=[stream])
        wait_for((base / "in" / "c").exists, "the file")
        assert running.leave() == 0
        assert job.wait() == 75
        assert not (base / "in" / "c").exists()


SMALL = "mount -t tmpfs -o size=1M none /dev/shm && exec"


@pytest.mark.skipif(
    subprocess.run(["unshare", "--user", "--map-root-user", "--mount", "true"], check=False).returncode != 0,
    reason="no user namespaces",
)
def test_a_full_memory_is_a_file_on_disk(tmp_path: Path) -> None:
    base = tmp_path.resolve()
    for name in ("in", "out"):
        (base / name).mkdir()
    (base / "all").write_bytes(CONTENT)
    with node(base) as running:
        script = f'cat "$1" > {base}/c.out'
        for size, where in ((4_000_000, "disk"), (1000, "memory")):
            target = base / "in" / "c"
            stream = part(base / "all", [[0, size]], {"file": str(target)})
            wrapper = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", f'{SMALL} "$@"', "sh"]
            command = ["sh", "-c", f'{script}; test {"!" if where == "disk" else ""} -L "$1"', "sh", str(target)]
            job = running.start(where, command, inputs=[stream], wrapper=wrapper)
            assert job.wait() == 0
            assert (base / "c.out").read_bytes() == CONTENT[:size]
            assert not os.path.lexists(target)


def test_a_cgroup_without_room_has_the_file_on_disk(runtime: Node, small: Path) -> None:
    of = runtime.base / "all"
    with open(of, "wb") as file:
        file.truncate(200 << 20)
    wrapper = ["sh", "-c", f'echo $$ > {small} && exec "$@"', "sh"]
    for size, where in ((100 << 20, "disk"), (30 << 20, "disk"), (5 << 20, "memory")):
        stream = part(of, [[0, size]], {"file": str(placed(runtime))})
        script = f'wc -c < "$1" > {runtime.base}/size; test {"!" if where == "disk" else ""} -L "$1"'
        command = ["sh", "-c", script, "sh", str(placed(runtime))]
        job = runtime.start(f"{where}-{size}", command, inputs=[stream], wrapper=wrapper)
        assert job.wait() == 0
        assert (runtime.base / "size").read_text() == f"{size}\n"
