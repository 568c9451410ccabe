"""Where the outputs of a job are found."""

from __future__ import annotations

import posixpath
from collections.abc import MutableSequence
from typing import TYPE_CHECKING, Any

from streamflow.core.workflow import Job
from streamflow.cwl import utils

from .publisher import file_processor

if TYPE_CHECKING:
    from .step import StreamingExecuteStep


def output_globs(step: StreamingExecuteStep, job: Job, port: str) -> tuple[str, ...]:
    """The globs of an output, with expressions evaluated, relative to the output directory of the job."""
    processor = file_processor(step.output_processors[port])
    assert processor is not None, "only outputs with files are delivered early"
    context = utils.build_context(
        inputs=job.inputs,
        output_directory=job.output_directory,
        tmp_directory=job.tmp_directory,
        hardware=step.workflow.context.scheduler.get_hardware(job.name),
    )

    def evaluate(glob: Any) -> list[str]:
        value = (
            utils.eval_expression(glob, context, full_js=processor.full_js, expression_lib=processor.expression_lib)
            if utils.is_expression(glob)
            else glob
        )
        return [str(v) for v in value] if isinstance(value, MutableSequence) else [str(value)]

    globs = processor.glob if isinstance(processor.glob, MutableSequence) else [processor.glob]
    return tuple(_relative(pattern, job.output_directory) for glob in globs for pattern in evaluate(glob))


def _relative(pattern: str, directory: str) -> str:
    pattern = posixpath.normpath(pattern)
    return posixpath.relpath(pattern, directory) if posixpath.isabs(pattern) else pattern
