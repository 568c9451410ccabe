"""Real runs in a directory with `holds: auto`, which begin their bursts by a schedule."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from lab.cwl import Document, found, tool, workflow
from lab.forked import Driver
from lab.runs import Bench, kill_group
from streamflow_io.features.schedules.burst_profile import BurstProfile, profile_of
from streamflow_io.features.schedules.check import check
from streamflow_io.features.schedules.files import schedule_to_json
from streamflow_io.features.schedules.followed import are_steady, digest
from streamflow_io.features.schedules.model import Instance, Pattern, Schedule, Transfer
from streamflow_io.features.schedules.plan_program import PlanRequest, application_set
from streamflow_io.features.schedules.turns import ScheduleState, state_of
from streamflow_io.storage.sharing.directory import SharedDirectory, make_shared
from streamflow_io.storage.sharing.entries import Entry, LedgerFile

MOST = 16.0
_CLOCK = """
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = syscall(SYS_clock_gettime, clock, now);
    if (!failed && clock == CLOCK_REALTIME) now->tv_sec += %d;
    return failed;
}
"""


def bursts(count: int, jobs: int, storage_bw: float, seconds: float, work: float) -> Document:
    """A workflow that computes and saves by turns; a burst has some jobs at once, each with its storageBW for some
    seconds.
    """
    small = [{"class": "ResourceRequirement", "coresMin": 0.1, "ramMin": 16}]
    size = round(storage_bw * seconds * 1e6)
    compute = tool(
        f"sleep {work}; echo $number > done.txt", {"number": "int", "after": ["null", "File[]"]},
        {"out": found("done.txt")}, requirements=small,
    )  # fmt: skip
    save = tool(
        f"note start; sleep {seconds}; head -c {size} /dev/zero > saved; echo $part > out.txt; note end",
        {"state": "File", "part": "int"},
        {"out": found("out.txt")},
        [{"class": "sfio:IOTask"}, {"class": "sfio:StorageBandwidth", "storageBW": storage_bw}],
        requirements=small,
    )
    steps: dict[str, Document] = {}
    for number in range(count):
        after = {"after": f"save{number - 1}/out"} if number else {}
        steps[f"compute{number}"] = {"run": compute, "in": {"number": {"default": number}, **after}}
        inputs = {"state": f"compute{number}/out", "part": "parts"}
        steps[f"save{number}"] = {"run": save, "scatter": "part", "in": inputs}
    return workflow({"parts": "int[]"}, steps, {"out": f"save{count - 1}/out"}) | {"jobs": jobs}


def parts(document: Document) -> Document:
    return {"parts": list(range(document.pop("jobs")))}


@pytest.fixture
def directory(tmp_path: Path) -> SharedDirectory:
    path = tmp_path / "shared"
    make_shared(path, LedgerFile(path="/", write=round(MOST * 1e6), holds="auto"), os.getegid(), ["plans"])
    return SharedDirectory(path, "disk", False, "/")


def write(bench: Bench, directory: SharedDirectory, document: Document) -> Path:
    storages = [{"name": "disk", "path": "/", "write": MOST, "share": str(directory.path)}]
    return bench.write(document, parts(document), io=True, config={"storages": storages, "ioExecutors": 8})


def entries(directory: SharedDirectory) -> dict[str, Entry]:
    """The entries of the runs that are there, by their names in schedules."""
    texts = {file.stem: file.read_text() for file in (directory.path / "runs").iterdir()}
    # One that is being made is empty.
    return {name: Entry.model_validate_json(text) for name, text in texts.items() if text}


def steady(directory: SharedDirectory, runs: int, seconds: float = 40) -> dict[str, BurstProfile]:
    """The profiles of the runs, when a schedule could be made of them."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        profiles = {name: profile_of(entry) for name, entry in entries(directory).items()}
        if len(profiles) == runs and are_steady(profiles):
            return {name: profile for name, profile in profiles.items() if profile is not None}
        time.sleep(0.05)
    raise AssertionError(f"the runs are not periodic: {entries(directory)}")


