"""Decisions about files of jobs that no job needs any more."""

from __future__ import annotations

import asyncio
import os
import posixpath
import shutil
import subprocess
import uuid
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from streamflow.core.context import StreamFlowContext
from streamflow.core.data import DataType
from streamflow.core.deployment import ExecutionLocation
from streamflow.core.exception import WorkflowExecutionException
from streamflow.core.workflow import Workflow
from streamflow.data.manager import DefaultDataManager

from streamflow_io._streamflow import copies_in, forget_data
from streamflow_io.adapters.jobs import JobState
from streamflow_io.graph.last_readers import JobReader, LastReaders, Passage, Removal, last_readers, outcome
from streamflow_io.records.records import Record, RemovedRecord
from streamflow_io.storage.intermediates import directories, intermediates
from streamflow_io.storage.intermediates.directories import (
    _LOOK,
    DirectoryContents,
    _look,
    _partly,
    _read,
    _remove_but,
    look,
    remove,
)
from streamflow_io.storage.intermediates.intermediates import Intermediates
from streamflow_io.storage.intermediates.ledger import Decision, FileLedger, JobOutput, Ref
from streamflow_io.storage.intermediates.space_watcher import RepeatedJobs, SpaceWatcher, kept_at_each_host


def job(step: str, port: str = "i") -> Passage:
    return Passage(step, port, "job")


def on(step: str, *following: str, depth: int = 0, makes_lists: bool = False) -> Passage:
    return Passage(step, "i", "on", following, depth, makes_lists)


def many(step: str, *following: str) -> Passage:
    return Passage(step, "i", "many", following)


@pytest.mark.parametrize(
    ("passages", "jobs", "steps"),
    [
        ({}, [], []),
        ({"o": [job("b")]}, [("b", "i", 0)], []),
        ({"o": [job("b"), job("c")]}, [("b", "i", 0), ("c", "i", 0)], []),
        ({"o": [on("gather", "g", depth=-1)], "g": [job("b")]}, [("b", "i", -1)], []),
        ({"o": [on("gather", "g", depth=-1)], "g": [on("s", "e", depth=1)], "e": [job("b")]}, [("b", "i", 0)], []),
        # `loadContents` of an input that nothing reads.
        ({"o": [on("transformer", "t")]}, [], ["transformer"]),
        # A list may have a file twice.
        (
            {"o": [on("v", "v", makes_lists=True)], "v": [on("s", "e", depth=1)], "e": [job("b")]},
            [],
            ["s", "b"],
        ),
        ({"o": [on("v", "v", makes_lists=True)], "v": [job("b")]}, [("b", "i", 0)], []),
        # Two ways to one input.
        ({"o": [on("x", "m"), on("y", "m")], "m": [job("b")]}, [], ["b"]),
        ({"o": [job("b"), many("cross", "c")], "c": [job("b")]}, [], ["b", "cross"]),
        # A loop goes round, and out of it.
        (
            {"o": [many("loop", "in", "out")], "in": [job("b")], "out": [job("r"), many("back", "o")]},
            [],
            ["loop", "back", "b", "r"],
        ),
        ({"o": [on("x", "y")], "y": [on("z", "o"), job("b")]}, [], ["x", "z", "b"]),
    ],
)
def test_the_last_readers(
    passages: dict[str, list[Passage]], jobs: list[tuple[str, str, int]], steps: list[str]
) -> None:
    found = last_readers(passages, "o")
    assert found.jobs == {JobReader(*each) for each in jobs} - {each for each in found.jobs if each.step in steps}
    assert found.steps >= {*steps} - {"x", "z"}
    assert {reader.step for reader in found.jobs}.isdisjoint(found.steps)


def directory(number: int) -> str:
    return f"/work/{uuid.UUID(int=number)}"


def name(number: int) -> str:
    return str(uuid.UUID(int=number))


NEVER = LastReaders(steps=frozenset({"later"}))


def file(number: int, path: str = "o.txt") -> dict[str, object]:
    return {"class": "File", "path": f"{directory(number)}/{path}", "basename": posixpath.basename(path)}


def with_job(ledger: FileLedger, number: int, *inputs: object, links: dict[str, str] | None = None) -> None:
    """A job has run in a directory, and has succeeded without an output."""
    ledger.submitted(f"/j{number}/0", "s", 1, {"i": ledger.files([*inputs])})
    ledger.placed(f"/j{number}/0", [directory(number)])
    ledger.ended(f"/j{number}/0", [])
    ledger.seen(name(number), links or {})


def outputs(ledger: FileLedger, number: int, *values: object, readers: LastReaders = NEVER) -> None:
    ledger.ended(f"/j{number}/0", [JobOutput(frozenset(ledger.files([*values])), readers=readers, is_kept=True)])


def removed(ledger: FileLedger, *held: str) -> tuple[set[int], dict[int, set[str]]]:
    decision = ledger.decide(lambda _: False, held)
    return (
        {uuid.UUID(each).int for each in decision.whole},
        {uuid.UUID(each).int: {*left} for each, left in decision.parts.items()},
    )


def test_links_keep_what_they_lead_to() -> None:
    ledger = FileLedger()
    with_job(ledger, 1)
    with_job(ledger, 2, file(1), links={"in.txt": f"{directory(1)}/o.txt"})
    with_job(ledger, 3, links={"d/out.txt": f"../../{name(2)}/in.txt", "other": f"{directory(4)}/x"})
    with_job(ledger, 4)
    outputs(ledger, 3, file(3, "d/out.txt"))
    assert removed(ledger) == ({4}, {1: {"o.txt"}, 2: {"in.txt"}, 3: {"d/out.txt"}})


