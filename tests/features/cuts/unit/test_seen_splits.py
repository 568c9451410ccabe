"""Splits that were seen in an observed run: what their files are called, and what is proposed for them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import convert

from lab.telemetry import BEGIN, job, record_of, usage
from streamflow_io.commands.suggest import suggestions_text
from streamflow_io.features.cuts.planning import DeclaredCuts
from streamflow_io.features.cuts.splitting import PartNames, PossibleSplit, names_of_parts, possible_splits
from streamflow_io.graph.io_graph import Hop, HopKind, Input, IOGraph, Output, OutputKind, Route
from streamflow_io.hints.sessions import SessionRule
from streamflow_io.hints.yaml_files import parse, plain
from streamflow_io.records.files import RouteRecord, SplitRecord
from streamflow_io.records.history import read_history
from streamflow_io.records.job_files import JobFiles
from streamflow_io.records.records import EndRecord, Record, RunRecord
from streamflow_io.report.suggestions.proposals import Suggestions, suggest
from streamflow_io.runtime.protocol import (
    Event,
    JobSpec,
    Kind,
    ObservationSpec,
    ObservedInput,
    OutputRule,
    WatchedOutput,
)


@given(
    st.text("ab-_.é 0", max_size=3),
    st.integers(0, 1000),
    st.integers(0, 5),
    st.integers(2, 30),
    st.text("ab-_.é", max_size=3),
)
def test_names_are_found_again(before: str, first: int, width: int, count: int, after: str) -> None:
    pattern = f"{before}%{f'0{width}' if width else ''}d{after}"
    names = [pattern % number for number in range(first, first + count)]
    found = names_of_parts(names)
    assert found is not None
    assert [found.names % number for number in range(found.first, found.first + count)] == names
    SessionRule.model_validate(
        {"port": "p", "of": "o", "records": "lines", "every": 1, "names": found.names, "first": found.first}
    )


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["s1-01.fq", "s1-02.fq"], PartNames("s1-%02d.fq", 1)),
        (["1", "2", "3"], PartNames("%d", 1)),
        (["9", "10"], PartNames("%d", 9)),
        (["00", "01"], PartNames("%02d", 0)),
        (["xaa", "xab"], None),
        (["a1", "a3"], None),
        (["a1", "b2"], None),
        (["1", "10", "2"], None),
        (["%1", "%2"], None),
        (["a1", "a2", "all"], None),
        (["a\n1", "a\n2"], None),
        ([], None),
    ],
)
def test_names(names: list[str], found: PartNames | None) -> None:
    assert names_of_parts(names) == found


def possible(paths: list[str], kind: Kind = "files", opened: bool = True, inputs: tuple[str, ...] = ("/in/x",)) -> Any:
    rules = (OutputRule(committed="on_termination"),)
    output = WatchedOutput(port="out", root="/job/out", globs=("*",), kind=kind, rules=rules)
    observed = tuple(ObservedInput(name="in", path=path) for path in inputs)
    files = JobFiles(JobSpec(name="/a/0", outputs=(output,), observation=ObservationSpec(reads=observed)))
    for path in paths:
        told = {"event": "committed", "job": "1", "port": "out", "path": f"/job/out/{path}", "size": 5, "time": 1.0}
        files.add(convert(told, Event))
    used = {"name": "in", "path": "/in/x", "opens": 1, "sequential": True, "reasons": [], "first": 1.0, "last": 1.0}
    more = {"touched": 1.0, "read": None, "whole": False, "directory": False, "time": 1.0}
    if opened:
        files.add(convert({"event": "used", "job": "1", **used, **more}, Event))
    return list(possible_splits(files))


def test_what_may_be_a_split() -> None:
    names = PartNames("p%d", 1)
    assert possible(["p2", "p1"]) == [PossibleSplit("out", "in", "/in/x", "/job/out", names, 2, 10)]
    assert possible(["p1"]) == possible(["p1", "x"]) == possible(["d/p1", "d/p2"]) == []
    assert possible(["p1", "p2"], "directory") == possible(["p1", "p2"], opened=False) == []
    assert possible(["p1", "p2"], inputs=("/in/x", "/in/y")) == []


def split(name: str = "/a/0", **fields: Any) -> SplitRecord:
    step = name.rpartition("/")[0]
    rule = {"port": "out", "of": "reads", "count": 3, "names": "p%d", "first": 1, "records": "lines", "every": 14}
    return record_of(SplitRecord, **{"time": BEGIN + 5, "job": name, "step": step, "equal": False, **rule, **fields})


def found(*splits: SplitRecord, jobs: int = 1, **fields: Any) -> Suggestions:
    route = {"time": BEGIN, "output": "/a/out", "input": "/b/in", "kind": "File[]", "delivery": "termination"}
    records: list[Record] = [RunRecord(time=BEGIN, name="run", workflow="main.cwl", steps={"/b": ("/a",)})]
    records.append(record_of(RouteRecord, **{**route, "by_element": True, **fields}))
    for number in range(jobs):
        *before, last = job(f"/a/{number}", 0, 0, 10, usage=usage(0, 10))
        records += [*before, *(one for one in splits if one.job == f"/a/{number}"), last]
    records += job("/b/0", 10, 10, 14, usage=usage(10, 14))
    return suggest(read_history("run", [*records, EndRecord(time=BEGIN + 100)]))


def test_a_split_is_proposed() -> None:
    result = found(split())
    (proposal,) = result.proposals
    assert (proposal.subject, proposal.text) == ("/a/out", "ReadSession, records: lines, every: 14")
    assert proposal.evidence == "3 files are parts of reads, by their sizes, and by their first and last 4 KiB"
    assert proposal.is_sure
    assert proposal.saved == pytest.approx(10)
    rule = {"port": "out", "of": "reads", "records": "lines", "every": 14, "names": "p%d"}
    content = {"steps": {"/a": [{"class": "sfio:ReadSession", "rules": [rule]}]}}
    assert plain(parse(suggestions_text("run", result))) == content
    (proposal,) = found(split(equal=True, first=0)).proposals
    assert proposal.evidence.endswith("; `parts: 3` gives the same: take that, if their number is fixed")
    assert proposal.split["first"] == 0
    (proposal,) = found(split(), split("/a/1"), jobs=2).proposals
    assert proposal.evidence.startswith("6 files are parts of reads")


@pytest.mark.parametrize(
    ("splits", "fields", "reason"),
    [
        ([split()], {"jobs": 2}, "not all jobs have written parts of an input"),
        ([split(), split("/a/1", every=7)], {"jobs": 2}, "6 files are parts of reads, but not by one rule"),
        ([split()], {"output": "/c/out"}, "3 files are parts of reads, but no job reads them"),
        ([split()], {"not_parts": "it enters a loop"}, "3 files are parts of reads, but it enters a loop"),
        ([split()], {"delivery": "commit"}, "but a rule says something else of them already"),
    ],
)
def test_a_split_that_is_not_proposed(splits: list[SplitRecord], fields: dict[str, Any], reason: str) -> None:
    result = found(*splits, **fields)
    assert result.proposals == ()
    (refusal,) = [one for one in result.refusals if one.what == "ReadSession"]
    assert refusal.reason.endswith(reason)


def test_which_files_have_to_be_written() -> None:
    chunks, log = Output("/split", "chunks", OutputKind.FILES), Output("/split", "log", OutputKind.FILE)
    read = Route(chunks, (Hop("/align", "chunk", HopKind.SCATTER),), Input("/align", "chunk"))
    assert DeclaredCuts().never_parts(IOGraph({}, (chunks, log), (read,))) == {}
    unread = DeclaredCuts().never_parts(IOGraph({}, (chunks, log), ()))
    assert unread == {"/split/chunks": "no step reads /split/chunks"}
    kept = DeclaredCuts().never_parts(IOGraph({}, (chunks,), (read, Route(chunks, (), None))))
    assert kept == {"/split/chunks": "/split/chunks is a workflow output: its files have to be written"}
    used = DeclaredCuts().never_parts(IOGraph({}, (chunks, log), (read, Route(log, (), None))))
    assert used == {"/split/chunks": "/split/log is used, too: only a run of the program makes this output"}
