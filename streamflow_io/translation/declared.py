"""Which splits are declared, and what is known of them from earlier runs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from streamflow.core.workflow import Workflow
from streamflow.cwl.command import CWLCommand
from streamflow.cwl.step import CWLExecuteStep

from streamflow_io.hints.inheritance import StepAnnotations
from streamflow_io.hints.sessions import SessionRule
from streamflow_io.learned.verdicts import Verdict
from streamflow_io.run.plan import NOT_VERIFIED
from streamflow_io.run.split_key import Declaration, told_of

from .obstacles import expressions, looks_at_file, with_inner, with_library

Declarations = Mapping[tuple[str, str], Declaration]


def declared_rules(annotations: Mapping[str, StepAnnotations]) -> dict[tuple[str, str], SessionRule]:
    """The rules that declare where a step cuts, by step and output."""
    return {
        (path, rule.value.port): rule.value
        for path, hints in annotations.items()
        for rule in hints.sessions
        if rule.value.form == "declared" and rule.value.port is not None
    }


def declarations(
    workflow: Workflow, rules: Mapping[tuple[str, str], SessionRule], tools: Mapping[str, str]
) -> dict[tuple[str, str], Declaration]:
    """The same, with what a verdict of them holds for.

    :param tools: the digests of the tools, by step
    """
    return {
        (step, port): Declaration(rule=rule, tool=tools[step], is_bound=_is_bound(workflow.steps.get(step), rule.of))
        for (step, port), rule in rules.items()
    }


def trials(declared: Declarations, verdicts: Iterable[Verdict]) -> dict[tuple[str, str], str]:
    """Why declared splits are not trusted, by step and output; those that are not in it are, as far as is known."""
    verdicts, found = list(verdicts), {}
    for key, declaration in declared.items():
        alike = [verdict for verdict in verdicts if _is_about(verdict, declaration)]
        if not alike:
            found[key] = NOT_VERIFIED
        elif not any(verdict.is_verified for verdict in alike):
            last = max(alike, key=lambda verdict: verdict.compared)
            date = datetime.fromtimestamp(last.compared).astimezone().strftime("%Y-%m-%d %H:%M")
            found[key] = f"refuted on {date}: {last.difference}"
    return found


def _is_about(verdict: Verdict, declaration: Declaration) -> bool:
    """Whether a verdict is about a declaration, with some inputs."""
    told, known = told_of(declaration.rule), json.loads(verdict.key.rule)
    if isinstance(declaration.rule.parts, str):
        told["parts"] = known.get("parts")
    return verdict.key.tool == declaration.tool and known == told


def _is_bound(step: Any, of: str) -> bool:
    """Whether an expression of a tool looks at more of a file than where it is."""
    if not isinstance(step, CWLExecuteStep) or not isinstance(step.command, CWLCommand):
        return False
    texts = with_library(expressions([step.command, step.output_processors]), step.command)
    bindings = [inner for processor in step.command.processors for inner in with_inner(processor)]
    own = [
        expression
        for binding in bindings
        if getattr(binding, "name", None) == of and isinstance(expression := getattr(binding, "expression", None), str)
    ]
    return looks_at_file(texts, own, of)
