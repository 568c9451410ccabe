"""Gangs meet on one node when cores allow, else on neighbours."""

from __future__ import annotations

from collections.abc import Mapping, Set

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamflow_io.graph.gangs import Gang, gang_cores
from streamflow_io.graph.io_graph import Step
from streamflow_io.jobs.gang_placement import BorrowedCores, candidates

NAMES = ["n1", "n2", "n3", "n4"]


def chosen(
    free: Mapping[str, float],
    *partners: str,
    cores: float = 1,
    together: float = 0,
    fitting: str = "",
    apart: Set[tuple[str, str]] = frozenset(),
    is_near: bool = False,
) -> list[str]:
    places = fitting.split() or list(free)
    return candidates(places, partners, cores, together, free.__getitem__, apart, is_near=is_near)


@pytest.mark.parametrize(
    ("free", "partners", "expected"),
    [
        # With its producer, as long as its cores are free there.
        ({"n1": 2, "n2": 2}, ["n2"], ["n2"]),
        ({"n1": 8, "n2": 1}, ["n2"], ["n2"]),
        # Else any neighbour with free cores: StreamFlow's policy chooses.
        ({"n1": 1, "n2": 0, "n3": 1}, ["n2"], ["n1", "n3"]),
        ({"n1": 1, "n2": 0, "n3": 0.5}, ["n2"], ["n1"]),
        # No core is free anywhere: it mostly waits for its producer.
        ({"n1": 0, "n2": 0}, ["n2"], ["n2"]),
        # Several: most of them, then the first.
        ({"n1": 1, "n2": 1, "n3": 1}, ["n1", "n3", "n3"], ["n3"]),
        ({"n1": 1, "n2": 1, "n3": 1}, ["n2", "n1"], ["n2"]),
        ({"n1": 1, "n2": 1, "n3": 0}, ["n3", "n3", "n2"], ["n2"]),
        # The step does not fit there, as memory is short or the step is bound elsewhere.
        ({"n1": 1, "n2": 0}, ["n5"], ["n1"]),
        ({"n1": 0, "n2": 0}, ["n5"], ["n1", "n2"]),
    ],
)
def test_a_member(free: Mapping[str, float], partners: list[str], expected: list[str]) -> None:
    assert chosen(free, *partners) == expected


def test_a_member_does_not_go_where_it_does_not_fit() -> None:
    assert chosen({"n1": 4, "n2": 1}, "n1", fitting="n2") == ["n2"]
    assert chosen({"n1": 4, "n2": 0}, "n1", fitting="n2") == ["n2"]


def test_a_member_does_not_go_where_it_cannot_read() -> None:
    free = {"n1": 0, "n2": 1, "n3": 1}
    assert chosen(free, "n1", apart={("n2", "n1")}) == ["n3"]
    assert chosen(free, "n1", apart={("n1", "n2"), ("n2", "n3")}) == ["n2", "n3"]
    assert chosen(free, "n1", apart={("n2", "n1"), ("n3", "n1")}) == ["n1"]
    # The step has to be apart: it holds cores, and none are free at its producer.
    assert chosen(free, "n1", apart={("n2", "n1"), ("n3", "n1")}, fitting="n2 n3") == ["n2", "n3"]
    # Not from both of its producers.
    assert chosen({"n1": 0, "n2": 0, "n3": 1}, "n1", "n2", apart={("n3", "n2")}) == ["n1"]


def test_a_member_that_reads_only_where_its_producer_writes() -> None:
    assert chosen({"n1": 0, "n2": 4}, "n1", is_near=True) == ["n1"]
    # There is no memory at its producer.
    assert chosen({"n1": 0, "n2": 4}, "n1", fitting="n2", is_near=True) == ["n2"]


def test_a_head_goes_where_its_whole_gang_has_room() -> None:
    assert chosen({"n1": 2, "n2": 3, "n3": 4}, together=3) == ["n2", "n3"]
    assert chosen({"n1": 2, "n2": 2}, together=3) == ["n1", "n2"]


@given(
    free=st.dictionaries(st.sampled_from(NAMES), st.integers(0, 4).map(float), min_size=1),
    partners=st.lists(st.sampled_from([*NAMES, "elsewhere"]), max_size=4),
    cores=st.sampled_from([0.5, 1.0, 2.0]),
    together=st.sampled_from([1.0, 2.0, 4.0]),
)
def test_of_any_locations(free: dict[str, float], partners: list[str], cores: float, together: float) -> None:
    found = chosen(free, *partners, cores=cores, together=together)
    assert found
    assert found == [name for name in free if name in found]
    if partners:
        room = {name for name in free if free[name] >= cores}
        assert room.issuperset(found) or not room
        if room.intersection(partners):
            assert len(found) == 1
            assert found[0] in partners


def test_cores_of_a_whole_gang() -> None:
    steps = {"/a": Step("/a", 2), "/b": Step("/b", 1), "/c": Step("/c", None), "/d": Step("/d", 8)}
    gangs = [Gang(("/a", "/b", "/c"), ("/a",), 2)]
    assert gang_cores(gangs, steps) == dict.fromkeys(("/a", "/b", "/c"), 3)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(NAMES), st.sampled_from([0.1, 0.25, 1.0]))))
def test_borrowed_cores_are_given_back(started: list[tuple[str, str, float]]) -> None:
    borrowed = BorrowedCores()
    running: dict[str, tuple[str, float]] = {}
    for job, location, cores in started:
        borrowed.borrow(job, location, cores)
        running[job] = location, cores
    for name in NAMES:
        assert borrowed.on(name) == pytest.approx(sum(cores for where, cores in running.values() if where == name))
    for job, _, _ in [*started, *started]:
        borrowed.give_back(job)
    assert [borrowed.on(name) for name in NAMES] == [0] * len(NAMES)