@pytest.mark.parametrize("is_read_early", [False, True])
def test_a_job_that_has_moved_may_have_delivered_files_before(is_read_early: bool) -> None:
    """The files of its first place stay as long as a job may read its outputs."""
    ledger = FileLedger()
    ledger.submitted("/j1/0", "s", 1, {})
    ledger.placed("/j1/0", [directory(1)])
    ledger.ended("/j1/0", None, is_read_early)
    ledger.seen(name(1), {})
    ledger.submitted("/j1/0", "s", 1, {})
    ledger.placed("/j1/0", [directory(2)])
    ledger.ended("/j1/0", [JobOutput(frozenset(ledger.files([file(2)])), readers=NEVER)])
    ledger.seen(name(2), {})
    assert removed(ledger)[0] == (set() if is_read_early else {1})
    assert {uuid.UUID(each).int for each in ledger.decide(lambda _: True).whole} == {1, 2}


def test_the_directories_that_a_job_needs_to_run_once_more() -> None:
    """With those behind links, and with copies elsewhere."""
    ledger = FileLedger()
    with_job(ledger, 1)
    with_job(ledger, 2, links={"in.txt": f"{directory(1)}/o.txt"})
    with_job(ledger, 3, file(2, "in.txt"))
    with_job(ledger, 4)
    ledger.copied(ledger.ref(f"{directory(1)}/o.txt"), ledger.ref(f"{directory(4)}/o.txt"))
    with_job(ledger, 5)
    assert ledger.needs("/j3/0") == {name(1), name(2), name(3), name(4)}
    assert removed(ledger, "/j3/0")[0] == {5}
    assert ledger.needs("/unknown/0") == frozenset()


def test_one_job_at_each_host_keeps_its_files_until_it_runs_once_more() -> None:
    waiting = {"large": "one", "small": "one", "other": "two", "keeps nothing": "one"}
    assert kept_at_each_host(waiting, {"large": 9, "small": 2, "other": 5}) == {"small", "other"}
    assert kept_at_each_host(waiting, {}) == frozenset()


def test_a_job_whose_last_trial_has_shown_nothing_yields() -> None:
    waiting = {"large": "one", "small": "one", "other": "two"}
    kept = {"large": 9, "small": 2, "other": 5}
    assert kept_at_each_host(waiting, kept, {"small", "other"}) == {"large", "other"}
    assert kept_at_each_host(waiting, kept, {"small", "large"}) == {"small", "other"}


def test_what_cannot_be_seen_keeps_nothing_that_no_job_reads() -> None:
    """The location of a first attempt is lost. Its directory is never seen, and may have links to its inputs."""
    ledger = FileLedger()
    with_job(ledger, 1)
    readers = LastReaders(frozenset({JobReader("c", "i", 0)}))
    for number in (2, 3):
        ledger.submitted("/b/0", "b", 1, {"i": ledger.files([file(1)])}, ["/j1/0"])
        ledger.placed("/b/0", [directory(number)])
        if number == 2:
            ledger.ended("/b/0", None, is_read_early=True)
    ledger.ended("/b/0", [JobOutput(frozenset(ledger.files([file(3)])), 1, readers=readers)])
    ledger.seen(name(3), {})
    assert removed(ledger) == (set(), {})
    assert {*ledger.decide({"b", "c"}.__contains__).whole} == {name(1), name(3)}


def test_what_cannot_be_seen_keeps_its_inputs_for_jobs_that_link_to_it() -> None:
    ledger = FileLedger()
    with_job(ledger, 1)
    ledger.submitted("/j2/0", "s", 1, {"i": ledger.files([file(1)])})
    ledger.placed("/j2/0", [directory(2)])
    ledger.ended("/j2/0", [])
    with_job(ledger, 3, links={"in.txt": f"{directory(2)}/in.txt"})
    outputs(ledger, 3, file(3, "in.txt"))
    assert removed(ledger) == (set(), {1: {"o.txt"}, 3: {"in.txt"}})


def test_all_links_below_a_directory_count() -> None:
    ledger = FileLedger()
    with_job(ledger, 1)
    with_job(ledger, 2, links={"d/s/l": f"{directory(1)}/o.txt", "dd": f"{directory(3)}/o.txt"})
    with_job(ledger, 3)
    outputs(ledger, 2, {"class": "Directory", "location": f"file://{directory(2)}/d"})
    assert removed(ledger) == ({3}, {1: {"o.txt"}, 2: {"d"}})


@pytest.mark.parametrize("text", [f"--index={directory(1)}/x.idx --fast", {f"{directory(1)}/x.idx": 1}])
def test_a_text_with_a_path_keeps_the_directory(text: object) -> None:
    """Also a text that names a field."""
    ledger = FileLedger()
    with_job(ledger, 1)
    with_job(ledger, 2)
    outputs(ledger, 2, text)
    assert removed(ledger) == ({2}, {})


def test_a_job_that_reads_a_stream_keeps_the_directories_of_its_source() -> None:
    ledger = FileLedger()
    with_job(ledger, 1)
    ledger.submitted("/b/0", "s", 1, {"i": []}, ["/j1/0"])
    assert removed(ledger) == (set(), {})


def test_a_job_that_reads_a_stream_keeps_nothing_that_its_source_has_read() -> None:
    ledger = FileLedger()
    with_job(ledger, 1)
    ledger.submitted("/a/0", "s", 1, {"i": ledger.files(file(1))})
    ledger.placed("/a/0", [directory(2)], has_streams=False)
    ledger.placed("/a/0", [directory(3)])
    ledger.submitted("/b/0", "s", 1, {"i": []}, ["/a/0"])
    assert removed(ledger) == (set(), {1: {"o.txt"}})
    ledger.ended("/a/0", [])
    ledger.seen(name(2), {"in.txt": f"{directory(1)}/o.txt"})
    ledger.seen(name(3), {})
    assert removed(ledger) == ({1, 2}, {})


