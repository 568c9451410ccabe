"""Chooses the edges of a translated workflow that CAPIO serves."""

from __future__ import annotations

import posixpath
import shutil
from collections.abc import MutableSequence, Sequence
from functools import partial
from pathlib import Path

from streamflow.core.processor import CommandOutputProcessor
from streamflow.core.workflow import Workflow
from streamflow.cwl.command import CWLCommand
from streamflow.cwl.step import CWLExecuteStep
from streamflow.cwl.utils import is_expression
from streamflow.log_handler import logger

from streamflow_io.adapters.output_globs import file_processor
from streamflow_io.adapters.outputs import is_early_port
from streamflow_io.engine.runtimes import RuntimeChoice, RuntimeForecast
from streamflow_io.graph.io_graph import StreamEdge
from streamflow_io.hints.globs import is_pattern
from streamflow_io.messages import Code, coded
from streamflow_io.records.files import SERVED

from .runtime.installation import CapioError, find_capio
from .runtime.runtime import CapioRuntime
from .runtime.supported import CapioMapping, CapioOutput, CapioStep, map_to_capio


def forecast(workflow: Workflow, edges: Sequence[StreamEdge]) -> RuntimeForecast:
    """Say which early edges of a workflow CAPIO would serve. Start nothing."""
    mapping = capio_mapping(workflow, edges)
    return RuntimeForecast("CAPIO", "if it is installed", mapping.served, mapping.refused)


def choose(workflow: Workflow, edges: Sequence[StreamEdge]) -> RuntimeChoice:
    """Decide what CAPIO does in a run, and warn of each edge that was to be early and that it does not serve."""
    mapping = capio_mapping(workflow, edges)
    try:
        installation = find_capio()
    except CapioError as error:
        message = f"`runtime: capio`: the embedded node runtime is used for all: {error}"
        logger.warning(coded(message, Code.NO_CAPIO))
        return RuntimeChoice(edges={**dict.fromkeys(mapping.served, str(error)), **mapping.refused})
    for edge, reason in mapping.refused.items():
        logger.warning(coded(f"{edge.name} is served by the embedded node runtime: {reason}", Code.CAPIO_NOT_FOR_EDGE))
    if not mapping.served:
        return RuntimeChoice(edges=mapping.refused)
    logger.info(f"CAPIO serves {', '.join(edge.name for edge in mapping.served)}")
    served = dict.fromkeys(mapping.served, SERVED)
    return RuntimeChoice(partial(CapioRuntime.start_with, installation, mapping), {**served, **mapping.refused})


def capio_mapping(workflow: Workflow, edges: Sequence[StreamEdge]) -> CapioMapping:
    """The early edges of a translated workflow that CAPIO serves, and why not the others. Starts nothing."""
    tools = {step.name: step for step in workflow.steps.values() if isinstance(step, CWLExecuteStep)}
    return map_to_capio(edges, {path: capio_step(step) for path, step in tools.items()})


def capio_step(step: CWLExecuteStep) -> CapioStep:
    """The facts about a step that matter for CAPIO."""
    command = step.command
    if not isinstance(command, CWLCommand):
        return CapioStep(obstacle=f"{step.name} is an ExpressionTool")
    obstacle = f"{step.name} sets LD_PRELOAD itself" if "LD_PRELOAD" in command.environment else None
    writing_obstacle = None
    if command.initial_work_dir is not None:
        writing_obstacle = (
            f"{step.name} has an InitialWorkDirRequirement: CAPIO does not know what is put into the directory"
        )
    redirections = {stream for stream in (command.stdout, command.stderr) if stream is not None}
    outputs = {
        port: output
        for port, processor in step.output_processors.items()
        if not is_early_port(port) and (output := _capio_output(processor, redirections)) is not None
    }
    program = "sh" if command.is_shell_command else program_name(next(iter(command.base_command), None))
    return CapioStep(program, obstacle, writing_obstacle, outputs)


def program_name(word: object) -> str | None:
    """The name of a program, or of the interpreter of a script; None if it is known only at run time."""
    if not isinstance(word, str) or is_expression(word):
        return None
    try:
        with Path(shutil.which(word) or word).open("rb") as file:
            line = file.read(256).partition(b"\n")[0].decode(errors="replace")
    except OSError:
        line = ""
    words = line.removeprefix("#!").split() if line.startswith("#!") else [word]
    names = [posixpath.basename(word) for word in words if not word.startswith("-")]
    return next((name for name in names if name != "env"), None)


def _capio_output(processor: CommandOutputProcessor, redirections: set[str]) -> CapioOutput | None:
    """The files that an output looks at. None: the output looks at no file."""
    collector = file_processor(processor)
    if collector is None:
        return CapioOutput(None)  # The files are not known.
    if collector.glob is None:
        return None
    if isinstance(collector.glob, str) and collector.glob in redirections:
        return CapioOutput(collector.glob, redirected=True)
    kinds = collector.token_type if isinstance(collector.token_type, MutableSequence) else [collector.token_type]
    certain = isinstance(collector.glob, str) and not is_expression(collector.glob) and not is_pattern(collector.glob)
    simple = "Directory" not in kinds and not collector.secondary_files and collector.target is None
    # What an expression gives is known when the job starts.
    evaluated = simple and isinstance(collector.glob, str) and is_expression(collector.glob)
    return CapioOutput(posixpath.normpath(collector.glob) if certain and simple else None, evaluated=evaluated)
