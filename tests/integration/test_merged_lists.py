"""A scatter over a list that several sources make."""

from __future__ import annotations

from typing import Any

import pytest

from lab.cwl import Document, found, streaming, tool, workflow
from lab.runs import Bench
from streamflow_io.commands.plan import plan_file

COMMITTED = {"committed": "on_close"}
LISTS = {"first": ["a", "b"], "second": ["c"]}


def over_inputs(**merge: Any) -> Document:
    """A scatter over lists that the job gives, into another."""
    rule = streaming({"port": "out", **COMMITTED})
    say = tool('echo "$word" > out.txt', {"word": "Any"}, {"out": found("out.txt")}, [rule])
    read = tool("cat $file > again.txt", {"file": "File"}, {"out": found("again.txt")})
    steps = {
        "say": {"run": say, "in": {"word": merge}, "scatter": "word"},
        "read": {"run": read, "in": {"file": "say/out"}, "scatter": "file"},
    }
    return workflow(dict.fromkeys(LISTS, "string[]"), steps, {"out": "read/out"})


@pytest.mark.parametrize(
    ("merge", "jobs"),
    [
        ({"source": ["first", "second"], "linkMerge": "merge_flattened"}, ("0.0", "0.1", "0.2")),
        ({"source": ["first", "second"], "linkMerge": "merge_nested"}, ("0.0", "0.1")),
        ({"source": ["first"], "linkMerge": "merge_flattened"}, ("0.0", "0.1")),
        ({"source": ["first", "second"], "pickValue": "all_non_null"}, None),
        ({"source": ["first", "second"], "pickValue": "first_non_null"}, None),
    ],
)
def test_the_plan_knows_the_jobs_of_merged_inputs(bench: Bench, merge: Document, jobs: tuple[str, ...] | None) -> None:
    plan = plan_file(bench.write(over_inputs(**merge), LISTS, io=True)).plans["main"]
    assert plan.jobs.tags["/say"] == plan.jobs.tags["/read"] == jobs
    assert [edge.by_element for edge in plan.graph.edges] == [True]


def test_lists_that_are_committed_and_merged(bench: Bench) -> None:
    """Rules before the merge and behind it."""
    # Of several files of one name, which one keeps it among the results may depend on when their jobs end.
    script = "echo $name 1 > $name-1.txt; echo $name 2 > $name-2.txt"
    rules = [streaming({"port": "files", **COMMITTED}, {"port": "last", **COMMITTED})]
    made = tool(script, {"name": "string"}, {"files": found("*.txt", "File[]"), "last": found("*-2.txt")}, rules)
    rules_again = [streaming({"port": "out", **COMMITTED})]
    again = {
        name: tool(f"cat $file > {name}-${{file##*/}}", {"file": "File"}, {"out": found(f"{name}-*")}, rules_again)
        for name in ("flat", "lasts")
    }
    last = tool("cat $file > end-${file##*/}", {"file": "File"}, {"out": found("end-*")})
    merged = {
        "flat": {"source": ["a/files", "b/files", "c/last"], "linkMerge": "merge_flattened"},
        "lasts": {"source": ["a/last", "b/last"], "linkMerge": "merge_nested"},
    }
    steps = {
        **{name: {"run": made, "in": {"name": {"default": name}}} for name in ("a", "b", "c")},
        **{name: {"run": again[name], "in": {"file": source}, "scatter": "file"} for name, source in merged.items()},
        "end": {"run": last, "in": {"file": "flat/out"}, "scatter": "file"},
    }
    bench.run_both(workflow({}, steps, {"end": "end/out", "flat": "flat/out", "lasts": "lasts/out"}))
