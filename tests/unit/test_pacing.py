"""How fast open requests may move: by what is expected of each, and what their storage has. Times are seconds."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamflow_io.bandwidth.expectations import Expectations, Learned
from streamflow_io.bandwidth.pacing import PacedRequest, Pacing
from streamflow_io.bandwidth.windows import Moved, Windows, learned_window
from streamflow_io.hints.bandwidth import RequiredConstraint
from streamflow_io.storage.admission.demand import Capacity, StoragePlace

MB = 1_000_000
HERE = StoragePlace("disk", "here")


class Requests:
    """Jobs of I/O tasks on a storage of 100 MB/s with 8 I/O executors.

    :ivar open: the request of each job
    :ivar told: the rates of requests, MB/s, with their reasons, as they were told
    """

    def __init__(self, constraint: RequiredConstraint | None = None, within: float | None = None, **step: Any) -> None:
        self.windows = Windows()
        self.within = within
        self.step = Expectations(constraint or RequiredConstraint(1.0), within, **step)
        self.capacity: Capacity | None = Capacity(100 * MB, True, 8, 8)
        self.hidden = 0
        self.pacing = Pacing({"/save": self.step}, lambda place, way: self.capacity, lambda step: self.hidden)
        self.told: list[tuple[str, float | None, str]] = []
        self.open: dict[str, PacedRequest] = {}

    def ready(
        self, at: float, job: str, size: float = 100, channel: str = "c", admitted: bool = True, **more: Any
    ) -> None:
        request = self.windows.ready(job, "/save", channel, "write", at, at, (), within=self.within)
        self.open[job] = self.pacing.opened(request, at, size * MB, **more)
        if admitted:
            self.start(at, job)
        self.look(at)

    def start(self, at: float, job: str, place: StoragePlace = HERE) -> None:
        self.pacing.admitted(self.open[job], place, at)
        self.open[job].started(at)
        self.look(at)

    def look(self, at: float) -> None:
        self.told += [(one.of.facts.job, one.rate and one.rate / MB, one.reason) for one in self.pacing.rates(at)]

    def end(self, at: float, job: str, size: float = 100, ran: float = 1.0) -> None:
        moved = round(size * MB)
        self.open[job].facts.move(Moved(moved, at - ran, at), at)
        self.pacing.ended(self.open[job], at, moved, (at - ran, at))
        self.look(at)

    def rate(self, job: str) -> float | None:
        rate = self.open[job].rate
        return None if rate is None else rate / MB


def exact(constraint: RequiredConstraint | None = None, **fields: Any) -> Requests:
    """Without a time of StreamFlow's own."""
    found = Requests(constraint, **fields)
    for _ in range(8):
        found.step.ran(0.0, 0.0)
    return found


def test_the_first_phase_has_no_limit_and_the_next_that_of_its_window() -> None:
    of = exact()
    of.ready(0, "a")
    of.end(1, "a")
    of.ready(5, "b")
    assert (of.rate("a"), of.rate("b")) == (None, pytest.approx(20))
    of.end(10, "b")
    of.ready(15, "c", size=200)
    assert of.rate("c") == pytest.approx(20), "the window is carried over, not the rate"
    assert of.told == [("b", pytest.approx(20), "strategy"), ("c", pytest.approx(20), "strategy")]


def test_the_time_of_streamflow_itself_is_no_time_to_move_in() -> None:
    of = Requests()
    of.ready(0, "a")
    of.pacing.ended(of.open["a"], 1.5, 100 * MB, (0.3, 1.1))
    of.look(1.5)
    of.ready(5, "b")
    # Before the command 0.25 and 0.3 s, after it 0.25 and 0.4: the medians.
    assert of.rate("b") == pytest.approx(100 / (5 - 0.275 - 0.325))


