"""Inputs that may stream without a hint, and the effect of proofs on a graph."""

from __future__ import annotations

from collections.abc import Collection

import pytest
from msgspec.structs import replace

from streamflow_io.graph.candidates import (
    Candidate,
    Reader,
    candidate_inputs,
    hoped_readers,
    wire_for_later,
    with_proofs,
    writers_of,
)
from streamflow_io.graph.edges import plan_edges
from streamflow_io.graph.io_graph import Delivery, Hop, HopKind, Input, IOGraph, Output, OutputKind, Route
from streamflow_io.hints.models import StreamingRule

OUT = Output("/a", "out", OutputKind.FILE, globs=("out.txt",))
FILE = Input("/b", "file")
OTHER = Input("/c", "file")
RESULT = Route(OUT, (), None)


def graph(*routes: Route, names: tuple[Route, ...] = ()) -> IOGraph:
    return IOGraph({}, tuple(dict.fromkeys(route.output for route in routes)), routes, names)


def hop(kind: HopKind, **fields: bool) -> Hop:
    return Hop("/b/hop", "file", kind, **fields)


def test_an_input_that_no_hint_names() -> None:
    assert candidate_inputs(graph(Route(OUT, (), FILE), RESULT)) == {"/b": ("file",)}


def test_the_steps_that_write_what_an_input_reads() -> None:
    other = replace(OUT, step="/d")
    found = writers_of(graph(Route(OUT, (), FILE), Route(other, (), FILE), Route(OUT, (), OTHER), RESULT))
    assert found == {"/b": {"file": {"/a", "/d"}}, "/c": {"file": {"/a"}}}


@pytest.mark.parametrize(
    "route",
    [
        Route(OUT, (), replace(FILE, streamable=True)),
        Route(OUT, (), replace(FILE, obstacle="/b/file has loadContents")),
        Route(replace(OUT, obstacle="/a/out is computed"), (), FILE),
        Route(replace(OUT, stream_obstacle="/a/out has secondaryFiles"), (), FILE),
        Route(replace(OUT, rules=(StreamingRule(port="out"),)), (), FILE),
        Route(replace(OUT, kind=OutputKind.FILES), (), FILE),
        Route(replace(OUT, kind=OutputKind.DIRECTORY), (), FILE),
        Route(OUT, (hop(HopKind.DEFAULT, fills=True),), FILE),
        Route(OUT, (hop(HopKind.WHEN, decides=True),), FILE),
        Route(OUT, (hop(HopKind.LOOP),), FILE),
        Route(OUT, (hop(HopKind.PICK_VALUE, fills=True),), FILE),
    ],
)
def test_an_input_that_is_left_as_it_is(route: Route) -> None:
    assert candidate_inputs(graph(route)) == {}
    streamed = [
        edge for edge in with_proofs(graph(route), {("/b", "file")}).edges() if edge.delivery is Delivery.STREAM
    ]
    # Of an input that is declared it is known.
    assert not streamed or route.consumer == replace(FILE, streamable=True)


def test_what_passes() -> None:
    hops = (hop(HopKind.SUBWORKFLOW), hop(HopKind.DEFAULT), hop(HopKind.WHEN))
    assert candidate_inputs(graph(Route(OUT, hops, FILE))) == {"/b": ("file",)}


@pytest.mark.parametrize("kind", [HopKind.DEFAULT, HopKind.PICK_VALUE])
def test_an_output_that_is_always_there_passes_what_would_put_something_in_its_place(kind: HopKind) -> None:
    made = replace(OUT, optional=False)
    assert candidate_inputs(graph(Route(made, (hop(kind, fills=True),), FILE))) == {"/b": ("file",)}


@pytest.mark.parametrize("step", ["/a", "/b"])
def test_a_step_that_neither_reads_nor_writes_streams(step: str) -> None:
    assert candidate_inputs(graph(Route(OUT, (), FILE)), {step}) == {}


@pytest.mark.parametrize(("glob", "passes"), [("out.txt", True), ("*.txt", False), ("*", False)])
def test_something_that_depends_on_the_name(glob: str, passes: bool) -> None:
    output = replace(OUT, globs=(glob,))
    named = Route(output, (hop(HopKind.VALUE_FROM, by_name=True),), Input("/b", "name"))
    tested = graph(Route(output, (), FILE), names=(named,))
    assert bool(candidate_inputs(tested)) is passes
    assert bool(with_proofs(tested, {("/b", "file")}).streamed) is passes


def test_what_is_proven_is_streamed_and_the_rest_is_as_before() -> None:
    tested = graph(Route(OUT, (), FILE), Route(OUT, (), OTHER), RESULT)
    proved = with_proofs(tested, {("/b", "file")})
    assert proved.streamed == {"/a/out"}
    (edge,) = proved.edges()
    assert (edge.name, edge.delivery, edge.fallback) == ("/a/out -> /b/file", Delivery.STREAM, None)


def test_nothing_is_streamed_without_a_proof() -> None:
    tested = graph(Route(OUT, (), FILE))
    assert with_proofs(tested, ()).edges() == ()
    assert with_proofs(tested, {("/b", "file")}, {"/a/out"}).edges() == ()


