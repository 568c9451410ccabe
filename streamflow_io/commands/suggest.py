"""`streamflow-io suggest`: hints for which a finished run gives reasons. Nothing is applied."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec.structs import asdict
from rich.table import Table
from rich.text import Text

from streamflow_io.hints.errors import HintErrors
from streamflow_io.hints.yaml_files import plain
from streamflow_io.hints.yaml_text import parse
from streamflow_io.records.history import read_history
from streamflow_io.records.reader import read_records
from streamflow_io.records.runs import find_run, run_label
from streamflow_io.report.suggestions.annotations import suggestions_text
from streamflow_io.report.suggestions.proposal import Proposal
from streamflow_io.report.suggestions.proposals import Suggestions, suggest

from .console import PlainResult, table
from .output import output_of, write_output


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