def give_schedule(directory: SharedDirectory, profiles: Mapping[str, BurstProfile], longer: float = 1.5) -> Schedule:
    """Give the runs a schedule with a period that is longer than each of them needs, so that all are held back."""
    request = PlanRequest(bandwidth=MOST, seconds=1.0, runs=dict(profiles))
    applications = application_set(request)
    period = longer * max(applications.durations)
    own = []
    for number, one in enumerate(applications.applications):
        begin = number * period / len(profiles)
        middle, end = begin + one.work, begin + one.work + one.volume / one.rate
        own.append((Instance((begin, middle), (Transfer(middle, end, one.rate),)),))
    schedule = Schedule(applications, Pattern(period, tuple(own)))
    assert check(schedule) == []
    plans = directory.path / "plans"
    made = {**schedule_to_json(schedule), "followed": True, "reason": "a test", "start": time.time() + 0.2}
    (plans / "new.tmp").write_text(json.dumps(made))
    (plans / "new.tmp").rename(plans / f"{digest(profiles)}.json")
    return schedule


def start(bench: Bench, path: Path, **environment: str) -> Driver:
    """With a data directory of its own: the runs meet where the StreamFlow file says."""
    return bench.start(path, XDG_DATA_HOME=str(path.parent / "data"), **environment)


def records(path: Path, *events: str) -> list[Document]:
    """The records of the run of a StreamFlow file."""
    files = (path.parent / "data").rglob("telemetry.jsonl")
    found = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    return [record for record in found if record["event"] in events]


def held_bursts(path: Path) -> list[tuple[float, float, float]]:
    """The beginning, the end of the wait, and the start of the first job, of each burst that was held back."""
    admitted = [record["time"] for record in records(path, "admitted")]
    return [
        (hold["time"], hold["until"], min((time for time in admitted if time > hold["time"]), default=inf))
        for hold in records(path, "held")
    ]


def wait_for_holds(paths: Sequence[Path], bursts: int, seconds: float = 40) -> None:
    deadline = time.monotonic() + seconds
    while any(len(records(path, "held")) < bursts for path in paths):
        assert time.monotonic() < deadline, [records(path, "held") for path in paths]
        time.sleep(0.1)


