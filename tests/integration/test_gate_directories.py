"""Consumers of a Directory that start with its producer, and are held where they touch what is not committed."""

from __future__ import annotations

import contextlib
import json
import shlex
import sqlite3
import sys
from io import StringIO

import pytest
from rich.console import Console

from lab.cwl import Document, side_by_side, streamable
from lab.gates import ATTEMPT, BY_LIST, BY_NAME, FILES, assert_early, lister, pair, producer
from lab.runs import RETRY, Bench
from streamflow_io.commands.plan import plan_file
from streamflow_io.graph.io_graph import Delivery

# Prints the files of a directory in the order of their names, and notes each as soon as it is listed.
SCAN = """
import os, subprocess, sys
entries = []
for entry in os.scandir(os.environ["dir"]):
    with open(os.environ["TRACE"], "a") as trace:
        subprocess.run(["date", f"+%s.%N got {entry.name}"], stdout=trace)
    entries.append(entry.path)
for path in sorted(entries):
    print(open(path).read(), end="")
"""


def test_files_of_a_directory_are_read_by_name_as_they_are_committed(bench: Bench) -> None:
    """Each part of the workflow has another rule, or another reader."""
    script = "meet read; mkdir out; for i in 1 2 3; do echo file $i > out/$i; meet got $i; done"
    marked = f"meet read; {FILES}; sleep 0.5; note mark; echo > marker.txt; meet got 3"
    missing = lister(
        "note read; if cat $dir/never 2> /dev/null; then echo there; else note missing; echo not there; fi"
    )
    scan = f"note read; {shlex.quote(sys.executable)} -ISc {shlex.quote(SCAN)}"
    document = side_by_side(
        number=pair(producer(script, "on_n_files", "Directory", nFiles=3), lister(BY_NAME)),
        close=pair(producer(script, "on_close", "Directory", files=["[0-9]"]), lister(BY_NAME)),
        marker=pair(producer(marked, "on_file", "Directory", fileDeps=["marker.txt"]), lister(BY_NAME)),
        listing=pair(
            producer(f"meet read; {FILES}; meet listed", "on_n_files", "Directory", nFiles=3), lister(BY_LIST)
        ),
        # With `no_update` a listing has the entries as they are committed.
        scan=pair(producer(script, "on_close", "Directory", mode="no_update"), lister(scan, streamable("Directory"))),
        # The name of the directory follows from its first file.
        glob=pair(producer(script.removeprefix("meet read; "), "on_close", "Directory", "o*"), lister(BY_NAME)),
        never=pair(producer(f"meet read; {FILES}; sleep 1", "on_close", "Directory"), missing),
    )
    _, ours = bench.run_both(document)
    for name in ("number", "close", "scan", "glob"):
        assert_early(ours.part(name), "got 3")
    assert ours.files["scan-read.txt"] == b"file 1\nfile 2\nfile 3\n"
    assert ours.part("marker").time("mark") < ours.part("marker").time("got 1")
    assert_early(ours.part("marker"), "got 3")
    assert_early(ours.part("listing"), "listed")
    assert ours.files["listing-read.txt"] == b"file 1\nfile 2\nfile 3\n"
    assert_early(ours.part("never"))
    assert ours.part("never").time("missing") > ours.part("never").time("end")


def test_a_directory_that_was_put_beside_its_producer_is_not_listed_before_its_commit(bench: Bench) -> None:
    """StreamFlow knows such a directory, and fails if the job removes a file that StreamFlow has listed."""
    put = {"class": "Directory", "basename": "out", "listing": [{"class": "File", "basename": "1", "contents": "1"}]}
    script = "meet read; rm out/1; for i in 1 2 3; do echo file $i > out/$i; done"
    writer = producer(script, "on_termination", "Directory")
    writer["requirements"].append({"class": "InitialWorkDirRequirement", "listing": [put]})
    _, ours = bench.run_both(pair(writer, lister(BY_NAME)))
    assert_early(ours)
    with contextlib.closing(sqlite3.connect(bench.directory / f"run{bench.count}" / "streamflow.db")) as database:
        early = database.execute("SELECT value FROM token WHERE type LIKE '%.StreamToken'").fetchall()
    assert early
    assert not any("listing" in json.loads(value)["file"] for (value,) in early)


def test_a_file_that_is_written_after_its_commit_is_named(bench: Bench) -> None:
    script = f"meet read; {FILES}; meet got 3; echo more >> out/2; sleep 0.5"
    run = bench.run(pair(producer(script, "on_close", "Directory"), lister(BY_NAME)))
    assert not run.ok
    assert "out/2 of the output `out` was committed by `on_close`, but was written again afterwards" in run.log
    assert bench.leftovers() == []


@pytest.mark.parametrize(
    ("rule", "end", "reads"),
    [
        ({"committed": "on_close"}, "sleep 0.5", 2),
        ({"committed": "on_n_files", "nFiles": 3}, "meet listed; sleep 1", 1),
    ],
    ids=["not complete", "complete"],
)
def test_a_failed_producer_is_retried_with_a_consumer_of_what_is_not_complete(
    bench: Bench, rule: Document, end: str, reads: int
) -> None:
    script = f"{ATTEMPT}meet read; {FILES}; {end}; [ $attempt -ge 2 ] || exit 3"
    run = bench.run(pair(producer(script, kind="Directory", **rule), lister(BY_LIST)), **RETRY)
    assert run.ok, run.errors
    assert [len(run.times(what)) for what in ("try", "read", "listed", "end")] == [2, reads, 1, 1]
    assert run.files["read.txt"] == b"file 1\nfile 2\nfile 3\n"
    assert bench.leftovers() == []


def test_plan_shows_the_gate(bench: Bench) -> None:
    plans = plan_file(bench.write(pair(producer(FILES, "on_close", "Directory"), lister(BY_LIST)), {}, io=True))
    shown = plans.to_json()["workflows"]["main"]
    ((delivery, fallback),) = [(edge["delivery"], edge["fallback"]) for edge in shown["edges"]]
    assert (delivery, fallback) == ("gate", None)
    assert shown["gangs"] == [
        {"steps": ("/a", "/b"), "heads": ("/a",), "cores": 1.0, "apart": None, "on_one_location": None}
    ]
    text = StringIO()
    plans.show(Console(file=text, width=120))
    assert "gate" in text.getvalue()


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (
            {"type": "Directory", "loadListing": "shallow_listing"},
            "/b/dir is listed (loadListing; with CWL v1.0 always)",
        ),
        ("Directory", "which needs the whole file"),
    ],
)
def test_a_listing_that_is_needed_before_the_start_is_no_gate(bench: Bench, kind: Document | str, why: str) -> None:
    second = lister(BY_LIST, kind)
    if isinstance(kind, str):
        second["requirements"].append({"class": "InitialWorkDirRequirement", "listing": ["$(inputs.dir)"]})
    plans = plan_file(bench.write(pair(producer(FILES, "on_close:3", "Directory"), second), {}, io=True))
    (edge,) = plans.plans["main"].graph.edges
    assert edge.delivery is Delivery.COMMIT
    assert why in (edge.fallback or "")
