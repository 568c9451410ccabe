"""Consequences of a job that has read a declared stream, and the trust in declarations."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from streamflow_io.engine.proving import refuted_inputs
from streamflow_io.graph.candidates import with_refuted
from streamflow_io.graph.edges import plan_edges
from streamflow_io.graph.io_graph import Delivery, Input, IOGraph, Output, OutputKind, Route
from streamflow_io.proofs.rehearsable_jobs import next_of_declared, next_short_of_declared
from streamflow_io.proofs.rehearsal_rules import Finding, Manner, Ran
from streamflow_io.records.learned.proofs import Proof, ProofKey, RememberedProofs

SAME, OTHER = Ran(True, "exited", read=(9,)), Ran(True, "exited", read=(9,), difference="o.txt")
FAILED, KILLED = Ran(False, "exited", "exit code 1"), Ran(False, "exited", "signal 9", is_from_outside=True)
ORDER: tuple[Manner, ...] = ("file", "pipe", "twin", "pipe", "again")
SHORT: tuple[Manner, ...] = ("file", "pipe", "file", "pipe")
VARIES = Finding("pipe", "the outputs differ from run to run: o.txt")


@pytest.mark.parametrize(
    ("ran", "following"),
    [
        ([], "file"),
        ([SAME], Finding("pipe")),
        ([OTHER], "pipe"),
        ([OTHER, OTHER], "twin"),
        ([OTHER, SAME, SAME], Finding("pipe")),
        ([OTHER, SAME, OTHER], "pipe"),
        ([OTHER, SAME, OTHER, OTHER], VARIES),
        ([OTHER, SAME, OTHER, SAME], "again"),
        ([OTHER, SAME, OTHER, SAME, OTHER], VARIES),
        ([OTHER, SAME, OTHER, SAME, SAME], Finding(None, "o.txt")),
        ([FAILED], Finding("pipe", "the tool fails when it runs again: exit code 1")),
        ([OTHER, FAILED], Finding("pipe", "the tool fails when it runs again: exit code 1")),
        ([KILLED], Finding(None, "signal 9", is_known=False)),
    ],
)
def test_what_a_job_makes_of_a_declared_stream(ran: Sequence[Ran], following: Manner | Finding) -> None:
    assert next_of_declared(list(zip(ORDER, ran, strict=False))) == following


@pytest.mark.parametrize(
    ("ran", "following"),
    [
        ([], "file"),
        ([FAILED], None),
        ([SAME], "pipe"),
        ([SAME, SAME], None),
        ([SAME, KILLED], None),
        ([SAME, OTHER], "file"),
        ([SAME, OTHER, OTHER], None),
        ([SAME, OTHER, SAME], "pipe"),
        ([SAME, OTHER, SAME, SAME], None),
        ([SAME, OTHER, SAME, OTHER], Finding(None, "o.txt")),
        ([SAME, FAILED, SAME, FAILED], Finding(None, "exit code 1 with a short stream")),
    ],
)
def test_what_it_makes_of_a_short_one(ran: Sequence[Ran], following: Manner | Finding | None) -> None:
    assert next_short_of_declared(list(zip(SHORT, ran, strict=False))) == following


def declared(options: str, reason: str | None = None, way: str | None = None) -> Proof:
    return Proof(ProofKey("t", "declared", "i", options), "/b", 0, way="pipe" if way else None, reason=reason)


@pytest.mark.parametrize(
    ("known", "believed"),
    [
        ([], True),
        ([declared("x", way="pipe")], True),
        ([declared("x", "it varies", way="pipe")], True),
        ([declared("x", "it seeks")], False),
        ([declared("y", "it seeks")], False),
        ([declared("y", "it seeks"), declared("x", way="pipe")], True),
        ([Proof(ProofKey("other", "declared", "i", "x"), "/b", 0, reason="it seeks")], True),
        ([Proof(ProofKey("t", "reads", "i", "x"), "/b", 0, reason="it seeks")], True),
    ],
)
def test_a_declaration_is_believed_until_the_contrary_is_known(
    tmp_path: Path, known: list[Proof], believed: bool
) -> None:
    async def is_believed() -> bool:
        return RememberedProofs(tmp_path / "learned.db", known).is_believed(ProofKey("t", "declared", "i", "x"))

    assert asyncio.run(is_believed()) is believed


def test_an_input_is_refuted_where_all_that_is_known_of_it_is_against_it() -> None:
    tools = {"/b": "t", "/c": "other"}
    found = refuted_inputs(tools, tools, [declared("x", "it seeks"), declared("y", "it maps it")])
    assert list(found) == [("/b", "i")]
    assert found["/b", "i"].startswith("/b/i is declared `streamable`, but an earlier run has found: it ")
    assert refuted_inputs(tools, tools, [declared("x", "it seeks"), declared("y", way="pipe")]) == {}


def test_a_refuted_input_gets_a_file_and_others_their_stream() -> None:
    output = Output("/a", "o", OutputKind.FILE, streamable=True)
    routes = tuple(Route(output, (), Input(step, "i", streamable=True)) for step in ("/b", "/c"))
    graph = with_refuted(IOGraph({}, (output,), routes), {("/b", "i"): "it seeks [SFIO-S022]"})
    refuted, other = plan_edges(graph.routes)
    assert (refuted.delivery, refuted.fallback) == (Delivery.TERMINATION, "it seeks [SFIO-S022]")
    assert (other.delivery, other.fallback) == (Delivery.STREAM, None)