def test_nothing_is_removed_while_a_job_has_failed() -> None:
    ledger = FileLedger()
    with_job(ledger, 1)
    ledger.submitted("/b/0", "s", 1, {"i": []})
    ledger.placed("/b/0", [directory(2)])
    ledger.ended("/b/0", None)
    assert removed(ledger) == (set(), {})
    ledger.submitted("/b/0", "s", 1, {"i": []})
    ledger.placed("/b/0", [directory(3)])
    assert removed(ledger) == ({1}, {})
    ledger.ended("/b/0", [])
    ledger.seen(name(3), {})
    ledger.seen(name(2), {})
    assert removed(ledger) == ({1, 2, 3}, {})


def test_a_job_that_runs_keeps_what_its_input_is_a_copy_of() -> None:
    """A job at the location of the original gets a link to that, also where its input is a link to the copy."""
    ledger = FileLedger()
    with_job(ledger, 1)
    with_job(ledger, 2, file(1), links={"l.txt": f"{directory(2)}/in.txt"})
    ledger.copied(ledger.ref(f"{directory(1)}/o.txt"), ledger.ref(f"{directory(2)}/in.txt"))
    ledger.submitted("/c/0", "s", 1, {"i": ledger.files(file(2, "l.txt"))})
    assert removed(ledger) == (set(), {1: {"o.txt"}, 2: {"l.txt", "in.txt"}})
    ledger.ended("/c/0", [])
    assert removed(ledger) == ({1, 2}, {})


def test_a_link_into_the_directory_of_a_job_that_has_not_started() -> None:
    """StreamFlow copies the inputs of a job before the job starts. Others may get links to these copies meanwhile."""
    ledger = FileLedger()
    with_job(ledger, 1)
    ledger.submitted("/j3/0", "s", 1, {"i": ledger.files(file(1))})
    with_job(ledger, 2, file(1), links={"in.txt": f"{directory(3)}/copy/o.txt"})
    outputs(ledger, 2, file(2, "in.txt"))
    ledger.placed("/j3/0", [directory(3)])
    ledger.ended("/j3/0", [])
    ledger.seen(name(3), {})
    assert removed(ledger) == ({1}, {2: {"in.txt"}, 3: {"copy/o.txt"}})


def test_several_jobs_may_pass_on_one_file() -> None:
    """The jobs of a scatter pass a file through. When the first reader of the list has it, others may follow."""
    ledger = FileLedger()
    with_job(ledger, 1)
    with_job(ledger, 2, file(1))
    readers = LastReaders(frozenset({JobReader("b", "i", 0)}))
    ledger.ended("/j2/0", [JobOutput(frozenset(ledger.files(file(1))), 1, readers=readers)])
    ledger.submitted("/b/0", "b", 1, {"i": ledger.files(file(1))})
    ledger.ended("/b/0", [])
    assert removed(ledger) == ({2}, {})
    assert {*ledger.decide({"b"}.__contains__).whole} == {name(1), name(2)}


@pytest.mark.parametrize("second", [file(1), {**file(1, "o.bam"), "secondaryFiles": [file(1)]}])
def test_two_outputs_of_a_job_may_have_one_file(second: dict[str, object]) -> None:
    """A list has both, and a scatter reads each element. When the first reader has the file, others may follow."""
    ledger = FileLedger()
    with_job(ledger, 1)
    readers = LastReaders(frozenset({JobReader("b", "i", 1)}))
    values = (frozenset(ledger.files(each)) for each in (file(1), second))
    ledger.ended("/j1/0", [JobOutput(each, 1, readers=readers) for each in values])
    ledger.submitted("/b/0.0", "b", 2, {"i": ledger.files(second)})
    ledger.ended("/b/0.0", [])
    assert removed(ledger) == (set(), {})
    assert {*ledger.decide({"b"}.__contains__).whole} == {name(1)}


def test_what_a_data_manager_takes_for_copies() -> None:
    """Also of a file that a job was given by the name of a link to the file."""
    registering = SimpleNamespace(register=lambda _: None)
    connectors = SimpleNamespace(get_connector=lambda _: None)
    manager = DefaultDataManager(SimpleNamespace(checkpoint_manager=registering, deployment_manager=connectors))
    first, second = (ExecutionLocation(name=each, deployment=each) for each in ("first", "second"))
    original = manager.register_path(first, f"{directory(1)}/o.txt")
    copy = manager.register_path(second, f"{directory(2)}/in.txt")
    manager.register_relation(original, copy)
    link = manager.register_path(first, f"{directory(3)}/l.txt", data_type=DataType.SYMBOLIC_LINK)
    manager.register_relation(original, link)
    assert [*copies_in(manager, directory(2))] == [(copy.path, original.path)]
    assert [*copies_in(manager, directory(1))] == [(original.path, copy.path)]
    assert [*copies_in(manager, directory(3))] == []
    forget_data(manager, directory(2), frozenset({"in.txt"}))
    assert [*copies_in(manager, directory(1))] == [(original.path, copy.path)]
    forget_data(manager, directory(2), frozenset())
    assert [*copies_in(manager, directory(1))] == []


def test_directories_without_a_random_name_stay() -> None:
    ledger = FileLedger()
    ledger.submitted("/b/0", "s", 1, {})
    ledger.placed("/b/0", ["/home/me", "/", ""])
    ledger.ended("/b/0", [])
    assert removed(ledger) == (set(), {})


