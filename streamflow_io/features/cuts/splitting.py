"""The way in which a job with declared cuts splits a file, over all of its attempts; the splits of an observed job."""

from __future__ import annotations

import json
import posixpath
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec import Struct, convert
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
from streamflow_io.records.files import SplitRecord
from streamflow_io.records.job_files import JobFiles
from streamflow_io.records.records import Record
from streamflow_io.runtime.node_commands import NodeRuntimeError, seconds_to_compare
from streamflow_io.runtime.node_runtime import NodeJob, NodeRuntime
from streamflow_io.runtime.protocol import JobSpec

from .declared_split import DeclaredSplit, declared_split
from .split_key import Declaration
from .verdicts import RememberedVerdicts

_FOUND = 0
_DIGITS = re.compile(r"[0-9]+")
# The most that a rule of a read session can have.
_WIDEST = 18


class PartNames(Struct, frozen=True):
    """The names of numbered files.

    :ivar names: with one `%d`, or `%0Nd`, for the number
    """

    names: str
    first: int


class PossibleSplit(Struct, frozen=True):
    """Numbered files in an output of type File[] that may be parts of an input. Paths are those at the job's location.

    :ivar size: bytes of all parts
    """

    port: str
    of: str
    file: str
    directory: str
    names: PartNames
    parts: int
    size: int


async def look_for_splits(job: JobState, runtime: NodeRuntime, record: Callable[[SplitRecord], None]) -> None:
    """Record the splits of a job that has succeeded. Never fails."""
    for split in () if (files := job.kept(JobFiles)) is None else possible_splits(files):
        words = [str(runtime.binary), "propose", "--of", split.file, "--directory", split.directory]
        words += ["--names", split.names.names, "--first", str(split.names.first), "--count", str(split.parts)]
        try:
            said, code = await runtime.run(words, seconds_to_compare(split.size))
            if code == _FOUND:
                what = {"port": split.port, "of": split.of, "count": split.parts}
                names = {"names": split.names.names, "first": split.names.first}
                of = {"time": time.time(), "job": job.name, "step": job.step}
                record(convert({**of, **what, **names, **json.loads(said)}, SplitRecord))
        except (NodeRuntimeError, ValueError) as error:
            logger.debug(f"{split.port} was not looked at: {error}")


def possible_splits(files: JobFiles) -> Iterator[PossibleSplit]:
    """The outputs that may be parts of an input that the job has opened."""
    for output, sizes in files.sizes():
        if output.kind != "files" or len(sizes) < 2:
            continue
        paths = sorted(sizes)
        names = names_of_parts([posixpath.basename(path) for path in paths])
        if names is None or {posixpath.dirname(path) for path in paths} != {str(output.root)}:
            continue
        for read in files.opened_alone():
            size = sum(sizes.values())
            yield PossibleSplit(output.port, read.name, read.path, str(output.root), names, len(paths), size)


def names_of_parts(found: Sequence[str]) -> PartNames | None:
    """The pattern that some names share. None: the names are not numbered one after the other.

    :param found: names without a slash, in order
    """
    if not found or "%" in found[0] or not all(name.isprintable() for name in found):
        return None
    ends = ((start, run.end()) for run in _DIGITS.finditer(found[0]) for start in range(run.start(), run.end()))
    for start, end in ends:
        before, digits, after = found[0][:start], found[0][start:end], found[0][end:]
        first, width = int(digits), len(digits) if digits.startswith("0") and len(digits) > 1 else 0
        if width <= _WIDEST and all(
            name == f"{before}{number:0{width}d}{after}" for number, name in enumerate(found, first)
        ):
            return PartNames(f"{before}%{f'0{width}' if width else ''}d{after}", first)
    return None


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
