"""A full disk while a file with a window grows: the run names the disk, and starts no job again."""

from __future__ import annotations

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha1
from pathlib import Path

import psutil
import pytest

from lab.cwl import NO_CORES, Document, streamable, streaming, tool, workflow
from lab.disks import disk_of_a_test
from lab.node import wait_for
from lab.runs import Bench
from tests.integration.test_windows import BEGUN, BLOCK, BLOCKS, WINDOW, numbers, reader, writer

MB = 1 << 20
MEMORY = int(psutil.virtual_memory().total / MB)

#: Fills the disk.
FILL = "head -c 99000000 /dev/zero > x.txt"
#: Waits until a job has ended.
WAIT = 'for t in $(seq 300); do test -e "$TRACE.end" && break; sleep 0.1; done'


@pytest.mark.parametrize(
    ("write", "read", "named"),
    [
        (
            # The reader has begun before the disk is full.
            f'{numbers(MB)}; {BEGUN}; {numbers(60 * MB)} || {{ touch "$TRACE.end"; exit 1; }}',
            f'head -c 9; touch "$TRACE.began"; {WAIT}; cat',
            "a",
        ),
        (f"{numbers(MB)}; {WAIT}; exec sleep 600", f'head -c 9; {FILL} || {{ touch "$TRACE.end"; exit 1; }}', "b"),
    ],
    ids=["writer", "reader"],
)
def test_a_full_disk(bench: Bench, write: str, read: str, named: str) -> None:
    steps = {"a": writer(write), "b": reader(f"exec < $i; {read}", "a/o", "b")}
    path = bench.write(workflow({}, steps, {"o": "b/o"}), {}, io=True, **WINDOW)
    disk = path.parent / "tmp"
    with disk_of_a_test(disk, 24 * MB):
        run = bench.finish(bench.start(path), path)
    assert not run.ok
    assert f"job /{named}/0 of step /{named} has failed (exit code 1)" in run.log
    assert f"\nIts file system is full: 0 B are left for {disk}/streamflow/" in run.log
    assert "SFIO-S030" not in run.log
    assert run.log.count("EXECUTING step") == 2


def lowest(disk: Path, begin: Path, end: Path) -> int:
    """The fewest bytes that are free on a disk from the moment of a file to that of another file."""
    wait_for(begin.exists, f"{begin}", 60)
    free = os.statvfs(disk).f_bavail
    while not end.exists():
        free = min(free, *(os.statvfs(disk).f_bavail for _ in range(100)))
    return free * os.statvfs(disk).f_frsize


def test_a_reader_that_begins_late(bench: Bench) -> None:
    """A writer is paused until then, on a disk that is smaller than the file.

    The reader waits for the memory of another job, which ends when the file grows no more.
    """
    bench.environment = BLOCKS
    seen = "find .. -name a.txt -size +3M -printf %s"
    rests = f'until one=$({seen}); sleep 0.5; test -n "$one" -a "$one" = "$({seen})"; do :; done; echo 1'
    write = f"{numbers(BLOCK)} > one; for t in $(seq 240); do cat one; sleep 0.01; done"
    rule = streaming({"port": "o", "mode": "no_update", "window": "16MB"})
    holds = tool(rests, {}, {"o": "stdout"}, stdout="x.txt")
    steps = {
        "a": writer(write, [rule], o="stdout"),
        "b": reader("sha1sum < $i", "a/o", "b"),
        "x": {"run": holds, "in": {}},
    }
    resources = {"class": "ResourceRequirement", "coresMin": 0.1, "ramMin": int(0.6 * MEMORY)}
    for name in "bx":
        steps[name]["run"]["requirements"].append(resources)
    path = bench.write(workflow({}, steps, {"o": "b/o"}), {}, io=True)
    disk = path.parent / "tmp"
    with disk_of_a_test(disk, 24 * MB):
        run = bench.finish(bench.start(path), path)
    assert run.ok, run.errors
    lines = "".join(f"{number}\n" for number in range(BLOCK)).encode()[2 : BLOCK + 2]
    assert run.files["b.txt"].split()[0].decode() == sha1(240 * lines).hexdigest()
    assert "SFIO-N00" not in run.log


def test_two_windows_share_a_small_disk(bench: Bench) -> None:
    """Each of the windows alone is larger than the disk. The readers go on when the two files grow no more."""
    seen = "find .. -name '[ab].txt' -size +3M -printf '%s '"
    rests = f'until one=$({seen}); sleep 0.5; set -- $one; test $# = 2 -a "$one" = "$({seen})"; do :; done'
    last = tool(f'{rests}; touch "$TRACE.end"', {}, {"o": "stdout"}, stdout="x.txt")
    steps: dict[str, Document] = {"x": {"run": last, "in": {}}}
    for name in "ab":
        write = tool(numbers(60 * MB), {}, {"o": streamable("stdout")}, stdout=f"{name}.txt")
        steps[name] = {"run": write, "in": {}}
        steps[2 * name] = reader(f"exec < $i; head -c 9; {WAIT}; sha1sum", f"{name}/o", 2 * name)
    document = workflow({}, steps, {"a": "aa/o", "b": "bb/o"})
    for step in steps.values():
        step["run"]["requirements"].append(NO_CORES)
    path = bench.write(document, {}, io=True, **WINDOW)
    with disk_of_a_test(path.parent / "tmp", 40 * MB):
        run = bench.finish(bench.start(path), path)
    assert run.ok, run.errors
    digest = subprocess.check_output(["sh", "-c", f"{numbers(60 * MB)} | tail -c +10 | sha1sum"])
    expected = b"1\n2\n3\n4\n5" + digest
    assert run.files == {"aa.txt": expected, "bb.txt": expected}
    assert "SFIO-N00" not in run.log


def test_too_little_room_for_a_test_of_holes(bench: Bench) -> None:
    """The file is kept whole, and what is free stays free for others.

    The message says that the disk is full, and not that the file system has no holes.
    """
    leave = "free=$(df -B1 --output=avail . | tail -n 1); head -c $((free - 600000)) /dev/zero > x.txt"
    until = 'for t in $(seq 600); do test -e "$TRACE.{}" && break; sleep 0.1; done'.format
    steps = {
        "a": writer(f'{numbers(2 * MB)}; {leave}; touch "$TRACE.full"; {until("told")}'),
        "b": reader(f"{until('full')}; sha1sum < $i", "a/o", "b"),
    }
    path = bench.write(workflow({}, steps, {"o": "b/o"}), {}, io=True, **WINDOW)
    disk, log = path.parent / "tmp", path.parent / "stderr"
    full, told = (path.with_name(f"trace.{name}") for name in ("full", "told"))
    with disk_of_a_test(disk, 24 * MB), ThreadPoolExecutor() as watching:
        free = watching.submit(lowest, disk, full, told)
        process = bench.start(path)
        wait_for(lambda: log.exists() and "SFIO-N004" in log.read_text(), "the message about the window", 60)
        told.touch()
        run = bench.finish(process, path)
        assert free.result() > 400_000
    assert run.ok, run.errors
    assert "a.txt is kept whole, without a window: no room to test for holes: No space left on device" in run.log, (
        run.errors
    )
