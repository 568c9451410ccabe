"""The savings for many small jobs change nothing: StreamFlow's database, failures, interruptions."""

from __future__ import annotations

import re
import signal
import sqlite3
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from lab.cwl import Document, tool, workflow
from lab.node import wait_for
from lab.runs import Bench

WORDS = [f"w{i}" for i in range(12)]


def scattered(script: str = "echo $word") -> Document:
    first = tool(script, {"word": "string"}, {"out": "stdout"}, stdout="$(inputs.word)")
    second = tool("cat $file; echo !", {"file": "File"}, {"out": "stdout"}, stdout="$(inputs.file.basename).second")
    last = tool('cat "$0" "$@"', {"files": {"type": "File[]", "inputBinding": {}}}, {"out": "stdout"}, stdout="last")
    steps = {
        "a": {"run": first, "in": {"word": "words"}, "scatter": "word"},
        "b": {"run": second, "in": {"file": "a/out"}, "scatter": "file"},
        "c": {"run": last, "in": {"files": "b/out"}},
    }
    return workflow({"words": "string[]"}, steps, {"b": "b/out", "c": "c/out"})


def rows(file: Path, query: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(file)) as database:
        return database.execute(query).fetchall()


def without_places(place: Path, value: Any) -> str:
    """A value of the database without what differs from run to run: paths, times, and what refers to another row."""
    text = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UUID", str(value)).replace(str(place), "PLACE")
    return re.sub(r"(?<![\w.])\d+(?![\w.])", "N", text)


def content(place: Path) -> dict[str, Counter[Any]]:
    """The content of StreamFlow's database, and its links, without ids."""
    file = place / "streamflow.db"
    owners = "SELECT port, min(s.name || ' ' || d.name) FROM dependency d, step s WHERE s.id = d.step GROUP BY 1"
    ports = dict(rows(file, owners))
    tokens = {
        id_: (ports.get(port), type_, tag, without_places(place, value))
        for id_, port, type_, tag, value in rows(file, "SELECT id, port, type, tag, value FROM token")
    }
    steps = dict(rows(file, "SELECT id, name FROM step"))
    return {
        "token": Counter(tokens.values()),
        "provenance": Counter(
            (tokens[a][:3], tokens[b][:3]) for a, b in rows(file, "SELECT dependee, depender FROM provenance")
        ),
        "recoverable": Counter(tokens[id_] for (id_,) in rows(file, "SELECT id FROM recoverable")),
        "execution": Counter(
            (steps[step], tokens[job][:3], status, without_places(place, cmd), start <= end)
            for step, job, status, cmd, start, end in rows(
                file, "SELECT step, job_token, status, cmd, start_time, end_time FROM execution"
            )
        ),
        "dependency": Counter(
            (steps[step], type_, name) for step, type_, name in rows(file, "SELECT step, type, name FROM dependency")
        ),
        "step": Counter(rows(file, "SELECT name, status, type FROM step")),
        "port": Counter(rows(file, "SELECT type, params FROM port")),
        "workflow": Counter(rows(file, "SELECT status, type, start_time < end_time FROM workflow")),
        "deployment": Counter(rows(file, "SELECT name, type, config FROM deployment")),
        "target": Counter((without_places(place, row),) for row in rows(file, "SELECT type, params FROM target")),
    }


def both(bench: Bench, document: Document) -> Sequence[Path]:
    job = {"words": WORDS}
    return bench.write_plain(document, job), bench.write(document, job, io=True)


def test_the_database_has_what_plain_streamflow_writes(bench: Bench) -> None:
    paths = both(bench, scattered())
    plain, ours = bench.run_all(paths)
    assert plain.ok, plain.errors
    assert ours.ok, ours.errors
    assert ours.results == plain.results
    assert content(paths[1].parent) == content(paths[0].parent)
    assert len(rows(paths[1].parent / "streamflow.db", "SELECT * FROM execution")) == 2 * len(WORDS) + 1


def test_a_failed_run_is_recorded(bench: Bench) -> None:
    document = scattered("test $word != w7")
    paths = both(bench, document)
    assert [run.code for run in bench.run_all(paths)] == [1, 1]
    status = [rows(path.parent / "streamflow.db", "SELECT status FROM workflow") for path in paths]
    assert status[0] == status[1]
    executed = rows(paths[1].parent / "streamflow.db", "SELECT status, count(*) FROM execution GROUP BY 1")
    assert executed


@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGINT, marks=pytest.mark.long), signal.SIGKILL], ids=["interrupted", "killed"]
)
def test_a_run_that_is_stopped(bench: Bench, number: signal.Signals) -> None:
    """The rest of it is at least what plain StreamFlow leaves, and the next run uses the same file."""
    held = 'case $word in w3) note begun; while test -e "$TRACE.hold"; do sleep 0.1; done;; esac; echo $word'
    found = []
    for path in both(bench, scattered(held)):
        place = path.parent
        (hold := place / "trace.hold").touch()
        process = bench.start(path)
        try:
            wait_for((place / "trace").exists, "a job", 60)
            process.send_signal(number)
            process.wait(60)
        finally:
            hold.unlink()
        left = rows(place / "streamflow.db", "SELECT status, end_time IS NULL FROM workflow")
        again = bench.finish(bench.start(path), path)
        assert again.ok, again.errors
        assert len(rows(place / "streamflow.db", "SELECT * FROM workflow")) == len(left) + 1
        assert len(rows(place / "streamflow.db", "SELECT * FROM execution")) >= 2 * len(WORDS) + 1
        found.append((process.returncode == 0, left))
    plain, ours = found
    if number == signal.SIGINT:
        assert plain == ours
        assert ours[1]
    else:
        # Plain StreamFlow commits when it ends; a run of ours may have committed that it has begun.
        assert plain == (False, [])
        assert not ours[0]
        assert all(has_no_end for _, has_no_end in ours[1])
