"""`streamflow-io coordination`: the coordination configuration of a StreamFlow file, for CAPIO. Nothing is run."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import cast, get_args

from streamflow_io.engine.plan import Plan
from streamflow_io.graph.capio_cl.language import Version, resolved, write_capio_cl, write_dot

from .console import DocumentResult, add_output_arguments, output_of, write_output
from .plan import plan_workflow

_CAPIO_CL = "capio-cl-"
FORMATS = (*(f"{_CAPIO_CL}{version}" for version in reversed(get_args(Version))), "dot")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "streamflow_file", metavar="STREAMFLOW_FILE", help="the StreamFlow file, as for `streamflow run`"
    )
    parser.add_argument(
        "--format",
        choices=FORMATS,
        default=FORMATS[0],
        metavar="FORMAT",
        help="capio-cl-1.1 (default), capio-cl-1.0, or dot",
    )
    add_output_arguments(parser)
    parser.add_argument(
        "--directory", metavar="DIR", type=Path, help="write paths below this directory (default: relative)"
    )


def run(arguments: argparse.Namespace) -> DocumentResult:
    """Write or print the coordination configuration of a workflow.

    :raises HintErrors: if the file, a workflow or a hint has mistakes, or the output exists or cannot be written
    """
    output = output_of(arguments)
    plan = plan_workflow(Path(arguments.streamflow_file), arguments.workflow)
    directory = None if arguments.directory is None else str(arguments.directory.absolute())
    text = _document(plan, arguments.format, directory)
    if output is not None:
        write_output(output, text)
    return DocumentResult(text, {"document": json.loads(text) if text.startswith("{") else text}, output)


def _document(plan: Plan, format_: str, directory: str | None) -> str:
    if format_ == "dot":
        return write_dot(plan.configuration, plan.graph.gangs)
    version = cast(Version, format_.removeprefix(_CAPIO_CL))
    configuration = resolved(plan.configuration)
    configuration = configuration if directory is None else configuration.below(directory)
    return json.dumps(write_capio_cl(configuration, version), indent=2) + "\n"
