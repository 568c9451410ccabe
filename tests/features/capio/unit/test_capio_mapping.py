"""Edges that CAPIO serves."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from streamflow_io.features.capio.choice import program_name
from streamflow_io.features.capio.language.reading import read_capio_cl
from streamflow_io.features.capio.runtime.supported import (
    COMMIT_CLOSES,
    CapioOutput,
    CapioStep,
    HeldOutputs,
    capio_configuration,
    map_to_capio,
)
from streamflow_io.graph.capio_cl.language import write_capio_cl
from streamflow_io.graph.io_graph import Delivery, Input, Output, OutputKind, Route, StreamEdge
from streamflow_io.hints.models import StreamingRule
from tests.unit.test_sites import DRIVERS_NODE, HOST, plan
from tests.unit.test_sites_of_containers import ALONE, A, B
from tests.unit.test_sites_of_containers import plan as plan_in_containers

ONE = CapioStep("tool", outputs={"out": CapioOutput("out.txt")})


def edge(
    producer: str = "/a",
    consumer: str = "/b",
    delivery: Delivery = Delivery.STREAM,
    kind: OutputKind = OutputKind.FILE,
    port: str = "out",
    **rule: Any,
) -> StreamEdge:
    rule = {"mode": "no_update", **rule}
    route = Route(Output(producer, port, kind), (), Input(consumer, "file", True))
    return StreamEdge(route, StreamingRule(port=port, **rule), delivery)


def reason(one: StreamEdge, **steps: CapioStep) -> str | None:
    return map_to_capio([one], {"/a": ONE, "/b": ONE, **{f"/{name}": s for name, s in steps.items()}}).refused.get(one)


@pytest.mark.parametrize("committed", ["on_termination", "on_close"])
@pytest.mark.parametrize("permanent", [None, True])
def test_byte_streams_of_files_are_served(committed: str, permanent: bool | None) -> None:
    one = edge(committed=committed, permanent=permanent)
    mapping = map_to_capio([one], {"/a": ONE})
    assert mapping.served == (one,)
    assert mapping.held("/a", {}.__getitem__) == HeldOutputs({"out": "out.txt"}, ("out.txt", "cwl.output.json"))
    assert mapping.held("/b", {}.__getitem__) is None


@pytest.mark.parametrize(
    ("one", "why"),
    [
        (edge(delivery=Delivery.COMMIT), "a step that waits for a commit in the file system would not see it"),
        (edge(delivery=Delivery.GATE), "that is for the gate"),
        (edge(delivery=Delivery.GATE, kind=OutputKind.DIRECTORY), "that is for the gate"),
        (edge(kind=OutputKind.FILES), "/a/out is a File[]"),
        (edge(committed="on_close:3"), "CAPIO counts the closes of readers, too: `on_close:3` cannot be told it"),
        (edge(committed="on_file", fileDeps=["other"]), "CAPIO does not implement `on_file`"),
    ],
)
def test_an_edge_that_is_not_for_capio(one: StreamEdge, why: str) -> None:
    assert why in str(reason(one))


@pytest.mark.parametrize(
    ("steps", "why"),
    [
        ({"a": replace(ONE, program="gzip")}, "`gzip` hangs under CAPIO (/a)"),
        ({"b": replace(ONE, program="cp")}, "`cp` hangs under CAPIO (/b)"),
        ({"b": replace(ONE, program="sort")}, "`sort` hangs under CAPIO (/b)"),
        ({"a": replace(ONE, obstacle="/a is strange")}, "/a is strange"),
        ({"b": replace(ONE, obstacle="/b is strange")}, "/b is strange"),
        ({"a": replace(ONE, writing_obstacle="/a is staged")}, "/a is staged"),
        ({"b": replace(ONE, writing_obstacle="/b is staged")}, None),
        ({"a": replace(ONE, program="sh")}, "`sh` is a shell"),
        ({"b": replace(ONE, program="bash")}, "`bash` is a shell"),
        ({"a": replace(ONE, outputs={"out": CapioOutput("o", redirected=True)})}, "the standard output of its job"),
        ({"a": replace(ONE, outputs={"out": CapioOutput("o"), "log": CapioOutput("l", redirected=True)})}, None),
        (
            {"a": replace(ONE, outputs={"out": CapioOutput("o"), "more": CapioOutput(None)})},
            "the name of /a/more is not",
        ),
        ({"a": replace(ONE, outputs={"out": CapioOutput("d/o")})}, "/a/out: 'd/o' is in a subdirectory"),
        ({"a": replace(ONE, outputs={"out": CapioOutput("an o")})}, "/a/out: the name 'an o' has a space"),
    ],
)
def test_a_step_that_is_not_for_capio(steps: dict[str, CapioStep], why: str | None) -> None:
    found = reason(edge(), **steps)
    assert found is None if why is None else why in str(found)


def test_jobs_are_of_one_runtime() -> None:
    """Outputs of the same jobs have one runtime, and so have others through them, to the end."""
    two = replace(ONE, outputs={"out": CapioOutput("o"), "gated": CapioOutput("g")})
    streamed, gated = edge(), edge(port="gated", delivery=Delivery.GATE, mode="update", start="producer")
    other = edge("/c", "/b")
    mapping = map_to_capio([streamed, gated, other], {"/a": two, "/b": ONE, "/c": ONE})
    assert mapping.served == ()
    assert "comes from the same jobs" in mapping.refused[streamed]
    assert "is held at the gate" in mapping.refused[other]


def test_all_files_of_a_job_that_writes_into_capio_are_collected() -> None:
    outputs = {"out": CapioOutput("o"), "more": CapioOutput("m"), "log": CapioOutput("l", redirected=True)}
    mapping = map_to_capio([edge(), edge(consumer="/c")], {"/a": replace(ONE, outputs=outputs), "/b": ONE, "/c": ONE})
    assert mapping.held("/a", {}.__getitem__) == HeldOutputs({"out": "o"}, ("o", "m", "cwl.output.json"))


def test_what_is_delivered_at_termination_needs_nobody() -> None:
    late = replace(edge(), delivery=Delivery.TERMINATION, by_element=True)
    mapping = map_to_capio([edge(), late], {"/a": ONE})
    assert mapping.served == (edge(),)
    assert mapping.refused == {}


def test_the_configuration_says_that_no_file_is_committed_before_us() -> None:
    mapping = map_to_capio([edge(), edge(consumer="/s/c"), edge("/b", "/d")], {"/a": ONE, "/b": ONE})
    configuration = capio_configuration("name", "/run/d", mapping)
    assert [(f.path, f.producers, f.consumers) for f in configuration.files] == [
        ("/run/d/a-*/*", ("a",), ("b", "s.c")),
        ("/run/d/b-*/*", ("b",), ("d",)),
    ]
    assert {(f.committed.closes, f.mode, f.permanent) for f in configuration.files} == {
        (COMMIT_CLOSES, "no_update", False)
    }
    assert read_capio_cl(write_capio_cl(configuration, "1.0"), "capio-cl.json") == configuration


@pytest.mark.parametrize(
    ("first_line", "name"),
    [
        ("#!/bin/sh", "sh"),
        ("#!/usr/bin/env bash", "bash"),
        ("#! /usr/bin/env -S python3 -I", "python3"),
        ("\x7fELF", "tool"),
        ("", "tool"),
    ],
)
def test_a_script_is_what_its_interpreter_is(tmp_path: Path, first_line: str, name: str) -> None:
    (tool := tmp_path / "tool").write_text(f"{first_line}\nexit 0\n")
    assert program_name(str(tool)) == name
    assert program_name("/nowhere/gzip") == "gzip"
    assert program_name("$(inputs.tool)") is None
    assert program_name(None) is None


@pytest.mark.parametrize(
    ("globs", "name"),
    [(["chr1.tsv"], "chr1.tsv"), (["d/x"], None), (["*.tsv"], None), (["a", "b"], None), (["."], None)],
)
def test_names_that_are_expressions_are_known_when_the_job_starts(globs: list[str], name: str | None) -> None:
    one = edge()
    outputs = {"out": CapioOutput(None, evaluated=True), "log": CapioOutput("log.txt", redirected=True)}
    mapping = map_to_capio([one], {"/a": CapioStep("tool", outputs=outputs)})
    assert mapping.served == (one,)
    held = mapping.held("/a", {"out": globs}.__getitem__)
    assert held == (None if name is None else HeldOutputs({"out": name}, (name, "cwl.output.json")))


def test_capio_serves_the_drivers_node_only() -> None:
    edges = [plan(producer, consumer) for producer, consumer in product((DRIVERS_NODE, HOST), repeat=2)]
    mapping = map_to_capio(edges, {})
    assert all(edge not in mapping.served for edge in edges[1:])
    streamed = edges[3]
    assert streamed.delivery is Delivery.STREAM
    assert mapping.refused[streamed] == "/a runs on one (ssh): CAPIO serves only jobs of the driver's node"


def test_capio_serves_no_containers() -> None:
    mapping = map_to_capio([plan_in_containers(A, B), plan_in_containers(ALONE, ALONE)], {})
    assert not mapping.served
    serves = "CAPIO serves only jobs of the driver's node, outside of containers"
    assert list(mapping.refused.values()) == [
        f"/a runs in a container of a:1 (docker): {serves}",
        f"/a runs on alone (docker): {serves}",
    ]
