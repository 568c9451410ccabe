"""A full disk while a file with a window grows: the run names the disk, and starts no job again."""

from __future__ import annotations

import pytest

from lab.cwl import workflow
from lab.disks import can_mount, small_disk
from lab.runs import Bench
from tests.integration.test_windows import BEGUN, MB, WINDOW, numbers, reader, writer

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
    path, left = bench.write(workflow({}, steps, {"o": "b/o"}), {}, io=True, **WINDOW), list[str]()
    disk = path.parent / "tmp"
    if not can_mount(disk):
        pytest.skip("no disk of its own can be mounted")
    with small_disk(disk, left, 24 * MB):
        run = bench.finish(bench.start(path), path)
    assert not run.ok
    assert f"job /{named}/0 of step /{named} has failed (exit code 1)" in run.log
    assert f"\nIts file system is full: 0 B are left for {disk}/streamflow/" in run.log
    assert "SFIO-S030" not in run.log
    assert run.log.count("EXECUTING step") == 2
    assert left == []
