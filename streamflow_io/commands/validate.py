"""`streamflow-io validate`: checks by cwltool, its extensions, our schema and our rules. Nothing is run."""

from __future__ import annotations

import argparse
import gc
import os
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct, field
from msgspec.structs import asdict
from rich.console import Console
from rich.table import Table

from streamflow_io.errors import is_ours, said
from streamflow_io.hints.cwl import CWLObject, UnreadableError, load, name_of, read_steps
from streamflow_io.hints.errors import HintError, HintErrors, Located
from streamflow_io.hints.inheritance import StepAnnotations, port_path
from streamflow_io.hints.resolution import resolve
from streamflow_io.hints.rules import ToolEdge, check_both_ends, check_streamable
from streamflow_io.hints.sessions import SessionRule
from streamflow_io.hints.yaml_text import TooMuchError
from streamflow_io.wording import counted

from .console import say, show_errors, table
from .cwltool_validation import run_cwltool
from .javascript import missing_engine

# Step path, `in` or `out`, name.
Port = tuple[str, str, str]


class Validation(Struct, frozen=True):
    """The mistakes and hints of a workflow.

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
            "errors": [asdict(error) for error in self.errors],
            "warnings": [asdict(warning) for warning in self.warnings],
            "steps": {path: step_to_json(step) for path, step in self.steps.items()},
        }

    def show(self, console: Console) -> None:
        for message in self.messages:
            say(console, message)
        show_errors(console, self.errors)
        for warning in self.warnings:
            line = "" if warning.line is None else f":{warning.line}"
            text = f"{os.path.relpath(warning.file)}{line}: {warning.field}\n  warning: {warning.message}"
            say(console, text, "yellow")
        if self.ok and any(self.steps.values()):
            console.print(_table(self.steps))
        hinted = sum(1 for step in self.steps.values() if step)
        verdict = f"valid: {counted(len(self.steps), 'step')}, {hinted} with hints" if self.ok else "not valid"
        say(console, f"{self.workflow}: {verdict}", "bold")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `validate`."""
    parser.add_argument("workflow", metavar="WORKFLOW", help="a CWL file")
    parser.add_argument("job", metavar="JOB", nargs="?", help="a file with the inputs of the workflow")
    parser.add_argument("--annotations", metavar="FILE", help="an annotations file")


def run(arguments: argparse.Namespace) -> Validation:
    """Check a CWL workflow, its inputs and its hints."""
    # Schemas are hundreds of thousands of small objects, and none is garbage. Collecting would take a fifth of the
    # time.
    gc.disable()
    return validate(arguments.workflow, arguments.job, arguments.annotations)


def validate(workflow: str, job: str | None = None, annotations: str | None = None) -> Validation:
    """Check a CWL workflow, its inputs and its hints.

    :param workflow: the path of a CWL file
    :param job: the path of a file with its inputs
    :param annotations: the path of an annotations file
    :return: all mistakes; never an exception for a mistake of the user
    """
    document = None
    try:
        document = load(workflow)
        walk = read_steps(document)
        steps = resolve(walk, annotations)
    except (TooMuchError, UnreadableError) as error:
        # Other programs would try to read the document, and not end.
        return Validation(workflow, False, (str(error),))
    except HintErrors as mistakes:
        if document is None:
            return Validation(workflow, False, (), mistakes.errors)
        # Without the schema, which would report some of these mistakes again, with less about what is allowed.
        cwl_valid, messages = run_cwltool(workflow, job, document.cwlVersion, with_our_schema=False)
        return Validation(workflow, cwl_valid, messages, mistakes.errors)
    except Exception as error:  # cwl_utils has no common exception for documents that it cannot read
        if document is None and isinstance(error, OSError):
            return Validation(workflow, False, (f"{workflow}: {error.strerror}",))
        valid, messages = run_cwltool(workflow, job)
        if valid and is_ours(error):
            raise
        return Validation(workflow, False, messages if messages and not valid else (f"{workflow}: {said(error)}",))
    cwl_valid, messages = run_cwltool(workflow, job, document.cwlVersion)
    edges = list(_edges(walk.workflows, steps)) if cwl_valid else []
    warnings = [*check_streamable(steps, edges), *check_both_ends(steps, edges), *missing_engine(walk)]
    return Validation(workflow, cwl_valid, messages, (), tuple(warnings), steps)


def _edges(workflows: Mapping[str, CWLObject], steps: Mapping[str, StepAnnotations]) -> Iterator[ToolEdge]:
    """Yield the inputs of tools that get the outputs of tools, also from and to within subworkflows."""
    if not any(step.streaming or step.streamable_inputs or step.streamable_outputs for step in steps.values()):
        return
    next_ports: dict[Port, list[Port]] = {}
    for workflow_path, workflow in workflows.items():
        _connect(workflow, workflow_path, next_ports)
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


def _connect(workflow: CWLObject, path: str, next_ports: dict[Port, list[Port]]) -> None:
    """Record which ports of a workflow get the data of others."""
    ports: dict[str, Port] = {parameter.id: (path, "in", name_of(parameter)) for parameter in workflow.inputs}
    targets: list[tuple[str | list[str] | None, Port]] = []
    for step in workflow.steps:
        step_path = port_path(path, name_of(step))
        for out in (getattr(out, "id", out) for out in step.out):
            ports[out] = (step_path, "out", out.rpartition("/")[2])
        targets += [(target.source, (step_path, "in", name_of(target))) for target in step.in_]
    targets += [(output.outputSource, (path, "out", name_of(output))) for output in workflow.outputs]
    for sources, port in targets:
        for source in [sources] if isinstance(sources, str) else sources or ():
            if source in ports:
                next_ports.setdefault(ports[source], []).append(port)


def step_to_json(step: StepAnnotations) -> dict[str, Any]:
    """Return the hints of a step, as in the CWL file, with the file, line and level of each."""
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
    sessions = [_located(rule, rule.value.model_dump(mode="json", exclude_none=True)) for rule in step.sessions]
    return found | {"streaming": rules, "sessions": sessions}


def _located(hint: Located[object], content: dict[str, Any]) -> dict[str, Any]:
    return content | {"file": hint.file, "line": hint.line, "level": hint.level.value}


def _table(steps: Mapping[str, StepAnnotations]) -> Table:
    rows = []
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
        rules += [_of_session(rule.value) for rule in step.sessions]
        storage_bw = f"{bandwidth.storage_bw} {bandwidth.storage or ''}".strip() if bandwidth else ""
        streamable = "\n".join([*step.streamable_inputs, *step.streamable_outputs])
        rows.append((path, "yes" if step.io_task else "", storage_bw, "\n".join(rules), streamable))
    return table(None, ("step", "I/O task", "storageBW", "commit and firing rules", "streamable"), rows)


def _of_session(rule: SessionRule) -> str:
    if rule.form == "selected":
        return f"{rule.of}: jobs select their parts" if rule.part else f"{rule.of}: read by all jobs"
    return f"{rule.port}: parts of {rule.of}"
