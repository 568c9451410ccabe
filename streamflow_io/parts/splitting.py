"""The way in which one job splits a file, over all of its attempts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace
from streamflow.core.workflow import CommandOutput, Job, Token

from streamflow_io.adapters.inputs import Producers
from streamflow_io.adapters.job_spec import to_partition
from streamflow_io.adapters.jobs import JobState
from streamflow_io.adapters.steps import StreamingExecuteStep
from streamflow_io.adapters.tokens import file_tokens, part_tokens
from streamflow_io.messages import Code, coded
from streamflow_io.records.records import Record
from streamflow_io.runtime.node_runtime import NodeJob, NodeRuntime
from streamflow_io.runtime.protocol import Event, JobSpec, PartitionedInput

from .part_ways import CutFile, PartWays


class Split(Struct, frozen=True):
    """The way in which one attempt splits a file.

    :ivar cut: the file whose parts the attempt says. None: the attempt writes files
    :ivar partition: the same file, as the node runtime needs it. None: the attempt writes files
    """

    cut: CutFile | None = None
    partition: PartitionedInput | None = None

    def command(self, runtime: NodeRuntime) -> list[str] | None:
        """The command that says the parts in place of the program. None: the program runs."""
        return None

    def made(self, output: CommandOutput) -> dict[str, int | None] | None:
        """The outputs beside the parts, which only the program makes. None: the program has run."""
        return None

    def asked(self, spec: JobSpec) -> JobSpec:
        """A job that says its parts."""
        return replace(spec, split=self.partition)

    def told(self, events: AsyncIterator[Event]) -> AsyncIterator[Event]:
        """The events of the job, with each part as its readers find the file."""
        return events if self.cut is None else self.cut.events(events)


class Splitting:
    """Decides once whether a job says its parts: each attempt has to say the parts that an earlier one has said."""

    def __init__(self, ways: PartWays, step: StreamingExecuteStep, job: Job) -> None:
        self._ways = ways
        self._step = step
        self._job = job
        self._before: Split | None = None

    async def begin(
        self, runtime: NodeRuntime, node_job: NodeJob, inputs: Mapping[str, Token], producers: Producers
    ) -> Split:
        """Decide how an attempt splits.

        :param inputs: of the job, before an InitialWorkDirRequirement has changed them
        :param producers: the streams that the job reads
        """
        asked = to_partition(self._step.early_outputs, self._job.inputs)
        split = await self._split(asked, runtime, node_job, grows=False)
        self._before = split
        return split

    async def _split(
        self, asked: tuple[str, str] | None, runtime: NodeRuntime, node_job: NodeJob, grows: bool
    ) -> Split:
        """Ask a job for its parts, if all readers of the parts find the file.

        :param asked: the output whose elements are parts, and the path of the file. None: the job is not asked
        :param grows: whether the file is still written
        """
        cut = None if self._before is None else self._before.cut
        grows = grows or (cut is not None and cut.grows)
        if asked is not None and self._before is None:
            cut = await self._ways.of(self._job, *asked, runtime, grows)
        elif asked is not None and cut is not None:
            # Each attempt of the job that writes the file has a file of its own. A job that moves has another input.
            cut = replace(cut, path=asked[1])
        if asked is None or cut is None:
            return Split()
        file = node_job.directory / "parts.jsonl"
        return Split(cut, PartitionedInput(port=asked[0], of=cut.path, file=str(file), grows=grows))

    def ended(self, split: Split, tokens: Mapping[str, Token]) -> None:
        """Warn if a program that was asked for its parts has written all files itself."""
        if split.partition is not None:
            port = split.partition.port
            token = tokens.get(port)
            if any(True for _ in file_tokens(token)) and not any(True for _ in part_tokens(token)):
                written = (
                    f"Step {self._step.name} has written the files of `{port}`, as without its rule of "
                    "`sfio:ReadSession`: its program does not write its cuts into the file that SFIO_PARTS names"
                )
                self._step.warn_once(coded(written, Code.PARTS_WRITTEN))

    async def delivered(
        self, split: Split, runtime: NodeRuntime, tokens: Mapping[str, Token], globs: Mapping[str, Sequence[str]]
    ) -> None:
        """The outputs of the job were delivered: its files can be compared with what is declared of them."""


class Cuts:
    """The splits of a run. A program says its parts itself, unless a feature knows more.

    :param record: keeps a record for telemetry
    """

    def __init__(self, ways: PartWays, record: Callable[[Record], None]) -> None:
        self.ways = ways
        self.record = record

    def splitting(self, step: StreamingExecuteStep, job: Job) -> Splitting:
        """The way in which a job splits a file."""
        return Splitting(self.ways, step, job)

    async def observed(self, job: JobState, runtime: NodeRuntime) -> None:
        """A job has succeeded whose use of files was observed."""