class World:
    """Runs a random workflow, and removes what a ledger says. A job fails the test if a file that it reads is missing.

    StreamFlow has copied or linked the inputs of a job before the directories of the job are noted. It links to any
    file at the location of the job that it takes for the same as the input.

    :ivar steps: for each: the steps that it reads, whether it is scattered, and the kind of its output
    :ivar same: the sets of files that StreamFlow takes for the same
    :ivar hosts: the location of each directory
    :param silent: the locations that tell nothing of their directories
    """

    def __init__(
        self, steps: list[tuple[list[int], bool, str]], results: set[int], silent: set[int], data: st.DataObject
    ) -> None:
        ordered = [
            ([s for s in sources if s < n], scattered, kind) for n, (sources, scattered, kind) in enumerate(steps)
        ]
        self.steps, self.silent, self.data = ordered, silent, data
        self.results = {each for each in results if each < len(steps)}
        self.ledger = FileLedger()
        self.files: dict[str, dict[str, str | None]] = {}
        self.count = 0
        self.values: dict[str, str] = {}
        self.pending = [self.jobs(step) for step in range(len(steps))]
        self.coming: dict[str, tuple[int, str, list[str]]] = {}
        self.running: dict[str, tuple[int, str, list[str]]] = {}
        self.same: list[set[str]] = []
        self.hosts: dict[str, int] = {}
        self.submitted: set[str] = set()
        self.passages: dict[str, list[Passage]] = defaultdict(list)
        for reader, (sources, is_scattered, _) in enumerate(ordered):
            for source in sources:
                self.connect(source, f"s{reader}", f"i{source}", is_scattered)
        for source in self.results:
            self.connect(source, f"r{source}", f"i{source}", False)

    def connect(self, source: int, reader: str, port: str, is_scattered: bool) -> None:
        """One port for each: several values of a scatter are gathered for a single reader."""
        if self.steps[source][1] and not is_scattered:
            gather = f"g{source}{reader}"
            self.passages[f"p{source}"].append(Passage(gather, "i", "on", (gather,), -1))
            self.passages[gather] = [Passage(f"{reader}/__schedule__", port, "job")]
        else:
            self.passages[f"p{source}"].append(Passage(f"{reader}/__schedule__", port, "job"))

    def jobs(self, step: int) -> list[str]:
        return [f"s{step}/0.{n}" for n in range(3)] if self.steps[step][1] else [f"s{step}/0"]

    def inputs(self, step: int, job: str) -> dict[str, list[str]]:
        """The jobs whose values a job reads, by input."""
        found = {}
        for source in self.steps[step][0]:
            same = [each for each in self.jobs(source) if posixpath.basename(each) == posixpath.basename(job)]
            found[f"i{source}"] = same if self.steps[step][1] and self.steps[source][1] else self.jobs(source)
        return found

    def submit(self, job: str, schedule: str, depth: int, inputs: dict[str, list[str]]) -> list[str]:
        paths = {port: [self.values[each] for each in read] for port, read in inputs.items()}
        values = {port: [{"class": "File", "path": path} for path in found] for port, found in paths.items()}
        self.ledger.submitted(job, schedule, depth, {port: self.ledger.files(each) for port, each in values.items()})
        return [path for found in paths.values() for path in found]

    def resolve(self, path: str) -> list[str]:
        """The links that lead to a file, and the file."""
        place, entry = posixpath.split(path)
        content = self.files[place][entry]
        return [path] if content is None else [path, *self.resolve(content)]

    def make(self, host: int) -> str:
        self.count += 1
        path = directory(self.count)
        self.files[path], self.hosts[path] = {}, host
        return path

    def transfer(self, path: str, place: str, entry: str) -> None:
        """Bring a file to the directory of a job, as StreamFlow does."""
        host, original = self.hosts[place], self.resolve(path)[-1]
        found = next((each for each in self.same if original in each), {original})
        if found not in self.same:
            self.same.append(found)
        there = sorted(each for each in found if self.hosts[posixpath.dirname(each)] == host)
        if not there:
            self.files[place][entry] = None
            found.add(f"{place}/{entry}")
            return
        chosen = self.data.draw(st.sampled_from(there))
        links = self.resolve(path) if chosen == original else []
        self.files[place][entry] = self.data.draw(st.sampled_from([chosen, *links[:1]]))

    def start(self) -> bool:
        ready = []
        for step, pending in enumerate(self.pending):
            for job in pending:
                read = [each for names in self.inputs(step, job).values() for each in names]
                if all(each in self.values for each in read):
                    ready.append((step, job))
        if not ready:
            return False
        step, job = self.data.draw(st.sampled_from(ready))
        self.pending[step].remove(job)
        paths = self.submit(job, f"s{step}/__schedule__", job.count(".") + 1, self.inputs(step, job))
        self.submitted.add(job)
        place = self.make(self.data.draw(st.integers(0, 2)))
        for number, path in enumerate(paths):
            self.transfer(path, place, f"in{number}")
        self.coming[job] = step, place, paths
        return True

    def begin(self) -> bool:
        if not self.coming:
            return False
        job = self.data.draw(st.sampled_from(sorted(self.coming)))
        self.running[job] = self.coming.pop(job)
        self.ledger.placed(job, [self.running[job][1]])
        return True

    def end(self) -> bool:
        if not self.running:
            return False
        job = self.data.draw(st.sampled_from(sorted(self.running)))
        step, place, paths = self.running.pop(job)
        for number in range(len(paths)):
            self.resolve(f"{place}/in{number}")
        self.files[place]["scratch"] = None
        kind = self.steps[step][2]
        own = self.make(self.hosts[place])
        self.ledger.placed(job, [own])
        self.files[own]["out"] = f"{place}/in0" if kind == "link" and paths else None
        self.values[job] = f"{place}/in0" if kind == "pass" and paths else f"{own}/out"
        if kind == "through" and paths:
            self.values[job] = paths[0]
        files = frozenset(self.ledger.files({"class": "File", "path": self.values[job]}))
        for found in self.same:
            for copy in (each for each in found if each.startswith(f"{place}/")):
                for each in found - {copy}:
                    self.ledger.copied(self.ledger.ref(each), self.ledger.ref(copy))
        readers = last_readers(self.passages, f"p{step}")
        self.ledger.ended(job, [JobOutput(files, job.count(".") + 1, readers=readers)])
        for source in self.results - {int(each[1:]) for each in self.submitted if each.startswith("r")}:
            if all(each in self.values for each in self.jobs(source)):
                self.submitted.add(f"r{source}")
                self.submit(f"r{source}/0", f"r{source}/__schedule__", 1, {f"i{source}": self.jobs(source)})
        return True

    def has_ended(self, step: str) -> bool:
        owner = step.removesuffix("/__schedule__")
        if owner.startswith("r"):
            return owner in self.submitted
        return owner.startswith("s") and not self.pending[int(owner[1:])]

    def remove(self, *, is_over: bool = False) -> bool:
        seen = [each for each in self.ledger.unseen() if self.hosts[self.ledger.path(each)] not in self.silent]
        for each in seen:
            links = self.files[self.ledger.path(each)]
            self.ledger.seen(each, {link: target for link, target in links.items() if target is not None})
        decision = self.ledger.decide(lambda step: is_over or self.has_ended(step), is_over=is_over)
        for each in decision.whole:
            del self.files[self.ledger.path(each)]
            self.ledger.removed(each)
        for each, left in decision.parts.items():
            entries = self.files[self.ledger.path(each)]
            self.files[self.ledger.path(each)] = {path: to for path, to in entries.items() if path in left}
            self.ledger.removed(each, left)
        # The data manager forgets what is removed.
        for found in self.same:
            found -= {
                path for path in found if posixpath.basename(path) not in self.files.get(posixpath.dirname(path), ())
            }
        return True

    def run(self) -> tuple[set[str], set[str]]:
        """Return the files that belong to the results, and all that are left."""
        while any(self.pending) or self.coming or self.running:
            chosen = self.data.draw(st.sampled_from([self.start, self.begin, self.end, self.remove]))
            chosen() or self.start() or self.begin() or self.end()
        for source in self.results:
            files = [{"class": "File", "path": self.values[each]} for each in self.jobs(source)]
            self.ledger.ended(f"r{source}/0", [JobOutput(frozenset(self.ledger.files(files)), is_kept=True)])
        self.remove(is_over=True)
        kept = {path for source in self.results for job in self.jobs(source) for path in self.resolve(self.values[job])}
        return kept, {f"{place}/{entry}" for place, entries in self.files.items() for entry in entries}


