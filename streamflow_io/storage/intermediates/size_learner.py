"""Learns what the jobs of each step write, from the jobs of this run."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct
from streamflow.core.workflow import Status, Step
from streamflow.workflow.step import ExecuteStep

from streamflow_io.adapters.jobs import JobState
from streamflow_io.adapters.tokens import file_bytes

from .learned_sizes import RememberedSizes
from .space_watcher import SpaceWatcher


class JobSize(Struct, frozen=True):
    """The size of a job when it was submitted.

    :ivar inputs: bytes of its input files; those of files that are still written are expected
    :ivar own: bytes that the job is expected to write
    """

    inputs: int
    own: int


class SizeLearner(SpaceWatcher):
    """Keeps the :class:`JobSize` of each job, and learns from the jobs that succeed at the first attempt.

    The directories of a job that runs again also have the files of the attempts before.

    :param steps: of the workflow
    :param sizes: of earlier jobs
    """

    def __init__(self, steps: Mapping[str, Step], sizes: RememberedSizes) -> None:
        self._steps = steps
        self._sizes = sizes
        self._open: dict[str, JobState] = {}
        # An ordered set.
        self._ended: dict[JobState, None] = {}

    def submitted(self, job: JobState) -> None:
        if isinstance(self._steps.get(job.step), ExecuteStep):
            sources = [self._open[name].kept(JobSize) for name in job.sources if name in self._open]
            inputs = file_bytes(job.job.inputs) + sum(source.own for source in sources if source is not None)
            job.keep(JobSize(inputs, self._sizes.sizes.expect(job.step, inputs).bytes))
            self._open[job.name] = job

    def ended(self, job: JobState) -> None:
        if self._open.get(job.name) is job:
            del self._open[job.name]
            self._ended[job] = None

    def unmeasured(self) -> list[JobState]:
        return [*self._ended]

    def measured(self, held: Mapping[str, int], written: Mapping[JobState, int | None]) -> None:
        for job, bytes_ in written.items():
            if job not in self._ended:
                continue
            del self._ended[job]
            if bytes_ is None or job.status is not Status.COMPLETED or job.attempts > 1:
                continue
            if (size := job.kept(JobSize)) is not None:
                self._sizes.measured(job.step, size.inputs, bytes_)
