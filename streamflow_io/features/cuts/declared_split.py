"""A job with declared cuts: its program need not run if the cuts are verified; else its files are compared."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from msgspec import Struct
from streamflow.core.workflow import Job, Token
from streamflow.log_handler import logger
from streamflow.workflow.utils import get_token_value

from streamflow_io.adapters.inputs import Producers, growing_file
from streamflow_io.adapters.job_spec import is_whole_file
from streamflow_io.adapters.outputs import EarlyOutput
from streamflow_io.adapters.steps import StreamingExecuteStep
from streamflow_io.adapters.tokens import StreamToken, file_tokens
from streamflow_io.hints.inheritance import port_path
from streamflow_io.jobs.programs import Programs
from streamflow_io.messages import Code, coded
from streamflow_io.runtime.node_commands import NodeRuntimeError, seconds_to_compare
from streamflow_io.runtime.node_runtime import NodeRuntime
from streamflow_io.runtime.protocol import FileIdentity
from streamflow_io.wording import counted

from .split_key import (
    DIFFERENT,
    SAME,
    Declaration,
    InconclusiveError,
    NoRuleError,
    compared,
    reason,
    records_of,
    rule_of,
    verdict_key,
)
from .verdicts import RememberedVerdicts, Verdict, VerdictKey


class DeclaredSplit(Struct, frozen=True):
    """A job whose cuts are declared.

    :ivar output: whose elements are parts
    :ivar read: the path from which the job reads
    :ivar rule: as `sfio-node cut` reads it
    :ivar is_virtual: whether `sfio-node cut` says the parts in place of the program
    :ivar identity: of the file before the job. None: the file is still written, or cannot be found
    :ivar count: the output that is the number of records. None: no output is
    """

    step: str
    output: EarlyOutput
    read: str
    file: str
    rule: str
    key: VerdictKey
    is_virtual: bool
    identity: FileIdentity | None
    count: str | None = None

    @property
    def name(self) -> str:
        return port_path(self.step, self.output.port)

    @property
    def grows(self) -> bool:
        """Whether the file is still written when the job begins: the job reads a stream then."""
        return self.read != self.file

    def command(self, runtime: NodeRuntime) -> list[str]:
        """The command that runs in place of the program."""
        return [str(runtime.binary), "cut", "--of", self.read, "--rule", self.rule]

    def values(self, said: object) -> dict[str, int | None]:
        """The outputs beside the parts, by name, as far as they are known without a run of the program."""
        return {} if self.count is None else {self.count: records_of(str(said))}

    async def compare(
        self,
        runtime: NodeRuntime,
        job: Job,
        outputs: Mapping[str, Token],
        globs: Sequence[str],
        verdicts: RememberedVerdicts,
    ) -> None:
        """Compare the files of a job that has succeeded with the cuts, and remember the verdict. Never fails.

        :param globs: where the output with the parts is found
        """
        if not verdicts.begin(self.key):
            return
        try:
            options = ["--of", self.file, "--rule", self.rule, "--compare", job.output_directory]
            # Of a stream all bytes were compared with the file when that was final.
            identity = await _identity_of(self.file, runtime) if self.grows else self.identity
            size = 0 if identity is None else identity.size
            said, code = await runtime.run([str(runtime.binary), "cut", *options], seconds_to_compare(size))
            if identity is None or await _identity_of(self.file, runtime) != identity:
                self._tell_unknown(f"{self.file} was changed meanwhile")
            elif code == SAME:
                await self._judge(job, said, outputs, globs, verdicts)
            elif code == DIFFERENT:
                await self._remember(verdicts, 0, said)
            else:
                self._tell_unknown(reason(said))
        except NodeRuntimeError as error:
            self._tell_unknown(str(error))
        finally:
            verdicts.end(self.key)

    async def _judge(
        self,
        job: Job,
        said: str,
        outputs: Mapping[str, Token],
        globs: Sequence[str],
        verdicts: RememberedVerdicts,
    ) -> None:
        written = list(map(get_token_value, file_tokens(outputs.get(self.output.port))))
        counted = next((get_token_value(outputs[port]) for port in self.values("") if port in outputs), None)
        try:
            outcome = compared(self.rule, said, globs, written, job.output_directory, counted)
            await self._remember(verdicts, *outcome)
        except InconclusiveError as error:
            logger.info(f"The rule of `sfio:ReadSession` for {self.name} is not verified: {error}")

    async def _remember(self, verdicts: RememberedVerdicts, parts: int, difference: str | None) -> None:
        await verdicts.remember(Verdict(self.key, self.step, time.time(), parts, difference))
        rule = f"The rule of `sfio:ReadSession` for {self.name}"
        if difference is None:
            logger.info(
                f"{rule} is verified: {counted(parts, 'part')}, byte for byte as the program writes. Later runs write "
                "no parts"
            )
        else:
            logger.warning(coded(f"{rule} is refuted, and does nothing: {difference}", Code.REFUTED))

    def _tell_unknown(self, why: str) -> None:
        rule = f"The rule of `sfio:ReadSession` for {self.name}"
        logger.warning(coded(f"{rule} could not be compared with what the program writes: {why}", Code.NOT_COMPARED))


async def declared_split(
    step: StreamingExecuteStep,
    job: Job,
    output: EarlyOutput,
    declaration: Declaration,
    inputs: Mapping[str, Token],
    verdicts: RememberedVerdicts,
    programs: Programs,
    runtime: NodeRuntime,
    producers: Producers = (),
) -> DeclaredSplit | None:
    """The split of a job with declared cuts. None: the rule says nothing about the job.

    :param output: with the cuts
    :param inputs: of the job, before an InitialWorkDirRequirement has changed them
    :param programs: the programs that differ where jobs run
    :param producers: the streams that the job reads
    """
    of = declaration.rule.of
    growing = growing_file(inputs.get(of), producers, runtime)
    file = job.inputs.get(of)
    if growing is None and isinstance(file, StreamToken):
        step.warn_once(
            f"The files of {port_path(step.name, output.port)} are written, as without its rule of "
            f"`sfio:ReadSession`: {port_path(step.name, of)} is streamed from another host or container"
        )
    if file is None or (growing is None and not is_whole_file(file)):
        return None
    values = {name: get_token_value(token) for name, token in inputs.items()}
    try:
        # A tool that names no program has all that is known of it in its digest.
        there = await programs.of(runtime, declaration.programs) if declaration.programs else ()
        if there is None:
            raise NoRuleError("the programs of its tool are not known where it runs")
        rule, key = rule_of(declaration.rule, values), verdict_key(declaration, values, there)
    except NoRuleError as error:
        step.warn_once(f"The rule of `sfio:ReadSession` for {port_path(step.name, output.port)} does nothing: {error}")
        return None
    verdict = verdicts.of(key)
    is_virtual = verdict is not None and verdict.is_verified
    read = str(file.value["path"])
    identity = await _identity_of(read, runtime) if growing is None else None
    return DeclaredSplit(
        step.name, output, read, str(growing or read), rule, key, is_virtual, identity, declaration.rule.count
    )


async def _identity_of(path: str, runtime: NodeRuntime) -> FileIdentity | None:
    """The identity of a file. None: the file cannot be found."""
    try:
        return (await runtime.find(path)).identity
    except NodeRuntimeError:
        return None
