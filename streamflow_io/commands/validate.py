"""`streamflow-io validate`: cwltool's validation, with its extensions and our schema, and our rules. Nothing is run."""

from __future__ import annotations

import argparse
import gc
import io
import logging
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, cast
from urllib.parse import urldefrag

from rich.console import Console
from rich.table import Table

from streamflow_io import hints
from streamflow_io.cli import show_errors
from streamflow_io.errors import is_ours, said
from streamflow_io.hints import HintError, HintErrors, Located, StepAnnotations
from streamflow_io.hints.inheritance import port_path
from streamflow_io.hints.rules import check_both_ends, check_streamable
from streamflow_io.hints.schemas import SALAD_URI, add_hint_classes, salad_schema
from streamflow_io.hints.yaml_text import TooMuchError

from .javascript import missing_engine

# cwl_utils has a class per CWL version and no common base: its objects are read by attribute.
CWLObject = Any
# Step path, `in` or `out`, name.
Port = tuple[str, str, str]


@dataclass(frozen=True)
class Validation:
    """What was found in a workflow.

    :ivar cwl_valid: whether cwltool accepts the workflow, and the job if there is one
    :ivar messages: cwltool's errors and warnings
    :ivar errors: the mistakes in hints
    :ivar warnings: the hints that will not be served as they ask
    :ivar steps: the hints that hold for each step; empty if there are mistakes
    """

    workflow: str
    cwl_valid: bool
    messages: tuple[str, ...] = ()
    errors: tuple[HintError, ...] = ()
    warnings: tuple[HintError, ...] = ()
    steps: Mapping[str, StepAnnotations] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return self.cwl_valid and not self.errors

    def to_json(self) -> dict[str, Any]:
        return {
            "workflow": self.workflow,
            "cwl": {"valid": self.cwl_valid, "messages": list(self.messages)},
            "errors": [vars(error) for error in self.errors],
            "warnings": [vars(warning) for warning in self.warnings],
            "steps": {path: step_to_json(step) for path, step in self.steps.items()},
        }

    def show(self, console: Console) -> None:
        for message in self.messages:
            console.print(message, markup=False, highlight=False, soft_wrap=True)
        show_errors(console, self.errors)
        for warning in self.warnings:
            place = "" if warning.line is None else f":{warning.line}"
            text = f"{os.path.relpath(warning.file)}{place}: {warning.field}\n  warning: {warning.message}"
            console.print(text, style="yellow", markup=False, highlight=False, soft_wrap=True)
        if self.ok and any(self.steps.values()):
            console.print(_table(self.steps))
        hinted = sum(1 for step in self.steps.values() if step)
        verdict = f"valid: {len(self.steps)} steps, {hinted} with hints" if self.ok else "not valid"
        console.print(f"{self.workflow}: {verdict}", style="bold", markup=False, highlight=False, soft_wrap=True)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `validate`."""
    parser.add_argument("workflow", metavar="WORKFLOW", help="a CWL file")
    parser.add_argument("job", metavar="JOB", nargs="?", help="a file with its inputs")
    parser.add_argument("--annotations", metavar="FILE", help="an annotations file")


def run(arguments: argparse.Namespace) -> Validation:
    """`validate`: see the module."""
    # Schemas are hundreds of thousands of small objects, none of them garbage: a fifth of the time.
    gc.disable()
    return validate(arguments.workflow, arguments.job, arguments.annotations)


def validate(workflow: str, job: str | None = None, annotations: str | None = None) -> Validation:
    """Check a CWL workflow, its inputs and its hints.

    :param workflow: the path of a CWL file
    :param job: the path of a file with its inputs
    :param annotations: the path of an annotations file
    :return: all mistakes; never an exception for a mistake of the user
    """
    from streamflow_io.hints.cwl import UnreadableError, load

    document = None
    try:
        document = load(workflow)
        steps = hints.resolve(document, annotations)
    except (TooMuchError, UnreadableError) as error:
        # Others would try, and not end.
        return Validation(workflow, False, (str(error),))
    except HintErrors as mistakes:
        if document is None:
            return Validation(workflow, False, (), mistakes.errors)
        # Without the schema: it would tell some of them once more, with less of what is allowed.
        cwl_valid, messages = run_cwltool(workflow, job, document.cwlVersion, with_our_schema=False)
        return Validation(workflow, cwl_valid, messages, mistakes.errors)
    except Exception as error:  # Whatever cwl_utils raises for what it cannot read.
        if document is None and isinstance(error, OSError):
            return Validation(workflow, False, (f"{workflow}: {error.strerror}",))
        valid, messages = run_cwltool(workflow, job)
        if valid and is_ours(error):
            raise
        return Validation(workflow, False, messages if messages and not valid else (f"{workflow}: {said(error)}",))
    cwl_valid, messages = run_cwltool(workflow, job, document.cwlVersion)
    edges = list(_edges(document, steps)) if cwl_valid else []
    warnings = [*check_streamable(steps, edges), *check_both_ends(steps, edges), *missing_engine(document)]
    return Validation(workflow, cwl_valid, messages, (), tuple(warnings), steps)


def _edges(
    document: CWLObject, steps: Mapping[str, StepAnnotations]
) -> Iterator[tuple[tuple[str, str], tuple[str, str]]]:
    """The inputs of tools that get the outputs of tools, also from and to within subworkflows."""
    if not any(step.streaming or step.streamable_inputs or step.streamable_outputs for step in steps.values()):
        return
    next_ports: dict[Port, list[Port]] = {}
    _connect(document, "/", next_ports)
    for path, kind, output in [port for port in next_ports if port[0] in steps]:
        seen: set[Port] = set()
        ahead = [(path, kind, output)] if kind == "out" else []
        while ahead:
            port = ahead.pop()
            if port in seen:
                continue
            seen.add(port)
            ahead += next_ports.get(port, ())
            if port[0] in steps and port[1] == "in":
                yield (path, output), (port[0], port[2])


def _connect(process: CWLObject, path: str, next_ports: dict[Port, list[Port]]) -> None:
    """Note which ports get what others have, in a workflow and in those that it runs."""
    from streamflow_io.hints.cwl import name_of

    if not hasattr(process, "steps"):
        return
    ports: dict[str, Port] = {parameter.id: (path, "in", name_of(parameter)) for parameter in process.inputs}
    targets: list[tuple[str | list[str] | None, Port]] = []
    for step in process.steps:
        step_path = port_path(path, name_of(step))
        for out in (getattr(out, "id", out) for out in step.out):
            ports[out] = (step_path, "out", out.rpartition("/")[2])
        targets += [(target.source, (step_path, "in", name_of(target))) for target in step.in_]
        _connect(_run_by(step), step_path, next_ports)
    targets += [(output.outputSource, (path, "out", name_of(output))) for output in process.outputs]
    for sources, port in targets:
        for source in [sources] if isinstance(sources, str) else sources or ():
            if source in ports:
                next_ports.setdefault(ports[source], []).append(port)


def _run_by(step: CWLObject) -> CWLObject:
    """The process that a step runs; None if it is not on this machine."""
    from streamflow_io.hints.cwl import file_of, load

    if not isinstance(step.run, str):
        return step.run
    options = step.loadingOptions
    uri, fragment = urldefrag(options.fetcher.urljoin(options.fileuri, step.run))
    return load(f"{file_of(uri)}#{fragment}") if uri.startswith("file:") else None


def step_to_json(step: StepAnnotations) -> dict[str, Any]:
    """The hints of a step, as in the CWL file, with the file, line and level of each."""
    found: dict[str, Any] = {}
    for hint in (step.io_task, step.storage_bandwidth):
        if hint is not None:
            found[hint.name] = _located(hint, hint.value.model_dump(by_alias=True, mode="json"))
    rules = {
        port: [_located(rule, rule.value.model_dump(by_alias=True, mode="json")) for rule in located]
        for port, located in step.streaming.items()
    }
    for name, ports in (
        ("streamableInputs", step.streamable_inputs),
        ("streamableOutputs", step.streamable_outputs),
    ):
        found[name] = {port: _located(origin, {}) for port, origin in ports.items()}
    return found | {"streaming": rules}


def _located(hint: Located[object], content: dict[str, Any]) -> dict[str, Any]:
    return content | {"file": hint.file, "line": hint.line, "level": hint.level.value}


# What cwltool says of every URN (our own rules check the classes that it does not know), and traces of its loader.
_NOISE = re.compile(r"scheme 'urn'|prefix 'urn'|^failed$|^loader is \d+$")
_SORRY = "I'm sorry, I couldn't load this CWL file.\nThe error was: "
# schema-salad wraps its messages into a column to the right of the path, however long that is.
_CONTINUED = re.compile(r"\n {12,}")


class _Collector(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage().replace(", try again with --debug for more information", "").rstrip()
        message = _CONTINUED.sub(" ", message).removeprefix(_SORRY)
        if record.levelno >= logging.WARNING and _NOISE.search(message) is None:
            self.messages.append(message)


def run_cwltool(
    workflow: str, job: str | None, version: str = "v1.2", *, with_our_schema: bool = True
) -> tuple[bool, tuple[str, ...]]:
    """Run `cwltool --validate`.

    :param version: of the CWL
    :param with_our_schema: check the names and types of the fields of our hints
    :return: whether all is valid; errors and warnings
    """
    from cwltool.argparser import arg_parser
    from cwltool.context import LoadingContext
    from cwltool.main import main

    from streamflow_io.hints.cwl import Fetcher

    options = ["--validate", "--quiet", "--skip-schemas", "--disable-color"]
    collector = _Collector()
    # cwltool makes directories for a job that it does not run, and leaves them.
    with tempfile.TemporaryDirectory() as directory:
        options += ["--tmpdir-prefix", f"{directory}/", "--tmp-outdir-prefix", f"{directory}/"]
        arguments = arg_parser().parse_args([*options, workflow, *([job] if job is not None else [])])
        context = LoadingContext(vars(arguments))
        context.fetcher_constructor = Fetcher
        try:
            code = main(
                args=arguments,
                stdout=io.StringIO(),
                logger_handler=collector,
                loadingContext=context,
                custom_schema_callback=lambda: _use_schema(version, with_our_schema),
            )
        except Exception as error:  # Of its own: it means to catch all.
            code = 1
            collector.messages.append(f"{workflow}: {said(error)}")
    return code == 0, tuple(dict.fromkeys(collector.messages))


def _use_schema(version: str, ours: bool) -> None:
    from cwl_utils.types import CWLObjectType
    from cwltool import process
    from cwltool.update import ALLUPDATES

    # All versions: cwltool updates a document to a version of its own before it loads what `run` names.
    for each in ALLUPDATES:
        schema = _schema(each, ours)
        if process.custom_schemas.get(each) == schema:
            continue
        if schema is None:
            process.use_standard_schema(each)
        else:
            process.use_custom_schema(each, *schema)
    # cwltool would parse the whole schema of v1.0 for these three types, for a third of its time.
    types = process.get_schema(version)[3].idx
    process.SCHEMA_ANY = cast(CWLObjectType, types["https://w3id.org/cwl/salad#Any"])
    process.SCHEMA_FILE = cast(CWLObjectType, types["https://w3id.org/cwl/cwl#File"])
    process.SCHEMA_DIR = cast(CWLObjectType, types["https://w3id.org/cwl/cwl#Directory"])


@cache
def _schema(version: str, ours: bool) -> tuple[str, str] | None:
    """The name and the text of the schema of a CWL version, with cwltool's own extensions; None: the standard."""
    name, text = _extensions().get(version, ("", None))
    if ours:
        return SALAD_URI, salad_schema() if text is None else add_hint_classes(text)
    return None if text is None else (name, text)


@cache
def _extensions() -> dict[str, tuple[str, str]]:
    """The schemas that cwltool uses with `--enable-ext`, by CWL version."""
    from cwltool import process
    from cwltool.main import setup_schema

    setup_schema(argparse.Namespace(enable_ext=True), None)
    return dict(process.custom_schemas)


def _table(steps: Mapping[str, StepAnnotations]) -> Table:
    table = Table("step", "I/O task", "storageBW", "commit and firing rules", "streamable", header_style="bold")
    for path, step in steps.items():
        if not step:
            continue
        bandwidth = step.storage_bandwidth.value if step.storage_bandwidth else None
        rules = [
            f"{port}{' ' + ' '.join(rule.value.files) if rule.value.files else ''}: "
            f"{rule.value.committed}, {rule.value.mode}"
            for port, located in step.streaming.items()
            for rule in located
        ]
        table.add_row(
            path,
            "yes" if step.io_task else "",
            f"{bandwidth.storage_bw} {bandwidth.storage or ''}".strip() if bandwidth else "",
            "\n".join(rules),
            "\n".join([*step.streamable_inputs, *step.streamable_outputs]),
        )
    return table
