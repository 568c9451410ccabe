"""`streamflow-io learned`: what earlier runs have learned: limits, windows, declared splits and streams."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from streamflow_io.engine.plan import Plan
from streamflow_io.hints.annotations_text import scalar
from streamflow_io.hints.errors import HintError, HintErrors
from streamflow_io.hints.inheritance import port_path
from streamflow_io.hints.models import ProvenBeside, ProvenInput
from streamflow_io.hints.yaml_files import read_scheduler_config
from streamflow_io.installed_features import subclass_of
from streamflow_io.records.learned.database import (
    LearnedDatabase,
    LearnedEntry,
    LearnedStoreError,
    default_path,
    known_entries,
)
from streamflow_io.records.learned.proofs import Proof
from streamflow_io.wording import counted

from .console import DocumentResult, PlainResult, add_output_arguments, output_of, write_output
from .learned_entries import INCONCLUSIVE, LIMITS, PROOFS, SIZES, WINDOWS, EntryKind, MoreKinds
from .plan import plan_workflow

_SHORTEST_KEY = 4
_SHORT_KEY = 7
_KINDS: tuple[EntryKind[Any], ...] = (LIMITS, WINDOWS, SIZES, *subclass_of(MoreKinds).kinds, PROOFS, INCONCLUSIVE)


def listed(path: Path, entries: Sequence[LearnedEntry]) -> PlainResult:
    """Return all entries, as tables."""
    facts = {kind.name: [_kind(entry).to_json(entry) for entry in entries if _kind(entry) is kind] for kind in _KINDS}
    keyed = list(zip(_short_keys(entries), entries, strict=True))
    found = ((kind, [(key, entry) for key, entry in keyed if _kind(entry) is kind]) for kind in _KINDS)
    tables = [kind.table(of_kind) for kind, of_kind in found if of_kind]
    return PlainResult({"file": str(path), **facts}, tables or [f"Nothing is learned yet: {path}"])


def details(entry: LearnedEntry) -> PlainResult:
    """Return all facts of an entry."""
    return PlainResult(_kind(entry).to_json(entry), list(_kind(entry).lines(entry)))


def _forgotten(entries: Sequence[LearnedEntry]) -> PlainResult:
    told = [f"Forgotten: {entry.key.digest[:_SHORT_KEY]} {_kind(entry).what(entry)}" for entry in entries]
    facts = [_kind(entry).to_json(entry) for entry in entries]
    return PlainResult({"forgotten": facts}, told or ["There is nothing to forget"])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "--file",
        metavar="FILE",
        type=Path,
        help="the file with learned facts (default: learned.db in your data directory)",
    )
    # Without a default, so that it does not undo a `--json` before the subcommand.
    common.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print JSON for programs")
    commands = parser.add_subparsers(dest="action", required=True, metavar="COMMAND")
    texts = {
        "list": "list all entries",
        "show": "show all facts of one entry",
        "forget": "delete what was learned",
        "export": "write the inputs that stream without a hint, to share them with a workflow",
    }
    parsers = {name: commands.add_parser(name, parents=[common], help=text) for name, text in texts.items()}
    key = f"a key as in `list`, or its beginning (at least {_SHORTEST_KEY} characters)"
    parsers["show"].add_argument("key", metavar="KEY", help=key)
    chosen = parsers["forget"].add_mutually_exclusive_group(required=True)
    chosen.add_argument("keys", metavar="KEY", nargs="*", default=[], help=key)
    chosen.add_argument("--all", action="store_true", help="delete all entries")
    chosen.add_argument("--step", metavar="STEP", help="delete all entries of a step, such as /align")
    parsers["export"].add_argument(
        "streamflow_file", metavar="STREAMFLOW_FILE", type=Path, help="the StreamFlow file, as for `streamflow run`"
    )
    add_output_arguments(parsers["export"])


def run(arguments: argparse.Namespace) -> PlainResult | DocumentResult:
    """List, show, delete or export learned facts.

    :raises HintErrors: if the file cannot be used, or a key or a step is not in it
    """
    if arguments.action == "export":
        return _exported(arguments)
    path: Path = arguments.file or default_path()
    try:
        known = [entry for kind in _KINDS for entry in known_entries(path, kind.of)]
        if arguments.action == "list":
            return listed(path, known)
        if arguments.action == "show":
            (entry,) = _find([arguments.key], path, known)
            return details(entry)
        if not arguments.all and arguments.step is not None:
            known = _of_step(arguments.step, path, known)
        elif not arguments.all:
            known = _find(arguments.keys, path, known)
        if known:
            LearnedDatabase(path).forget(known)
        return _forgotten(known)
    except LearnedStoreError as error:
        allowed = "a file with learned facts (if the file is damaged, delete it: runs learn the facts again)"
        raise HintErrors.one(path, "file", error.reason, allowed) from None


def _kind(entry: LearnedEntry) -> EntryKind[Any]:
    return next(kind for kind in _KINDS if kind.of is type(entry))


def _find(keys: Sequence[str], path: Path, entries: Sequence[LearnedEntry]) -> list[LearnedEntry]:
    """Return the entries with these keys, each once.

    :raises HintErrors: if a key fits none of them, or several
    """
    found: dict[str, LearnedEntry] = {}
    errors = []
    known = ", ".join(f"{key} ({entry.step})" for key, entry in zip(_short_keys(entries), entries, strict=True))
    for key in keys:
        matching = [entry for entry in entries if entry.key.digest.startswith(key)]
        if len(matching) == 1 and len(key) >= _SHORTEST_KEY:
            found[matching[0].key.digest] = matching[0]
        else:
            message = f"{key!r} is too short" if matching else f"there is no {key!r}"
            errors.append(HintError(str(path), None, "KEY", message, known or "nothing is learned yet"))
    if errors:
        raise HintErrors(errors)
    return list(found.values())


def _of_step(step: str, path: Path, entries: Sequence[LearnedEntry]) -> list[LearnedEntry]:
    """Return the entries of a step.

    :raises HintErrors: if nothing was learned of the step
    """
    found = [entry for entry in entries if entry.step == step]
    if not found:
        known = ", ".join(dict.fromkeys(entry.step for entry in entries)) or "nothing is learned yet"
        raise HintErrors.one(path, "--step", f"nothing is learned of {step!r}", known)
    return found


def _short_keys(entries: Sequence[LearnedEntry]) -> list[str]:
    """Return the beginnings of the keys, as long as it takes to tell them apart."""
    digests = [entry.key.digest for entry in entries]
    length = _SHORT_KEY
    while len({digest[:length] for digest in digests}) < len(set(digests)):
        length += 1
    return [digest[:length] for digest in digests]


def _exported(arguments: argparse.Namespace) -> DocumentResult:
    """Write or print the proofs about a workflow's inputs.

    :raises HintErrors: if a file, the workflow or a hint has mistakes, or the output cannot be written
    """
    output = output_of(arguments)
    streamflow_file: Path = arguments.streamflow_file
    plan = plan_workflow(streamflow_file, arguments.workflow)
    scheduler = read_scheduler_config(streamflow_file)
    if scheduler is None or scheduler.streaming != "auto" or scheduler.runtime != "embedded":
        field = "scheduling.scheduler.config"
        raise HintErrors.one(streamflow_file, field, "nothing is proven for it", "`streaming: auto`")
    found = list(_proven(plan))
    proven = [entry for entry, _ in found]
    text = "".join(f"{line}\n" for line in _lines(found))
    if output is not None and proven:
        write_output(output, text)
    return DocumentResult(
        text,
        {"proven": [entry.model_dump(mode="json") for entry in proven]},
        output,
        () if output is None else [(f"{os.path.relpath(output)}: {counted(len(proven), 'proof')}", "bold")],
        ok=bool(proven),
        missing=None if proven else "Nothing is proven of this workflow yet: run it, best with `rehearse: wait`",
    )


def _proven(plan: Plan) -> Iterator[tuple[ProvenInput, Proof]]:
    for step, candidate in plan.proofs.candidates.items():
        for proof in plan.proofs.known or ():
            key = proof.key
            is_of = key.kind == "reads" and key.tool == candidate.tool and key.port in candidate.inputs
            if is_of and proof.way is not None:
                path = port_path(step, key.port)
                entry = ProvenInput(
                    input=path,
                    read=proof.way,
                    first=proof.excerpt,
                    extents=proof.extents,
                    beside=tuple(
                        ProvenBeside(port=each.port, read=each.way, sizes=each.sizes, other_sizes=each.other_sizes)
                        for each in proof.beside
                    ),
                    tool=key.tool,
                    options=key.options,
                )
                yield entry, proof


def _lines(found: Sequence[tuple[ProvenInput, Proof]]) -> Iterator[str]:
    yield "# What was proven to stream: `streamflow-io learned export`. To use it, in the StreamFlow file:"
    yield "#   scheduler: {type: sfio.io-aware, config: {streaming: auto, annotations: THIS_FILE}}"
    yield "# or add it to the annotations file that is named there."
    yield "# An entry holds for the same tool, programs and options; other inputs are learned as before."
    yield "proven:"
    for entry, proof in found:
        if proof.runs:
            yield f"  # it has streamed in {counted(proof.runs, 'job')}"
        yield f"  - input: {scalar(entry.input)}"
        yield f"    read: {entry.read}"
        if entry.first is not None:
            yield f"    first: {entry.first}"
        yield f"    extents: {json.dumps(entry.extents)}"
        if entry.beside:
            yield f"    beside: {json.dumps([each.model_dump(mode='json') for each in entry.beside])}"
        # In quotes, because digits alone would be a number.
        yield f'    tool: "{entry.tool}"'
        yield f'    options: "{entry.options}"'
