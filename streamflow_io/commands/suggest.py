"""`streamflow-io suggest`: hints for which a finished run gives reasons. Nothing is applied."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import asdict
from rich.table import Table
from rich.text import Text

from streamflow_io.hints.annotations_text import Commented, annotations_text, scalar
from streamflow_io.hints.errors import HintErrors
from streamflow_io.hints.yaml_files import plain
from streamflow_io.hints.yaml_text import parse
from streamflow_io.records.history import read_history
from streamflow_io.records.reader import read_records
from streamflow_io.records.runs import find_run, run_label
from streamflow_io.report.suggestions.proposal import (
    CommitHint,
    GateHint,
    IOTaskHint,
    Proposal,
    RequiredHint,
    SplitHint,
    StreamHint,
)
from streamflow_io.report.suggestions.proposals import Suggestions, by_step, suggest

from .console import PlainResult, output_of, table, write_output


def suggestions_text(run: str, suggestions: Suggestions) -> str:
    """Return the sure proposals as YAML, with the evidence as comments. Proposals to be tried are comments, too."""
    sure = [proposal for proposal in suggestions.proposals if proposal.is_sure]
    steps = by_step(sure)
    return annotations_text(
        (
            f"Proposed by `streamflow-io suggest` from what was seen in the run {run}, which took "
            f"{suggestions.seconds:.1f} s.",
            f"With all of it, the run would have been {suggestions.saved:.1f} s shorter at most.",
            "Read the evidence, and take out what may not hold for other inputs.",
        ),
        {
            step: [Commented(list(map(_comment, behind)), rule) for behind, rule in _rules(found, sure)]
            for step, found in steps.items()
        },
        _evidence_by_port(sure),
        _of_steps(steps, IOTaskHint),
        _tried(suggestions.proposals),
        _of_steps(steps, RequiredHint),
        sessions={
            step: [Commented([_comment(one)], one.split) for one in splits]
            for step, found in steps.items()
            if (splits := _splits(found))
        },
    )


def _rules(found: Sequence[Proposal], sure: Sequence[Proposal]) -> Iterator[tuple[list[Proposal], dict[str, Any]]]:
    """Yield the rules of a step, one for each output, with the proposals behind each."""
    outputs: dict[str, list[Proposal]] = {}
    for proposal in found:
        if isinstance(proposal.hint, CommitHint | GateHint):
            outputs.setdefault(proposal.hint.output, []).append(proposal)
    for output, behind in outputs.items():
        yield behind, _rule(output, behind, sure)


def _rule(output: str, behind: Sequence[Proposal], sure: Sequence[Proposal]) -> dict[str, Any]:
    rule: dict[str, Any] = {"port": output.rpartition("/")[2], "committed": "on_termination"}
    for proposal in behind:
        if isinstance(proposal.hint, GateHint):
            rule["start"] = "producer"
            continue
        rule["committed"] = str(proposal.rule)
    if any(isinstance(other.hint, StreamHint) and other.hint.output == output for other in sure):
        # A rule holds instead of `streamable` on the output.
        rule["mode"] = "no_update"
    return rule


def _splits(found: Iterable[Proposal]) -> list[Proposal]:
    return [one for one in found if isinstance(one.hint, SplitHint)]


def _of_steps(
    steps: Mapping[str, Sequence[Proposal]], kind: type[IOTaskHint] | type[RequiredHint]
) -> dict[str, list[str]]:
    """Return the steps with a hint of a kind, each with the comments on its proposals."""
    comments = {step: [_comment(one) for one in found if isinstance(one.hint, kind)] for step, found in steps.items()}
    return {step: behind for step, behind in comments.items() if behind}


def _streamable(proposals: Iterable[Proposal]) -> Mapping[str, list[Proposal]]:
    """Return the ports that are to be `streamable`, with the proposals behind each."""
    ports: dict[str, list[Proposal]] = {}
    for proposal in proposals:
        if isinstance(proposal.hint, StreamHint):
            for port in (proposal.hint.output, proposal.hint.input):
                ports.setdefault(port, []).append(proposal)
    return ports


def _evidence_by_port(sure: Iterable[Proposal]) -> dict[str, list[str]]:
    """Return the ports that are to be `streamable`, with the evidence for each edge once."""
    told: set[str] = set()
    ports: dict[str, list[str]] = {}
    for port, behind in _streamable(sure).items():
        ports[port] = [f"{one.subject}: {_comment(one)}" for one in behind if one.subject not in told]
        told |= {one.subject for one in behind}
    return ports


def _tried(proposals: Sequence[Proposal]) -> Iterator[str]:
    """Yield the proposals to be tried, as comments: a line without its `#` is a hint."""
    tried = [proposal for proposal in proposals if not proposal.is_sure]
    if not tried:
        return
    yield " Try it first: how it is written was not seen, and only what is written front to back can stream."
    for proposal in tried:
        yield f" {proposal.subject}: {_comment(proposal)}"
    sure = _streamable(proposal for proposal in proposals if proposal.is_sure)
    if not sure:
        yield "streamable:"
    yield from (f"  - {scalar(port)}" for port in _streamable(tried) if port not in sure)


def _comment(proposal: Proposal) -> str:
    saved = f". The run: {proposal.saved:.1f} s shorter at most" if proposal.saved >= 0.05 else ""
    return proposal.evidence + saved


def answer(run: str, found: Suggestions, file: Path | None) -> PlainResult:
    """Return the proposals for a run.

    :param file: the file to which the proposals were written. None: no file
    """
    facts = {
        "run": run,
        "seconds": found.seconds,
        "saved": found.saved,
        "proposals": [_to_json(proposal) for proposal in found.proposals],
        "notProposed": [asdict(refusal) for refusal in found.refusals],
        "annotations": plain(parse(suggestions_text(run, found))),
        "file": None if file is None else str(file),
    }
    return PlainResult(facts, [*_tables(found), _verdict(run, found, file)])


def _tables(found: Suggestions) -> Iterator[Table]:
    if found.proposals:
        gain = "run shorter,\nat most"
        rows = [
            (_what(one.subject, one.evidence), one.text, f"{one.saved:.1f} s" if one.saved >= 0.05 else "")
            for one in found.proposals
        ]
        yield table("Proposals", ("what and why", "hint", gain), rows, numbers=(gain,), unfolded=(gain,))
    if found.refusals:
        refused = [(_what(one.subject, one.reason), one.what) for one in found.refusals]
        yield table("Not proposed", ("what and why not", "hint"), refused)


def _verdict(run: str, found: Suggestions, file: Path | None) -> str:
    if not found.proposals:
        why = f"; {found.core_use.text}" if found.core_use is not None and found.core_use.is_busy else ""
        return f"{run}: nothing to propose{why}"
    text = f"{run}: {found.seconds:.1f} s; up to {found.saved:.1f} s less with all proposals"
    return text + (f"\nWritten: {file}; nothing is applied" if file is not None else "")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run", metavar="RUN", help="the name of a run with `observe: true`, `last`, or the path of telemetry"
    )
    parser.add_argument("-o", "--output", metavar="FILE", type=Path, help="write the proposals as an annotations file")
    parser.add_argument("--force", action="store_true", help="replace FILE if it exists")


def run(arguments: argparse.Namespace) -> PlainResult:
    """Propose hints from an observed run.

    :raises HintErrors: if there is no such run, it was not observed, or the file cannot be written
    """
    output = output_of(arguments)
    file = find_run(arguments.run)
    history = read_history(run_label(file), read_records(file))
    if not history.routes and not any(job.outputs or job.inputs for job in history.jobs):
        allowed = "a run with `observe: true` in the scheduler's config"
        raise HintErrors.one(file, "observe", "this run was not observed", allowed)
    suggestions = suggest(history)
    if output is not None and suggestions.proposals:
        write_output(output, suggestions_text(history.label, suggestions))
        return answer(history.label, suggestions, output)
    return answer(history.label, suggestions, None)


def _to_json(proposal: Proposal) -> dict[str, Any]:
    return {
        "subject": proposal.subject,
        "hint": proposal.text,
        "sure": proposal.is_sure,
        "evidence": proposal.evidence,
        "lead": proposal.lead,
        "saved": proposal.saved,
    }


def _what(subject: str, why: str) -> Text:
    return Text.assemble((subject.replace(" -> ", "\n-> "), "bold"), f"\n{why}")
