"""`streamflow-io annotate`: an annotations file from a CAPIO-CL file. Nothing is run."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from msgspec import to_builtins
from pydantic import JsonValue

from streamflow_io.commands.console import DocumentResult, add_output_arguments, output_of, write_output
from streamflow_io.commands.plan import plan_workflow
from streamflow_io.graph.capio_cl.configuration import Configuration
from streamflow_io.hints.yaml_files import plain, read_scheduler_config, read_yaml, source_of

from .language.reading import read_capio_cl
from .language.to_hints import Annotation, annotate, annotation_text


def load_capio_cl(path: str | os.PathLike[str]) -> Configuration:
    """Read a CAPIO-CL file; see :func:`.language.reading.read_capio_cl`.

    :raises HintErrors: with all mistakes in it; also if it cannot be read or is no JSON
    """
    file = os.path.abspath(path)
    document = read_yaml(Path(path), "CAPIO-CL", "a CAPIO-CL file, in JSON", "no JSON: ")
    return read_capio_cl(cast(JsonValue, plain(document)), file, source_of(document, file).lines)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "streamflow_file", metavar="STREAMFLOW_FILE", help="the StreamFlow file, as for `streamflow run`"
    )
    parser.add_argument("--from", dest="source", metavar="FILE", required=True, type=Path, help="a CAPIO-CL file")
    add_output_arguments(parser)


def run(arguments: argparse.Namespace) -> DocumentResult:
    """:raises HintErrors: if a file, the workflow or a hint has mistakes, or the output cannot be written"""
    output = output_of(arguments)
    streamflow_file = Path(arguments.streamflow_file)
    configuration = load_capio_cl(arguments.source)
    plan = plan_workflow(streamflow_file, arguments.workflow)
    annotation = annotate(configuration, plan.graph.steps, plan.graph.outputs, plan.graph.routes, plan.jobs)
    text = annotation_text(annotation, arguments.source.name, _notes(streamflow_file))
    if output is not None:
        write_output(output, text)
    facts = {
        "source": os.path.abspath(arguments.source),
        "annotations": annotation.file.model_dump(by_alias=True, mode="json"),
        "streamable": {port: list(paths) for port, paths in annotation.streamable.items()},
        "unexpressed": [to_builtins(each) for each in annotation.unexpressed],
    }
    is_well = bool(annotation) or not annotation.unexpressed
    return DocumentResult(text, facts, output, () if output is None else [*_told(annotation, output)], is_well)


def _told(annotation: Annotation, output: Path) -> Iterator[tuple[str, str]]:
    for each in annotation.unexpressed:
        yield f"not expressed: {each.subject}: {each.reason}", "yellow"
    for port in annotation.streamable:
        yield f"{port} is now `streamable`: its tool must read it front to back, once", "yellow"
    rules = sum(map(len, annotation.rules.values()))
    yield f"{os.path.relpath(output)}: rules: {rules}, steps: {len(annotation.rules)}", "bold"


def _notes(streamflow_file: Path) -> tuple[str, ...]:
    scheduler = read_scheduler_config(streamflow_file)
    if scheduler is None or scheduler.annotations is None:
        return ()
    named = scheduler.annotations
    files = ", ".join(named.values()) if isinstance(named, dict) else named
    return (f"{streamflow_file.name} names {files}: copy from it the hints that are to hold, too.",)
