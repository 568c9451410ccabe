"""The globs and the processors of the outputs of a job."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, MutableSequence
from typing import Any

from cwl_utils.types import CWLParameterContext
from streamflow.core.processor import (
    CommandOutputProcessor,
    PopCommandOutputProcessor,
    UnionCommandOutputProcessor,
)
from streamflow.core.workflow import Job
from streamflow.cwl import utils
from streamflow.cwl.processor import CWLCommandOutputProcessor, CWLObjectCommandOutputProcessor
from streamflow.cwl.step import CWLExecuteStep

from streamflow_io.graph.io_graph import OutputKind
from streamflow_io.hints.globs import is_pattern


def output_processor(step: CWLExecuteStep, port: str) -> CommandOutputProcessor:
    """The processor of an output of a step, or of a field of a record output: `record.field`."""
    if port in step.output_processors:
        return step.output_processors[port]
    return next(
        field
        for record, processor in step.output_processors.items()
        for name, field in record_fields(processor).items()
        if field_port(record, name) == port
    )


def field_port(record: str, field: str) -> str:
    """The name of a field of a record output."""
    return f"{record}.{field}"


def record_fields(processor: CommandOutputProcessor) -> Mapping[str, CommandOutputProcessor]:
    """The processors of the fields of a record output, if each is collected by itself; else empty."""
    processors = processor.processors if isinstance(processor, UnionCommandOutputProcessor) else [processor]
    # StreamFlow adds to each a processor that reads the output from `cwl.output.json`.
    records = [each for each in processors if not isinstance(each, PopCommandOutputProcessor)]
    if len(records) != 1 or not isinstance(record := records[0], CWLObjectCommandOutputProcessor):
        return {}
    return dict(record.processors) if record.single and not record.output_eval and record.target is None else {}


def file_processor(processor: CommandOutputProcessor) -> CWLCommandOutputProcessor | None:
    """The processor that collects the files of an output; None: the output is no File, File[] or Directory."""
    if isinstance(processor, UnionCommandOutputProcessor):
        return next((p for p in processor.processors if isinstance(p, CWLCommandOutputProcessor)), None)
    return processor if isinstance(processor, CWLCommandOutputProcessor) else None


def kind_of(processor: CWLCommandOutputProcessor | None) -> OutputKind:
    """The kind of an output, as far as rules differ.

    :param processor: collects the files of the output; None: the output has no files
    """
    if processor is None:
        return OutputKind.OTHER
    if processor.token_type == "File":
        return OutputKind.FILE if processor.single else OutputKind.FILES
    if processor.token_type == "Directory" and processor.single:
        return OutputKind.DIRECTORY
    return OutputKind.OTHER


def collects_only_files(processor: CommandOutputProcessor) -> bool:
    """Whether an output can be nothing but files. Processors that read `cwl.output.json` do not count."""
    processors = processor.processors if isinstance(processor, UnionCommandOutputProcessor) else [processor]
    return all(isinstance(p, CWLCommandOutputProcessor | PopCommandOutputProcessor) for p in processors)


def output_globs(step: CWLExecuteStep, job: Job, port: str) -> tuple[str, ...]:
    """The globs of an output, with expressions evaluated, relative to the output directory of the job."""
    processor = file_processor(output_processor(step, port))
    assert processor is not None, "only outputs with files have globs"
    context = expression_context(step, job)

    def evaluate(glob: Any) -> list[str]:
        value = (
            utils.eval_expression(glob, context, full_js=processor.full_js, expression_lib=processor.expression_lib)
            if utils.is_expression(glob)
            else glob
        )
        return [str(v) for v in value] if isinstance(value, MutableSequence) else [str(value)]

    if processor.glob is None:
        return ()  # `cwl.output.json` names the file.
    globs = processor.glob if isinstance(processor.glob, MutableSequence) else [processor.glob]
    return tuple(relative_glob(pattern, job.output_directory) for glob in globs for pattern in evaluate(glob))


def with_format(step: CWLExecuteStep, job: Job, port: str, value: dict[str, Any]) -> dict[str, Any]:
    """The value of a File or Directory, with the format that the output declares. The format may be an expression.

    Raises whatever the expression raises.
    """
    processor = file_processor(output_processor(step, port))
    if processor is None or not processor.file_format:
        return value
    options = {"full_js": processor.full_js, "expression_lib": processor.expression_lib}
    context = {**expression_context(step, job), "self": value}
    return {**value, "format": utils.eval_expression(processor.file_format, context, **options)}


def expression_context(step: CWLExecuteStep, job: Job) -> CWLParameterContext:
    """The variables that the expressions of a job can use."""
    context: CWLParameterContext = utils.build_context(
        inputs=job.inputs,
        output_directory=job.output_directory,
        tmp_directory=job.tmp_directory,
        hardware=step.workflow.context.scheduler.get_hardware(job.name),
    )
    return context


def certain_path(processor: CommandOutputProcessor, globs: tuple[str, ...]) -> str | None:
    """The path of a File or Directory, if the path is certain before the file exists.

    :param globs: of the output, relative to the output directory of the job
    :return: relative to that directory; None: the file may be elsewhere, or may not come at all
    """
    collector = file_processor(processor)
    if collector is None or collector.optional or not collects_only_files(processor) or len(globs) != 1:
        return None
    (path,) = globs
    return None if is_pattern(path) or path.split("/")[0] == ".." else path


def relative_glob(pattern: str, directory: str) -> str:
    """A glob relative to the output directory of the job."""
    pattern = posixpath.normpath(pattern)
    return posixpath.relpath(pattern, directory) if posixpath.isabs(pattern) else pattern
