"""The way in which a job with declared cuts splits a file, over all of its attempts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace
from streamflow.core.workflow import CommandOutput, Job, Token
from streamflow.log_handler import logger

from streamflow_io.adapters.inputs import Producers
from streamflow_io.adapters.jobs import JobState
from streamflow_io.adapters.outputs import EarlyOutput
from streamflow_io.adapters.steps import StreamingExecuteStep
from streamflow_io.jobs.programs import Programs
from streamflow_io.parts.part_ways import PartWays
from streamflow_io.parts.splitting import Cuts, Split, Splitting
from streamflow_io.records.records import Record
from streamflow_io.runtime.node_runtime import NodeJob, NodeRuntime
from streamflow_io.runtime.protocol import JobSpec

from .declared_split import DeclaredSplit, declared_split
from .seen_splits import look_for_splits
from .split_key import Declaration
from .verdicts import RememberedVerdicts


class _SplitByCuts(Split, frozen=True):
    """:ivar declared: the cuts of the job. None: the rule says nothing about the job"""

    declared: DeclaredSplit | None = None

    @property
    def virtual(self) -> DeclaredSplit | None:
        """The cuts that are said in place of the program. None: the program runs."""
        return self.declared if self.declared is not None and self.declared.is_virtual else None

    def command(self, runtime: NodeRuntime) -> list[str] | None:
        return None if self.virtual is None else self.virtual.command(runtime)

    def made(self, output: CommandOutput) -> dict[str, int | None] | None:
        return None if self.virtual is None else self.virtual.values(output.value)

    def asked(self, spec: JobSpec) -> JobSpec:
        asked = super().asked(spec)
        if self.virtual is None:
            return asked
        return replace(asked, command=replace(asked.command, success_codes=(0,)))


class DeclaredSplitting(Splitting):
    """Decides once whether the program of a job with declared cuts runs."""

    def __init__(
        self,
        ways: PartWays,
        step: StreamingExecuteStep,
        job: Job,
        output: EarlyOutput,
        declaration: Declaration,
        verdicts: RememberedVerdicts,
        programs: Programs,
    ) -> None:
        super().__init__(ways, step, job)
        self._output = output
        self._declaration = declaration
        self._verdicts = verdicts
        self._programs = programs

    async def begin(
        self, runtime: NodeRuntime, node_job: NodeJob, inputs: Mapping[str, Token], producers: Producers
    ) -> Split:
        of = self._output, self._declaration
        trusted = self._verdicts, self._programs
        declared = await declared_split(self._step, self._job, *of, inputs, *trusted, runtime, producers)
        before = self._before
        if declared is not None and isinstance(before, _SplitByCuts) and before.declared is not None:
            declared = replace(declared, is_virtual=before.declared.is_virtual)
        asked = (declared.output.port, declared.file) if declared is not None and declared.is_virtual else None
        plain = await self._split(asked, runtime, node_job, declared is not None and declared.grows)
        if declared is not None and plain.cut is None:
            declared = replace(declared, is_virtual=False)
        split = _SplitByCuts(plain.cut, plain.partition, declared)
        if split.virtual is not None:
            logger.info(f"Job {self._job.name} writes no parts: sfio-node finds the cuts, instead of its program")
        self._before = split
        return split

    async def delivered(
        self, split: Split, runtime: NodeRuntime, tokens: Mapping[str, Token], globs: Mapping[str, Sequence[str]]
    ) -> None:
        declared = split.declared if isinstance(split, _SplitByCuts) and split.virtual is None else None
        if declared is not None:
            await declared.compare(runtime, self._job, tokens, globs[declared.output.port], self._verdicts)


class CutsOfRun(Cuts):
    """The splits of a run. Some have declared cuts.

    :param verdicts: which declared cuts are trusted
    :param programs: of tools, by location
    """

    def __init__(
        self,
        ways: PartWays,
        record: Callable[[Record], None],
        declared: Mapping[tuple[str, str], Declaration],
        verdicts: RememberedVerdicts,
        programs: Programs,
    ) -> None:
        super().__init__(ways, record)
        self._declared = declared
        self._verdicts = verdicts
        self._programs = programs

    def splitting(self, step: StreamingExecuteStep, job: Job) -> Splitting:
        for output in step.early_outputs:
            declaration = self._declared.get((step.name, output.port))
            if output.of is not None and declaration is not None:
                return DeclaredSplitting(self.ways, step, job, output, declaration, self._verdicts, self._programs)
        return super().splitting(step, job)

    async def observed(self, job: JobState, runtime: NodeRuntime) -> None:
        await look_for_splits(job, runtime, self.record)
