"""Nodes that share a work directory have one `diskLimit` together, others have one each."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Collection, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from streamflow.core.deployment import DeploymentConfig, ExecutionLocation, Target
from streamflow.core.scheduling import AvailableLocation
from streamflow.core.workflow import Job

from streamflow_io.adapters.jobs import JobState
from streamflow_io.engine import scheduler
from streamflow_io.engine.scheduler import IOAwareScheduler
from streamflow_io.runtime.locations import node_name
from streamflow_io.storage.intermediates import work_directories
from streamflow_io.storage.intermediates.disk_ledger import StepSizes
from streamflow_io.storage.intermediates.disk_limit import DiskLimit
from streamflow_io.storage.intermediates.learned_sizes import JobSize
from streamflow_io.storage.intermediates.work_directories import SharedWorkDirectories, WorkDirectory

ONE, OTHER, THIRD = (AvailableLocation(name, "hosts", name) for name in ("one", "other", "third"))
Locations = Mapping[WorkDirectory, ExecutionLocation]


async def alone(new: Locations, known: Locations) -> Collection[tuple[str, str]]:
    """No node shares a work directory."""
    return ()


class Asked:
    """Answers which nodes share a work directory when it is told to."""

    def __init__(self, *pairs: tuple[AvailableLocation, AvailableLocation]) -> None:
        self.pairs = [(node_name(one), node_name(other)) for one, other in pairs]
        self.questions: list[tuple[set[str], set[str]]] = []
        self.may_answer, self.woken = asyncio.Event(), asyncio.Event()

    async def shared(self, new: Locations, known: Locations) -> Collection[tuple[str, str]]:
        self.questions.append(({node for node, _ in new}, {node for node, _ in known}))
        await self.may_answer.wait()
        return [pair for pair in self.pairs if {*pair} <= {node for node, _ in (*new, *known)}]

    def limit(self, size: int) -> DiskLimit:
        sizes = StepSizes()
        sizes.measured("/a", 0, 40)
        return DiskLimit(size, (), (), sizes, self.woken.set, {}, self.shared)

    async def answer(self) -> None:
        self.woken.clear()
        self.may_answer.set()
        await self.woken.wait()


def submitted(limit: DiskLimit, number: int) -> JobState:
    job = JobState(Job(f"/a/{number}", 0, {}, "/in", "/out", "/tmp"))
    job.keep(JobSize(0, 40))
    limit.submitted(job)
    return job


def starts(limit: DiskLimit, job: JobState, location: AvailableLocation, path: str = "/work") -> bool:
    if not limit.may_start(job, location, path):
        return False
    job.places = [location]
    limit.placed(job)
    return True


@pytest.mark.parametrize("is_shared", [True, False])
async def test_a_second_node_starts_jobs_when_it_is_known_what_it_shares(is_shared: bool) -> None:
    asked = Asked(*([(ONE, OTHER)] if is_shared else []))
    limit = asked.limit(100)
    jobs = [submitted(limit, number) for number in range(5)]
    assert starts(limit, jobs[0], ONE)
    assert not asked.questions
    assert not starts(limit, jobs[1], OTHER)
    assert not limit.is_short
    await asked.answer()
    assert asked.questions == [({"hosts/one", "hosts/other"}, set())]
    assert [starts(limit, job, OTHER) for job in jobs[1:4]] == [True, not is_shared, False]
    assert starts(limit, jobs[4], ONE) is not is_shared
    limit.ended(jobs[0])
    waiting = jobs[2 if is_shared else 3]
    limit.measured({"hosts/one": 40, "hosts/other": 0}, {jobs[0]: 40})
    assert not starts(limit, waiting, OTHER)
    limit.measured({"hosts/one": 10, "hosts/other": 0}, {})
    assert starts(limit, waiting, OTHER) is is_shared
    await limit.run_closed()


async def test_a_node_is_asked_for_the_directory_of_the_target_that_is_looked_at() -> None:
    """The node may have no right to make that of another target of its deployment."""
    asked: list[WorkDirectory] = []

    async def shared(new: Locations, known: Locations) -> Collection[tuple[str, str]]:
        asked.extend(new)
        return ()

    woken, hosts = asyncio.Event(), DeploymentConfig("hosts", "ssh", {})
    limit = DiskLimit(100, (), (), StepSizes(), woken.set, {}, shared)
    targets = [Target(hosts, service=name, workdir=f"/{name}") for name in ("fast", "large")]
    job = JobState(Job("/a/0", 0, {}, "/in", "/out", "/tmp"), targets=targets)
    job.keep(JobSize(0, 40))
    limit.submitted(job)
    run: Any = SimpleNamespace(run=SimpleNamespace(disk_limit=limit), _scheduled_space=None)
    for target, location in zip(targets, (ONE, OTHER), strict=True):
        scheduler._target.set(target)
        IOAwareScheduler._has_space(run, job, location)
    await asyncio.wait_for(woken.wait(), 5)
    assert asked == [("hosts/one", "/fast"), ("hosts/other", "/large")]
    await limit.run_closed()


async def test_nodes_that_come_meanwhile_are_asked_next() -> None:
    asked = Asked((ONE, THIRD))
    limit = asked.limit(40)
    jobs = [submitted(limit, number) for number in range(3)]
    assert starts(limit, jobs[0], ONE)
    assert not starts(limit, jobs[1], OTHER)
    await asyncio.sleep(0)
    assert not starts(limit, jobs[1], THIRD)
    await asked.answer()
    assert asked.questions == [
        ({"hosts/one", "hosts/other"}, set()),
        ({"hosts/third"}, {"hosts/one", "hosts/other"}),
    ]
    assert not starts(limit, jobs[1], THIRD)
    assert starts(limit, jobs[1], OTHER)
    await limit.run_closed()


async def test_nodes_that_share_a_second_work_directory() -> None:
    """From then on, files in the first ones count together, too."""
    asked = Asked()
    limit = asked.limit(100)
    jobs = [submitted(limit, number) for number in range(4)]
    assert starts(limit, jobs[0], ONE)
    assert not starts(limit, jobs[1], OTHER)
    await asked.answer()
    assert starts(limit, jobs[1], OTHER)
    assert starts(limit, jobs[2], OTHER)
    asked.pairs.append(("hosts/one", "hosts/other"))
    last = submitted(limit, 4)
    assert not starts(limit, last, ONE, "/shared")
    await asked.answer()
    limit.measured({}, {})
    for job in jobs[:2]:
        limit.ended(job)
        assert not starts(limit, last, ONE, "/shared")
        limit.measured({}, {job: 0})
    assert starts(limit, last, ONE, "/shared")
    await limit.run_closed()


async def test_an_error_among_the_answers_ends_the_run() -> None:
    async def shared(new: Locations, known: Locations) -> Collection[tuple[str, str]]:
        raise OSError("no answer")

    woken = asyncio.Event()
    limit = DiskLimit(100, (), (), StepSizes(), woken.set, {}, shared)
    jobs = [submitted(limit, number) for number in range(2)]
    assert starts(limit, jobs[0], ONE)
    assert not starts(limit, jobs[1], OTHER)
    await asyncio.wait_for(woken.wait(), 5)
    with pytest.raises(OSError, match="no answer"):
        starts(limit, jobs[1], OTHER)
    await limit.run_closed()


async def test_after_the_end_of_the_run_a_job_waits_on() -> None:
    asked = Asked()
    limit = asked.limit(100)
    jobs = [submitted(limit, number) for number in range(2)]
    assert starts(limit, jobs[0], ONE)
    assert not starts(limit, jobs[1], OTHER)
    await limit.run_closed()
    assert not starts(limit, jobs[1], OTHER)


SHELLS = [["sh"], *([["busybox", "sh"]] if shutil.which("busybox") is not None else [])]


class Nodes:
    """Nodes that see a part of our files each: `/work` is a link to the directory of that name below theirs."""

    def __init__(self, directory: Path, shell: list[str]) -> None:
        self.directory, self.shell = directory, shell
        self.silent = self.hangs = ""
        self.has_made = asyncio.Event()
        self.context: Any = SimpleNamespace(deployment_manager=SimpleNamespace(get_connector=lambda name: self))

    async def run(self, location: ExecutionLocation, command: list[str], capture_output: bool) -> tuple[str, int]:
        if location.name == self.silent:
            raise ConnectionError("no answer")
        if location.name == self.hangs:
            await asyncio.Event().wait()
        here = f"{self.directory}/{location.name}/work"
        text = " ".join(command).replace("/work", here)
        done = await asyncio.to_thread(subprocess.run, [*self.shell, "-c", text], capture_output=True, text=True)
        self.has_made.set()
        return bytes.fromhex(done.stdout).replace(here.encode(), b"/work").hex(), done.returncode

    async def found(self, new: str, known: str = "") -> set[frozenset[str]]:
        new_places, known_places = (
            {(name, "/work"): ExecutionLocation(name, "hosts") for name in names} for names in (new, known)
        )
        pairs = await SharedWorkDirectories(self.context).shared(new_places, known_places)
        return {frozenset(pair) for pair in pairs if pair[0] != pair[1]}


@pytest.mark.parametrize("shell", SHELLS)
async def test_nodes_tell_what_they_share(tmp_path: Path, shell: list[str]) -> None:
    nodes = Nodes(tmp_path, shell)
    (tmp_path / "of all" / "work").mkdir(parents=True)
    for name in "acd":
        (tmp_path / name).symlink_to("of all")
    assert await nodes.found("abc") == {frozenset("ac")}
    assert await nodes.found("de", "abc") == {frozenset("ad"), frozenset("cd")}
    for name in "abcde":
        assert not [*(tmp_path / name / "work").iterdir()]


async def test_in_doubt_nodes_share(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, ["sh"])
    nodes.silent = "b"
    assert await nodes.found("abc") == {frozenset("ab"), frozenset("bc")}
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "work").write_text("no directory")
    assert await nodes.found("d", "ac") == {frozenset("ad"), frozenset("cd")}
    assert await nodes.found("c", "ab") == {frozenset("bc")}


async def test_a_lost_host_shares_nothing_with_hosts_that_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = Nodes(tmp_path, ["sh"])
    (tmp_path / "a" / "work").mkdir(parents=True)
    nodes.silent = "b"
    hosts = SimpleNamespace(is_lost=lambda name: name == nodes.silent)
    monkeypatch.setattr(work_directories, "own_hosts", lambda connector: hosts)
    assert await nodes.found("cd", "ab") == set()


async def test_a_relative_work_directory_is_not_looked_for_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CDPATH", f"{tmp_path}/a")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a" / "work").mkdir(parents=True)
    nodes = Nodes(tmp_path, ["sh"])
    place = {("a", "work"): ExecutionLocation("a", "hosts")}
    assert await SharedWorkDirectories(nodes.context).shared(place, {}) == {("a", "a")}


async def test_a_run_that_ends_meanwhile_leaves_nothing(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, ["sh"])
    for name in "ab":
        (tmp_path / name / "work").mkdir(parents=True)
    nodes.hangs = "b"
    asking = asyncio.create_task(nodes.found("ab"))
    await nodes.has_made.wait()
    asking.cancel()
    nodes.hangs = ""
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert not [*(tmp_path / "a" / "work").iterdir()]