def schedule_state(directory: SharedDirectory, seconds: float = 20) -> ScheduleState:
    """The state of a schedule, as soon as a run has one."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for entry in entries(directory).values():
            if (state := state_of(entry)) is not None:
                return state
        time.sleep(0.05)
    raise AssertionError("nobody has found a schedule")


def clock(directory: Path, seconds: int) -> Path:
    """A library with which the wall clock is ahead."""
    source, library = directory / "clock.c", directory / "clock.so"
    source.write_text(_CLOCK % seconds)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    return library


class Pair(NamedTuple):
    """Two runs, and what runs them."""

    paths: Sequence[Path]
    processes: Sequence[Driver]


@contextmanager
def two_runs(bench: Bench, directory: SharedDirectory, count: int, **environment: str) -> Iterator[Pair]:
    """Two runs that are to follow a schedule; one of them has more environment.

    :param count: of their bursts
    """
    documents = [bursts(count, 1, 8.0, 0.3, work) for work in (0.8, 1.0)]
    with started(bench, directory, documents, **environment) as pair:
        yield pair


def wait_for_entry(directory: SharedDirectory, seconds: float = 40) -> None:
    deadline = time.monotonic() + seconds
    while not entries(directory):
        assert time.monotonic() < deadline
        time.sleep(0.05)


@contextmanager
def started(
    bench: Bench, directory: SharedDirectory, documents: Sequence[Document], **environment: str
) -> Iterator[Pair]:
    paths = [write(bench, directory, document) for document in documents]
    processes = [start(bench, paths[0], **environment)]
    try:
        # With more environment it starts slowly.
        wait_for_entry(directory)
        processes.append(start(bench, paths[1]))
        yield Pair(paths, processes)
    finally:
        for process in processes:
            kill_group(process)


def plain_results(bench: Bench, count: int) -> Any:
    """The results of plain StreamFlow for the same workflow, without the time that anything takes."""
    document = bursts(count, 1, 8.0, 0.0, 0.0)
    return bench.run(document, parts(document), io=False).results


@pytest.mark.long
def test_two_runs_begin_their_bursts_at_their_slots(bench: Bench, directory: SharedDirectory) -> None:
    with two_runs(bench, directory, 16) as (paths, processes):
        give_schedule(directory, steady(directory, 2))
        ours = [bench.finish(*one) for one in zip(processes, paths, strict=True)]
    plain = plain_results(bench, 16)
    first_end = min(run.trace[-1][0] for run in ours)
    for run, path in zip(ours, paths, strict=True):
        assert run.ok, run.errors
        assert run.results == plain
        found = [one for one in held_bursts(path) if one[1] < first_end]
        assert len(found) >= 2
        assert all(begun >= until for _, until, begun in found), found
        assert max(until - time for time, until, _ in found) > 0.2, found
    assert entries(directory) == {}
    assert bench.leftovers() == []


@pytest.mark.long
def test_a_run_that_is_killed_ends_the_schedule(bench: Bench, directory: SharedDirectory) -> None:
    """Any run that goes ends it."""
    with two_runs(bench, directory, 20) as (paths, processes):
        schedule = give_schedule(directory, steady(directory, 2))
        wait_for_holds(paths, 2)
        os.kill(processes[1].pid, signal.SIGKILL)
        killed = time.time()
        run = bench.finish(processes[0], paths[0])
    assert run.ok, run.errors
    assert run.results == plain_results(bench, 20)
    # What is held goes on at the next look, and nothing is held any more.
    assert [hold for hold in records(paths[0], "held") if hold["time"] > killed + 3.0] == []
    begins = run.times("start")
    assert len([one for one in begins if one > killed + 3.0]) >= 4
    assert max(later - earlier for earlier, later in pairwise(begins)) < schedule.pattern.period + 2.0


@pytest.mark.long
def test_runs_whose_clocks_differ_follow_no_schedule(bench: Bench, directory: SharedDirectory, tmp_path: Path) -> None:
    """The clocks differ by 5 s: due dates hold, no run waits for long, and results are the same."""
    with two_runs(bench, directory, 12, LD_PRELOAD=str(clock(tmp_path, 5))) as (paths, processes):
        give_schedule(directory, steady(directory, 2))
        state = schedule_state(directory)
        runs = [bench.finish(*one) for one in zip(processes, paths, strict=True)]
    assert state.since is None
    assert re.fullmatch(r"the clocks of the runs differ by 5\.\d s", state.reason)
    plain = plain_results(bench, 12)
    for run, path in zip(runs, paths, strict=True):
        assert run.ok, run.errors
        assert run.results == plain
        assert records(path, "held") == []
        begins = run.times("start")
        assert max(later - earlier for earlier, later in pairwise(begins)) < 3.0


@pytest.mark.long
@pytest.mark.timeout(400)
def test_a_schedule_is_made_where_it_pays(bench: Bench, directory: SharedDirectory) -> None:
    """Bursts of 4 s with all of the storage beside others of 4 s with half of it: with due dates alone they collide."""
    documents = [bursts(17, 8, 4.0, 2.0, 4.0), bursts(17, 1, 8.0, 4.0, 4.0)]
    with started(bench, directory, documents) as (paths, processes):
        state = schedule_state(directory, 150)
        runs = [bench.finish(*one, 200) for one in zip(processes, paths, strict=True)]
    assert state.since is not None, state.reason
    assert re.fullmatch(r"dilation of the slowest run \S+ with the schedule, \S+ without", state.reason)
    assert all(run.ok for run in runs), [run.errors for run in runs]
    plain = [bursts(17, 8, 4.0, 0.0, 0.0), bursts(17, 1, 8.0, 0.0, 0.0)]
    paths_of_plain = [bench.write_plain(document, parts(document)) for document in plain]
    assert [run.results for run in bench.run_all(paths_of_plain)] == [run.results for run in runs]
    assert any(records(path, "held") for path in paths)
