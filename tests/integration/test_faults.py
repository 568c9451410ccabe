"""Guarantees 1 to 5 of the design, each broken on purpose."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest

from lab.cwl import PRELUDE, Document, found, side_by_side, streamable, streaming, tool, workflow
from lab.forked import Driver
from lab.gates import ATTEMPT, MEET
from lab.node import wait_for
from lab.runs import RETRY, Bench, Run, wait_for_note

LINES = "for i in 1 2 3 4 5; do echo line $i; sleep 0.2; done"


def pipeline(script: str, reader: str = 'note read; cat $file; note "read all"', **fields: Document) -> Document:
    """a streams to b; c gets the result of b as a file."""
    made = tool(script, {}, {"out": streamable("stdout")}, stdout="a.txt")
    read = tool(reader, {"file": streamable()}, {"out": "stdout"}, stdout="b.txt")
    last = tool("note last; cat $file", {"file": "File"}, {"out": "stdout"}, stdout="c.txt")
    steps = {
        "a": {"run": made, "in": {}},
        "b": {"run": read, "in": {"file": "a/out"}},
        "c": {"run": last, "in": {"file": "b/out"}},
    }
    return workflow({}, steps, {"a": "a/out", "b": "b/out", "c": "c/out"})


def committing(script: str) -> Document:
    """a commits a file; b gets it."""
    made = tool(script, {}, {"out": found("out.txt")}, [streaming({"port": "out", "committed": "on_close"})])
    read = tool("note read; cat $file", {"file": "File"}, {"out": "stdout"}, stdout="b.txt")
    steps = {"a": {"run": made, "in": {}}, "b": {"run": read, "in": {"file": "a/out"}}}
    return workflow({}, steps, {"a": "a/out", "b": "b/out"})


def assert_failed(bench: Bench, run: Run) -> None:
    assert not run.ok
    assert run.files == {}
    assert bench.leftovers() == []


@pytest.mark.parametrize("death", ["exit 3", "kill -9 $$"])
def test_a_failed_producer_never_looks_like_an_end_of_file(bench: Bench, death: str) -> None:
    run = bench.run(pipeline(f"{MEET}{LINES}; meet read; {death}"))
    assert_failed(bench, run)
    assert run.times("read") != []
    assert run.times("read all") == []
    assert run.times("last") == []


def test_what_a_reader_made_of_a_failed_producer_is_withheld(bench: Bench) -> None:
    run = bench.run(pipeline(f"{MEET}{LINES}; meet read enough; exit 3", "head -n 1 $file; note 'read enough'"))
    assert_failed(bench, run)
    assert run.times("read enough") != []
    assert run.times("last") == []


def test_what_a_reader_made_waits_until_its_producer_has_succeeded(bench: Bench) -> None:
    script = f"{MEET}{LINES}; meet read enough; note end"
    _, ours = bench.run_both(pipeline(script, "head -n 1 $file; note 'read enough'"))
    assert ours.time("read enough") < ours.time("end") < ours.time("last")


def again(script: str) -> str:
    """The script of a job that fails at its first attempt."""
    return f"{ATTEMPT}{script}; [ $attempt -ge 2 ] || exit 3"


def chain() -> Document:
    """a streams to b, b to c, and c to d."""
    made = tool(again(LINES), {}, {"out": streamable("stdout")}, stdout="a.txt")
    steps: dict[str, Document] = {"a": {"run": made, "in": {}}}
    for name, before in zip("bcd", "abc", strict=True):
        out = "stdout" if name == "d" else streamable("stdout")
        copied = tool("cat $file", {"file": streamable()}, {"out": out}, stdout=f"{name}.txt")
        steps[name] = {"run": copied, "in": {"file": f"{before}/out"}}
    return workflow({}, steps, {"d": "d/out"})


def retried_jobs() -> dict[str, Document]:
    """Workflows in which a job fails at first."""
    work = again('mkdir "$TMPDIR/work" || exit 4; echo line; meet kept')
    kept = 'while read -r line; do echo "$line" >> "$TMPDIR/all"; note kept; done < $file; cat "$TMPDIR/all"'
    had, same = again(f"{LINES}; meet had"), again("echo same > out.txt; meet read")
    read = again("cat $file")
    parts = {
        "gang": pipeline(f"{ATTEMPT}{LINES}; [ $attempt -ge 3 ] || exit 3; note end"),
        "temporary": pipeline(MEET + work, kept),
        "finished": pipeline(MEET + had, "note read; head -n 1 $file; note had"),
        "chain": chain(),
        "reader": pipeline(f"note start; {LINES}", read),
        "commit": committing(MEET + same),
        "consumer": committing(f"{MEET}note start; echo data > out.txt; meet again; note end"),
        "last": pipeline(f"note start; {LINES}"),
    }
    parts["consumer"]["steps"]["b"]["run"]["baseCommand"][2] = f"{PRELUDE}{read}; note again"
    parts["last"]["steps"]["c"]["run"]["baseCommand"][2] = PRELUDE + read
    return parts


@pytest.fixture(scope="module")
def retried(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """All of these in one run with a failure manager."""
    bench = Bench(tmp_path_factory.mktemp("retried"))
    run = bench.run(side_by_side(**retried_jobs()), **RETRY)
    assert run.ok, run.errors
    assert bench.leftovers() == []
    return run


def counts(run: Run, part: str, *noted: str) -> list[int]:
    """How often the jobs of a part have noted something."""
    return [len(run.part(part).times(what)) for what in noted]


FIVE_LINES = b"".join(b"line %d\n" % i for i in range(1, 6))


def test_a_gang_is_retried_as_one_in_place(retried: Run) -> None:
    assert counts(retried, "gang", "try", "read all", "last") == [3, 1, 1]
    assert retried.files["gang-c.txt"] == FIVE_LINES


def test_each_attempt_has_temporary_files_of_its_own(retried: Run) -> None:
    """The reader has kept some of the first attempt, and begins again without it."""
    assert counts(retried, "temporary", "try", "kept") == [2, 2]
    assert retried.files["temporary-b.txt"] == b"line\n"


def test_a_gang_whose_reader_had_finished_is_retried_as_one(retried: Run) -> None:
    assert counts(retried, "finished", "try", "read", "last") == [2, 2, 1]


def test_a_chain_is_retried_as_one(retried: Run) -> None:
    assert retried.files["chain-d.txt"] == FIVE_LINES


def test_a_reader_that_fails_is_retried_alone(retried: Run) -> None:
    assert counts(retried, "reader", "start", "try") == [1, 2]
    assert retried.files["reader-c.txt"] == FIVE_LINES


def test_a_commit_is_not_repeated_when_its_producer_is_retried(retried: Run) -> None:
    assert counts(retried, "commit", "try", "read") == [2, 1]
    assert retried.files["commit-b.txt"] == b"same\n"


def test_a_consumer_of_a_commit_is_recovered_by_streamflow_while_its_producer_runs(retried: Run) -> None:
    assert counts(retried, "consumer", "start", "try") == [1, 2]
    part = retried.part("consumer")
    assert part.times("try")[1] < part.time("end")
    assert retried.files["consumer-b.txt"] == b"data\n"


def test_a_consumer_of_a_gang_is_recovered_by_streamflow(retried: Run) -> None:
    assert counts(retried, "last", "start", "read", "try") == [1, 1, 2]
    assert retried.files["last-c.txt"] == FIVE_LINES


@pytest.mark.parametrize(
    "death",
    [
        "echo part > out.txt; kill -9 $$",
        "exec > out.txt; echo part; kill -9 $$",
        "set -e; sh -c 'exec > out.txt; echo part; exit 3'; sleep 1",
    ],
)
def test_a_close_by_death_is_no_commit(bench: Bench, death: str) -> None:
    early = death.startswith("echo")
    run = bench.run(committing(death.replace("; kill", "; exec 3>&1; kill") if early else death))
    assert_failed(bench, run)
    if not early:
        assert run.times("read") == []


def test_a_retried_producer_that_writes_something_else_fails_the_run(bench: Bench) -> None:
    script = f"{MEET}{ATTEMPT}echo $attempt > out.txt; meet read; [ $attempt -ge 2 ] || exit 3"
    run = bench.run(committing(script), **RETRY)
    assert not run.ok
    assert "out.txt of the output `out` was committed by `on_close`, but was written again afterwards" in run.log
    assert bench.leftovers() == []


def test_without_what_the_runtime_needs_everything_is_plain(bench: Bench) -> None:
    document = pipeline(f"{LINES}; note end")
    plain = bench.run(document, io=False)
    path = bench.write(document, {}, io=True)
    ours = bench.finish(bench.start(path, SFIO_NODE="/nowhere/sfio-node"), path)
    assert ours.ok, ours.errors
    assert ours.results == plain.results
    assert ours.log.count("Nothing streams in this run, everything is as with plain StreamFlow") == 1


def endless() -> Document:
    return pipeline("note start; while true; do echo line; sleep 0.1; done", "note read; sleep 1000 & cat $file")


def to_driver(process: Driver, number: int) -> None:
    os.kill(process.pid, number)


def to_terminal(process: Driver, number: int) -> None:
    os.killpg(process.pid, number)


@pytest.mark.parametrize(
    ("send", "number"),
    [
        (to_terminal, signal.SIGINT),
        (to_driver, signal.SIGTERM),
        (to_driver, signal.SIGKILL),
    ],
)
def test_nothing_is_left_when_the_driver_ends(bench: Bench, send: Callable[[Driver, int], None], number: int) -> None:
    path = bench.write(endless(), {}, io=True)
    process = bench.start(path)
    wait_for_note(path, " read\n")
    send(process, number)
    process.wait(30)
    assert process.returncode != 0
    wait_for(lambda: bench.leftovers() == [], "the end of all", 60)


def test_nothing_is_left_when_exec_is_killed(bench: Bench) -> None:
    path = bench.write(endless(), {}, io=True)
    process = bench.start(path)
    wait_for_note(path, " read\n")
    (pid, *_) = [int(line.split()[1].rstrip(":")) for line in bench.leftovers() if " exec --" in line]
    os.kill(pid, signal.SIGKILL)
    run = bench.finish(process, path)
    assert not run.ok
    wait_for(lambda: bench.leftovers() == [], "the end of all", 60)


def kill_all(pids: list[int]) -> None:
    """Kill processes so that none of them can do anything about the death of another."""
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in pids:
            os.kill(pid, number)


def test_nothing_is_left_when_all_of_the_node_runtime_is_killed_at_once(bench: Bench) -> None:
    """Only the driver lives then. What a shell has started is about to wait at a FIFO for ever."""
    reader = 'note read; { until [ -e "$TRACE.killed" ]; do sleep 0.01; done; cat $file; } & wait'
    document = pipeline("note start; while true; do echo line; sleep 0.1; done", reader)
    path = bench.write(document, {}, io=True, **RETRY)
    process = bench.start(path)
    wait_for_note(path, " read\n")
    kill_all([int(line.split()[1].rstrip(":")) for line in bench.leftovers() if "sfio-node " in line])
    path.with_name("trace.killed").touch()
    run = bench.finish(process, path)
    assert not run.ok
    assert "sfio-node serve has ended" in run.log
    assert bench.leftovers() == []
