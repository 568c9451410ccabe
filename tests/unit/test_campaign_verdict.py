"""The fault campaign chooses what it says, and sees what is wrong: a campaign that cannot fail would prove nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lab.runs import Run
from tests.campaign.verdict import clear_error, judge
from tests.campaign.workloads import WORKLOADS, plain_steps

ERROR = "2026-01-01 10:00:00.000 ERROR    FAILED Job /make/0 with error:\n\tcat: write error: No space left on device\n"
PLAIN = Run(
    0, "", {"out": {"checksum": "sha1$a"}}, {"out.txt": b"a"}, [(1.0, "read part1 9 ab"), (2.0, "read all 10 cd")]
)
FAILED = Run(1, ERROR, None, {}, [(1.0, "read part1 9 ab")])


def violations(run: Run, *, struck: bool = True, driver: bool = False, left: tuple[str, ...] = ()) -> tuple[str, ...]:
    return judge(run, PLAIN, struck=struck, driver_was_victim=driver, left=left).violations


def test_what_is_allowed() -> None:
    assert judge(PLAIN, PLAIN, struck=True, driver_was_victim=False, left=[]).outcome == "identical"
    assert judge(PLAIN, PLAIN, struck=False, driver_was_victim=False, left=[]).outcome == "untouched"
    failed = judge(FAILED, PLAIN, struck=True, driver_was_victim=False, left=[])
    assert (failed.outcome, failed.violations) == ("failed", ())
    assert failed.message == "FAILED Job /make/0 with error: cat: write error: No space left on device"
    ended = judge(replace(FAILED, log="", code=-9), PLAIN, struck=True, driver_was_victim=True, left=[])
    assert (ended.outcome, ended.violations) == ("ended", ())


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (
            violations(replace(FAILED, trace=[(1.0, "read part1 8 ee")])),
            "read wrong data with success: read part1 8 ee",
        ),
        (violations(replace(PLAIN, trace=PLAIN.trace[:1])), "succeeded without: read all 10 cd"),
        (
            violations(replace(PLAIN, files={"out.txt": b""})),
            "the output file differs from plain StreamFlow's: out.txt",
        ),
        (violations(replace(PLAIN, files={**PLAIN.files, "more": b""})), "differs from plain StreamFlow's: more"),
        (violations(replace(PLAIN, outputs={})), "the output object differs"),
        (violations(replace(FAILED, log="")), "failed without a clear message"),
        (
            violations(replace(PLAIN, log="Nothing streams in a container of x, all is as"), struck=False),
            "nothing streams",
        ),
        (violations(FAILED, struck=False), "failed, although nothing had been done to it"),
        (violations(PLAIN, left=("process 7: sleep",)), "left behind: process 7: sleep"),
        (violations(FAILED, driver=True, left=("/tmp/fifo",)), "left behind: /tmp/fifo"),
    ],
)
def test_what_is_not(found: tuple[str, ...], words: str) -> None:
    assert len(found) == 1
    assert words in found[0]


@pytest.mark.parametrize(
    "log",
    [
        "",
        'Traceback (most recent call last):\n  File "x.py", line 1\nValueError: bad\n',
        "2026-01-01 10:00:00.000 ERROR    FAILED Job /make/0 with error:\n\t\n",
        "2026-01-01 10:00:00.000 ERROR    FAILED Job /make/0 with error:\n\tTraceback (most recent call last):\n",
        "2026-01-01 10:00:00.000 ERROR    \n",
        "2026-01-01 10:00:00.000 ERROR    FAILED Workflow execution\n",
        "2026-01-01 10:00:00.000 ERROR    CANCELLED Job /b/0: job /a/0, from which it reads, has failed\n",
        "2026-01-01 10:00:00.000 WARNING  bad\n",
    ],
)
def test_what_is_no_clear_error(log: str) -> None:
    assert clear_error(log) is None


def test_of_its_own_jobs_streamflow_may_say_no_more_than_that_they_failed() -> None:
    log = "2026-01-01 10:00:00.000 ERROR    FAILED Job /read/0.1 with error:\n\t\n"
    assert clear_error(log, {"read"}) == "FAILED Job /read/0.1 with error:"
    assert clear_error(log, {"make"}) is None
    assert {name: plain_steps(make()) for name, make in WORKLOADS.items()} == {
        "byte-streams": {"readlast"},
        "windows": set(),
        "commits": {"read"},
        "elements": {"read"},
        "directory": {"read"},
        "mixture": {"readpart", "readtree"},
        "gate": set(),
        "parts": {"make", "forget"},
        "growing": set(),
        "pauses": {"read"},
        "required": {"make", "save", "work", "join"},
        "shared": {"make", "save"},
        "unhinted": {"make", "sort", "shift", "copy"},
        "rehearsed": {"make", "sort", "shift", "copy"},
    }


def test_wrong_reads_of_a_run_that_failed_are_violations() -> None:
    run = replace(FAILED, trace=[(1.0, "read stream 8 ee"), (2.0, "read last 8 dd")])
    assert len(judge(run, PLAIN, struck=True, driver_was_victim=False, left=[]).violations) == 2
