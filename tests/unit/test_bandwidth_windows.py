"""The required ends of requests, found while a run goes on."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from streamflow_io.bandwidth.windows import SETTLED_AFTER, Moved, Windows
from streamflow_io.records.records import RequestRecord

MB = 1_000_000
NEVER = float("-inf")


def save(windows: Windows, job: str, ready: float, channel: str = "c", moved: bool = True, size: int = 10) -> None:
    request = windows.ready(job, "/save", channel, "write", ready, ready)
    if moved:
        request.move(Moved(size * MB, ready + 0.1, ready + 1.0, "disk"), ready + 1.0)


def only(requests: list[RequestRecord]) -> RequestRecord:
    [found] = requests
    return found


def test_the_next_request_of_the_channel() -> None:
    windows = Windows()
    for number, ready in enumerate((0.0, 5.0, 11.0)):
        save(windows, f"save{number}", ready)
    save(windows, "other", 2.0, "another channel")
    windows.computed(20.0)
    found = {one.job: one for one in windows.close(99.0)}
    assert [found[f"save{n}"].required for n in range(3)] == [5.0, 11.0, 20.0]
    assert [found[f"save{n}"].rule for n in range(3)] == ["next", "next", "end"]
    assert [found[f"save{n}"].phase for n in range(3)] == [0, 1, 2]
    assert (found["other"].required, found["other"].rule) == (20.0, "end")
    assert (found["save0"].started, found["save0"].ended, found["save0"].storage) == (0.1, 1.0, "disk")


def test_a_job_that_lacks_nothing_else() -> None:
    windows = Windows()
    save(windows, "save", 1.0)
    windows.needed(["save"], others=4.0, now=9.0)
    found = only(windows.close(99.0))
    assert (found.required, found.rule, found.window) == (4.0, "need", 3.0)


def test_the_first_that_waits_counts() -> None:
    windows = Windows()
    save(windows, "save", 1.0)
    windows.needed(["save"], others=7.0, now=9.0)
    windows.needed(["save"], others=4.0, now=9.5)
    windows.needed(["save"], others=6.0, now=9.6)
    assert only(windows.close(99.0)).required == 4.0


def test_a_job_that_reads_of_several_requests_needs_all_from_when_the_last_was_ready() -> None:
    windows = Windows()
    save(windows, "one", 1.0, "a")
    save(windows, "two", 6.0, "b")
    windows.needed(["one", "two"], NEVER, 9.0)
    one, two = windows.close(99.0)
    assert (one.required, one.rule) == (6.0, "need")
    # A job has waited for the second output as soon as that was ready.
    assert (two.required, two.rule) == (6.0, "exposed")


def test_small_requests_are_exposed() -> None:
    windows = Windows()
    save(windows, "save", 1.0, size=0)
    windows.computed(5.0)
    found = only(windows.close(99.0))
    assert (found.required, found.rule) == (5.0, "exposed")


def test_without_compute_somebody_waits_at_once() -> None:
    windows = Windows()
    save(windows, "save", 1.0)
    assert (found := only(windows.close(99.0))).rule == "exposed"
    assert found.required == 1.0


def test_a_job_that_is_repeated_was_ready_before() -> None:
    windows = Windows()
    save(windows, "save", 1.0, moved=False)
    save(windows, "save", 3.0)
    windows.computed(9.0)
    found = only(windows.close(99.0))
    assert (found.ready, found.phase, found.required) == (1.0, 0, 9.0)


def test_a_job_that_has_failed_is_no_request() -> None:
    windows = Windows()
    save(windows, "save", 1.0, moved=False)
    windows.computed(9.0)
    assert windows.close(99.0) == []


def test_requests_that_are_ready_together_are_one_phase() -> None:
    windows = Windows()
    save(windows, "one", 1.0)
    save(windows, "two", 1.02)
    save(windows, "three", 4.0)
    windows.computed(9.0)
    assert [(one.phase, one.required) for one in windows.close(99.0)] == [(0, 4.0), (0, 4.0), (1, 9.0)]


def test_what_an_io_task_reads_gets_its_part_of_the_time() -> None:
    windows = Windows()
    save(windows, "pack", 0.0, "a", size=30)
    send = windows.ready("send", "/send", "b", "write", 2.0, 2.0, ["pack"])
    send.move(Moved(10 * MB, 2.0, 3.0), 3.0)
    windows.needed(["send"], 8.0, 9.0)
    pack, sent = windows.close(99.0)
    assert sent.required == 8.0
    assert (pack.required, pack.rule) == (6.0, "need")


def test_it_is_told_when_it_will_not_change() -> None:
    windows = Windows()
    save(windows, "one", 0.0)
    save(windows, "two", 10.0, moved=False)
    assert windows.settled(10.0) == []
    assert windows.settled(10.0 + SETTLED_AFTER) == [
        RequestRecord(
            time=10.0 + SETTLED_AFTER,
            job="one",
            step="/save",
            channel="c",
            phase=0,
            storage="disk",
            direction="write",
            bytes=10 * MB,
            ready=0.0,
            started=0.1,
            ended=1.0,
            required=10.0,
            rule="next",
        )
    ]
    assert windows.settled(30.0) == []
    assert windows.close(99.0) == []


def test_who_reads_it_is_told_first() -> None:
    windows = Windows()
    save(windows, "pack", 0.0, "a")
    send = windows.ready("send", "/send", "b", "write", 2.0, 2.0, ["pack"])
    windows.needed(["pack"], 50.0, 3.0)
    assert windows.settled(20.0) == []
    send.move(Moved(10 * MB, 2.0, 3.0), 22.0)
    windows.needed(["send"], 8.0, 22.0)
    assert [one.job for one in windows.settled(25.0)] == ["send"]
    assert [(one.job, one.required) for one in windows.settled(28.0)] == [("pack", 4.0)]


@dataclass
class Saved:
    ready: int
    channel: str
    needs: list[int] = field(default_factory=list)


@given(
    st.lists(
        st.builds(Saved, st.integers(0, 30), st.sampled_from("abc"), st.lists(st.integers(0, 40), max_size=3)),
        max_size=12,
    ),
    st.integers(31, 50),
)
def test_required_ends_are_the_earliest_of_all(saves: list[Saved], last: int) -> None:
    """The earliest end counts, whatever was told when: of the waiters, the next burst, and the compute jobs."""
    saves.sort(key=lambda one: one.ready)
    windows = Windows()
    for number, one in enumerate(saves):
        save(windows, str(number), one.ready, one.channel)
        for others in one.needs:
            windows.needed([str(number)], others, 41.0)
    windows.computed(last)
    found = {one.job: one for one in windows.close(99.0)}
    assert len(found) == len(saves)
    for number, one in enumerate(saves):
        following = [two.ready for two in saves if two.channel == one.channel and two.ready > one.ready]
        ends = [max(one.ready, others) for others in one.needs] + following
        assert found[str(number)].required == min(ends, default=last)


def test_thousands_of_requests_are_told_by_the_way() -> None:
    windows = Windows()
    for number in range(4000):
        save(windows, str(number), float(number), str(number % 16))
        windows.settled(float(number))
    assert len(windows.close(99.0)) < 100