@pytest.mark.parametrize(
    ("within", "learned", "other", "expected"),
    [
        (10.0, Learned(5.0, 1.0, 3), 4.0, 10),
        (None, Learned(5.0, 1.0, 3), None, 20),
        (None, Learned(5.0, 2.0, 3), None, 40),
        (None, None, 4.0, 25),
        (None, None, None, None),
    ],
)
def test_where_the_window_of_a_first_phase_is_from(
    within: float | None, learned: Learned | None, other: float | None, expected: float | None
) -> None:
    of = exact(within=within)
    if learned is not None:
        of.step.remember(learned)
    if other is not None:
        for n in (0, 1):
            of.ready(n * other, f"other{n}", channel="other")
            of.end(n * other + 0.5, f"other{n}")
    of.ready(50, "a")
    assert of.rate("a") == (None if expected is None else pytest.approx(expected))


@pytest.mark.parametrize(("size", "window"), [(100, 0.04), (0.9, 5.0), (15.0, 5.0)])
def test_what_is_exposed_or_small_has_no_limit(size: float, window: float) -> None:
    of = exact(within=window)
    of.ready(0, "a", size=size)
    assert of.rate("a") is None
    assert of.open["a"].is_small is (size < 16)


def test_who_is_late_has_no_limit() -> None:
    of = exact(within=10.0)
    of.ready(0, "a")
    of.look(9)
    assert of.rate("a") is not None
    of.look(10)
    assert of.told[-1] == ("a", None, "late"), "as the user has said"
    of.end(11, "a")
    of.ready(12, "b")
    of.ready(15, "c")
    assert of.told[-1][:2] != ("b", None)
    of.look(15)
    assert of.rate("b") is None, "the next phase of its channel is ready"
    assert of.rate("c") is not None


def test_all_limits_end_when_nobody_computes_any_more() -> None:
    of = exact(within=100.0)
    of.ready(0, "a")
    of.ready(0, "b", channel="d")
    of.pacing.over(True)
    of.look(1)
    assert (of.rate("a"), of.rate("b")) == (None, None)
    of.pacing.over(False)
    of.look(2)
    assert of.rate("a") is not None


def test_the_next_attempt_of_a_job_has_no_limit() -> None:
    """The limit of a failed attempt does not hold: it is late."""
    of = exact(within=10.0)
    of.ready(0, "a")
    of.open["a"].repeated()
    of.look(1)
    assert of.rate("a") is None
    of.ready(0, "b", channel="d")
    assert of.rate("b") is not None
    of.pacing.ended(of.open["b"], 2)
    of.ready(3, "b", channel="d")
    assert of.rate("b") is None, "StreamFlow submits it again"


def test_who_cannot_be_held_to_a_rate_has_none() -> None:
    """The inability is known when the first of them starts, at each place."""
    of = exact(within=10.0)
    of.ready(0, "a")
    of.pacing.unheld(of.open["a"])
    of.look(1)
    assert (of.rate("a"), of.open["a"].first) == (None, None)
    told = len(of.told)
    of.ready(2, "b", channel="d")
    assert (of.rate("b"), len(of.told)) == (None, told)
    of.ready(3, "c", channel="e", admitted=False)
    of.start(3, "c", StoragePlace("disk", "elsewhere"))
    assert of.rate("c") is not None


def test_requests_of_a_storage_share_it() -> None:
    of = exact(within=10.0)
    for n in range(3):
        of.ready(0, f"{n}", size=400, channel=f"{n}")
    # 40 MB/s each for the first two, and what is left for the third.
    assert [of.rate(f"{n}") for n in range(3)] == [pytest.approx(40), pytest.approx(40), pytest.approx(20)]
    assert of.told[-1] == ("2", pytest.approx(20), "share")
    of.end(5, "0", size=400)
    assert of.rate("2") == pytest.approx(60)
    assert of.told[-1][2] == "need"


def test_what_has_exited_takes_nothing_from_others_until_its_job_has_ended() -> None:
    """Near its required end the rest that it might have would need the whole storage."""
    of = exact(within=10.0)
    for n in range(2):
        of.ready(0, f"{n}", size=490, channel=f"{n}")
    of.look(9.99)
    assert of.rate("1") == pytest.approx(1)
    of.open["0"].exited()
    told = len(of.told)
    of.look(9.99)
    assert [job for job, _, _ in of.told[told:]] == ["1"]
    assert of.rate("1") == pytest.approx(100)
    # The first job is tried again, and is late.
    of.open["0"].repeated()
    of.look(9.991)
    assert of.told[told + 1 :] == [("0", None, "late"), ("1", 1.0, "share")]


