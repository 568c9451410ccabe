"""The order in which rehearsals begin at a host."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from streamflow_io.proofs.rehearsal import Rehearsal
from streamflow_io.proofs.rehearsals import WaitingRehearsals


def rehearsal(name: str, host: str = "h", **fields: Any) -> Rehearsal:
    original = SimpleNamespace(job=SimpleNamespace(name=fields.pop("job", "")))
    facts = {"original": original, "key": name, "spent": 0.0, "seconds": 1.0, "share": 1.0, "size": 9, "way": None}
    return cast(Rehearsal, SimpleNamespace(name=name, host=host, **(facts | fields)))


def begun(waiting: WaitingRehearsals, host: str = "h") -> list[str]:
    """Take all that wait, and return their names in order."""
    return [following.name for following in iter(lambda: waiting.take(host, lambda _: True), None)]


def test_the_shortest_begins_first_and_among_equals_the_largest() -> None:
    waiting = WaitingRehearsals()
    waiting.add([rehearsal("slow", seconds=5.0), rehearsal("small", size=1), rehearsal("large", size=8)])
    assert begun(waiting) == ["large", "small", "slow"]


def test_an_input_that_was_rehearsed_waits_for_those_that_were_not() -> None:
    waiting = WaitingRehearsals()
    waiting.add([rehearsal("a", key="a1"), rehearsal("a", key="a2"), rehearsal("b", seconds=5.0)])
    assert begun(waiting) == ["a", "b", "a"]


def test_one_that_is_proven_alone_waits_for_none() -> None:
    waiting = WaitingRehearsals()
    waiting.add([rehearsal("a", key="a1"), rehearsal("a", key="a2", way="net", seconds=0.1), rehearsal("b")])
    assert begun(waiting) == ["a", "b", "a"]
    waiting.add([rehearsal("a", key="a3", way="net"), rehearsal("c", seconds=5.0)])
    assert begun(waiting) == ["a", "c"]


def test_one_that_has_lost_its_turn_gets_another() -> None:
    waiting = WaitingRehearsals()
    waiting.add([rehearsal("a")])
    first = waiting.take("h", lambda _: True)
    assert first is not None
    waiting.lost(first)
    waiting.put_back(first)
    waiting.add([rehearsal("b", seconds=5.0)])
    assert begun(waiting) == ["a", "b"]


def test_an_input_that_gains_little_comes_last() -> None:
    waiting = WaitingRehearsals()
    waiting.add([rehearsal("a", way="net"), rehearsal("b", seconds=5.0)])
    following = iter(lambda: waiting.take("h", lambda _: True, lambda each: each.name == "a"), None)
    assert [each.name for each in following] == ["b", "a"]


def test_a_host_has_its_own_rehearsals() -> None:
    waiting = WaitingRehearsals()
    waiting.add([rehearsal("a")])
    waiting.add([rehearsal("b", host="other")])
    assert list(waiting.hosts()) == ["h", "other"]
    assert begun(waiting, "other") == ["b"]
    assert begun(waiting, "unknown") == []
    assert [each.name for each in waiting] == ["a"]


def test_one_that_may_not_start_waits_on() -> None:
    waiting = WaitingRehearsals()
    waiting.add([rehearsal("a"), rehearsal("b", seconds=5.0)])
    following = waiting.take("h", lambda each: each.name == "b")
    assert following is not None
    assert following.name == "b"
    assert waiting.take("h", lambda _: False) is None
    waiting.put_back(following)
    assert [each.name for each in waiting] == ["a", "b"]


def test_a_later_job_of_an_input_takes_the_place_of_one_that_has_not_begun() -> None:
    waiting = WaitingRehearsals()
    waiting.add([rehearsal("a", size=1)])
    waiting.add([rehearsal("a", size=2, spent=1.0)])
    waiting.add([rehearsal("a", size=3)])
    assert [each.size for each in waiting] == [2, 3], "a rehearsal that has run before is kept"


def test_a_job_whose_files_are_kept_is_not_replaced() -> None:
    waiting = WaitingRehearsals()
    waiting.add([rehearsal("a", size=1, job="small")])
    waiting.keep(["small"])
    waiting.add([rehearsal("a", size=2, job="large")])
    assert [each.size for each in waiting] == [1, 2]
    waiting.keep(["large"])
    waiting.add([rehearsal("a", size=3, job="larger")])
    assert [each.size for each in waiting] == [2, 3]


def test_one_that_takes_the_place_of_another_needs_no_further_place() -> None:
    waiting = WaitingRehearsals()
    waiting.add([rehearsal("a", key=f"{number}", size=1) for number in range(64)])
    assert waiting.add([rehearsal("a", key="new")]) == []
    assert len(waiting.add([rehearsal("a", key="7", size=2)])) == 1
    assert len([*waiting]) == 64


def test_what_is_void_is_removed() -> None:
    waiting = WaitingRehearsals()
    waiting.add([rehearsal("a"), rehearsal("b")])
    assert [each.name for each in waiting.remove(lambda each: each.name == "a")] == ["a"]
    assert begun(waiting) == ["b"]


@given(st.lists(st.integers(min_value=0, max_value=30), max_size=20))
def test_no_more_than_so_many_wait(sizes: list[int]) -> None:
    waiting, added = WaitingRehearsals(), 0
    for job, count in enumerate(sizes):
        added += len(waiting.add([rehearsal("a", key=f"{job} {number}") for number in range(count)]))
    assert added == len(list(waiting)) == min(sum(sizes), 64)


def test_each_input_has_a_place() -> None:
    waiting = WaitingRehearsals()
    waiting.add([rehearsal("a", key=f"{number}") for number in range(80)])
    for number in range(80):
        waiting.add([rehearsal(f"b{number}"), rehearsal(f"b{number}", key=f"other {number}")])
    names = [each.name for each in waiting]
    assert names == ["a"] * 64 + [f"b{number}" for number in range(80)]
