"""The declared splits, and what earlier runs have found about them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from streamflow.core.workflow import Workflow
from streamflow.cwl.command import CWLCommand
from streamflow.cwl.step import CWLExecuteStep

from streamflow_io.adapters.outputs import Declaration
from streamflow_io.graph.io_graph import InputRoute
from streamflow_io.hints.inheritance import StepAnnotations
from streamflow_io.hints.sessions import SessionRule
from streamflow_io.parts.split_key import NoRuleError, needs_content, told_of, verdict_key
from streamflow_io.records.learned.database import date_of
from streamflow_io.records.learned.verdicts import Verdict, VerdictKey

from .known_splits import known_inputs
from .known_tokens import KnownTokens, is_open
from .obstacles import expressions, looks_at_file, with_inner, with_library
from .plan import NOT_VERIFIED

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
    """The declared rules, each with what a verdict about it depends on, by step and output.

    :param tools: the digests of the tools, by step
    """
    return {
        (step, port): Declaration(rule=rule, tool=tools[step], is_bound=_is_bound(workflow.steps.get(step), rule.of))
        for (step, port), rule in rules.items()
    }


def with_checksum(routes: Iterable[InputRoute], declared: Declarations) -> frozenset[tuple[str, str]]:
    """The inputs whose checksum a verdict needs, as step and port."""
    rules = {(step, each.rule.of): each for (step, _), each in declared.items()}
    steps = {step for step, _ in declared}
    reached = {(route.consumer.step, route.consumer.port) for route in routes if route.consumer is not None}
    return frozenset(read for read in reached if read[0] in steps and (read not in rules or needs_content(rules[read])))


def known_keys(
    tokens: KnownTokens, workflow: Workflow, declared: Declarations
) -> dict[tuple[str, str], frozenset[VerdictKey]]:
    """The keys of the verdicts that declared splits need, by step and output, where these are known before the run."""
    found = {}
    for (step, port), declaration in declared.items():
        tool = workflow.steps.get(step)
        tags = tokens.tags_of(tool) if isinstance(tool, CWLExecuteStep) else None
        keys = set[VerdictKey]()
        for tag in tags or ():
            inputs, unknown = known_inputs(tokens, tool, tag) if not is_open(tag) else ({}, {"": ""})
            try:
                if unknown:
                    raise NoRuleError
                keys.add(verdict_key(declaration, inputs))
            except (NoRuleError, KeyError, TypeError):
                # Other inputs, or files without known checksums.
                break
        else:
            if keys:
                found[step, port] = frozenset(keys)
    return found


def trials(
    declared: Declarations,
    verdicts: Iterable[Verdict],
    known: Mapping[tuple[str, str], frozenset[VerdictKey]] = MappingProxyType({}),
) -> dict[tuple[str, str], str]:
    """Why declared splits are not trusted, by step and output. Splits that are missing here are trusted so far.

    :param known: the keys that need a verdict; if a split has no entry, one verdict with any inputs is enough
    """
    verdicts, found = list(verdicts), {}
    for key, declaration in declared.items():
        wanted = known.get(key)
        if wanted is None:
            alike = [verdict for verdict in verdicts if _is_about(verdict, declaration)]
            is_trusted = any(verdict.is_verified for verdict in alike)
        else:
            alike = [verdict for verdict in verdicts if verdict.key in wanted]
            is_trusted = {verdict.key for verdict in alike if verdict.is_verified} == wanted
        if not is_trusted:
            refuted = [verdict for verdict in alike if not verdict.is_verified]
            found[key] = _refuted(max(refuted, key=lambda verdict: verdict.learned)) if refuted else NOT_VERIFIED
    return found


def _refuted(verdict: Verdict) -> str:
    return f"refuted on {date_of(verdict.learned)}: {verdict.difference}"


def _is_about(verdict: Verdict, declaration: Declaration) -> bool:
    """Whether a verdict is about a declaration, with any inputs."""
    told, known = told_of(declaration.rule), json.loads(verdict.key.rule)
    if isinstance(declaration.rule.parts, str):
        told["parts"] = known.get("parts")
    return verdict.key.tool == declaration.tool and known == told


def _is_bound(step: Any, of: str) -> bool:
    """Whether an expression of a tool looks at more of a file than its path."""
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