def test_nobody_is_stopped_altogether() -> None:
    of = exact(within=10.0)
    of.capacity = Capacity(0, True, 8, 8)
    of.ready(0, "a")
    assert of.told == [("a", 1.0, "share")]


def test_without_a_storage_nothing_is_shared() -> None:
    of = exact(within=10.0)
    of.capacity = None
    for n in range(3):
        of.ready(0, f"{n}", size=400, channel=f"{n}")
    assert [of.rate(f"{n}") for n in range(3)] == [pytest.approx(40)] * 3


def test_who_runs_may_move_faster_while_others_wait_for_its_executor() -> None:
    of = exact(within=10.0)
    of.ready(0, "a")
    of.capacity = Capacity(100 * MB, True, 2, 0)
    of.ready(1, "b", channel="d", admitted=False)
    assert of.told[-1] == ("a", pytest.approx(50), "executors")
    of.capacity = Capacity(100 * MB, True, 2, 1)
    of.start(2, "b")
    assert of.rate("a") == pytest.approx(10)


def test_those_that_wait_keep_what_they_need_also_if_nothing_is_told_of_them_yet() -> None:
    of = exact(within=10.0)
    of.ready(0, "a", size=500)
    assert of.rate("a") == pytest.approx(50)
    of.hidden = 3
    of.ready(0, "b", size=200, channel="d", admitted=False)
    assert of.rate("a") == pytest.approx(50), "it is the first of those that are waited for at the same time"
    of.ready(0, "c", size=500, channel="e")
    assert of.rate("c") == pytest.approx(1), "four of 20 MB/s come before it"


def test_a_time_limit_leaves_twice_the_time() -> None:
    of = exact(within=100.0)
    of.ready(0, "a", time_limit=40)
    assert of.rate("a") == pytest.approx(5)


def test_a_rate_is_told_if_it_changes_by_more_than_5_percent() -> None:
    of = exact(RequiredConstraint(1.0), within=10.0)
    of.ready(0, "a")
    told = len(of.told)
    for at in (1, 2, 3):
        of.look(at)
    assert len(of.told) == told
    # By now all but a twentieth is taken as moved; that must be there in time.
    for at in (9.9, 9.95):
        of.look(at)
    assert of.told[told:][-1] == ("a", pytest.approx(100), "need")


def test_who_is_behind_his_plan_needs_more() -> None:
    of = exact(within=10.0)
    of.ready(0, "a")
    of.open["a"].move(20 * MB, 5.0)
    of.look(5)
    assert of.told[-1] == ("a", pytest.approx(16), "need")
    assert of.open["a"].expected.bytes == 100 * MB


def test_what_is_learned_is_of_first_phases() -> None:
    of = exact()
    for channel, window in (("c", 4), ("d", 6), ("e", 20)):
        for phase in range(3):
            of.ready(phase * window, f"{channel}{phase}", channel=channel)
            of.end(phase * window + 0.5, f"{channel}{phase}", size=50)
    of.windows.computed(100)
    for request in of.windows.close(99.0):
        if (window := learned_window(request)) is not None:
            of.step.waited(window)
    assert of.step.learned == Learned(6, 0.5, 3)
    assert exact().step.learned is None


JOBS = st.lists(
    st.tuples(st.floats(0, 20), st.floats(1, 500), st.floats(0.5, 30), st.booleans()), min_size=1, max_size=8
)


@given(JOBS, st.floats(0, 200))
def test_the_sum_of_rates_stays_within_what_the_storage_has(
    jobs: list[tuple[float, float, float, bool]], bandwidth: float
) -> None:
    """Exceptions are the little that keeps each from standing still, and jobs that are waited for."""
    of = exact()
    of.capacity = Capacity(bandwidth * MB, True, 4, 4)
    for n, (at, size, window, starts) in enumerate(sorted(jobs)):
        of.step.within = window
        of.ready(at, f"{n}", size=size, channel=f"{n}", admitted=starts)
        rates = [of.rate(f"{m}") or 0.0 for m in range(n + 1)]
        # Rates that differ by less than 5 % are not told.
        assert sum(rates) <= 1.06 * bandwidth + len(rates)
