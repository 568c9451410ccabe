"""Files of ended jobs are measured, and removed, while other jobs end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

import pytest
from streamflow.core.deployment import DeploymentConfig, ExecutionLocation, Target
from streamflow.core.scheduling import Hardware
from streamflow.core.workflow import Job, Status
from streamflow.scheduling.scheduler import JobAllocation
from streamflow.workflow.step import ExecuteStep, ScheduleStep

from streamflow_io.adapters.jobs import JobState
from streamflow_io.graph.last_readers import Removal
from streamflow_io.records.records import DiskRecord, Record
from streamflow_io.storage.intermediates import intermediates
from streamflow_io.storage.intermediates.intermediates import Intermediates
from streamflow_io.storage.intermediates.space_watcher import RepeatedJobs, SpaceWatcher

HERE = ExecutionLocation("here", "local", local=True)
SIZE = 2**16


class Measured(SpaceWatcher):
    """Keeps what the jobs have written that have ended."""

    def __init__(self) -> None:
        super().__init__()
        self.lacks_space = False
        self.gone: set[str] = set()
        self.written: dict[str, int | None] = {}
        self._ended: list[JobState] = []
        self._news = asyncio.Event()

    @property
    def is_short(self) -> bool:
        return self.lacks_space

    def removed(self, directories: Collection[str]) -> None:
        self.gone.update(directories)

    def ended(self, job: JobState) -> None:
        self._ended.append(job)

    def unmeasured(self) -> list[JobState]:
        return self._ended

    def measured(self, held: Mapping[str, int], written: Mapping[JobState, int | None]) -> None:
        self.written |= {job.step: size for job, size in written.items()}
        self._ended = [job for job in self._ended if job not in written]
        self._news.set()

    async def of(self, step: str) -> int | None:
        while step not in self.written:
            self._news.clear()
            await asyncio.wait_for(self._news.wait(), 30)
        return self.written[step]


def no_outputs(kind: type) -> Any:
    step = kind.__new__(kind)
    step.input_directory = step.output_directory = step.tmp_directory = None
    step.output_ports = {}
    return step


class Repeated(RepeatedJobs):
    """One job runs once more until it is to end."""

    def __init__(self, name: str) -> None:
        self._held = {name}
        self.has_ended = asyncio.Event()

    def held(self) -> Collection[str]:
        return {*self._held}

    def end(self, jobs: Collection[str]) -> None:
        self._held.difference_update(jobs)
        self.has_ended.set()


class Site:
    """A host with the directories of jobs."""

    def __init__(self, workdir: Path, *steps: str, repeated: RepeatedJobs | None = None) -> None:
        self._workdir = workdir
        self.watcher = Measured()
        self.records: list[Record] = []
        kinds = {step: no_outputs(ExecuteStep) for step in steps}
        kinds |= {f"{step}/__schedule__": no_outputs(ScheduleStep) for step in steps}
        for step in kinds.values():
            step.terminated = False
        self.removing = Intermediates(
            cast(Any, SimpleNamespace(steps=kinds)),
            cast(Any, SimpleNamespace(data_manager=None)),
            Removal(),
            repeated or RepeatedJobs(),
            self.records.append,
            [self.watcher],
        )

    def start(self, step: str) -> JobState:
        paths = [self._workdir / str(uuid4()) for _ in range(3)]
        for path in paths:
            path.mkdir()
            (path / "file").write_bytes(b"x" * SIZE)
        job = JobState(Job(f"{step}/0", 1, {}, *map(str, paths)))
        target = Target(DeploymentConfig("local", "local", {}), workdir=str(self._workdir))
        job.allocation = JobAllocation(job.name, target, [HERE], Status.RUNNING, Hardware())
        self.removing.submitted(job)
        self.removing.running(job)
        return job

    def end(self, job: JobState) -> None:
        job.status = Status.COMPLETED
        self.watcher.ended(job)
        self.removing.ended(job)


async def test_space_is_made_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of a job that has ended go, and those of one that runs stay."""
    monkeypatch.setattr(intermediates, "_SETTLING", 600.0)
    site = Site(tmp_path, "/first", "/second")
    first, second = site.start("/first"), site.start("/second")
    try:
        site.end(first)
        await site.removing.make_space()
        assert not Path(str(first.job.output_directory)).exists()
        assert Path(str(second.job.output_directory)).exists()
    finally:
        await site.removing.run_closed()


