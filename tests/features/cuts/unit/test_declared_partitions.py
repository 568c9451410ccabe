"""Splits with declared cuts that write nothing, and the reasons of others."""

from __future__ import annotations

from msgspec.structs import replace

from streamflow_io.features.cuts.planning import DeclaredCuts
from streamflow_io.graph.io_graph import Delivery, IOGraph, Output, OutputKind, Route, Step
from streamflow_io.graph.partitions import Partition, plan_partitions
from streamflow_io.graph.sites import DRIVERS_NODE, Site
from streamflow_io.hints.sessions import SessionRule
from tests.unit.test_partitions import CHUNK, CHUNKS, HOST, RULE, SCATTER, decide

DECLARED = SessionRule(port="chunks", of="reads", records="lines", every=2, names="chunk-%02d.txt", first=0)


def test_declared_cuts() -> None:
    def split(**fields: object) -> str | None:
        output = replace(CHUNKS, **fields)  # type: ignore[arg-type]
        return decide(Route(output, (SCATTER,), CHUNK), output=output, rule=DECLARED, cuts=DeclaredCuts())

    assert split(globs=("*.fq", "chunk-0*.txt")) is None
    does_not_find = "the glob of /split/chunks does not find chunk-00.txt, as `names` has it"
    assert split(globs=("chunk-1*.txt",)) == split(globs=("parts/*",)) == does_not_find
    route = Route(CHUNKS, (SCATTER,), CHUNK)
    log = Route(Output("/split", "log", OutputKind.FILE), (), None)
    assert (
        decide(route, log, rule=DECLARED, cuts=DeclaredCuts())
        == "/split/log is used, too: only a run of the program makes this output"
    )
    assert decide(route, log, cuts=DeclaredCuts()) is None, "a program that says its parts runs"


def test_what_is_declared_is_trusted_when_it_was_verified() -> None:
    graph = IOGraph({}, (CHUNKS,), (Route(CHUNKS, (SCATTER,), CHUNK),))
    (trusted,) = plan_partitions(graph, {"/split": [DECLARED]}, {}, cuts=DeclaredCuts())
    assert trusted.is_served
    assert trusted.is_virtual
    refuted = DeclaredCuts(trials={("/split", "chunks"): "why"})
    (tried,) = plan_partitions(graph, {"/split": [DECLARED]}, {}, cuts=refuted)
    assert tried.is_served
    assert not tried.is_virtual
    assert tried.trial == "why"
    streamed = {("/split", "reads"): Delivery.STREAM}
    (real,) = plan_partitions(graph, {"/split": [RULE]}, streamed, cuts=refuted)
    assert not real.is_served
    assert real.trial is None


def test_a_file_that_is_still_written() -> None:
    def split(rule: SessionRule, how: Delivery = Delivery.STREAM, site: Site = DRIVERS_NODE) -> Partition:
        output = replace(CHUNKS, site=site)
        graph = IOGraph({"/split": Step("/split", site=site)}, (output,), (Route(output, (SCATTER,), CHUNK),))
        return plan_partitions(graph, {"/split": [rule]}, {("/split", "reads"): how}, cuts=DeclaredCuts())[0]

    every = split(DECLARED)
    assert (every.is_virtual, every.grows, every.condition) == (True, True, None)
    needs_all = "/split/reads is streamed: other cuts than declared ones of `every` need a complete file"
    chunk, parts = (DECLARED.model_copy(update={"every": None, cut: 2}) for cut in ("chunk", "parts"))
    for found in (split(RULE), split(chunk), split(parts), split(DECLARED, Delivery.GATE)):
        assert (found.real, found.grows) == (needs_all, False)
    assert "its job runs on the host where the file is written" in str(split(DECLARED, site=HOST).condition)
