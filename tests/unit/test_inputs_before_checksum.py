"""Inputs of a workflow that come before they have been read for their checksum."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from streamflow_io.graph.io_graph import Hop, HopKind, Input, InputRoute
from streamflow_io.graph.partitions import Partition, early_inputs
from streamflow_io.graph.sites import Deployment, Site, SiteKind

READS = Input("/split", "reads")
SPLIT = Partition("/split", "chunks", "reads")
ROUTE = InputRoute("/reads-injector", (), READS)
OTHER = Input("/count", "file")
HOST = Site((Deployment("host", "ssh", SiteKind.HOSTS),))
NODES = Site((Deployment("nodes", "sfio.allocation", SiteKind.HOSTS),))


def through(kind: HopKind, obstacle: str | None = None, by_name: bool = False) -> InputRoute:
    return replace(ROUTE, hops=(Hop("/hop", "reads", kind, obstacle, by_name=by_name),))


def test_what_a_session_reads() -> None:
    assert early_inputs([ROUTE], [SPLIT]) == (ROUTE,)
    assert early_inputs([ROUTE], [replace(SPLIT, port=None)]) == (ROUTE,)


def test_what_is_read_front_to_back() -> None:
    route = replace(ROUTE, consumer=replace(OTHER, streamable=True))
    assert early_inputs([route, ROUTE], []) == (route, ROUTE)
    assert early_inputs([replace(route, consumer=replace(OTHER, streamable=True, site=HOST))], []) == ()


def test_others_wait() -> None:
    assert early_inputs([ROUTE], []) == ()
    assert early_inputs([ROUTE], [replace(SPLIT, of="index")]) == ()
    assert early_inputs([ROUTE], [replace(SPLIT, real="it is a workflow output")]) == ()


def test_where_it_is() -> None:
    there = replace(ROUTE, consumer=replace(READS, site=HOST), site=HOST)
    assert early_inputs([there], [SPLIT]) == (there,)
    other = Site((Deployment("other", "ssh", SiteKind.HOSTS),))
    assert early_inputs([replace(there, site=other)], [SPLIT]) == ()
    assert early_inputs([replace(ROUTE, site=HOST)], [SPLIT]) == ()
    assert early_inputs([replace(ROUTE, consumer=replace(READS, site=HOST))], [SPLIT]) == ()
    perhaps = replace(ROUTE, consumer=replace(READS, site=NODES))
    assert early_inputs([perhaps], [SPLIT]) == (perhaps,)
    assert early_inputs([replace(perhaps, site=HOST)], [SPLIT]) == ()


@pytest.mark.parametrize(
    ("kind", "is_early"),
    [(kind, kind.value in ("scatter", "subworkflow", "forward", "combinator", "when", "default")) for kind in HopKind],
)
def test_what_lies_between(kind: HopKind, is_early: bool) -> None:
    assert bool(early_inputs([through(kind)], [SPLIT])) is is_early
    assert not early_inputs([through(kind, "it needs the whole file")], [SPLIT])
    assert not early_inputs([through(kind, by_name=True)], [SPLIT])


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(replace(ROUTE, consumer=None), id="an output of the workflow"),
        pytest.param(replace(ROUTE, consumer=replace(OTHER, part_obstacle="checksum")), id="an expression"),
        pytest.param(InputRoute("/reads-injector", (Hop("/x", "x", HopKind.UNKNOWN),), OTHER), id="something else"),
    ],
)
def test_one_who_needs_the_checksum_makes_all_wait(other: InputRoute) -> None:
    assert early_inputs([ROUTE, replace(ROUTE, consumer=OTHER)], [SPLIT]) == (ROUTE, replace(ROUTE, consumer=OTHER))
    assert early_inputs([ROUTE, other], [SPLIT]) == ()
    # Not those of another input.
    assert early_inputs([ROUTE, replace(other, input="/b-injector")], [SPLIT]) == (ROUTE,)


def test_what_a_verdict_needs() -> None:
    assert early_inputs([ROUTE], [SPLIT], {("/split", "reads")}) == ()
    assert early_inputs([ROUTE], [SPLIT], {("/split", "other")}) == (ROUTE,)