async def test_a_job_that_ends_meanwhile_is_measured_before_its_files_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some files of the first job stay, and each turn looks for them first."""
    site, meanwhile = Site(tmp_path, "/first", "/second", "/third"), list[Callable[[], None]]()
    first, second, third = (site.start(step) for step in ("/first", "/second", "/third"))
    look, remove = intermediates.look, intermediates.remove

    async def look_late(context: Any, location: ExecutionLocation, paths: Sequence[str]) -> Any:
        if meanwhile and first.job.output_directory in paths:
            meanwhile.pop()()
        return await look(context, location, paths)

    async def remove_not_all(context: Any, location: ExecutionLocation, whole: Collection[str], *more: Any) -> set[str]:
        stays = {first.job.output_directory} & {*whole}
        return stays | await remove(context, location, [path for path in whole if path not in stays], *more)

    monkeypatch.setattr(intermediates, "look", look_late)
    monkeypatch.setattr(intermediates, "remove", remove_not_all)
    try:
        site.end(first)
        whole = await site.watcher.of("/first")
        assert whole is not None
        assert whole >= 3 * SIZE
        meanwhile.append(lambda: site.end(third))
        site.end(second)
        assert await site.watcher.of("/second") == whole
        assert not meanwhile
        assert await site.watcher.of("/third") == whole
    finally:
        await site.removing.run_closed()


async def test_running_jobs_count_again_after_a_look_that_was_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look at the running jobs has no answer when the first job ends, and is not repeated before the answer."""
    site = Site(tmp_path, "/first", "/second", "/third", "/fourth")
    first, second, third, fourth = (site.start(step) for step in ("/first", "/second", "/third", "/fourth"))
    look, goes_on, answered, looks = intermediates.look, asyncio.Event(), asyncio.Event(), list[int]()

    async def look_late(context: Any, location: ExecutionLocation, paths: Sequence[str]) -> Any:
        if fourth.job.output_directory not in paths:
            return await look(context, location, paths)
        looks.append(len(paths))
        await asyncio.wait_for(goes_on.wait(), 30)
        found = await look(context, location, paths)
        answered.set()
        return found

    monkeypatch.setattr(intermediates, "look", look_late)
    monkeypatch.setattr(intermediates, "_BETWEEN_LOOKS", 600)
    try:
        for job in (first, second):
            site.end(job)
            await site.watcher.of(job.step)
        assert looks == [9]
        goes_on.set()
        await asyncio.wait_for(answered.wait(), 30)
        site.end(third)
        await site.watcher.of("/third")
        assert looks == [9, 3]
        site.end(fourth)
        await site.watcher.of("/fourth")
        await site.removing.finish()
    finally:
        await site.removing.run_closed()
    (disk,) = (record for record in site.records if isinstance(record, DiskRecord))
    # The third job has ended, and the fourth one has run.
    assert disk.peak >= 6 * SIZE


async def test_a_temporary_file_counts_that_is_gone_when_its_job_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No other job ends while the file is there."""
    look, looked = intermediates.look, asyncio.Event()

    async def look_at_once(context: Any, location: ExecutionLocation, paths: Sequence[str]) -> Any:
        found = await look(context, location, paths)
        looked.set()
        return found

    monkeypatch.setattr(intermediates, "look", look_at_once)
    monkeypatch.setattr(intermediates, "_BETWEEN_LOOKS", 0.05)
    site = Site(tmp_path, "/first")
    try:
        job = site.start("/first")
        await asyncio.wait_for(looked.wait(), 30)
        (Path(str(job.job.tmp_directory)) / "file").unlink()
        site.end(job)
        await site.watcher.of("/first")
        await site.removing.finish()
    finally:
        await site.removing.run_closed()
    (disk,) = (record for record in site.records if isinstance(record, DiskRecord))
    assert disk.peak >= 3 * SIZE
    assert disk.written < 3 * SIZE


async def test_a_job_that_runs_once_more_ends_when_another_one_needs_the_space_of_its_files(tmp_path: Path) -> None:
    repeated = Repeated("/first/0")
    site = Site(tmp_path, "/first", "/second", "/third", repeated=repeated)
    first, second, third = (site.start(step) for step in ("/first", "/second", "/third"))
    try:
        site.end(first)
        await site.watcher.of("/first")
        site.end(second)
        await site.watcher.of("/second")
        assert first.job.output_directory not in site.watcher.gone
        assert not repeated.has_ended.is_set()
        site.watcher.lacks_space = True
        await asyncio.wait_for(repeated.has_ended.wait(), 30)
        site.end(third)
        await site.watcher.of("/third")
        assert first.job.output_directory in site.watcher.gone
    finally:
        await site.removing.run_closed()
