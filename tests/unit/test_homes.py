"""Which machine reads which part ahead, and where the jobs that select them run."""

from __future__ import annotations

import heapq
import random
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from streamflow_io.sessions.homes import Homes


def run(cores: dict[str, int], seconds: list[float], dealt: int, strangers: int = 0) -> tuple[int, dict[str, str]]:
    """Run jobs on machines as StreamFlow does: whenever there is room, all that wait are asked in their order.

    :param dealt: so many jobs are dealt before any starts, the others after the first ones have started
    :param strangers: so many others, which no machine reads for, are between them
    :return: how many jobs ran at home, and where each ran
    """
    jobs = [f"j{number}" for number in range(len(seconds))]
    homes, free = Homes(), dict(cores)
    ran: dict[str, str] = {}
    ending: list[tuple[float, str]] = []
    home: dict[str, str | None] = {job: homes.deal(job, cores) for job in jobs[:dealt]}
    queue = [*jobs, *(f"s{number}" for number in range(strangers))]
    if strangers:
        random.Random(0).shuffle(queue)
    for job in queue:
        homes.wait(job)
    now, first = 0.0, True
    while queue or ending:
        for job in list(queue):
            room = {name for name, count in free.items() if count}
            if room and (chosen := homes.choose(job, room)):
                assert set(chosen) <= room
                ran[job] = min(chosen)
                free[ran[job]] -= 1
                homes.place(job, ran[job])
                queue.remove(job)
                heapq.heappush(ending, (now + (seconds[int(job[1:])] if job[0] == "j" else 1.0), job))
        assert not queue or not any(free.values()), "no core is idle"
        if first:
            home |= {job: homes.deal(job, cores) for job in jobs[dealt:]}
            first = False
        now, job = heapq.heappop(ending)
        free[ran[job]] += 1
    return sum(home[job] == ran[job] for job in jobs), ran


@given(
    cores=st.dictionaries(st.sampled_from("abc"), st.integers(1, 3), min_size=1),
    seconds=st.lists(st.floats(0.1, 5), max_size=40),
    dealt=st.integers(0, 40),
    strangers=st.integers(0, 5),
)
def test_no_core_is_idle_and_each_job_runs(
    cores: dict[str, int], seconds: list[float], dealt: int, strangers: int
) -> None:
    _, ran = run(cores, seconds, dealt, strangers)
    assert len(ran) == len(seconds) + strangers


@given(seconds=st.lists(st.floats(0.9, 1.1), min_size=64, max_size=64))
def test_nearly_all_run_where_their_part_is_read(seconds: list[float]) -> None:
    at_home, _ = run({"a": 2, "b": 2}, seconds, 64)
    # At the end a machine helps another one that has still some waiting.
    assert at_home >= 62


def test_parts_are_dealt_by_cores_and_in_order() -> None:
    homes = Homes()
    dealt = [homes.deal(str(number), {"a": 2, "b": 1}) for number in range(9)]
    assert Counter(dealt) == {"a": 6, "b": 3}
    assert dealt[:3] == ["a", "a", "b"]


def test_what_runs_already_is_read_there_or_nowhere() -> None:
    homes = Homes()
    assert homes.place("one", "b")
    assert homes.place("two", "c")
    assert homes.deal("one", {"a": 1, "b": 1}) == "b"
    assert homes.deal("two", {"a": 1, "b": 1}) is None
    assert homes.deal("three", {"a": 1, "b": 1}) == "a"
    assert not homes.place("three", "b")


def test_who_does_not_wait_goes_anywhere() -> None:
    """As a job that needs no core: others may wait for one where it has room."""
    homes = Homes()
    for number in range(4):
        homes.deal(str(number), {"a": 1, "b": 1})
        homes.wait(str(number))
    assert homes.choose("2", {"b"}) == ()
    homes.leave("2")
    assert homes.choose("2", {"b"}) == {"b"}
    homes.leave("1")
    homes.leave("3")
    assert homes.choose("0", {"b"}) == {"b"}
