"""The decisions about stream edges: tables for what each rule gives, properties for what must never happen."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from lab.wording import uncoded
from streamflow_io.graph.edges import name_edges, plan_edges
from streamflow_io.graph.gangs import find_gangs
from streamflow_io.graph.io_graph import Delivery, Hop, HopKind, Input, Output, OutputKind, Route, Step, StreamEdge
from streamflow_io.hints.models import StreamingRule


def rule(committed: str = "on_termination", mode: str = "update", **fields: object) -> StreamingRule:
    return StreamingRule.model_validate({"port": "out", "committed": committed, "mode": mode, **fields})


def output(*rules: StreamingRule, kind: OutputKind = OutputKind.FILE, **fields: object) -> Output:
    return Output("/a", "out", kind, rules, **fields)  # type: ignore[arg-type]


STREAMABLE = Input("/b", "in", streamable=True)
NOT_STREAMABLE = Input("/b", "in")


def plan(made: Output, *hops: Hop, consumer: Input | None = STREAMABLE) -> StreamEdge:
    (edge,) = plan_edges([Route(made, hops, consumer)])
    return edge


@pytest.mark.parametrize(
    ("committed", "mode", "consumer", "delivery", "fallback"),
    [
        ("on_termination", "update", NOT_STREAMABLE, Delivery.TERMINATION, None),
        ("on_close", "update", NOT_STREAMABLE, Delivery.COMMIT, None),
        ("on_close:3", "update", STREAMABLE, Delivery.COMMIT, None),
        ("on_termination", "no_update", STREAMABLE, Delivery.STREAM, None),
        ("on_close", "no_update", STREAMABLE, Delivery.STREAM, None),
        ("on_close", "no_update", NOT_STREAMABLE, Delivery.COMMIT, "the input /b/in is not `streamable`"),
        ("on_termination", "no_update", NOT_STREAMABLE, Delivery.TERMINATION, "the input /b/in is not `streamable`"),
    ],
)
def test_delivery_of_a_file(
    committed: str, mode: str, consumer: Input, delivery: Delivery, fallback: str | None
) -> None:
    edge = plan(output(rule(committed, mode)), consumer=consumer)
    assert (edge.delivery, uncoded(edge.fallback)) == (delivery, fallback)


def test_streamable_on_both_ends_is_an_edge_without_a_rule() -> None:
    edge = plan(output(streamable=True))
    assert edge.delivery is Delivery.STREAM
    assert (str(edge.rule.committed), edge.rule.mode) == ("on_termination", "no_update")


@pytest.mark.parametrize("consumer", [NOT_STREAMABLE, None])
def test_streamable_on_one_end_is_none(consumer: Input | None) -> None:
    assert plan_edges([Route(output(streamable=True), (), consumer)]) == ()


def test_start_commit_waits_for_the_commit() -> None:
    edge = plan(output(rule("on_close", "no_update", start="commit")))
    assert (edge.delivery, edge.fallback) == (Delivery.COMMIT, None)


AT_THE_GATE = {"mode": "update", "start": "producer"}


@pytest.mark.parametrize("committed", ["on_termination", "on_close", "on_close:2"])
@pytest.mark.parametrize("kind", [OutputKind.FILE, OutputKind.DIRECTORY])
@pytest.mark.parametrize("consumer", [STREAMABLE, NOT_STREAMABLE])
def test_start_producer_under_update_is_the_gate(committed: str, kind: OutputKind, consumer: Input) -> None:
    edge = plan(output(rule(committed, **AT_THE_GATE), kind=kind), consumer=consumer)
    assert (edge.delivery, edge.by_element, edge.fallback) == (Delivery.GATE, False, None)


@pytest.mark.parametrize(
    ("committed", "consumer", "delivery", "fallback"),
    [
        ("on_n_files", STREAMABLE, Delivery.GATE, None),
        ("on_close", STREAMABLE, Delivery.GATE, None),
        ("on_termination", STREAMABLE, Delivery.GATE, None),
        ("on_n_files", NOT_STREAMABLE, Delivery.COMMIT, "the input /b/in is not `streamable`"),
        ("on_close", NOT_STREAMABLE, Delivery.TERMINATION, "the input /b/in is not `streamable`"),
        ("on_termination", NOT_STREAMABLE, Delivery.TERMINATION, "the input /b/in is not `streamable`"),
    ],
)
def test_a_directory_as_it_is_written_is_listed_at_the_gate(
    committed: str, consumer: Input, delivery: Delivery, fallback: str | None
) -> None:
    fields = {"nFiles": 3} if committed == "on_n_files" else {}
    made = output(rule(committed, "no_update", **fields), kind=OutputKind.DIRECTORY)
    edge = plan(made, consumer=consumer)
    assert (edge.delivery, uncoded(edge.fallback)) == (delivery, fallback)


def test_a_list_at_the_gate_goes_to_a_scatter_only() -> None:
    made = output(rule("on_close", **AT_THE_GATE), kind=OutputKind.FILES)
    edge = plan(made, SCATTER, consumer=NOT_STREAMABLE)
    assert (edge.delivery, edge.by_element, edge.reordered) == (Delivery.GATE, True, True)
    edge = plan(made, consumer=NOT_STREAMABLE)
    assert edge.delivery is Delivery.COMMIT
    assert "/a/out is a File[]" in (edge.fallback or "")


def test_what_needs_the_whole_file_is_not_at_the_gate() -> None:
    gated = rule("on_close", **AT_THE_GATE)
    edge = plan(output(gated), consumer=Input("/b", "in", obstacle="size is used"))
    assert (edge.delivery, edge.fallback) == (Delivery.COMMIT, "size is used")
    edge = plan(output(gated, stream_obstacle="loadContents"))
    assert (edge.delivery, edge.fallback) == (Delivery.COMMIT, "loadContents")
    edge = plan(output(rule(**AT_THE_GATE), obstacle="no glob"))
    assert (edge.delivery, edge.fallback) == (Delivery.TERMINATION, "no glob")
    edge = plan(output(gated), Hop("/b/in-x", "in", HopKind.VALUE_FROM))
    assert edge.delivery is Delivery.COMMIT
    assert "/b/in-x" in (edge.fallback or "")


def test_a_hop_at_the_gate_hands_one_token_to_all() -> None:
    made = output(rule("on_close", **AT_THE_GATE))
    inner = Hop("/sub/in-token-transformer", "in", HopKind.SUBWORKFLOW)
    edges = plan_edges([Route(made, (inner,), NOT_STREAMABLE), Route(made, (inner,), Input("/c", "in"))])
    assert [edge.delivery for edge in edges] == [Delivery.GATE, Delivery.GATE]
    blocked = Input("/c", "in", obstacle="size is used")
    edges = plan_edges([Route(made, (inner,), NOT_STREAMABLE), Route(made, (inner,), blocked)])
    assert [edge.delivery for edge in edges] == [Delivery.COMMIT, Delivery.COMMIT]
    assert "/c/in, which needs it committed" in (edges[0].fallback or "")


@pytest.mark.parametrize("kind", [HopKind.LOOP, HopKind.UNKNOWN])
def test_nothing_is_early_through(kind: HopKind) -> None:
    edge = plan(output(rule("on_close")), Hop("/loop", "in", kind))
    assert edge.delivery is Delivery.TERMINATION
    assert "/loop" in (edge.fallback or "")


def test_a_commit_passes_where_bytes_do_not() -> None:
    hop = Hop("/b/in-value-from-transformer", "in", HopKind.VALUE_FROM)
    edge = plan(output(rule("on_close", "no_update")), hop)
    assert edge.delivery is Delivery.COMMIT
    assert "valueFrom computes a new value from it (/b/in) " in (edge.fallback or "")


PASSED = [HopKind.SUBWORKFLOW, HopKind.WHEN, HopKind.DEFAULT, HopKind.LINK_MERGE, HopKind.PICK_VALUE]


@pytest.mark.parametrize("kind", PASSED)
def test_bytes_pass(kind: HopKind) -> None:
    assert plan(output(rule("on_close", "no_update")), Hop("/b/in-x", "in", kind)).delivery is Delivery.STREAM


def test_obstacles_are_named() -> None:
    made = output(rule("on_close", "no_update"), obstacle="no glob")
    assert plan(made).fallback == "no glob"
    made = output(rule("on_close", "no_update"), stream_obstacle="loadContents")
    assert (plan(made).delivery, plan(made).fallback) == (Delivery.COMMIT, "loadContents")
    consumer = Input("/b", "in", streamable=True, obstacle="size is used")
    assert plan(output(rule(mode="no_update")), consumer=consumer).fallback == "size is used"


def test_a_directory_is_not_closed() -> None:
    edge = plan(output(rule("on_close"), kind=OutputKind.DIRECTORY), consumer=NOT_STREAMABLE)
    assert edge.delivery is Delivery.TERMINATION
    assert "never closed" in (edge.fallback or "")
    edge = plan(output(rule("on_n_files", nFiles=3), kind=OutputKind.DIRECTORY), consumer=NOT_STREAMABLE)
    assert edge.delivery is Delivery.COMMIT


SCATTER = Hop("/b/in-scatter", "in", HopKind.SCATTER)
GATHER = Hop("/a/out-gather", "out", HopKind.GATHER)


def test_elements_of_a_list_go_to_a_scatter_in_the_order_of_their_commits() -> None:
    edge = plan(output(rule("on_close"), kind=OutputKind.FILES), SCATTER, consumer=NOT_STREAMABLE)
    assert (edge.delivery, edge.by_element, edge.reordered) == (Delivery.COMMIT, True, True)


def test_a_list_that_is_zipped_with_another_goes_as_a_whole() -> None:
    zipped = Hop("/b/in-scatter", "in", HopKind.SCATTER, widths=2)
    edge = plan(output(rule("on_close"), kind=OutputKind.FILES), zipped, consumer=NOT_STREAMABLE)
    assert (edge.by_element, edge.delivery) == (False, Delivery.COMMIT)
    assert "/b pairs them with those of another list" in (edge.fallback or "")


@pytest.mark.parametrize("committed", ["on_termination", "on_close"])
def test_outputs_of_a_scatter_go_to_the_next_in_their_order(committed: str) -> None:
    edge = plan(output(rule(committed)), GATHER, SCATTER, consumer=NOT_STREAMABLE)
    assert (edge.by_element, edge.reordered, edge.fallback) == (True, False, None)


CROSSED = replace(GATHER, widths=2)
MERGE = Hop("/b/in-combinator", "a/out", HopKind.LINK_MERGE)


@pytest.mark.parametrize(
    ("kind", "hops", "reason"),
    [
        (OutputKind.FILES, (replace(SCATTER, obstacle="flat_crossproduct needs the whole list"),), "flat_crossproduct"),
        (OutputKind.FILES, (MERGE, SCATTER), "linkMerge at /b/in lies between the list and the scatter"),
        (OutputKind.FILE, (MERGE, SCATTER), "linkMerge at /b/in lies between the list and the scatter"),
        (OutputKind.FILE, (GATHER, MERGE, SCATTER), "linkMerge at /b/in lies between the list and the scatter"),
        (OutputKind.FILE, (GATHER, GATHER, SCATTER), "scatters are nested"),
        (OutputKind.FILE, (CROSSED, SCATTER), "a flat_crossproduct made the list"),
    ],
)
@pytest.mark.parametrize("start", ["commit", "producer"])
def test_why_elements_go_on_together(kind: OutputKind, hops: tuple[Hop, ...], reason: str, start: str) -> None:
    edge = plan(output(rule("on_close", start=start), kind=kind), *hops, consumer=NOT_STREAMABLE)
    assert (edge.delivery, edge.by_element) == (Delivery.COMMIT, False)
    assert reason in (edge.fallback or "")


def test_a_list_of_each_job_is_an_element_and_its_files_are_none() -> None:
    edge = plan(output(rule("on_close"), kind=OutputKind.FILES), GATHER, SCATTER, consumer=NOT_STREAMABLE)
    assert (edge.by_element, edge.reordered, edge.fallback) == (True, False, None)
    edge = plan(output(rule("on_close", start="producer"), kind=OutputKind.FILES), GATHER, SCATTER)
    assert (edge.delivery, edge.by_element) == (Delivery.COMMIT, True)
    assert "/a/out is a File[]" in (edge.fallback or "")


def test_elements_in_commit_order_stay_so_where_they_fall_back() -> None:
    first = Route(output(rule("on_close"), kind=OutputKind.FILES), (SCATTER,), NOT_STREAMABLE)
    made = Output("/b", "out", OutputKind.FILE, (rule("on_close", "no_update"),))
    hops = (replace(GATHER, step="/b/out-gather"), replace(SCATTER, step="/c/in-scatter"))
    both = [Input("/c/x", "in", streamable=True), Input("/c/y", "in")]
    _, *edges = plan_edges([first, *(Route(made, hops, consumer) for consumer in both)])
    assert [(edge.delivery, edge.reordered) for edge in edges] == [(Delivery.COMMIT, True)] * 2


def test_what_is_in_commit_order_is_not_zipped_further_down() -> None:
    first = Route(output(rule("on_close"), kind=OutputKind.FILES), (SCATTER,), NOT_STREAMABLE)
    made = Output("/b", "out", OutputKind.FILE, (rule("on_close"),))
    gather = Hop("/b/out-gather", "out", HopKind.GATHER)
    for widths, by_element in ((1, True), (2, False)):
        scatter = Hop("/c/in-scatter", "in", HopKind.SCATTER, widths=widths)
        _, edge = plan_edges([first, Route(made, (gather, scatter), Input("/c", "in"))])
        assert (edge.by_element, edge.reordered) == (by_element, by_element)
        assert (edge.delivery, edge.fallback is None) == (Delivery.COMMIT, by_element)


def test_bytes_do_not_pass_a_hop_that_also_feeds_what_cannot_stream() -> None:
    made = output(rule("on_close", "no_update"))
    inner = Hop("/sub/in-token-transformer", "in", HopKind.SUBWORKFLOW)
    edges = plan_edges([Route(made, (inner,), STREAMABLE), Route(made, (inner,), Input("/c", "in"))])
    assert [edge.delivery for edge in edges] == [Delivery.COMMIT, Delivery.COMMIT]
    assert "/c/in" in (edges[0].fallback or "")


def test_a_gather_serves_both() -> None:
    made = output(rule("on_close", "no_update"))
    edges = plan_edges([Route(made, (GATHER,), STREAMABLE), Route(made, (GATHER,), None)])
    assert [edge.delivery for edge in edges] == [Delivery.STREAM]


@pytest.mark.parametrize(
    ("hops", "begins"),
    [((), None), ((GATHER,), "every job of /a has opened its file"), ((GATHER, SCATTER), None)],
)
def test_when_the_reader_of_a_list_begins(hops: tuple[Hop, ...], begins: str | None) -> None:
    edge = plan(output(rule("on_close", "no_update")), *hops)
    assert (edge.delivery, edge.begins) == (Delivery.STREAM, begins)
    assert plan(output(rule("on_close")), *hops).begins is None


NAME = Hop("/b/name-value-from-transformer", "in", HopKind.VALUE_FROM, by_name=True)


def test_a_name_goes_with_its_file() -> None:
    """To the same step, and wherever one token serves both."""
    made = output(rule("on_close", "no_update"))
    inner = Hop("/sub/in-token-transformer", "in", HopKind.SUBWORKFLOW)
    edges = plan_edges([Route(made, (), STREAMABLE), Route(made, (inner,), Input("/sub/c", "in", streamable=True))])
    own, below, other = (
        Route(made, hops, consumer)
        for hops, consumer in (
            ((NAME,), Input("/b", "name")),
            ((inner, NAME), Input("/sub/d", "name")),
            ((replace(NAME, step="/e/name-value-from-transformer"),), Input("/e", "name")),
        )
    )
    names = {edge.route: edge.delivery for edge in name_edges([other, below, own], edges)}
    assert names == {own: Delivery.STREAM, below: Delivery.STREAM, other: Delivery.COMMIT}
    # What comes with it through one more hop comes with it, too.
    shared = Route(made, (NAME,), Input("/f", "name"))
    assert {edge.delivery for edge in name_edges([shared, own], edges)} == {Delivery.STREAM}
    plain = plan_edges([Route(output(rule()), (), STREAMABLE)])
    assert all(edge.is_plain for edge in name_edges([replace(own, output=output(rule()))], plain))


def test_a_file_is_not_early_where_its_step_waits_for_what_is_computed_of_it() -> None:
    made = output(rule("on_close", "no_update"))
    size = Route(made, (replace(NAME, by_name=False),), Input("/b", "size"))
    edge, computed = plan_edges([Route(made, (), STREAMABLE), size])
    assert (edge.delivery, computed.delivery) == (Delivery.COMMIT, Delivery.COMMIT)
    assert uncoded(edge.fallback) == "/b/size is computed from it by valueFrom, which uses more than its name"
    edge, _ = plan_edges([Route(made, (), Input("/c", "in", streamable=True)), size])
    assert edge.delivery is Delivery.STREAM


rules = st.builds(
    rule,
    st.sampled_from(["on_termination", "on_close", "on_close:2"]),
    st.sampled_from(["update", "no_update"]),
    start=st.sampled_from(["commit", "producer"]),
)
inputs = st.builds(
    Input,
    st.sampled_from(["/b", "/c", "/d"]),
    st.just("in"),
    streamable=st.booleans(),
    obstacle=st.sampled_from([None, "obstacle"]),
)
hops = st.lists(
    st.builds(Hop, st.sampled_from(["/x/in-scatter", "/y/in-scatter"]), st.just("in"), st.sampled_from(HopKind)),
    max_size=3,
).map(tuple)


@given(made=st.builds(output, rules, kind=st.sampled_from(OutputKind)), data=st.data())
def test_properties_of_every_plan(made: Output, data: st.DataObject) -> None:
    drawn = data.draw(st.lists(st.tuples(hops, st.one_of(st.none(), inputs)), min_size=1, max_size=6))
    routes = [Route(made, way, consumer) for way, consumer in dict.fromkeys(drawn)]
    edges = plan_edges(routes)
    assert [edge.route for edge in edges] == [route for route in routes if route.consumer is not None]
    for edge in edges:
        consumer = edge.route.consumer
        assert consumer is not None
        if edge.delivery.joins:
            assert edge.rule.start == "producer"
            assert (edge.delivery is Delivery.STREAM) == (
                edge.rule.mode == "no_update" and made.kind is not OutputKind.DIRECTORY
            )
            assert consumer.streamable or edge.rule.mode == "update"
            assert consumer.obstacle is None
            assert edge.fallback is None
            assert not _shares_a_hop(edge, edges, routes)
        elif edge.rule.start == "producer":
            assert edge.fallback is not None


def _shares_a_hop(edge: StreamEdge, edges: Sequence[StreamEdge], routes: Sequence[Route]) -> bool:
    alike = {other.route for other in edges if other.delivery is edge.delivery}
    whole = [hop for hop in edge.route.hops if hop.kind is not HopKind.GATHER]
    if edge.by_element:
        return False
    return any(
        route not in alike and route.hops[: len(edge.route.hops)] == edge.route.hops and whole for route in routes
    )


def test_gangs() -> None:
    def edge(a: str, b: str, mode: str = "no_update") -> StreamEdge:
        made = Output(a, "out", OutputKind.FILE, (rule(mode=mode, start="producer"),))
        (found,) = plan_edges([Route(made, (), Input(b, "in", streamable=True))])
        return found

    steps = {path: Step(path, 2.0) for path in "abcdefg"} | {"g": Step("g", None)}
    edges = [edge("a", "b"), edge("b", "c", "update"), edge("d", "c"), edge("f", "e", "update"), edge("g", "e")]
    first, second = find_gangs(edges, steps)
    assert (set(first.steps), first.heads, first.cores) == ({"a", "b", "c", "d"}, ("a", "d"), 4.0)
    assert first.steps.index("a") < first.steps.index("b") < first.steps.index("c")
    assert (second.heads, second.cores) == (("f", "g"), None)


@pytest.mark.parametrize(
    ("step", "place"),
    [
        ("/count/lines-list-merge-combinator-transformer", "/count/lines"),
        ("/count/lines-list-merge-combinator", "/count/lines"),
        ("/count/lines-value-from-transformer", "/count/lines"),
        ("/count/lines-token-transformer", "/count/lines"),
        ("/count/lines-scatter", "/count/lines"),
        ("/count/total-gather-lines", "/count/total"),
        ("/count-when", "/count"),
        ("/my-scatter/lines-step-default-transformer", "/my-scatter/lines"),
        ("/my-scatter-when", "/my-scatter"),
    ],
)
def test_a_place_has_no_name_that_only_the_translation_knows(step: str, place: str) -> None:
    assert Hop(step, "lines", HopKind.PICK_VALUE).place == place
