"""A gang under each failure manager of StreamFlow: its retries, how often, and how it ends."""

from __future__ import annotations

import os
import signal

import pytest

from lab.cwl import Document, found, streamable, streaming, tool, workflow
from lab.runs import Bench, wait_for_note
from tests.integration.test_faults import ATTEMPT, LINES, pipeline


def retrying(name: str, **config: int) -> Document:
    return {"failureManager": {"type": name, "config": {"retry_delay": 0, **config}}}


def failing(times: int) -> Document:
    """A gang whose producer fails so often after half of its lines."""
    return pipeline(f"{ATTEMPT}{LINES}; [ $attempt -gt {times} ] || {{ echo 'out of luck' >&2; exit 3; }}")


@pytest.mark.parametrize(
    ("name", "allowed", "failures"),
    [
        ("rollback", 4, 3),
        *(
            pytest.param(*case, marks=pytest.mark.long)
            for case in (
                ("default", 4, 3),
                ("default", None, 4),
                ("rollback", None, 4),
            )
        ),
    ],
)
def test_a_gang_is_retried_as_often_as_allowed(bench: Bench, name: str, allowed: int | None, failures: int) -> None:
    """`max_retries` counts attempts, as StreamFlow does; without it there is no end."""
    run = bench.run(failing(failures), **retrying(name, **({} if allowed is None else {"max_retries": allowed})))
    assert run.ok, run.errors
    assert len(run.times("try")) == failures + 1
    assert len(run.times("read all")) == len(run.times("last")) == 1
    assert run.files["c.txt"].count(b"\n") == 5
    assert bench.leftovers() == []


def test_a_job_that_has_made_no_output_is_retried(bench: Bench) -> None:
    """The command has succeeded, and plain StreamFlow tries the job again, too."""
    script = f"{ATTEMPT}[ $attempt -ge 2 ] || exit 0; echo made > a.txt"
    made = tool(script, {}, {"out": found("a.txt", streamable=True)})
    read = tool("cat $file", {"file": streamable()}, {"out": "stdout"}, stdout="b.txt")
    steps = {"a": {"run": made, "in": {}}, "b": {"run": read, "in": {"file": "a/out"}}}
    run = bench.run(workflow({}, steps, {"b": "b/out"}), **retrying("default", max_retries=3))
    assert run.ok, run.errors
    assert len(run.times("try")) == 2
    assert run.files["b.txt"] == b"made\n"
    assert bench.leftovers() == []


def test_the_delay_is_kept(bench: Bench) -> None:
    run = bench.run(failing(1), **retrying("default", max_retries=2, retry_delay=1))
    assert run.ok, run.errors
    first, second = run.times("try")
    assert second - first > 1 + 0.9  # what the lines of the first attempt take


def test_only_the_failed_members_of_a_scatter_are_retried(bench: Bench) -> None:
    script = (
        'note "try $number"; for i in 1 2 3; do echo $number $i; sleep 0.2; done; '
        '[ $number != 2 ] || [ $(grep -c "try 2$" "$TRACE") -ge 2 ] || exit 3'
    )
    made = tool(script, {"number": "int"}, {"out": streamable("stdout")}, stdout="a.txt")
    read = tool("note read; cat $file", {"file": streamable()}, {"out": "stdout"}, stdout="b.txt")
    steps: dict[str, Document] = {
        "a": {"run": made, "scatter": "number", "in": {"number": "numbers"}},
        "b": {"run": read, "scatter": "file", "in": {"file": "a/out"}},
    }
    document = workflow({"numbers": "int[]"}, steps, {"b": "b/out"})
    run = bench.run(document, {"numbers": [1, 2, 3]}, **retrying("default", max_retries=3))
    assert run.ok, run.errors
    assert [len(run.times(f"try {number}")) for number in (1, 2, 3)] == [1, 2, 1]
    assert len(run.times("read")) in (3, 4)  # the reader of the second had started, or had not
    assert len(run.outputs["b"]) == 3
    assert bench.leftovers() == []


@pytest.mark.parametrize("name", [pytest.param("default", marks=pytest.mark.long), "rollback"])
def test_elements_are_delivered_once_whatever_is_retried(bench: Bench, name: str) -> None:
    script = f"{ATTEMPT}for i in 1 2 3; do echo $i > part$i; sleep 0.3; done; [ $attempt -ge 2 ] || exit 3"
    made = tool(script, {}, {"out": found("part*", "File[]")}, [streaming({"port": "out", "committed": "on_close"})])
    read = tool('note "read $(cat $file)"; cat $file', {"file": "File"}, {"out": "stdout"}, stdout="b.txt")
    steps: dict[str, Document] = {
        "a": {"run": made, "in": {}},
        "b": {"run": read, "scatter": "file", "in": {"file": "a/out"}},
    }
    run = bench.run(workflow({}, steps, {"a": "a/out", "b": "b/out"}), **retrying(name, max_retries=3))
    assert run.ok, run.errors
    assert len(run.times("try")) == 2
    assert [len(run.times(f"read {i}")) for i in (1, 2, 3)] == [1, 1, 1]
    assert [output["basename"] for output in run.outputs["a"]] == ["part1", "part2", "part3"]
    assert bench.leftovers() == []


def test_readers_restart_also_when_the_events_of_a_lost_job_cannot_be_completed(bench: Bench) -> None:
    """On a full disk the reader's `exec` waits for an end that is never written, and the driver has to end it."""
    # The first attempt goes on until it is killed.
    script = f"{ATTEMPT}note start; {LINES}; [ $attempt -ge 2 ] || exec sleep 600"
    path = bench.write(pipeline(script), {}, True, **retrying("default", max_retries=3))
    process = bench.start(path)
    wait_for_note(path, " read\n")
    (events,) = path.parent.glob("tmp/streamflow-io-*/jobs/*-a-0/events.jsonl")
    (pid,) = [int(line.split()[1].rstrip(":")) for line in bench.leftovers() if "-a-0 --" in line]
    # The runtime would end its job when the events are not those that were written.
    os.kill(pid, signal.SIGSTOP)
    events.unlink()
    events.mkdir()
    os.kill(pid, signal.SIGKILL)
    run = bench.finish(process, path)
    assert run.ok, run.errors
    assert (len(run.times("start")), len(run.times("read")), len(run.times("read all"))) == (2, 2, 1)
    assert bench.leftovers() == []
