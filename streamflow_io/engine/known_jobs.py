"""The jobs of a translated workflow that are known before it runs: their tags, and the paths of their outputs."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterable, MutableSequence, Sequence
from typing import Any
from urllib.parse import unquote

from cwl_utils.errors import JavascriptException, SubstitutionError, WorkflowException
from streamflow.core.workflow import Token, Workflow
from streamflow.cwl import utils
from streamflow.cwl.processor import CWLCommandOutputProcessor
from streamflow.cwl.step import CWLExecuteStep

from streamflow_io.adapters.output_globs import file_processor, output_processor, relative_glob
from streamflow_io.graph.capio_cl.applications import MOST_INSTANCES, KnownJobs
from streamflow_io.graph.io_graph import Output

from .known_tokens import KnownTokens, UnknownValue, is_open

_ANYWHERE = ("*",)
_OUTPUT_DIRECTORY = "/outdir"
_MADE_UP = re.compile(r"[0-9a-f]{40}")
_RUNTIME = re.compile(r"\bruntime\b(?!\s*\.\s*outdir\b)")
_AT_RUN_TIME = re.compile(r"\b(?:path|location|dirname|size|checksum|contents|listing|secondaryFiles|format)\b")


def known_globs(step: CWLExecuteStep, processor: CWLCommandOutputProcessor | None) -> tuple[str, ...]:
    """The globs of an output, relative to the output directory of its job; `*` stands for an expression.

    `*` also stands for the name that StreamFlow makes up for a standard stream, which differs between runs.
    """
    streams = [getattr(step.command, name, None) for name in ("stdout", "stderr")]
    return tuple(
        "*"
        if utils.is_expression(glob) or (glob in streams and _MADE_UP.fullmatch(glob) is not None)
        else relative_glob(glob, _OUTPUT_DIRECTORY)
        for glob in _globs(processor)
    )


def known_jobs(tokens: KnownTokens, workflow: Workflow, outputs: Iterable[Output]) -> KnownJobs:
    """The jobs of a workflow that are known before it runs. For globs in JavaScript a process is started."""
    tags = {
        step.name: None if (found := tokens.tags_of(step)) is None or any(map(is_open, found)) else found
        for step in workflow.steps.values()
        if isinstance(step, CWLExecuteStep)
    }
    globs = {}
    for output in outputs:
        step = workflow.steps[output.step]
        processor = file_processor(output_processor(step, output.port))
        if not any(utils.is_expression(glob) for glob in _globs(processor)):
            continue
        known = tags[output.step]
        for tag in known if known is not None and len(known) <= MOST_INSTANCES else ():
            globs[output.step, output.port, tag] = _evaluated_globs(tokens, step, processor, tag)
    return KnownJobs(tags, globs)


def _globs(processor: CWLCommandOutputProcessor | None) -> Sequence[str]:
    if processor is None or processor.glob is None:
        return _ANYWHERE
    return processor.glob if isinstance(processor.glob, MutableSequence) else [processor.glob]


def _evaluated_globs(
    tokens: KnownTokens, step: CWLExecuteStep, processor: CWLCommandOutputProcessor, tag: str
) -> tuple[str, ...]:
    """The globs of an output of one job, relative to its output directory; `*` stands for an unknown one."""
    found = [pattern for glob in _globs(processor) for pattern in _evaluated(tokens, step, processor, glob, tag)]
    return tuple(dict.fromkeys(relative_glob(pattern, _OUTPUT_DIRECTORY) for pattern in found))


def _evaluated(
    tokens: KnownTokens, step: CWLExecuteStep, processor: CWLCommandOutputProcessor, glob: str, tag: str
) -> Sequence[str]:
    if not utils.is_expression(glob):
        return [glob]
    if _RUNTIME.search(glob):
        return _ANYWHERE
    library = {"full_js": processor.full_js, "expression_lib": processor.expression_lib}
    try:
        names = utils.resolve_dependencies(glob, **library)
        inputs = _inputs(tokens, step, names, glob, tag)
        context = utils.build_context(inputs=inputs, output_directory=_OUTPUT_DIRECTORY)
        value = utils.eval_expression(glob, context, **library)
    except (UnknownValue, WorkflowException, JavascriptException, SubstitutionError):
        # The expression uses values that are known only at run time, or that are missing here.
        return _ANYWHERE
    values = value if isinstance(value, MutableSequence) else [value]
    return values if all(isinstance(v, str) for v in values) else _ANYWHERE


def _inputs(tokens: KnownTokens, step: CWLExecuteStep, names: Collection[str], glob: str, tag: str) -> dict[str, Token]:
    """The inputs that an expression uses.

    :param names: of these inputs; empty: perhaps all inputs of the step
    :raises UnknownValue: if the expression uses something of them that is known only at run time
    """
    ports = {name: port for name, port in step.get_input_ports().items() if name != "__job__"}
    inputs = {}
    for name in names or ports:
        if name not in ports:
            raise UnknownValue
        value = _named(tokens.value(ports[name], tag))
        if isinstance(value, dict | list) and _AT_RUN_TIME.search(glob):
            raise UnknownValue
        inputs[name] = Token(value=value)
    return inputs


def _named(value: Any) -> Any:
    """A File or Directory with the parts of its name, which are the same at every place."""
    if isinstance(value, list):
        return [_named(element) for element in value]
    if isinstance(value, dict) and value.get("class") in ("File", "Directory"):
        path = str(value.get("path") or value.get("location") or "")
        name = value.get("basename") or posixpath.basename(unquote(path) if "://" in path else path)
        root, extension = posixpath.splitext(name)
        return {**value, "basename": name, "nameroot": root, "nameext": extension}
    return value
