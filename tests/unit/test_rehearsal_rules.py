"""Jobs that may be rehearsed, the time for it, and the consequences."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from msgspec.structs import replace

from streamflow_io.proofs.clocks import Unlike
from streamflow_io.proofs.rehearsal_rules import (
    GIVEN_UP,
    SHORT,
    SMALL,
    Finding,
    FreeRoom,
    Manner,
    Ran,
    is_older,
    is_worthless,
    may_start,
    next_manner,
    next_with_short,
    obstacle_of_work_dir,
    shorts,
)
from streamflow_io.records.learned.proofs import Way

SIZE = 10 * SMALL


def ran(succeeded: bool = True, ended: str = "exited", **fields: Any) -> Ran:
    return Ran(succeeded, ended, **{"said": "exit code 0" if succeeded else "exit code 1", "read": (SIZE,), **fields})


HELD = ran(held_at=0, call="lseek", read=(0,))
DIFFERENT = ran(difference="out.txt")
FAILED = ran(succeeded=False)
OPENED_TWICE = ran(succeeded=False, ended="error", said="opened again", is_from_outside=True)

_JOB = (1_790_000_000.0, 1_790_000_002.0)
_STREAM, _FILE = ((_JOB[0] + late, _JOB[1] + late) for late in (10, 20))
DATED = Unlike({"out.txt": [("0:1", "at 1790000001", "at 1790000011")]}, _JOB, _STREAM)
DATED_AGAIN = Unlike({"out.txt": [("0:1", "at 1790000001", "at 1790000021")]}, _JOB, _FILE)
DATED_AND_SIZED = replace(DATED, lines={"out.txt": [*DATED.lines["out.txt"], ("0:2", "size 9", "size 0")]})
RANDOM = replace(DATED_AGAIN, lines={"out.txt": [("0:1", "at 1790000001", "at 1790099999")]})


def found(*so_far: tuple[Manner, Ran], size: int = SIZE, cpu: float = 4.0) -> Finding:
    """The last finding; each manner has to be the one that was asked for."""
    for number, (manner, _) in enumerate(so_far):
        assert next_manner(so_far[:number], size, cpu) == manner
    finding = next_manner(so_far, size, cpu)
    assert isinstance(finding, Finding), finding
    return finding


@pytest.mark.parametrize(
    "streamed",
    [
        ran(),
        ran(read=(100,)),  # The program has stopped reading early.
        ran(held_at=SIZE, call="lseek"),  # At the end it asks where that is.
        ran(held_at=SIZE // 2 + 1, call="mmap", read=(SIZE // 2 + 1,)),
    ],
)
def test_who_makes_the_same_of_a_stream_under_the_net_is_proven(streamed: Ran) -> None:
    assert found(("net", streamed)) == Finding("net")


def test_who_waits_for_the_file_gets_a_pipe() -> None:
    for held in (HELD, ran(succeeded=False, ended="unstreamable"), ran(asked=True), ran(held_at=SIZE // 3)):
        assert found(("net", held), ("pipe", ran())) == Finding("pipe")


def test_a_file_that_is_older_than_its_job_need_not_be_read() -> None:
    assert is_older(89.0, 100.0)
    assert not is_older(99.0, 100.0)  # The clock of its file system may be behind.
    assert not is_older(101.0, 100.0)


def test_who_sets_an_alarm_is_refused() -> None:
    """A slow producer would make another result of that: no pipe is tried."""
    for size in (SIZE, 9):
        refused = Finding(None, "the tool sets an alarm (alarm)")
        assert found(("net", ran(asked=True, call="alarm")), size=size) == refused


@pytest.mark.parametrize("piped", [FAILED, DIFFERENT, ran(asked=True), ran(read=(0,)), OPENED_TWICE])
def test_who_can_do_with_neither_is_refused(piped: Ran) -> None:
    assert found(("net", HELD), ("pipe", piped)) == Finding(None, "the tool seeks in the file")


@pytest.mark.parametrize(
    ("piped", "finding"),
    [
        (ran(cpu=5.0), Finding("pipe")),
        (FAILED, Finding(None, "the tool takes 9.0 s of CPU time with a stream, and 4.0 s with the file")),
    ],
)
def test_who_needs_much_more_of_a_processor_under_the_net_gets_a_pipe(piped: Ran, finding: Finding) -> None:
    """A reader at a million positions of the file is such a job."""
    assert found(("net", ran(cpu=9.0)), ("pipe", piped)) == finding
    assert found(("net", ran(cpu=6.5))) == Finding("net")
    assert found(("net", ran(cpu=0.9)), cpu=0.0) == Finding("net"), "too little to tell"


GIVEN = ran(succeeded=False, ended=GIVEN_UP, held_at=0, call="lseek", read=(0,))


@pytest.mark.parametrize(
    ("piped", "finding"),
    [
        (ran(), Finding("pipe")),
        (FAILED, Finding(None, "the tool seeks in the file")),
        (GIVEN, Finding(None, "the tool seeks in the file")),
    ],
)
def test_who_waits_for_the_file_too_early_is_not_waited_for(piped: Ran, finding: Finding) -> None:
    assert is_worthless(0, False, 100)
    assert is_worthless(None, True, 100)
    assert not is_worthless(60, False, 100)
    assert not is_worthless(None, False, 100)
    assert found(("net", GIVEN), ("pipe", piped)) == finding
    assert not found(("net", GIVEN), size=SMALL).is_known


def test_of_a_small_file_nothing_can_be_told_of_a_pipe() -> None:
    finding = found(("net", HELD), size=SMALL)
    assert (finding.way, finding.is_known) == (None, False)
    # Under the net no size is too small.
    assert found(("net", ran(read=(5,))), size=5) == Finding("net")


@pytest.mark.parametrize(
    ("streamed", "again", "reason"),
    [
        (DIFFERENT, ran(), "the outputs differ with a stream: out.txt"),
        (DIFFERENT, ran(difference="log"), "the outputs differ from run to run: log"),
        (FAILED, ran(), "exit code 1 with a stream"),
        (FAILED, ran(difference="log"), "the outputs differ from run to run: log"),
        (DIFFERENT, FAILED, "the tool fails when it runs again: exit code 1"),
    ],
)
def test_who_makes_something_else_is_run_with_the_file_again(streamed: Ran, again: Ran, reason: str) -> None:
    has_failed = again is FAILED or (streamed is FAILED and again.difference is None)
    assert found(("net", streamed), ("file", again)) == Finding(None, reason, has_failed=has_failed)


ELSEWHERE = ran(difference="out.txt", is_elsewhere=True)


@pytest.mark.parametrize(
    ("runs", "way"),
    [
        ([("net", ELSEWHERE), ("twin", ran())], "net"),
        ([("net", ran(difference="a", is_elsewhere=True, held_at=0)), ("twin", ran()), ("pipe", ran())], "pipe"),
        ([("net", HELD), ("pipe", ELSEWHERE), ("twin", ran())], "pipe"),
        (
            [("net", dataclasses.replace(ELSEWHERE, held_at=0)), ("twin", ran()), ("pipe", ELSEWHERE), ("twin", ran())],
            "pipe",
        ),
    ],
)
def test_who_writes_its_paths_is_compared_with_a_run_that_has_them(runs: list[tuple[Manner, Ran]], way: Way) -> None:
    assert found(*runs) == Finding(way)


@pytest.mark.parametrize(
    ("twins", "reason"),
    [
        ([("twin", FAILED)], "the tool fails when it runs again: exit code 1"),
        ([("twin", DIFFERENT), ("again", ran())], "the outputs differ with a stream: out.txt"),
        ([("twin", DIFFERENT), ("again", DIFFERENT)], "the outputs differ from run to run: out.txt"),
        ([("twin", DIFFERENT), ("again", FAILED)], "the tool fails when it runs again: exit code 1"),
    ],
)
def test_who_makes_something_else_of_the_same_paths_is_refused(twins: list[tuple[Manner, Ran]], reason: str) -> None:
    assert found(("net", ELSEWHERE), *twins) == Finding(None, reason, has_failed=twins[-1][1] is FAILED)


def test_who_writes_the_date_is_proven() -> None:
    streamed, again = ran(difference="out.txt", unlike=DATED), ran(difference="out.txt", unlike=DATED_AGAIN)
    assert found(("net", streamed), ("file", again)) == Finding("net", read=(SIZE,))
    waits = ran(difference="out.txt", unlike=DATED, held_at=0, call="lseek")
    assert found(("net", waits), ("file", again), ("pipe", streamed), ("file", again)) == Finding("pipe", read=(SIZE,))


@pytest.mark.parametrize(
    ("streamed", "again", "reason"),
    [
        (DATED_AND_SIZED, DATED_AGAIN, "the outputs differ with a stream: out.txt"),
        (None, DATED_AGAIN, "the outputs differ with a stream: out.txt"),
        (DATED, None, "the outputs differ from run to run: out.txt"),
        (DATED, RANDOM, "the outputs differ from run to run: out.txt"),
    ],
)
def test_who_writes_something_else_besides_is_refused(
    streamed: Unlike | None, again: Unlike | None, reason: str
) -> None:
    runs = ran(difference="out.txt", unlike=streamed), ran(difference="out.txt", unlike=again)
    assert found(("net", runs[0]), ("file", runs[1])) == Finding(None, reason)


def test_who_writes_the_date_stays_proven_with_a_short_stream() -> None:
    runs: list[tuple[Manner, Ran]] = [("file", ran()), ("net", ran(difference="out.txt", unlike=DATED))]
    assert next_with_short(runs, "net") == "file"
    again = ran(difference="out.txt", unlike=DATED_AGAIN)
    assert next_with_short([*runs, ("file", again)], "net") is None
    other = ran(difference="out.txt", unlike=DATED_AND_SIZED)
    reason = "the outputs differ with a short stream: out.txt"
    assert next_with_short([runs[0], ("net", other), ("file", again)], "net") == Finding(None, reason)
    assert next_with_short([runs[0], ("net", ran(difference="out.txt"))], "net") == Finding(None, reason)


@pytest.mark.parametrize("ended", ["cancelled", "driver", "lost", "producer", "rewritten", "error"])
def test_what_says_nothing_of_the_program_proves_nothing(ended: str) -> None:
    assert not found(("net", ran(succeeded=False, ended=ended))).is_known
    assert not found(("net", DIFFERENT), ("file", ran(succeeded=False, ended=ended))).is_known


def test_who_was_killed_has_shown_nothing() -> None:
    killed = ran(succeeded=False, is_from_outside=True)
    assert not found(("net", killed)).is_known
    assert not found(("net", HELD), ("pipe", killed)).is_known
    assert not found(("net", DIFFERENT), ("file", killed)).is_known


def test_short_files_stand_for_long_ones() -> None:
    assert shorts([2 * SHORT]) == (SHORT,)
    assert shorts([2 * SHORT - 1]) is None
    assert shorts([100 * SHORT, 10]) == (SHORT, 10)
    for sizes in ([], [0], [SHORT // 4] * 100):
        assert shorts(sizes) is None


@pytest.mark.parametrize("way", ["net", "pipe"])
def test_who_makes_the_same_of_a_short_stream_stays_proven(way: Way) -> None:
    assert next_with_short([], way) == "file"
    assert next_with_short([("file", ran(read=(0,)))], way) == way
    for streamed in (ran(), ran(read=(10,)), ran(held_at=0, call="lseek", read=(0,)), ran(asked=True)):
        assert next_with_short([("file", ran(read=(0,))), (way, streamed)], way) is None


def test_of_a_file_that_is_cut_nothing_follows() -> None:
    assert next_with_short([("file", FAILED)], "net") is None


@pytest.mark.parametrize(
    ("way", "streamed", "reason"),
    [
        ("net", DIFFERENT, "the outputs differ with a short stream: out.txt"),
        ("net", FAILED, "exit code 1 with a short stream"),
        ("pipe", OPENED_TWICE, "opened again with a short stream"),
    ],
)
def test_who_does_something_else_with_a_short_stream_is_refused(way: Way, streamed: Ran, reason: str) -> None:
    finding = next_with_short([("file", ran(read=(0,))), (way, streamed)], way)
    assert finding == Finding(None, reason, has_failed=not streamed.succeeded)


@pytest.mark.parametrize("killed", [ran(succeeded=False, ended="lost"), ran(succeeded=False, is_from_outside=True)])
def test_who_was_killed_with_a_short_file_is_not_proven(killed: Ran) -> None:
    with_file: list[tuple[Manner, Ran]] = [("file", killed)]
    with_stream: list[tuple[Manner, Ran]] = [("file", ran(read=(0,))), ("net", killed)]
    for so_far in (with_file, with_stream):
        finding = next_with_short(so_far, "net")
        assert isinstance(finding, Finding)
        assert not finding.is_known


def test_who_has_not_read_it_has_shown_nothing() -> None:
    assert not found(("net", ran(read=(0,)))).is_known


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        ("newfstatat", "the tool asks for the size, or more, by the path"),
        ("statx", "the tool asks for the size, or more, by the path"),
        ("pread64", "the tool reads at positions"),
        ("mmap", "the tool maps the file into memory"),
        ("openat", "the tool opens the file again"),
        ("getxattr", "the tool waits for the whole file (getxattr)"),
    ],
)
def test_the_reason_says_what_the_program_does(call: str, reason: str) -> None:
    assert found(("net", ran(held_at=0, call=call)), ("pipe", FAILED)).reason == reason


@pytest.mark.parametrize("call", ["poll", "ppoll", "select", "pselect6"])
@pytest.mark.parametrize("ended", [{}, {"ended": GIVEN_UP}])
def test_a_tool_that_waits_with_a_time_limit_is_not_tried_with_a_pipe(call: str, ended: dict[str, str]) -> None:
    """A producer that pauses for longer than the limit would end the input of the tool."""
    finding = found(("net", ran(held_at=0, call=call, **ended)))
    assert finding == Finding(None, f"the tool asks whether there is something to read ({call})")


def test_one_begins_only_where_a_core_and_the_memory_of_the_job_are_free() -> None:
    free = FreeRoom(1, 500)
    assert may_start([free], 500)
    assert may_start([free, FreeRoom(4, 9000)], 0)
    assert not may_start([], 0), "nobody knows"
    for rooms, memory in [([FreeRoom(0.5, 500)], 0), ([free], 501), ([free, FreeRoom(0, 9000)], 0)]:
        assert not may_start(rooms, memory)


@pytest.mark.parametrize("listing", [None, [{"entryname": "x"}], [{"entry": "$(inputs.a)"}], [{"entryname": "a/b"}]])
def test_what_is_put_into_the_output_directory_is_put_there_again(listing: Any) -> None:
    assert obstacle_of_work_dir(listing, absolute=True) is None


@pytest.mark.parametrize(
    "listing",
    [[{"entryname": "/x"}], [{"entryname": "$(inputs.n)"}], [{"entryname": "../x"}], "${return []}", ["$(x)"]],
)
def test_what_may_be_put_elsewhere_is_not(listing: Any) -> None:
    assert obstacle_of_work_dir(listing, absolute=True) is not None
    assert obstacle_of_work_dir(listing, absolute=False) is None