STEPS = st.lists(
    st.tuples(
        st.lists(st.integers(0, 5), max_size=2, unique=True),
        st.booleans(),
        st.sampled_from(["file", "link", "pass", "through"]),
    ),
    min_size=2,
    max_size=6,
)


@settings(max_examples=150, deadline=None)
@given(STEPS, st.sets(st.integers(0, 5), min_size=1), st.data())
def test_what_is_needed_stays_and_the_rest_goes(
    steps: list[tuple[list[int], bool, str]], results: set[int], data: st.DataObject
) -> None:
    world = World(steps, results, set(), data)
    kept, left = world.run()
    same = {path for found in world.same if found & kept for path in found}
    assert kept <= left <= kept | same
    assert all(world.files.values())


@settings(max_examples=25, deadline=None)
@given(STEPS, st.sets(st.integers(0, 5), min_size=1), st.integers(0, 2), st.data())
def test_what_is_needed_stays_where_a_location_is_silent(
    steps: list[tuple[list[int], bool, str]], results: set[int], silent: int, data: st.DataObject
) -> None:
    kept, left = World(steps, results, {silent}, data).run()
    assert kept <= left


TREE = ["a/b/c", "a/b/d", "a/e", "f", "g/h", "*?[x]/i", "-rf"]


@pytest.mark.parametrize("way", ["here", "shell"])
@pytest.mark.parametrize("left", [["a/b"], ["a/b/c", "f"], ["*?[x]/i"], ["g", "-rf"]])
def test_all_but_some_paths(tmp_path: Path, way: str, left: list[str]) -> None:
    place, outside = tmp_path / "it's", tmp_path / "outside"
    for path in TREE:
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_text("x")
    outside.mkdir()
    (outside / "file").write_text("x")
    (place / "link").symlink_to(outside)
    (place / "a" / "link").symlink_to(outside)
    if way == "here":
        _remove_but(str(place), frozenset(left))
    else:
        subprocess.run(["sh", "-c", _partly(str(place), frozenset(left))], check=True)
    found = {str(path.relative_to(place)) for path in place.rglob("*") if not path.is_dir() or path.is_symlink()}
    assert found == {path for path in TREE if any(path == each or path.startswith(each + "/") for each in left)}
    assert (outside / "file").exists()


