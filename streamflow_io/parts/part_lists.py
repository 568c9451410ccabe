"""Lists of files whose elements are parts of another file, as StreamFlow makes lists of files."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from typing import Any

from streamflow.core.exception import WorkflowExecutionException
from streamflow.core.utils import get_tag
from streamflow.core.workflow import CommandOutput, Job, Token
from streamflow.cwl.processor import CWLOutputJSONCommandOutput
from streamflow.workflow.token import ListToken

from streamflow_io.adapters.output_globs import output_globs
from streamflow_io.adapters.outputs import relative_or_absolute
from streamflow_io.adapters.steps import Connectors, StreamingExecuteStep
from streamflow_io.adapters.tokens import PartToken, file_tokens

from .said_parts import in_order

# What may stand in `cwl.output.json` of a part.
_FIELDS = {"class", "path", "location", "basename", "format"}


async def list_with_parts(
    step: StreamingExecuteStep,
    job: Job,
    port: str,
    output: CommandOutput,
    connectors: Connectors,
    parts: Mapping[str, PartToken],
) -> dict[str, Token]:
    """An output of a job that has succeeded: what its program has written, and what it has said, in order.

    :param parts: by name
    :return: by port; empty if there is none
    :raises WorkflowExecutionException: if `cwl.output.json` says of a part what is not known of it
    """
    found: dict[str, Token] = dict(parts)
    if isinstance(output, CWLOutputJSONCommandOutput) and isinstance(values := output.value.get(port), list):
        order = [_path(job, value) for value in values]
        told = {path: value for path, value in zip(order, values, strict=True) if path in parts}
        found |= {path: _as_said(job, parts[path], value) for path, value in told.items()}
        rest = output.value | {port: [value for value in values if _path(job, value) not in parts]}
        output = CWLOutputJSONCommandOutput(value=rest, status=output.status, exit_code=output.exit_code)
        written = await step.collect_port(job, port, output, connectors)
    else:
        written = await step.collect_port(job, port, output, connectors)
        is_told = isinstance(output, CWLOutputJSONCommandOutput)
        paths = {*parts, *(_path(job, token.value) for token in file_tokens(written))}
        order = [] if is_told else in_order(output_globs(step, job, port), paths)
    if written is None or parts.keys().isdisjoint(order):
        return {} if written is None else {port: written}
    found |= {_path(job, token.value): token for token in file_tokens(written)}
    # One may be in `cwl.output.json` twice.
    tokens = [found[path].update(found[path].value) for path in order]
    return {port: ListToken(tokens, tag=get_tag(job.inputs.values()))}


def _path(job: Job, value: Any) -> str:
    """The path of a File, relative to the output directory of the job; empty: it is no File."""
    path = value.get("path") if isinstance(value, Mapping) else None
    return "" if path is None else relative_or_absolute(posixpath.normpath(str(path)), job.output_directory)


def _as_said(job: Job, part: PartToken, value: Mapping[str, Any]) -> PartToken:
    """A part with what `cwl.output.json` says of it."""
    if more := sorted(value.keys() - _FIELDS):
        name = part.value["basename"]
        raise WorkflowExecutionException(
            f"FAILED Job {job.name}: `cwl.output.json` has {more[0]} of {name}, which is a part of another file"
        )
    told = {key: value[key] for key in ("basename", "format") if key in value}
    return part.update({**part.value, **told})
