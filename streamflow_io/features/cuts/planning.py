"""Declared cuts in the plan of a workflow, with the verdicts of earlier runs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from streamflow.core.workflow import Step, Workflow
from streamflow.cwl.command import CWLCommand
from streamflow.cwl.step import CWLExecuteStep
from streamflow.log_handler import logger
from typing_extensions import Self

from streamflow_io.engine.cuts import PlannedCuts
from streamflow_io.engine.inspect import hardware_requirement
from streamflow_io.engine.known_tokens import KnownTokens, UnknownValue, is_open, with_paths
from streamflow_io.engine.obstacles import expressions, looks_at_file, own_expressions, with_library
from streamflow_io.engine.proving import KnownTools
from streamflow_io.graph.io_graph import InputRoute, IOGraph, Output, OutputKind
from streamflow_io.graph.partitions import NOT_VERIFIED, Routes, obstacle, routes_by_output
from streamflow_io.hints.globs import matches
from streamflow_io.hints.inheritance import StepAnnotations, port_path
from streamflow_io.hints.sessions import SessionRule
from streamflow_io.jobs.programs import Programs
from streamflow_io.messages import Code, coded
from streamflow_io.parts.part_ways import PartWays
from streamflow_io.records.learned.database import LearnedStoreError, date_of, known_entries
from streamflow_io.records.records import Record

from .split_key import Declaration, NoRuleError, needs_content, told_of, verdict_key
from .splitting import CutsOfRun
from .verdicts import RememberedVerdicts, Verdict, VerdictKey

# The cores and the space that a job has. An expression may compute these from a file.
_OF_RUNTIME = re.compile(r"\bruntime\b(?!\s*\.\s*(?:outdir|tmpdir)\b)")

Declarations = Mapping[tuple[str, str], Declaration]


class DeclaredCuts(PlannedCuts):
    """The declared cuts of a workflow before its run.

    :param trials: why cuts are not trusted, by step and output
    """

    def __init__(
        self,
        declared: Declarations = MappingProxyType({}),
        verdicts: Collection[Verdict] = (),
        trials: Mapping[tuple[str, str], str] = MappingProxyType({}),
    ) -> None:
        self.declared = declared
        self.verdicts = verdicts
        self._trials = trials

    @classmethod
    def of(
        cls,
        annotations: Mapping[str, StepAnnotations],
        workflow: Workflow,
        tokens: KnownTokens,
        tools: KnownTools,
        learned: Path,
    ) -> Self:
        declared = declarations(workflow, declared_rules(annotations), tools)
        verdicts = _known_verdicts(learned) if declared else ()
        return cls(declared, verdicts, trials(declared, verdicts, known_keys(tokens, workflow, declared)))

    def obstacle(self, output: Output, rule: SessionRule, routes: Routes) -> str | None:
        if rule.form != "declared":
            return None
        if (why := _used_beside(output, rule, routes)) is not None:
            return why
        name = _name_of_first_part(rule)
        if not any(matches(glob, name) for glob in output.globs):
            return f"the glob of {output.name} does not find {name}, as `names` has it"
        return None

    def may_grow(self, rule: SessionRule) -> bool:
        # Whether a program cuts as `chunk` says depends on the content, and where `parts` begin on the size.
        return rule.form == "declared" and rule.every is not None

    def trial(self, step: str, port: str) -> str | None:
        return self._trials.get((step, port))

    def with_checksum(self, routes: Iterable[InputRoute]) -> frozenset[tuple[str, str]]:
        rules = {(step, each.rule.of): each for (step, _), each in self.declared.items()}
        steps = {step for step, _ in self.declared}
        reached = {(route.consumer.step, route.consumer.port) for route in routes if route.consumer is not None}
        return frozenset(
            read for read in reached if read[0] in steps and (read not in rules or needs_content(rules[read]))
        )

    def never_parts(self, graph: IOGraph, shared: Collection[str | None] = ()) -> Mapping[str, str]:
        routes = routes_by_output(graph)
        found: dict[str, str] = {}
        for output in graph.outputs:
            if output.kind is OutputKind.FILES:
                rule = SessionRule(port=output.port, of=output.port)
                readers = routes.get((output.step, output.port), ())
                why = obstacle(output.step, output, readers, shared) or _used_beside(output, rule, routes)
                if why is not None:
                    found[output.name] = why
        return found

    def of_run(self, ways: PartWays, learned: Path, programs: Programs, record: Callable[[Record], None]) -> CutsOfRun:
        return CutsOfRun(ways, record, self.declared, RememberedVerdicts(learned, self.verdicts), programs)


def _name_of_first_part(rule: SessionRule) -> str:
    return (rule.names or "%d") % (1 if rule.first is None else rule.first)


def _used_beside(output: Output, rule: SessionRule, routes: Routes) -> str | None:
    for step, port in routes:
        if step == output.step and port not in (output.port, rule.count):
            return f"{port_path(step, port)} is used, too: only a run of the program makes this output"
    return None


def _known_verdicts(learned: Path) -> tuple[Verdict, ...]:
    """The verdicts of earlier runs; none if the file cannot be read."""
    try:
        return known_entries(learned, Verdict)
    except LearnedStoreError as error:
        logger.warning(coded(f"Verified splits of earlier runs are not known: {error}", Code.STORE_NOT_USED))
        return ()


def declared_rules(annotations: Mapping[str, StepAnnotations]) -> dict[tuple[str, str], SessionRule]:
    """The rules that declare where a step cuts, by step and output."""
    return {
        (path, rule.value.port): rule.value
        for path, hints in annotations.items()
        for rule in hints.sessions
        if rule.value.form == "declared" and rule.value.port is not None
    }


def declarations(
    workflow: Workflow, rules: Mapping[tuple[str, str], SessionRule], tools: KnownTools
) -> dict[tuple[str, str], Declaration]:
    """The declared cuts, with the conditions of their verdicts."""
    return {
        (step, port): Declaration(
            rule=rule,
            tool=tools.contents[step],
            is_bound=_is_bound(workflow.steps.get(step), rule.of),
            programs=tools.programs.get(step, ()),
        )
        for (step, port), rule in rules.items()
    }


def known_keys(
    tokens: KnownTokens, workflow: Workflow, declared: Declarations
) -> dict[tuple[str, str], frozenset[VerdictKey]]:
    """The conditions of the verdicts that a run needs, by step and output, where the jobs are known before the run."""
    found = {}
    for (step, port), declaration in declared.items():
        tool = workflow.steps.get(step)
        tags = tokens.tags_of(tool) if isinstance(tool, CWLExecuteStep) else None
        keys = set[VerdictKey]()
        for tag in tags or ():
            try:
                if is_open(tag):
                    break
                keys.add(verdict_key(declaration, _known_inputs(tokens, tool, tag)))
            except (UnknownValue, NoRuleError, KeyError, TypeError):
                # Other inputs, or files whose checksums are not there yet.
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
    """Why declared cuts are not trusted, by step and output. Other declared cuts are trusted, as far as is known.

    :param known: the conditions of the verdicts that are needed; where they are not known, any verified one will do
    """
    verdicts, found = list(verdicts), {}
    for key, declaration in declared.items():
        wanted = known.get(key)
        if wanted is None:
            alike = [verdict for verdict in verdicts if _is_about(verdict, declaration)]
            is_trusted = any(verdict.is_verified for verdict in alike)
        else:
            # Where the jobs run, and with which programs, is not known yet.
            alike = [verdict for verdict in verdicts if verdict.key.anywhere in wanted]
            is_trusted = {verdict.key.anywhere for verdict in alike if verdict.is_verified} == wanted
        if not is_trusted:
            refuted = [verdict for verdict in alike if not verdict.is_verified]
            found[key] = _refuted(max(refuted, key=lambda verdict: verdict.learned)) if refuted else NOT_VERIFIED
    return found


def _refuted(verdict: Verdict) -> str:
    return f"refuted on {date_of(verdict.learned)}: {verdict.difference}"


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
    if any(map(_OF_RUNTIME.search, texts)):
        texts += with_library(expressions(hardware_requirement(step)), step.command)
    return looks_at_file(texts, own_expressions(step.command, of), of)


def _known_inputs(tokens: KnownTokens, tool: Step, tag: str) -> dict[str, Any]:
    """Return the inputs of a job.

    :raises UnknownValue: if one is known at run time only
    """
    ports = tool.get_input_ports().items()
    return {name: with_paths(tokens.value(port, tag)) for name, port in ports if name != "__job__"}