async def ran(command: Sequence[str]) -> tuple[str, int]:
    """Run a command as a connector does."""
    done = await asyncio.to_thread(
        subprocess.run, ["sh", "-c", " ".join(command)], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or done.stderr, done.returncode


@pytest.mark.parametrize("count", [3, 3000])
async def test_parts_of_a_directory_go_however_much_is_left(tmp_path: Path, count: int) -> None:
    """A command line is too short for the names of thousands of files."""

    async def run(location: ExecutionLocation, command: list[str], capture_output: bool) -> tuple[str, int]:
        return await ran(command)

    name, outside = str(uuid.uuid4()), tmp_path / "outside"
    place = tmp_path / name
    place.mkdir()
    outside.write_text("x")
    files = [f"part {number:05d}.fastq.gz" for number in range(count)]
    for file in files:
        (place / file).write_text("x")
    (place / "link").symlink_to(tmp_path)
    ledger = FileLedger()
    ledger.submitted("/a/0", "/a/__schedule__", 1, {})
    ledger.placed("/a/0", [str(place)])
    ledger.seen(name, {"link": str(tmp_path)})
    ledger.removed(name, frozenset([*files, "link/outside"]))
    left = frozenset(files[1:])
    connector = SimpleNamespace(run=run)
    context = SimpleNamespace(deployment_manager=SimpleNamespace(get_connector=lambda name: connector))
    dropped = {str(place): ledger.dropped(name, left)}
    await remove(context, ExecutionLocation("host", "hosts"), [], {str(place): left}, dropped)
    assert {path.name for path in place.iterdir()} - {"link"} == left
    assert outside.exists()


def test_what_is_dropped_of_a_directory() -> None:
    name = str(uuid.uuid4())
    ledger = FileLedger()
    ledger.submitted("/a/0", "/a/__schedule__", 1, {})
    ledger.placed("/a/0", [f"/work/{name}"])
    assert ledger.dropped(name, frozenset({"a"})) == frozenset()
    ledger.removed(name, frozenset({"a", "b", "c/d", "e", "f/g"}))
    assert ledger.dropped(name, frozenset({"a", "c", "e/i"})) == {"b", "f/g"}


SHELLS = [["sh"], *([["busybox", "sh"]] if shutil.which("busybox") is not None else [])]


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
def test_what_a_location_says_of_its_directories(tmp_path: Path, shell: list[str]) -> None:
    full, none = tmp_path / "it's full", tmp_path / "none"
    (full / "d").mkdir(parents=True)
    (full / "big").write_bytes(b"x" * 4096)
    (full / "x").symlink_to("../b")
    (full / "d" / "\udcff").symlink_to("/a\nb")
    said = subprocess.run([*shell, "-c", _LOOK, "sh", full, none, none / "further"], check=True, capture_output=True)
    found = dict(_read(said.stdout, "host"))
    assert found.keys() == {str(full), str(none)}
    assert found[str(full)].links == {"x": "../b", "d/\udcff": "/a\nb"}
    assert 4096 <= found[str(full)].bytes <= 65536
    assert found[str(none)] == DirectoryContents({}, 0)


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
def test_a_location_says_which_files_have_several_names(tmp_path: Path, shell: list[str]) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for place in (one, other):
        place.mkdir()
        (place / "alone").write_text("x")
        (place / "link").symlink_to("alone")
    (one / "a\nb").write_bytes(b"x" * 2**20)
    (other / "c").hardlink_to(one / "a\nb")
    (other / "d").hardlink_to(one / "a\nb")
    said = subprocess.run([*shell, "-c", _LOOK, "sh", one, other], check=True, capture_output=True)
    found = dict(_read(said.stdout, "host"))
    here = os.stat(other / "c")
    expected = {("host", here.st_dev, here.st_ino): here.st_blocks * 512}
    for place in (one, other):
        assert found[str(place)].linked == expected
        assert found[str(place)].links == {"link": "alone"}


def test_a_file_with_two_names_in_a_directory_counts_once(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 2**20)
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "b").hardlink_to(tmp_path / "a")
    seen = _look(str(tmp_path))
    assert seen is not None
    assert 2**20 <= seen.bytes < 2**21


def test_a_link_that_may_lead_back_through_another_link(tmp_path: Path) -> None:
    """Only the file system knows where `d/..` is if `d` is a link: nothing is said of the directory."""
    for number, text in enumerate(["../../x/y", "d/../x", "/a/../x", "d/.."]):
        place = tmp_path / f"links-{number}"
        place.mkdir()
        (place / "link").symlink_to(text)
        said = subprocess.run(["sh", "-c", _LOOK, "sh", place], check=True, capture_output=True).stdout
        assert (_look(str(place)) is None) is (number > 0)
        assert bool(dict(_read(said, "host"))) is (number == 0)


def test_a_part_of_an_answer_is_no_answer() -> None:
    whole = b"/w/a\0" + b"4\0" + b"/w/a/x\0" + b"../b\n/.\0" + b"\0" + b"0\0" + b"end\0"
    assert dict(_read(whole, "host"))["/w/a"].links == {"x": "../b"}
    for length in range(len(whole)):
        with pytest.raises(WorkflowExecutionException, match="is missing"):
            dict(_read(whole[:length], "host"))
    for wrong in (whole.replace(b"\0" + b"0\0end", b"\0" + b"1\0end"), whole.replace(b"../b\n", b"")):
        assert not dict(_read(wrong, "host"))


def test_a_ref_is_the_same_whatever_stands_before_the_name() -> None:
    ledger = FileLedger()
    ledger.submitted("/b/0", "s", 1, {})
    ledger.placed("/b/0", [directory(1)])
    assert ledger.ref(f"/real/{name(7)}/{name(1)}/./x/../y") == Ref(name(1), "y")
    ledger.placed("/b/0", [directory(1) + "-2"])
    assert ledger.ref(f"{directory(1)}-2/y") == Ref(name(1) + "-2", "y")
    assert ledger.ref(f"{directory(1)}-3/y").directory == ""
    assert ledger.ref(f"/work/{name(7)}/y") == Ref("", f"/work/{name(7)}/y")


