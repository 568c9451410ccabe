"""Sizes of the outputs of steps, learned from the jobs of a run, and kept from run to run."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, ClassVar

from msgspec import Struct
from msgspec.structs import replace
from streamflow.core.workflow import Status, Step
from streamflow.workflow.step import ExecuteStep
from typing_extensions import Self

from streamflow_io.adapters.jobs import JobState
from streamflow_io.adapters.tokens import file_bytes
from streamflow_io.records.learned.database import LearnedEntry, SizeKey
from streamflow_io.records.learned.remembered import Remembered

from .disk_ledger import MeasuredSize, StepSizes
from .space_watcher import SpaceWatcher

#: Stands in a key for the storage.
WINDOW = "window"


class LearnedSize(LearnedEntry, frozen=True):
    """The job of a tool that has written most, of those with about as much input.

    :ivar key: what a tool writes is the same everywhere. Instead of a storage, the key says whether an output has a
        window: then less stays on disk
    """

    kind: ClassVar[str] = "size"
    key: SizeKey
    of: MeasuredSize

    @property
    def order(self) -> tuple[Any, ...]:
        return self.step, self.key.size_class

    def merged(self, known: Self | None) -> Self:
        return self if known is None or known.of.written <= self.of.written else replace(self, of=known.of)


class RememberedSizes:
    """Sizes of earlier runs, and of this one.

    A file that cannot be read or written never makes a run fail: one warning says so.

    :ivar sizes: all that is known
    :param path: the file
    :param tools: the digest of the tool of each step
    :param windowed: the steps with a window
    """

    def __init__(self, path: Path, tools: Mapping[str, str], windowed: Collection[str] = ()) -> None:
        self._keys = {step: SizeKey(tool, WINDOW if step in windowed else "", 0) for step, tool in tools.items()}
        self._kept = Remembered(path, LearnedSize, (), "Sizes of outputs are")
        self._new = StepSizes()
        self.sizes = StepSizes()
        steps: dict[SizeKey, list[str]] = {}
        for step, key in self._keys.items():
            steps.setdefault(key, []).append(step)
        for entry in self._kept.read():
            for step in steps.get(replace(entry.key, size_class=0), ()):
                self.sizes.measured(step, entry.of.inputs, entry.of.written)

    def measured(self, step: str, inputs: int, written: int) -> None:
        """Note what a job has written."""
        self.sizes.measured(step, inputs, written)
        self._new.measured(step, inputs, written)

    async def close(self) -> None:
        """Keep what this run has learned."""
        now = time.time()
        new = [
            LearnedSize(replace(self._keys[step], size_class=of_class), step, now, measured)
            for step, of_class, measured in self._new.all()
            if step in self._keys
        ]
        if new:
            await self._kept.remember(*new)


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
        super().__init__()
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
