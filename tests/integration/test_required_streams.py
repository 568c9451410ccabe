"""Byte streams that are fed no faster than required: real runs, and what is said of them."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from lab import forked
from lab.cwl import Document, found, streaming, tool, workflow
from lab.pauses import Pauses
from lab.runs import Bench, Run

SIZE = 4_000_000
BURSTS = 4
SECONDS = 1.2
PRODUCER, READER = "/make/0", "/read/0"


def rule(stream_bw: float | str) -> Document:
    return streaming({"port": "out", "committed": "on_close", "mode": "no_update", "streamBW": stream_bw})


def bursts(stream_bw: float | str) -> Document:
    """A step that writes in bursts, and one that reads them."""
    piece = f"yes burst $i | head -c {SIZE}"
    make = tool(
        f"for i in {' '.join(map(str, range(1, BURSTS + 1)))}; do {piece}; sleep {SECONDS}; done > out.bin",
        {},
        {"out": found("out.bin")},
        [rule(stream_bw)],
    )
    read = tool(
        "cat $file > copy.bin; note copied",
        {"file": {"type": "File", "streamable": True}},
        {"copy": found("copy.bin")},
    )
    steps = {"make": {"run": make, "in": {}}, "read": {"run": read, "in": {"file": "make/out"}}}
    return workflow({}, steps, {"made": "make/out", "copy": "read/copy"})


def told(bench: Bench, event: str) -> list[Document]:
    return [record for record in bench.telemetry() if record["event"] == event]


def requests_of(bench: Bench, kind: str) -> list[Document]:
    return [record for record in told(bench, "request") if record["kind"] == kind]


def asked(bench: Bench, *arguments: str) -> Any:
    environment = {"XDG_DATA_HOME": str(bench.data)}
    done = forked.run("streamflow-io", *arguments, "--json", cwd=bench.directory, environment=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def ended(bench: Bench, job: str) -> float:
    [time] = [float(record["time"]) for record in told(bench, "ended") if record["job"] == job]
    return time


def seconds_after_the_last_burst(bench: Bench, run: Run, pauses: Pauses) -> float:
    return pauses.seconds(ended(bench, PRODUCER), run.time("copied"))


def test_a_stream_that_is_kept_to_what_is_required(bench: Bench) -> None:
    """Bursts without a limit until the window of one is known, then spread over it; at the commit the limit ends."""
    with Pauses() as pauses:
        _, ours = bench.run_both(bursts("required"))
    requests, rates = requests_of(bench, "stream"), told(bench, "rate")
    assert [one["rule"] for one in requests] == [*["next"] * (BURSTS - 1), "exposed"]
    assert [one["phase"] for one in requests] == list(range(BURSTS))
    assert {(one["job"], one["kind"], one["direction"]) for one in requests} == {(READER, "stream", "read")}
    assert {one["channel"] for one in requests} == {f"{READER}/file of {PRODUCER}"}
    assert sum(one["bytes"] for one in requests) == BURSTS * SIZE
    for before, one in itertools.pairwise(requests):
        assert before["required"] == one["ready"]
    windows = [one["required"] - one["ready"] for one in requests]
    # Of the first two nothing was known.
    assert [one.get("limit") is None for one in requests] == [True, True, False, False]
    assert 0.5 * SIZE / 1e6 / windows[0] <= requests[2]["limit"] <= 2 * SIZE / 1e6 / windows[0]
    moving = [one["ended"] - one["started"] for one in requests]
    assert moving[2] > 0.4 * windows[2], (moving, windows)
    assert 0.4 * windows[2] > 1.5 * pauses.seconds(requests[0]["started"], requests[0]["ended"]), (moving, windows)
    assert {one["input"] for one in rates} == {"file"}
    assert [one["reason"] for one in rates][-1] == "commit"
    assert "rate" not in rates[-1]
    # What is left of the last burst comes at once, and not within the next window.
    assert seconds_after_the_last_burst(bench, ours, pauses) < max(1.0, 0.8 * windows[0])
    found = asked(bench, "bandwidth", "last")
    [step] = [one for one in found["steps"] if one["phases"]]
    own = [one for one in requests_of(bench, "write") if one["job"] == READER]
    assert (step["step"], step["phases"], step["exposed"], step["limited"]) == ("/read", BURSTS - 1, 1 + len(own), 1)
    # The bytes that the producer and the reader write themselves; both wait for that.
    written = [one for one in requests_of(bench, "write") if one["job"] == PRODUCER]
    assert [(one["phase"], one["rule"], one["channel"]) for one in written] == [
        (number, "exposed", PRODUCER) for number in range(BURSTS)
    ]
    assert BURSTS * SIZE <= sum(one["bytes"] for one in written) <= 3 * BURSTS * SIZE
    [make] = [one for one in found["steps"] if one["step"] == "/make"]
    assert (make["phases"], make["exposed"]) == (0, BURSTS)


@pytest.mark.long
def test_limits_that_are_off(bench: Bench) -> None:
    """The same requests, and no rates."""
    bench.run_both(bursts("required"), config={"limits": False})
    assert len(requests_of(bench, "stream")) == BURSTS
    assert told(bench, "rate") == []


def test_the_plan_shows_the_stream_bandwidth(bench: Bench) -> None:
    for stream_bw, shown in (("required(1.5)", "required(1.5)"), (20, "20")):
        path = bench.write(bursts(stream_bw), {}, io=True)
        [edge] = asked(bench, "plan", str(path))["workflows"]["main"]["edges"]
        assert (edge["delivery"], edge["streamBW"]) == ("stream", shown)
