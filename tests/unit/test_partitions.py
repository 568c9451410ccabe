"""Splits that write nothing, and the reasons why others do."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from lab.wording import uncoded
from streamflow_io.graph.edges import plan_edges
from streamflow_io.graph.io_graph import Delivery, Hop, HopKind, Input, IOGraph, Output, OutputKind, Route, Step
from streamflow_io.graph.partitions import CutRules, Partition, plan_partitions
from streamflow_io.graph.sites import DRIVERS_NODE, LOCAL, Deployment, Site, SiteKind
from streamflow_io.graph.volumes import Bind
from streamflow_io.hints.sessions import SessionRule

CHUNKS = Output("/split", "chunks", OutputKind.FILES)
CHUNK = Input("/align", "chunk")
SCATTER = Hop("/align/chunk-scatter", "chunk", HopKind.SCATTER)
RULE = SessionRule(port="chunks", of="reads")
HPC = Site((Deployment("hpc", "slurm", SiteKind.QUEUE),))
HOST = Site((Deployment("host", "ssh", SiteKind.HOSTS),))
PODS = Site((Deployment("cluster", "kubernetes", SiteKind.PODS),))


def container(name: str, *binds: str) -> Site:
    deployment = Deployment(name, "docker", SiteKind.CONTAINERS, host=LOCAL, binds=tuple(Bind(b, b) for b in binds))
    return Site((deployment,))


def hop(kind: HopKind, obstacle: str | None = None, by_name: bool = False) -> Hop:
    return Hop("/align/hop", "chunk", kind, obstacle, by_name=by_name)


def decide(
    *routes: Route,
    output: Output = CHUNKS,
    rule: SessionRule = RULE,
    streamed: bool = False,
    cuts: CutRules = CutRules(),  # noqa: B008
) -> str | None:
    """Why the program of a split has to write its files. None: the files are parts."""
    graph = IOGraph({}, (output,), routes)
    how = {("/split", "reads"): Delivery.STREAM} if streamed else {}
    (found,) = plan_partitions(graph, {"/split": [rule]}, how, cuts=cuts)
    assert found == Partition("/split", rule.port, "reads", found.real, rule.form, condition=found.condition)
    assert found.is_virtual is (found.real is None)
    return uncoded(found.real)


@pytest.mark.parametrize(
    "hops",
    [
        (SCATTER,),
        (),
        (hop(HopKind.GATHER),),
        (hop(HopKind.LINK_MERGE),),
        (hop(HopKind.WHEN), SCATTER),
        (hop(HopKind.SUBWORKFLOW), SCATTER, hop(HopKind.SUBWORKFLOW)),
        (replace(SCATTER, obstacle="flat_crossproduct needs the whole list"),),
        (SCATTER, hop(HopKind.VALUE_FROM, by_name=True), hop(HopKind.PICK_VALUE)),
        (SCATTER, hop(HopKind.PICK_VALUE)),
    ],
)
def test_virtual(hops: tuple[Hop, ...]) -> None:
    assert decide(Route(CHUNKS, hops, CHUNK)) is None


@pytest.mark.parametrize(
    ("hops", "reason"),
    [
        ((hop(HopKind.LOOP),), "it enters a loop (/align/hop)"),
        ((SCATTER, hop(HopKind.VALUE_FROM)), "valueFrom computes a new value from it (/align/hop)"),
        ((hop(HopKind.UNKNOWN),), "it is not known what happens to it there (/align/hop)"),
        ((SCATTER, hop(HopKind.WHEN, "`when` needs the whole file (x)")), "`when` needs the whole file (x)"),
    ],
)
def test_what_lies_between(hops: tuple[Hop, ...], reason: str) -> None:
    assert decide(Route(CHUNKS, hops, CHUNK)) == reason
    assert decide(Route(CHUNKS, (SCATTER,), CHUNK), Route(CHUNKS, hops, CHUNK)) == reason


def test_who_reads() -> None:
    good = Route(CHUNKS, (SCATTER,), CHUNK)
    assert decide(good, Route(CHUNKS, (), None)) == "/split/chunks is a workflow output: its files have to be written"
    needs = replace(CHUNK, part_obstacle="/align/chunk has loadContents")
    assert decide(good, Route(CHUNKS, (SCATTER,), needs)) == "/align/chunk has loadContents"
    there = decide(good, Route(CHUNKS, (SCATTER,), replace(CHUNK, site=PODS)))
    assert there == "/align runs on cluster (kubernetes): parts are not read in pods"
    assert decide() == "no step reads /split/chunks"


def test_the_split_itself() -> None:
    def split(**fields: object) -> str | None:
        output = replace(CHUNKS, **fields)  # type: ignore[arg-type]
        return decide(Route(output, (SCATTER,), CHUNK), output=output)

    assert split(part_obstacle="/split/chunks has loadContents") == "/split/chunks has loadContents"
    assert split(kind=OutputKind.OTHER) == "/split/chunks is a other"
    assert split(site=PODS) == "/split runs on cluster (kubernetes): parts are not read in pods"
    route = Route(CHUNKS, (SCATTER,), CHUNK)
    assert (
        decide(route, streamed=True)
        == "/split/reads is streamed: other cuts than declared ones of `every` need a complete file"
    )


def test_jobs_that_select_their_own_part() -> None:
    def ahead(step: Step | None, streamed: bool = False, *others: SessionRule) -> Partition:
        graph = IOGraph({"/align": step} if step else {}, (), ())
        rules = {"/align": [SessionRule(of="reads"), *others]}
        return plan_partitions(graph, rules, {("/align", "reads"): Delivery.STREAM} if streamed else {})[0]

    here = Step("/align")
    found = ahead(here)
    assert (found.is_read_ahead, found.is_virtual, found.name) == (True, False, "/align/reads")
    assert uncoded(ahead(None).real) == "/align is an ExpressionTool"
    assert ahead(here, True).real == "/align/reads is streamed: it is read while it is written"
    one = ahead(replace(here, site=HOST))
    assert (one.is_read_ahead, one.condition) == (True, "its deployment is one host, which has the file")
    where = "the driver's node, or of one host (SSH or an allocation)"
    reason = f"/align runs on hpc (slurm): files are read ahead for jobs of {where}"
    assert str(ahead(replace(here, site=HPC)).real).startswith(reason)


def test_what_is_a_part_is_not_read_ahead() -> None:
    route = Route(CHUNKS, (SCATTER,), Input("/align", "chunk"))
    graph = IOGraph({"/align": Step("/align")}, (CHUNKS,), (route,))
    rules = {"/split": [RULE], "/align": [SessionRule(of="chunk")]}
    split, align = plan_partitions(graph, rules, {})
    assert split.is_virtual
    assert align.real == "/align/chunk is a part itself (/split/chunks)"


def test_a_program_says_the_parts_of_one_output() -> None:
    other = replace(CHUNKS, port="others")
    routes = tuple(Route(output, (SCATTER,), CHUNK) for output in (CHUNKS, other))
    rules = [RULE, SessionRule(port="others", of="reads")]
    first, second = plan_partitions(IOGraph({}, (CHUNKS, other), routes), {"/split": rules}, {})
    assert first.is_virtual
    assert second.real == "a program reports the parts of one output only: /split/chunks"


def test_parts_of_parts() -> None:
    """In a chain of splits each second one writes its files: a part is no file that others read parts of."""
    outputs = [replace(CHUNKS, step=f"/split{number}") for number in range(4)]
    readers = [Input(f"/split{number}", "reads") for number in range(1, 4)]
    routes = [Route(output, (SCATTER,), reader) for output, reader in zip(outputs, [*readers, CHUNK], strict=True)]
    rules = {output.step: [RULE] for output in reversed(outputs)}
    found = plan_partitions(IOGraph({}, tuple(outputs), tuple(routes)), rules, {})
    assert {each.step for each in found if each.is_virtual} == {"/split0", "/split2"}
    assert {each.real for each in found} == {
        None,
        "/split1/reads is a part itself (/split0/chunks)",
        "/split3/reads is a part itself (/split2/chunks)",
    }


def test_edges_of_a_virtual_split() -> None:
    alone = Route(CHUNKS, (SCATTER,), replace(CHUNK, streamable=True))
    pairs = Route(CHUNKS, (replace(SCATTER, widths=2),), CHUNK)
    whole = Route(CHUNKS, (), Input("/all", "chunks"))
    edges = plan_edges([alone, pairs, whole], {"/split/chunks"})
    assert [edge.delivery for edge in edges] == [Delivery.PART] * 3
    assert [(edge.by_element, edge.reordered) for edge in edges] == [(True, True), (False, False), (False, False)]
    assert not any(edge.is_plain or edge.fallback for edge in edges)
    assert plan_edges([alone, pairs, whole]) == ()


@pytest.mark.parametrize(
    ("split", "reader", "outcome"),
    [
        (DRIVERS_NODE, DRIVERS_NODE, None),
        (HPC, HPC, None),
        (HOST, HOST, "condition"),
        (HOST, DRIVERS_NODE, "condition"),
        (HPC, HOST, "condition"),
        (container("a", "/data"), container("a", "/data"), "condition"),
        (container("a", "/data", "/x"), container("b", "/data", "/y"), "condition"),
        (container("a", "/data"), DRIVERS_NODE, "condition"),
        (container("a", "/x"), container("b", "/y"), "they see no directory by the same path"),
        (DRIVERS_NODE, container("a"), "they see no directory by the same path"),
        (DRIVERS_NODE, HPC, "name the storage that hpc shares, with `scope: shared`, among the `storages`"),
        (replace(HOST, locations=2), HOST, "only jobs on one location"),
    ],
)
def test_where_parts_are_read(split: Site, reader: Site, outcome: str | None) -> None:
    output = replace(CHUNKS, site=split)
    graph = IOGraph({}, (output,), (Route(output, (SCATTER,), replace(CHUNK, site=reader)),))
    (found,) = plan_partitions(graph, {"/split": [RULE]}, {})
    if outcome in (None, "condition"):
        assert found.is_virtual
        both = split.kind is reader.kind is SiteKind.HOSTS
        more = ", or reach where it is split" if both else ""
        assert found.condition == (None if outcome is None else f"its readers see it by the same path{more}")
    else:
        assert outcome in str(found.real)
        assert found.condition is None


def test_a_storage_that_a_queue_manager_shares() -> None:
    graph = IOGraph({}, (CHUNKS,), (Route(CHUNKS, (SCATTER,), replace(CHUNK, site=HPC)),))
    for shared, is_virtual in (({"hpc"}, True), ({None}, True), ({"other"}, False)):
        (found,) = plan_partitions(graph, {"/split": [RULE]}, {}, shared=shared)
        assert found.is_virtual is is_virtual
