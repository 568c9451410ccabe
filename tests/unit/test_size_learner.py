"""The sizes that jobs teach."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from streamflow.core.workflow import Job, Status
from streamflow.workflow.step import ExecuteStep

from streamflow_io.adapters.jobs import JobState
from streamflow_io.storage.intermediates.disk_ledger import ExpectedSize
from streamflow_io.storage.intermediates.learned_sizes import JobSize, RememberedSizes, SizeLearner


def job_of(step: str, sources: tuple[str, ...] = ()) -> JobState:
    job = JobState(Job(f"{step}/0", 0, {}, "/in", "/out", "/tmp"))
    job.sources = sources
    return job


def learner(directory: Path) -> tuple[SizeLearner, RememberedSizes]:
    sizes = RememberedSizes(directory / "learned.db", {})
    steps = {step: object.__new__(ExecuteStep) for step in ("/a", "/b")}
    return SizeLearner(cast(Any, steps), sizes), sizes


@pytest.mark.parametrize(
    ("attempts", "status", "expected"),
    [
        (1, Status.COMPLETED, "known"),
        # The directories of such a job also have the files of the first attempt.
        (2, Status.COMPLETED, "unknown"),
        (1, Status.FAILED, "unknown"),
    ],
)
def test_only_a_job_that_succeeds_at_once_teaches(tmp_path: Path, attempts: int, status: Status, expected: str) -> None:
    learns, sizes = learner(tmp_path)
    job = job_of("/a")
    learns.submitted(job)
    job.attempts, job.status = attempts, status
    learns.ended(job)
    assert learns.unmeasured() == [job]
    learns.measured({}, {job: 7})
    assert sizes.sizes.expect("/a", 0).certainty == expected
    assert learns.unmeasured() == []


async def test_a_smaller_size_of_a_later_run_replaces_nothing(tmp_path: Path) -> None:
    path, tools = tmp_path / "learned.db", {"/a": "tool"}
    for written, windowed in ((9, ()), (7, ()), (3, {"/a"})):
        sizes = RememberedSizes(path, tools, windowed)
        sizes.measured("/a", 0, written)
        await sizes.close()
    assert RememberedSizes(path, {"/b": "tool"}).sizes.expect("/b", 0) == ExpectedSize(9, "known")
    assert RememberedSizes(path, {"/b": "tool"}, {"/b"}).sizes.expect("/b", 0) == ExpectedSize(3, "known")


def test_what_is_still_written_counts_as_expected(tmp_path: Path) -> None:
    learns, sizes = learner(tmp_path)
    sizes.measured("/a", 0, 9)
    jobs = job_of("/a"), job_of("/b", sources=("/a/0",)), job_of("/transfer")
    for job in jobs:
        learns.submitted(job)
    assert [job.kept(JobSize) for job in jobs] == [JobSize(0, 9), JobSize(9, 9), None]
