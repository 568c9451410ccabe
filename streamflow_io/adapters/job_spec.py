"""The description of a job for the node runtime."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableSequence
from typing import Any, cast

from msgspec.structs import replace
from streamflow.core.workflow import Job, Step, Token
from streamflow.cwl.command import CWLCommand
from streamflow.cwl.step import CWLExecuteStep
from streamflow.workflow.step import ExecuteStep
from streamflow.workflow.token import FileToken
from streamflow.workflow.utils import get_token_value

from streamflow_io.graph.io_graph import OutputKind
from streamflow_io.hints.models import StreamingRule
from streamflow_io.runtime.protocol import CommandSpec, JobSpec, ObservedInput, WatchedOutput
from streamflow_io.runtime.wire import with_observation

from .output_globs import file_processor, kind_of, output_globs
from .outputs import EarlyOutput
from .tokens import parts_of, streams_of


def job_spec(step: CWLExecuteStep, job: Job) -> JobSpec:
    """The spec of a job without any watched file."""
    command = cast(CWLCommand, step.command)
    codes = {0, *(command.success_codes or ())} - set(command.failure_codes or ())
    return JobSpec(name=job.name, command=CommandSpec(success_codes=tuple(sorted(codes))))


def to_partition(outputs: Iterable[EarlyOutput], inputs: Mapping[str, Token]) -> tuple[str, str] | None:
    """The output whose parts the program of a job may report, and the path of the file that is split.

    None: the input of no output is a whole file: it may be an optional input, a stream, or a part.
    """
    for output in outputs:
        token = inputs.get(output.of or "")
        if token is not None and is_whole_file(token):
            return output.port, str(token.value["path"])
    return None


def observed(spec: JobSpec, step: CWLExecuteStep, job: Job) -> JobSpec:
    """The same job, with all of its File outputs and inputs observed.

    Files that are watched or streamed already stay as they are. Observation does not change what the job does,
    but for setuid programs: without root their privileges are lost.
    """
    watched = {output.port for output in spec.outputs}
    outputs = [output for port in step.output_processors if port not in watched for output in _watched(step, job, port)]
    streamed = {token.value["path"] for token in streams_of(job.inputs)}
    streamed |= {token.value["path"] for _, token in parts_of(job.inputs)}
    inputs = {
        ObservedInput(name=name, path=path): None
        for name, token in job.inputs.items()
        for path in paths_of([token])
        if path not in streamed
    }
    watching = replace(spec, outputs=(*spec.outputs, *outputs))
    return with_observation(watching, reads=tuple(inputs), io=True)


def _watched(step: CWLExecuteStep, job: Job, port: str) -> Iterator[WatchedOutput]:
    processor = file_processor(step.output_processors[port])
    kind = kind_of(processor)
    if processor is None or processor.glob is None or processor.target is not None or kind is OutputKind.OTHER:
        return
    try:
        globs = output_globs(step, job, port)
    except Exception:
        # An expression may raise anything: it may need files that the command makes. It is evaluated again at the end.
        return
    # The node runtime refuses globs outside the output directory, and StreamFlow finds no file by them.
    globs = tuple(pattern for pattern in globs if pattern.split("/")[0] != "..")
    if globs:
        yield EarlyOutput(port=port, kind=kind, rules=(StreamingRule(port=port),)).watched(job.output_directory, globs)


def paths_of(tokens: Iterable[Token]) -> Iterator[str]:
    """The paths of all File and Directory objects in some tokens, with secondary files."""
    for token in tokens:
        yield from _paths(get_token_value(token))


def is_whole_file(token: Token) -> bool:
    """Whether a token is a final File."""
    value: Mapping[str, Any] | None = token.value if isinstance(token, FileToken) else None
    return value is not None and value["class"] == "File"


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _paths(value: Any) -> Iterator[str]:
    if isinstance(value, MutableSequence):
        for element in value:
            yield from _paths(element)
    elif isinstance(value, Mapping):
        if value.get("class") in ("File", "Directory"):
            # Other paths cannot be written in JSON.
            if isinstance(path := value.get("path"), str) and _is_text(path):
                yield path
            yield from _paths(value.get("secondaryFiles", []))
        else:
            for element in value.values():
                yield from _paths(element)


def time_limit(step: Step | None) -> float | None:
    """The ToolTimeLimit of a step, in seconds, if it is a number; None: its jobs may take any time."""
    command = step.command if isinstance(step, ExecuteStep) else None
    limit = command.time_limit if isinstance(command, CWLCommand) else None
    return float(limit) if isinstance(limit, int) and limit > 0 else None
