"""`diskLimit`: jobs wait until the files of others are gone, and the work directory never holds more."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pytest

from lab import forked
from lab.cwl import Document, streamable, tool, workflow
from lab.runs import RETRY, Bench

MEGABYTES: Final = 4
JOBS: Final = 16


WRITE: Final = tool(
    f"head -c {MEGABYTES}000000 /dev/zero | tr '\\0' $n", {"n": "string"}, {"o": "stdout"}, stdout="$(inputs.n).a"
)


def scatter(writes: list[Document] | None = None, reduces: list[Document] | None = None) -> Document:
    """Each job writes 4 MB, and the next one reduces them to some bytes.

    :param writes: further hints of the first step
    :param reduces: those of the second
    """
    reduce = tool("wc -c < $i; head -c 1 $i", {"i": "File"}, {"o": "stdout"}, reduces, stdout="$(inputs.i.nameroot).b")
    steps = {
        "a": {"run": {**WRITE, "hints": [*WRITE["hints"], *(writes or [])]}, "in": {"n": "n"}},
        "b": {"run": reduce, "in": {"i": "a/o"}},
    }
    inner = workflow({"n": "string"}, steps, {"o": "b/o"})
    return workflow({"names": "string[]"}, {"s": {"run": inner, "in": {"n": "names"}, "scatter": "n"}}, {"o": "s/o"})


def gather() -> Document:
    """Each job writes 4 MB, and one job reads them all."""
    run = tool("cat", {"i": "File[]"}, {"o": "stdout"}, stdout="sum.txt")
    run["baseCommand"] = ["sh", "-c", 'cat "$@" | wc -c', "sh"]
    run["arguments"] = ["$(inputs.i)"]
    steps = {"a": {"run": WRITE, "in": {"n": "names"}, "scatter": "n"}, "b": {"run": run, "in": {"i": "a/o"}}}
    return workflow({"names": "string[]"}, steps, {"o": "b/o"})


#: All rehearsals have their end before the run.
REHEARSE: Final = {"streaming": "auto", "rehearse": "wait"}


def rehearsed(bench: Bench) -> list[Document]:
    return [record for record in bench.telemetry() if record["event"] == "rehearsed"]


def names(count: int) -> Document:
    return {"names": [chr(ord("a") + number) for number in range(count)]}


def on_disk(directory: str | Path) -> int:
    total = 0
    with suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            with suppress(OSError):
                is_directory = entry.is_dir(follow_symlinks=False)
                total += on_disk(entry.path) if is_directory else entry.stat(follow_symlinks=False).st_blocks * 512
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
    jobs = 10
    document, inputs = scatter(), names(jobs)
    plain = bench.write_plain(document, inputs)
    with peak_of(plain.parent / "tmp") as needed:
        (before,) = bench.run_all([plain])
    assert before.ok, before.errors
    limit = needed[0] // 2 // 10**6
    assert limit >= jobs * MEGABYTES // 2
    for _ in range(2):
        config = {"intermediates": "remove", "diskLimit": f"{limit}MB", "streaming": "auto"}
        path = bench.write(document, inputs, io=True, config=config)
        with peak_of(path.parent / "tmp") as peak:
            run = bench.finish(bench.start(path), path)
        assert run.ok, run.errors
        assert run.results == before.results
        assert MEGABYTES * 10**6 <= peak[0] <= limit * 10**6
        assert f"(limit: {limit}.0 MB on each disk)" in run.log


def test_jobs_that_learn_a_bandwidth_let_those_run_that_free_space(bench: Bench) -> None:
    """An epoch needs more jobs than there is space for, and keeps away the I/O tasks that free space."""
    task = {"class": "sfio:IOTask"}
    document = scatter([task, {"class": "sfio:StorageBandwidth", "storageBW": "auto"}], [task])
    storages = [{"name": "disk", "path": "/", "write": 100}]
    limits = {"ioExecutors": 8, "diskLimit": f"{3 * MEGABYTES + 2}MB"}
    path = bench.write(
        document, names(JOBS), io=True, config={"intermediates": "remove", "storages": storages, **limits}
    )
    run = bench.finish(bench.start(path), path)
    assert run.ok, run.errors
    assert "SFIO-B010" not in run.log


def test_a_run_that_cannot_go_on_ends(bench: Bench) -> None:
    """The third job has no space, and the step that frees space reads the outputs of all."""
    config = {"intermediates": "remove", "diskLimit": "10MB"}
    path = bench.write(gather(), names(4), io=True, config=config, **RETRY)
    run = bench.finish(bench.start(path), path)
    assert not run.ok
    # Another attempt would change nothing.
    assert "Handling " not in run.log
    line, last = [line for line in run.log.splitlines() if "SFIO-B010" in line]
    assert "FAILED Workflow execution: Nothing can go on" in last
    assert "Traceback" not in run.log
    assert "Nothing can go on within the diskLimit of 10.0 MB on the driver's node: job /a/" in line
    assert "are missing; the space is held by " in line
    assert "/a.a (4.0 MB)" in line


def test_a_limit_that_leaves_room_for_nothing_ahead(bench: Bench) -> None:
    """There is space for all outputs, and hardly any for the last job: it starts because nothing else can."""
    config = {"intermediates": "remove", "diskLimit": f"{3 * MEGABYTES + 1}MB"}
    path = bench.write(gather(), names(3), io=True, config=config)
    with peak_of(path.parent / "tmp") as peak:
        run = bench.finish(bench.start(path), path)
    assert run.ok, run.errors
    assert peak[0] <= (3 * MEGABYTES + 1) * 10**6


def test_a_job_of_unknown_size_never_ends_a_run(bench: Bench) -> None:
    """The second step has more input than space, and nothing is known of its output."""
    config = {"intermediates": "remove", "diskLimit": f"{MEGABYTES + 1}MB"}
    path = bench.write(gather(), names(1), io=True, config=config)
    run = bench.finish(bench.start(path), path)
    assert run.ok, run.errors
    (line,) = [line for line in run.log.splitlines() if "SFIO-B010" in line]
    assert "Job /b/0 may exceed the diskLimit of 5.0 MB: its size is not known" in line


def test_the_jobs_of_a_gang_start_together(bench: Bench) -> None:
    """Each producer has its reader beside it, also where no size is known."""
    write = tool(WRITE["baseCommand"][2], {"n": "string"}, {"o": streamable("stdout")}, stdout="$(inputs.n).a")
    read = tool("wc -c < $i", {"i": streamable()}, {"o": "stdout"}, stdout="count.txt")
    inner = workflow(
        {"n": "string"},
        {"a": {"run": write, "in": {"n": "n"}}, "b": {"run": read, "in": {"i": "a/o"}}},
        {"o": "b/o"},
    )
    step = {"run": inner, "in": {"n": "names"}, "scatter": "n"}
    document = workflow({"names": "string[]"}, {"s": step}, {"o": "s/o"})
    config = {"intermediates": "remove", "diskLimit": f"{2 * MEGABYTES + 1}MB"}
    path = bench.write(document, names(5), io=True, config=config)
    with peak_of(path.parent / "tmp") as peak:
        run = bench.finish(bench.start(path), path)
    assert run.ok, run.errors
    assert "SFIO" not in run.log
    assert peak[0] <= (2 * MEGABYTES + 1) * 10**6
    edges = [record for record in bench.telemetry() if record["event"] == "edge"]
    assert {record["delivery"] for record in edges} == {"stream"}


def failing_once() -> Document:
    """Each job writes 4 MB, and fails at its first attempt."""
    script = f'head -c {MEGABYTES}000000 /dev/zero; test -e "$TRACE.$n" || {{ touch "$TRACE.$n"; exit 1; }}'
    run = tool(script, {"n": "string"}, {"o": "stdout"}, stdout="$(inputs.n).a")
    return workflow({"names": "string[]"}, {"a": {"run": run, "in": {"n": "names"}, "scatter": "n"}}, {"o": "a/o"})


def test_a_job_that_fails_gives_its_space_back(bench: Bench) -> None:
    """A failed attempt is measured: its files are there until the job is tried again."""
    config = {"intermediates": "remove", "diskLimit": f"{4 * MEGABYTES + 1}MB"}
    path = bench.write(failing_once(), names(2), io=True, config=config, **RETRY)
    with peak_of(path.parent / "tmp") as peak:
        run_of = bench.finish(bench.start(path), path)
    assert run_of.ok, run_of.errors
    assert peak[0] <= (4 * MEGABYTES + 1) * 10**6


def test_files_of_failed_attempts_go_when_the_job_is_tried_again(bench: Bench) -> None:
    """There is space for the results alone. The second run knows the sizes, and cannot exceed the limit."""
    config = {"intermediates": "remove", "diskLimit": f"{2 * MEGABYTES + 1}MB"}
    for _ in range(2):
        ours = bench.run(failing_once(), names(2), config=config, **RETRY)
        assert ours.ok, ours.errors
        assert "SFIO-B010" not in ours.log
        assert set(ours.files.values()) == {bytes(MEGABYTES * 10**6)}


def test_the_plan_and_what_was_learned(bench: Bench) -> None:
    """A rehearsal, which would write further files, does not fit."""
    config = {"intermediates": "remove", "diskLimit": "9MB", **REHEARSE}
    path = bench.write(scatter(), names(2), io=True, config=config)

    def shown(*arguments: object) -> str:
        done = forked.run("streamflow-io", *arguments, environment={"XDG_DATA_HOME": str(bench.data)})
        assert done.returncode == 0, done.stderr
        return " ".join(done.stdout.split())

    assert "The diskLimit is 9.0 MB on each disk; whether a run fits is known after" in shown("plan", path)
    run = bench.finish(bench.start(path), path)
    assert run.ok, run.errors
    assert "The diskLimit is 9.0 MB on each disk: the last run fits" in shown("plan", path)
    learned = shown("learned", "list")
    assert "Sizes of outputs, with a diskLimit" in learned
    assert "4.0 MB" in learned
    assert {record["reason"] for record in rehearsed(bench)} == {"there is too little space"}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"intermediates": "remove", "diskLimit": 0}, "0 is no size"),
        ({"intermediates": "remove", "diskLimit": "lots"}, "'lots' is no size"),
        ({"diskLimit": "1GB"}, "it has no effect with `intermediates: keep`"),
    ],
)
def test_a_wrong_limit_ends_the_run_before_it_starts(bench: Bench, config: Document, message: str) -> None:
    path = bench.write(scatter(), names(1), io=True, config=config)
    run = bench.finish(bench.start(path), path)
    assert not run.ok
    assert message in run.log
    assert "scheduling.scheduler.config.diskLimit" in run.log


def test_runs_without_a_limit_do_not_load_its_modules(bench: Bench) -> None:
    path = bench.write(scatter(), names(1), io=True, config={"intermediates": "remove", **REHEARSE})
    run = bench.finish(bench.start(path, PYTHONPROFILEIMPORTTIME="1"), path)
    assert run.ok, run.errors
    assert {record["way"] for record in rehearsed(bench)} == {"net"}
    loaded = {line.rpartition("|")[2].strip() for line in run.log.splitlines() if line.startswith("import time:")}
    place = "streamflow_io.storage.intermediates"
    assert f"{place}.intermediates" in loaded
    modules = {f"{place}.{name}" for name in ("disk_ledger", "disk_limit", "learned_sizes", "memory")}
    assert all(map(find_spec, modules))
    assert not modules & loaded
