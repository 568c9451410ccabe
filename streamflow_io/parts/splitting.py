"""How one job splits a file, over all of its attempts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace
from streamflow.core.workflow import CommandOutput, Job, Token
from streamflow.log_handler import logger

from streamflow_io.adapters.inputs import Producers
from streamflow_io.adapters.job_spec import to_partition
from streamflow_io.adapters.steps import StreamingExecuteStep
from streamflow_io.adapters.tokens import file_tokens, part_tokens
from streamflow_io.messages import Code, coded
from streamflow_io.records.learned.verdicts import RememberedVerdicts
from streamflow_io.runtime.node_runtime import NodeJob, NodeRuntime
from streamflow_io.runtime.protocol import Event, JobSpec, PartitionedInput

from .declared_split import DeclaredSplit, declared_split
from .part_ways import CutFile, PartWays


class SplittingRun(Protocol):
    """What a job that splits asks of its run."""

    verdicts: RememberedVerdicts

    @property
    def part_ways(self) -> PartWays: ...


class Split(Struct, frozen=True):
    """What an attempt is asked.

    :ivar declared: where its cuts are declared
    :ivar cut: the file of which it says the parts; None: it writes files
    :ivar partition: the file and the way of the announcements. None: the program announces no parts
    """

    declared: DeclaredSplit | None = None
    cut: CutFile | None = None
    partition: PartitionedInput | None = None

    @property
    def virtual(self) -> DeclaredSplit | None:
        """What is declared, if that is done instead of running the program."""
        return self.declared if self.declared is not None and self.declared.is_virtual else None

    def command(self, runtime: NodeRuntime) -> list[str] | None:
        """What is run instead of the program; None: nothing is."""
        return None if self.virtual is None else self.virtual.command(runtime)

    def asked(self, spec: JobSpec) -> JobSpec:
        """A job that says where it cuts."""
        command = spec.command if self.virtual is None else spec.command.model_copy(update={"success_codes": (0,)})
        return spec.model_copy(update={"split": self.partition, "command": command})

    def told(self, events: AsyncIterator[Event]) -> AsyncIterator[Event]:
        """What the job tells, as the readers of its parts have to know it."""
        return events if self.cut is None else self.cut.events(events)

    def made(self, output: CommandOutput) -> dict[str, int | None] | None:
        """The outputs that the program would have made beside the parts."""
        return None if self.virtual is None else self.virtual.values(output.value)


class Splitting:
    """Decides once what is asked of a job: what an attempt has said, each has to say again."""

    def __init__(self, run: SplittingRun, step: StreamingExecuteStep, job: Job) -> None:
        self._run = run
        self._step = step
        self._job = job
        self._before: Split | None = None

    async def begin(
        self, runtime: NodeRuntime, node_job: NodeJob, inputs: Mapping[str, Token], producers: Producers
    ) -> Split:
        """An attempt begins.

        :param inputs: of the job, before an InitialWorkDirRequirement has changed them
        :param producers: what it reads while it is written
        """
        before = self._before
        declared = await declared_split(self._step, self._job, inputs, self._run.verdicts, runtime, producers)
        if declared is not None and before is not None and before.declared is not None:
            declared = replace(declared, is_virtual=before.declared.is_virtual)
        split, cut = Split(declared), None if before is None else before.cut
        if declared is not None:
            asked = (declared.output.port, declared.file) if declared.is_virtual else None
        else:
            asked = to_partition(self._step.early_outputs, self._job.inputs)
        grows = (declared is not None and declared.grows) or (cut is not None and cut.grows)
        if asked is not None and before is None:
            cut = await self._run.part_ways.of(self._job.name, *asked, runtime, grows)
        elif asked is not None and cut is not None and cut.grows:
            # Each attempt of the job that writes it has a file of its own.
            cut = replace(cut, path=asked[1])
        if asked is not None and cut is not None:
            file = node_job.directory / "parts.jsonl"
            partition = PartitionedInput(port=asked[0], of=cut.path, file=str(file), grows=grows)
            split = Split(declared, cut, partition)
        elif declared is not None:
            split = Split(replace(declared, is_virtual=False))
        if split.virtual is not None:
            logger.info(f"Job {self._job.name} writes no parts: sfio-node finds the cuts, instead of its program")
        self._before = split
        return split

    def ended(self, split: Split, tokens: Mapping[str, Token]) -> None:
        """An attempt has succeeded: say it if a program that was asked where it cuts has written all files itself."""
        if split.partition is not None:
            port = split.partition.port
            token = tokens.get(port)
            if any(True for _ in file_tokens(token)) and not any(True for _ in part_tokens(token)):
                written = (
                    f"Step {self._step.name} has written the files of `{port}`, as without its rule of "
                    "`sfio:ReadSession`: its program does not write its cuts into the file that SFIO_PARTS names"
                )
                self._step.warn_once(coded(written, Code.PARTS_WRITTEN))

    async def compare(
        self, split: Split, runtime: NodeRuntime, tokens: Mapping[str, Token], globs: Mapping[str, Sequence[str]]
    ) -> None:
        """Its outputs were delivered: compare what the program has written with what is declared."""
        if (declared := split.declared) is not None and split.virtual is None:
            found = globs[declared.output.port]
            await declared.compare(runtime, self._job, tokens, found, self._run.verdicts)
