"""`diskLimit`: jobs wait until the files of others are gone, and the work directory never holds more."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from lab.cwl import Document, tool, workflow
from lab.runs import Bench

MEGABYTES: Final = 4
JOBS: Final = 16


WRITE: Final = tool(
    f"head -c {MEGABYTES}000000 /dev/zero | tr '\\0' $n", {"n": "string"}, {"o": "stdout"}, stdout="$(inputs.n).a"
)


def scatter() -> Document:
    """Each job writes 4 MB, and the next one reduces them to some bytes."""
    reduce = tool("wc -c < $i; head -c 1 $i", {"i": "File"}, {"o": "stdout"}, stdout="$(inputs.i.nameroot).b")
    steps = {"a": {"run": WRITE, "in": {"n": "n"}}, "b": {"run": reduce, "in": {"i": "a/o"}}}
    inner = workflow({"n": "string"}, steps, {"o": "b/o"})
    return workflow({"names": "string[]"}, {"s": {"run": inner, "in": {"n": "names"}, "scatter": "n"}}, {"o": "s/o"})


def gather() -> Document:
    """Each job writes 4 MB, and one job reads them all."""
    run = tool("cat", {"i": "File[]"}, {"o": "stdout"}, stdout="sum.txt")
    run["baseCommand"] = ["sh", "-c", 'cat "$@" | wc -c', "sh"]
    run["arguments"] = ["$(inputs.i)"]
    steps = {"a": {"run": WRITE, "in": {"n": "names"}, "scatter": "n"}, "b": {"run": run, "in": {"i": "a/o"}}}
    return workflow({"names": "string[]"}, steps, {"o": "b/o"})


def names(count: int) -> Document:
    return {"names": [chr(ord("a") + number) for number in range(count)]}


def on_disk(directory: Path) -> int:
    total = 0
    for place, _, files in os.walk(directory):
        for name in files:
            try:
                total += os.lstat(os.path.join(place, name)).st_blocks * 512
            except OSError:
                continue
    return total


@contextmanager
def peak_of(directory: Path) -> Iterator[list[int]]:
    """The most bytes that were seen below a directory meanwhile."""
    seen, ended = [0], threading.Event()

    def look() -> None:
        while not ended.wait(0.01):
            seen[0] = max(seen[0], on_disk(directory))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        ended.set()
        thread.join()


def test_the_work_directory_never_holds_more(bench: Bench) -> None:
    document, inputs = scatter(), names(JOBS)
    plain = bench.write_plain(document, inputs)
    with peak_of(plain.parent / "tmp") as needed:
        (before,) = bench.run_all([plain])
    assert before.ok, before.errors
    limit = needed[0] // 2 // 10**6
    assert limit >= JOBS * MEGABYTES // 2
    for _ in range(2):
        config = {"intermediates": "remove", "diskLimit": f"{limit}MB"}
        path = bench.write(document, inputs, io=True, config=config)
        with peak_of(path.parent / "tmp") as peak:
            run = bench.finish(bench.start(path), path)
        assert run.ok, run.errors
        assert run.results == before.results
        assert MEGABYTES * 10**6 <= peak[0] <= limit * 10**6
        assert f"(limit: {limit}.0 MB on each location)" in run.log


def test_a_run_that_cannot_go_on_ends(bench: Bench) -> None:
    """The third job has no space, and the step that frees space reads the outputs of all."""
    config = {"intermediates": "remove", "diskLimit": "10MB"}
    path = bench.write(gather(), names(4), io=True, config=config)
    run = bench.finish(bench.start(path), path)
    assert not run.ok
    (line, *_) = [line for line in run.log.splitlines() if "SFIO-B010" in line]
    assert "Nothing can go on within the diskLimit of 10.0 MB on the driver's node: job /a/" in line
    assert "are missing; the space is held by " in line
    assert "/a.a (4.0 MB)" in line


@pytest.mark.parametrize("jobs", [1, 3])
def test_a_limit_that_leaves_room_for_nothing_ahead(bench: Bench, jobs: int) -> None:
    """There is space for all outputs, and hardly any for the last job: it starts because nothing else can."""
    config = {"intermediates": "remove", "diskLimit": f"{jobs * MEGABYTES + 1}MB"}
    path = bench.write(gather(), names(jobs), io=True, config=config)
    with peak_of(path.parent / "tmp") as peak:
        run = bench.finish(bench.start(path), path)
    assert run.ok, run.errors
    assert peak[0] <= (jobs * MEGABYTES + 1) * 10**6
