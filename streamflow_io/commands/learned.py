"""`streamflow-io learned`: learned limits, windows, declared splits and streams of earlier runs."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from streamflow_io.hints.errors import HintError, HintErrors
from streamflow_io.installed_features import subclass_of
from streamflow_io.records.learned.database import (
    LearnedDatabase,
    LearnedEntry,
    LearnedStoreError,
    default_path,
    known_entries,
)

from . import learned_export
from .console import PlainResult
from .learned_entries import INCONCLUSIVE, LIMITS, PROOFS, SIZES, WINDOWS, EntryKind, MoreKinds
from .learned_export import Exported

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
    learned_export.add_arguments(parsers["export"])


def run(arguments: argparse.Namespace) -> PlainResult | Exported:
    """List, show, delete or export learned facts.

    :raises HintErrors: if the file cannot be used, or a key or a step is not in it
    """
    if arguments.action == "export":
        return learned_export.run(arguments)
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