def test_what_hints_ask_for_is_left_as_it_is() -> None:
    """Also why it is not served, which is said."""
    hinted = replace(OUT, port="hinted", rules=(StreamingRule(port="hinted", mode="no_update"),))
    tested = graph(Route(OUT, (), FILE), Route(hinted, (), OTHER))
    (of_hint,) = plan_edges(tested.routes)
    assert of_hint.fallback is not None
    edges = with_proofs(tested, {("/b", "file")}).edges()
    assert [edge.delivery for edge in edges] == [Delivery.STREAM, Delivery.TERMINATION]
    assert of_hint in edges


def test_a_file_that_one_hop_hands_to_two() -> None:
    """The file is streamed if both can read it so."""
    shared = hop(HopKind.SUBWORKFLOW)
    tested = graph(Route(OUT, (shared,), FILE), Route(OUT, (shared,), OTHER))
    assert with_proofs(tested, {("/b", "file")}).edges() == ()
    edges = with_proofs(tested, {("/b", "file"), ("/c", "file")}).edges()
    assert [edge.delivery for edge in edges] == [Delivery.STREAM, Delivery.STREAM]


GATHER = Hop("/a/gather", "out", HopKind.GATHER)
SCATTER = Hop("/b/scatter", "file", HopKind.SCATTER)


def test_elements_of_a_scatter_go_to_the_next_one_by_one() -> None:
    tested = graph(Route(OUT, (GATHER, SCATTER), FILE), Route(OUT, (GATHER,), OTHER), Route(OUT, (GATHER,), None))
    proved = with_proofs(tested, ())
    assert (proved.streamed, proved.one_by_one) == (frozenset(), {"/a/out"})
    (edge,) = proved.edges()
    assert (edge.name, edge.delivery, edge.by_element) == ("/a/out -> /b/file", Delivery.TERMINATION, True)


@pytest.mark.parametrize(
    "route",
    [
        Route(OUT, (SCATTER,), FILE),
        Route(OUT, (GATHER,), FILE),
        Route(replace(OUT, kind=OutputKind.FILES), (SCATTER,), FILE),
        Route(OUT, (replace(GATHER, widths=2), replace(SCATTER, obstacle="flat_crossproduct needs it")), FILE),
        Route(OUT, (GATHER, hop(HopKind.LINK_MERGE), SCATTER), FILE),
        Route(replace(OUT, rules=(StreamingRule(port="out", committed="on_close"),)), (GATHER, SCATTER), FILE),
    ],
)
def test_elements_that_go_together(route: Route) -> None:
    assert with_proofs(graph(route), ()).one_by_one == frozenset()


@pytest.mark.parametrize("step", ["/a", "/b"])
def test_elements_of_a_step_whose_time_counts(step: str) -> None:
    assert with_proofs(graph(Route(OUT, (GATHER, SCATTER), FILE)), (), (), {step}).edges() == ()


CANDIDATES = {"/b": Candidate("b1", ("file",)), "/c": Candidate("c1", ("file",))}
MANY = {"/a", "/b", "/c"}


def later(
    tested: IOGraph, repeated: Collection[str] = MANY, proven: Collection[Reader] = (), refused: Collection[Reader] = ()
) -> dict[str, tuple[Reader, ...]]:
    """The outputs of a graph that stream as soon as that is proven."""
    now = with_proofs(tested, proven)
    readers = hoped_readers(now, CANDIDATES, repeated, {*proven, *refused})
    wiring = wire_for_later(now, with_proofs(tested, {*proven, *readers}), readers)
    if wiring is None:
        return {}
    assert all(edge.route in wiring.routes for edge in wiring.delivered)
    return dict(wiring.awaited)


B, C = ("/b", "file"), ("/c", "file")


def test_what_may_be_proven_in_the_run_is_wired_for_it() -> None:
    one_by_one = graph(Route(OUT, (GATHER, SCATTER), FILE), Route(OUT, (GATHER,), None))
    assert later(one_by_one) == {"/a/out": (B,)}
    assert later(graph(Route(OUT, (), FILE), Route(OUT, (), OTHER))) == {"/a/out": (B, C)}
    assert later(one_by_one, repeated={"/a"}) == {}
    assert later(one_by_one, proven={B}) == {}
    assert later(one_by_one, refused={B}) == {}


def test_who_would_get_with_others_what_is_not_proven_of_him_waits_for_another_run() -> None:
    both = graph(Route(OUT, (), FILE), Route(OUT, (), OTHER))
    assert later(both, proven={B}) == {}
    # The reader may read another file as well.
    more = replace(OUT, port="more")
    assert later(graph(*both.routes, Route(more, (), OTHER)), proven={B}) == {}
    assert later(both, refused={B}) == {"/a/out": (C,)}


def test_what_hints_ask_for_is_wired_as_they_say() -> None:
    hinted = replace(OUT, port="hinted", rules=(StreamingRule(port="hinted"),))
    tested = graph(Route(OUT, (), FILE), Route(hinted, (), OTHER))
    now = with_proofs(tested, ())
    wiring = wire_for_later(now, with_proofs(tested, {B}), {B})
    assert wiring is not None
    assert wiring.awaited == {"/a/out": (B,)}
    assert [edge for edge in wiring.delivered if edge.route.output == hinted] == list(now.edges())