def test_outcomes_for_people() -> None:
    schedule, result = "/b/__schedule__", "/o-collector/__schedule__"
    readers = {
        "once": LastReaders(frozenset({JobReader(schedule, "i", 0)})),
        "loop": LastReaders(steps=frozenset({schedule, "/b/loop-combinator"})),
        "several": LastReaders(
            frozenset(JobReader(f"/{step}/__schedule__", "i", 0) for step in "bcd"), frozenset({"/e/__schedule__"})
        ),
        "inputs": LastReaders(frozenset(JobReader(schedule, port, 0) for port in "ij")),
        "elements": LastReaders(frozenset({JobReader(schedule, "i", 1)}), frozenset({schedule})),
        "result": LastReaders(frozenset({JobReader(result, "o", 0), JobReader(schedule, "i", 0)})),
        "last": LastReaders(steps=frozenset({schedule, result})),
        "dead": LastReaders(),
        "rule": LastReaders(),
        "passed": LastReaders(frozenset({JobReader("/p/__schedule__", "i", 0), JobReader(schedule, "i", 0)})),
    }
    found_readers = {("/a", port): each for port, each in readers.items()}
    removal = Removal(found_readers, {("/a", "rule"): "its rule"}, passing=frozenset({"/p", "/q"}))
    assert {port: (found.goes, found.why) for port in readers for found in [outcome(removal, "/a", port)]} == {
        "once": (True, "after its jobs of /b"),
        "loop": (True, "after all jobs of /b"),
        "several": (True, "after its jobs of /b, /c and /d, and after all jobs of /e"),
        "inputs": (True, "after its jobs of /b"),
        "elements": (True, "after all jobs of /b"),
        "result": (False, "a result of the workflow"),
        "last": (True, "after all jobs of /b, unless it is a result"),
        "dead": (True, "when its job has ended: no step reads it"),
        "rule": (False, "its rule"),
        "passed": (True, "after its jobs of /b and /p, or later: /p may pass it on"),
    }


def test_files_that_go_with_one_job() -> None:
    reader = JobReader("/b/__schedule__", "i", 1)
    result = JobReader("/o-collector/__schedule__", "o", 0)
    readers = {
        "once": LastReaders(frozenset({reader})),
        "a result": LastReaders(frozenset({reader, result})),
        "for all jobs": LastReaders(steps=frozenset({reader.step})),
        "for others, too": LastReaders(frozenset({reader}), frozenset({"/c/__schedule__"})),
        "kept": LastReaders(frozenset({reader})),
        "unread": LastReaders(),
    }
    removal = Removal({("/a", port): found for port, found in readers.items()}, {("/a", "kept"): "why"})
    assert removal.read_once() == {("/a", "once")}
    assert replace(removal, held={"/a": "why"}).read_once() == frozenset()
    assert replace(removal, passing=frozenset({"/b"})).read_once() == frozenset()


class Gone(SpaceWatcher):
    """Notes what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.removals: list[Collection[str]] = []

    def removed(self, directories: Collection[str]) -> None:
        self.removals.append(directories)


@pytest.mark.parametrize("way", ["here", "there", "silent"])
async def test_only_what_is_gone_counts_as_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """A directory stays because a file system seems to be mounted in it, or because its host does not answer."""

    async def run(location: ExecutionLocation, command: list[str], capture_output: bool) -> tuple[str, int]:
        if location.name == "silent":
            raise WorkflowExecutionException("no answer")
        return await ran([word.replace("/proc/self/mounts", str(mounts)) for word in command])

    mounts = tmp_path / "mounts"
    gone, left = (str(tmp_path / str(uuid.uuid4())) for _ in range(2))
    mounts.write_text("" if way == "silent" else left)
    monkeypatch.setattr(directories, "is_mounted_in", lambda path: path in mounts.read_text())
    connectors = SimpleNamespace(get_connector=lambda name: SimpleNamespace(run=run))
    context = SimpleNamespace(deployment_manager=connectors, checkpoint_manager=SimpleNamespace(register=print))
    context.data_manager = DefaultDataManager(context)
    records, watcher = list[Record](), Gone()
    made = Intermediates(
        SimpleNamespace(steps={}), context, Removal(), cast(RepeatedJobs, None), records.append, [watcher]
    )
    made._ledger.submitted("/a/0", "/a/__schedule__", 1, {})
    for path, size, host in ((gone, 7, "host"), (left, 100, way)):
        Path(path).mkdir()
        made._ledger.placed("/a/0", [path])
        made._places[posixpath.basename(path)] = (ExecutionLocation(host, "hosts", local=way == "here"),)
        made._bytes[posixpath.basename(path)] = size
    await made._remove(Decision(tuple(map(posixpath.basename, (gone, left)))))
    assert {*map(str, tmp_path.iterdir())} == {left, str(mounts)}
    assert [set(each) for each in watcher.removals] == [{gone}]
    (record,) = records
    assert isinstance(record, RemovedRecord)
    assert (record.bytes, record.held) == (7, 100)
    assert [made._holders(node) for node in made._held_by_node()] == [[(left, 100)]]


async def test_a_location_finds_the_directories_of_one_that_is_silent(tmp_path: Path) -> None:
    """Only one of the locations that are left shares a directory with the lost one, and that without a limit."""
    asked = Counter[str]()

    async def run(location: ExecutionLocation, command: list[str], capture_output: bool) -> tuple[str, int]:
        asked[location.name] += 1
        if location.name == "lost":
            raise WorkflowExecutionException("no answer")
        seen = "work" if location.name == "sharing" else location.name
        return await ran([word.replace(str(tmp_path / "work"), str(tmp_path / seen)) for word in command])

    connectors = SimpleNamespace(get_connector=lambda name: SimpleNamespace(run=run))
    context = cast(StreamFlowContext, SimpleNamespace(deployment_manager=connectors))
    workflow = cast(Workflow, SimpleNamespace(steps={}))
    made = Intermediates(workflow, context, Removal(), cast(RepeatedJobs, None), list[Record]().append)
    made._ledger.submitted("/a/0", "/a/__schedule__", 1, {})
    paths = {host: f"{tmp_path}/work/{uuid.uuid4()}" for host in ("lost", "apart", "sharing")}
    for host, path in paths.items():
        made._ledger.placed("/a/0", [path])
        made._places[posixpath.basename(path)] = (ExecutionLocation(host, "hosts"),)
    made._silent.add(str(ExecutionLocation("lost", "hosts")))
    Path(paths["lost"]).mkdir(parents=True)
    for _ in range(2):
        await made._find_elsewhere()
    assert [at.name for at in made._places[posixpath.basename(paths["lost"])]] == ["sharing"]
    assert asked == {"apart": 1, "sharing": 1}


async def test_what_cannot_be_removed_is_looked_at_once_in_each_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file system is mounted in the first directory when its contents are known."""
    first, second, third = (str(tmp_path / str(uuid.uuid4())) for _ in range(3))
    looks, mounted = Counter[str](), set[str]()

    async def counted(
        context: StreamFlowContext, location: ExecutionLocation, paths: Sequence[str]
    ) -> dict[str, DirectoryContents]:
        looks.update(paths)
        found = await look(context, location, paths)
        mounted.add(first)
        return found

    monkeypatch.setattr(intermediates, "look", counted)
    monkeypatch.setattr(directories, "is_mounted_in", mounted.__contains__)
    context = SimpleNamespace(checkpoint_manager=SimpleNamespace(register=print))
    context.data_manager = DefaultDataManager(context)
    repeated = cast(RepeatedJobs, SimpleNamespace(held=tuple, waiting=dict))
    made = Intermediates(SimpleNamespace(steps={}), context, Removal(), repeated, list[Record]().append)
    for path in (first, second, third):
        Path(path).mkdir()
        (Path(path) / "out").write_text("bytes")
        made._ledger.submitted(f"{path}/0", "/a/__schedule__", 1, {})
        made._ledger.placed(f"{path}/0", [path])
        made._ledger.ended(f"{path}/0", [])
        made._places[posixpath.basename(path)] = (ExecutionLocation("host", "hosts", local=True),)
        await made._turn(made._look_and_remove)
    assert [*tmp_path.iterdir()] == [Path(first)]
    # Of the first one, what it holds, what is left of it, and this again in each turn.
    assert looks == {first: 4, second: 1, third: 1}


