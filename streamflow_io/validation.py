"""`streamflow-io validate`: cwltool's validation with our schema, then our own rules. Nothing is run."""

from __future__ import annotations

import argparse
import gc
import io
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from rich.console import Console
from rich.table import Table
from ruamel.yaml.error import YAMLError
from schema_salad.exceptions import ValidationException

from . import hints
from .cli import show_errors
from .hints import HintError, HintErrors, Located, StepAnnotations
from .hints.schemas import SALAD_URI, salad_schema


@dataclass(frozen=True)
class Validation:
    """What was found in a workflow.

    :ivar cwl_valid: whether cwltool accepts the workflow, and the job if there is one
    :ivar messages: cwltool's errors and warnings
    :ivar errors: the mistakes in hints
    :ivar steps: the hints that hold for each step; empty if there are mistakes
    """

    workflow: str
    cwl_valid: bool
    messages: tuple[str, ...] = ()
    errors: tuple[HintError, ...] = ()
    steps: Mapping[str, StepAnnotations] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return self.cwl_valid and not self.errors

    def to_json(self) -> dict[str, Any]:
        return {
            "workflow": self.workflow,
            "cwl": {"valid": self.cwl_valid, "messages": list(self.messages)},
            "errors": [vars(error) for error in self.errors],
            "steps": {path: step_to_json(step) for path, step in self.steps.items()},
        }

    def show(self, console: Console) -> None:
        for message in self.messages:
            console.print(message, markup=False, highlight=False, soft_wrap=True)
        show_errors(console, self.errors)
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
    from .hints.cwl import load

    try:
        document = load(workflow)
    except OSError as error:
        return Validation(workflow, False, (f"{workflow}: {error.strerror}",))
    except (ValidationException, YAMLError) as error:
        _, messages = _cwltool(workflow, job)
        return Validation(workflow, False, messages or (str(error),))
    cwl_valid, messages = _cwltool(workflow, job, document.cwlVersion)
    try:
        steps = hints.resolve(document, annotations)
    except HintErrors as mistakes:
        return Validation(workflow, cwl_valid, messages, mistakes.errors)
    except (ValidationException, YAMLError, OSError) as error:  # in a file that `run` names
        return Validation(workflow, False, messages or (str(error),))
    return Validation(workflow, cwl_valid, messages, (), steps)


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
# schema-salad wraps its messages into a column to the right of the path, however long that is.
_CONTINUED = re.compile(r"\n {12,}")


class _Collector(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage().replace(", try again with --debug for more information", "").rstrip()
        message = _CONTINUED.sub(" ", message)
        if record.levelno >= logging.WARNING and _NOISE.search(message) is None:
            self.messages.append(message)


def _cwltool(workflow: str, job: str | None, version: str = "v1.2") -> tuple[bool, tuple[str, ...]]:
    """Run `cwltool --validate`, and collect its errors and warnings."""
    from cwltool.argparser import arg_parser
    from cwltool.context import LoadingContext
    from cwltool.main import main

    from .hints.cwl import Fetcher

    options = ["--validate", "--quiet", "--skip-schemas", "--disable-color", workflow]
    arguments = arg_parser().parse_args([*options, *([job] if job is not None else [])])
    context = LoadingContext(vars(arguments))
    context.fetcher_constructor = Fetcher
    collector = _Collector()
    code = main(
        args=arguments,
        stdout=io.StringIO(),
        logger_handler=collector,
        loadingContext=context,
        custom_schema_callback=lambda: _use_our_schema(version),
    )
    return code == 0, tuple(dict.fromkeys(collector.messages))


def _use_our_schema(version: str) -> None:
    from cwl_utils.types import CWLObjectType
    from cwltool import process
    from cwltool.update import ALLUPDATES

    schema = salad_schema()
    # All versions: cwltool updates a document to a version of its own before it loads what `run` names.
    for each in ALLUPDATES:
        if process.custom_schemas.get(each) != (SALAD_URI, schema):
            process.use_custom_schema(each, SALAD_URI, schema)
    # cwltool would parse the whole schema of v1.0 for these three types, for a third of its time.
    types = process.get_schema(version)[3].idx
    process.SCHEMA_ANY = cast(CWLObjectType, types["https://w3id.org/cwl/salad#Any"])
    process.SCHEMA_FILE = cast(CWLObjectType, types["https://w3id.org/cwl/cwl#File"])
    process.SCHEMA_DIR = cast(CWLObjectType, types["https://w3id.org/cwl/cwl#Directory"])


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
