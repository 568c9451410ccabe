"""`streamflow-io coordination`: the coordination configuration of a StreamFlow file, for CAPIO. Nothing is run."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, cast, get_args

from msgspec import Struct, to_builtins
from pydantic.alias_generators import to_camel
from rich.console import Console

from streamflow_io.engine.plan import Plan
from streamflow_io.graph.capio_cl.configuration import Configuration
from streamflow_io.graph.capio_cl.dot import write_dot
from streamflow_io.graph.capio_cl.language import Version, resolved, unresolved, write_capio_cl
from streamflow_io.graph.io_graph import StreamEdge

from .output import write_output
from .plan import plan_workflow
from .sites import site_to_json

_CAPIO_CL = "capio-cl-"
FORMATS = (*(f"{_CAPIO_CL}{version}" for version in reversed(get_args(Version))), "dot")


class Coordination(Struct, frozen=True):
    """The coordination configuration of a workflow, in one of the formats.

    :ivar text: the document
    :ivar output: the file that was written. None: the document is printed
    """

    plan: Plan
    text: str
    output: Path | None = None

    ok = True

    def to_json(self) -> dict[str, Any]:
        return plan_to_json(self.plan)

    def show(self, console: Console) -> None:
        # The console would fold the text at the width of the terminal.
        if self.output is None:
            console.file.write(self.text)


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
    parser.add_argument("--output", "-o", metavar="FILE", type=Path, help="write into this file (default: print)")
    parser.add_argument("--workflow", metavar="NAME", help="a workflow, if the StreamFlow file has several")
    parser.add_argument(
        "--directory", metavar="DIR", type=Path, help="write paths below this directory (default: relative)"
    )


def run(arguments: argparse.Namespace) -> Coordination:
    """Write or print the coordination configuration of a workflow.

    :raises HintErrors: if the file, a workflow or a hint has mistakes, or the output cannot be written
    """
    plan = plan_workflow(Path(arguments.streamflow_file), arguments.workflow)
    directory = None if arguments.directory is None else str(arguments.directory.absolute())
    text = _document(plan, arguments.format, directory)
    if arguments.output is not None:
        write_output(arguments.output, text)
    return Coordination(plan, text, arguments.output)


def plan_to_json(plan: Plan) -> dict[str, Any]:
    """Return the configuration of a workflow for programs, with its differences from the hints."""
    return {
        **configuration_to_json(plan.configuration),
        "sites": {path: site_to_json(step.site) for path, step in plan.graph.steps.items()},
        "gangs": [list(gang.steps) for gang in plan.graph.gangs],
        "fallbacks": [_fallback(edge) for edge in plan.graph.edges if edge.fallback is not None],
        "stricter": [{"output": output, "why": why} for output, why in plan.graph.stricter.items()],
        "unresolved": [{"path": path, "fileDeps": deps} for path, deps in unresolved(plan.configuration).items()],
        "virtual": sorted(plan.parts.virtual),
    }


def configuration_to_json(configuration: Configuration) -> dict[str, Any]:
    """Return a configuration for programs: every file with all its properties, by the names of the hints."""
    return {
        "name": configuration.name,
        "applications": list(configuration.applications),
        "files": [
            {to_camel(field): value for field, value in to_builtins(file).items()} | {"committed": str(file.committed)}
            for file in configuration.files
        ],
    }


def _fallback(edge: StreamEdge) -> dict[str, Any]:
    consumer = edge.route.consumer
    return {
        "output": edge.route.output.name,
        "input": None if consumer is None else consumer.name,
        "asked": {"committed": str(edge.rule.committed), "mode": edge.rule.mode, "start": edge.rule.start},
        "delivered": edge.delivery.value,
        "why": edge.fallback,
    }


def _document(plan: Plan, format_: str, directory: str | None) -> str:
    if format_ == "dot":
        return write_dot(plan.configuration, plan.graph.gangs)
    version = cast(Version, format_.removeprefix(_CAPIO_CL))
    configuration = resolved(plan.configuration)
    configuration = configuration if directory is None else configuration.below(directory)
    return json.dumps(write_capio_cl(configuration, version), indent=2) + "\n"