class Measured(SpaceWatcher):
    """Notes that files were looked at, and that what could go is gone."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = asyncio.Event()

    def measured(self, held: Mapping[str, int], written: Mapping[JobState, int | None]) -> None:
        self.seen.set()


class OneRepeated(RepeatedJobs):
    """One job that waits until it can run once more, or runs once more. When it has to end, it waits again."""

    def __init__(self, *, runs: bool) -> None:
        self.runs = runs
        self.gone = asyncio.Event()

    def held(self) -> Collection[str]:
        return ("/b/0",) if self.runs else ()

    def waiting(self) -> Mapping[str, str]:
        return {} if self.runs or self.gone.is_set() else {"/b/0": "host"}

    def give_up(self, jobs: Collection[str]) -> None:
        if "/b/0" in jobs:
            self.gone.set()

    def end(self, jobs: Collection[str]) -> None:
        if "/b/0" in jobs:
            self.runs = False


@pytest.mark.parametrize("runs", [False, True])
@pytest.mark.parametrize("why", ["little is free", "jobs hold more"])
async def test_jobs_that_run_once_more_keep_no_files_that_the_run_cannot_spare(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runs: bool, why: str
) -> None:
    """Another program fills the disk, and no job ends meanwhile. Or a further job writes more than a tenth."""
    free, repeated, watcher = [1e9], OneRepeated(runs=runs), Measured()
    monkeypatch.setattr(intermediates, "free_bytes", lambda path: free[0])
    context = SimpleNamespace(checkpoint_manager=SimpleNamespace(register=print))
    context.data_manager = DefaultDataManager(context)
    made = Intermediates(SimpleNamespace(steps={}), context, Removal(), repeated, list[Record]().append, [watcher])
    read, used, further = (tmp_path / str(uuid.uuid4()) for _ in range(3))

    def ended(job: str, path: Path, size: int, outputs: Sequence[JobOutput] = ()) -> None:
        path.mkdir()
        (path / "out").write_bytes(b"x" * size)
        made._ledger.submitted(job, f"{job}/__schedule__", 1, {"i": made._ledger.files(str(read))})
        made._ledger.placed(job, [str(path)])
        made._ledger.ended(job, outputs)
        made._places[path.name] = (ExecutionLocation("host", "hosts", local=True),)

    ended("/a/0", read, 40960)
    ended("/b/0", used, 40960)
    made._look_soon()
    await asyncio.wait_for(watcher.seen.wait(), 60)
    assert {*tmp_path.iterdir()} == {read, used}
    if why == "little is free":
        free[0] = 4096.0
    else:
        ended("/c/0", further, 12288, [JobOutput(frozenset({Ref(further.name, "out")}), readers=NEVER)])
        made._look_soon()
    await asyncio.wait_for(repeated.gone.wait(), 60)
    assert made._turning is not None
    await made._turning
    assert [*tmp_path.iterdir()] == ([] if why == "little is free" else [further])
