"""`streamflow-io learned`: what was learned in earlier runs, of limits, windows, declared splits and streams."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import aiofiles.os
from rich.console import Console

from streamflow_io.hints.errors import HintError, HintErrors
from streamflow_io.learned.database import LearnedLimitsError, default_path
from streamflow_io.learned.proofs import Proof, Proofs
from streamflow_io.learned.store import LearnedLimit, LearnedLimits
from streamflow_io.learned.verdicts import Verdict, Verdicts
from streamflow_io.learned.windows import LearnedWindow, LearnedWindows

from . import learned_export
from .console import say
from .learned_export import Exported
from .learned_limits import is_of_readers, limit_to_json, limits_table, readers_table, show_limit, what_limit
from .learned_proofs import proof_to_json, proofs_table, show_proof, what_proof
from .learned_verdicts import outcome, show_verdict, verdict_to_json, verdicts_table
from .learned_windows import show_window, what_window, window_to_json, windows_table

_SHORTEST_KEY = 4
_SHORT_KEY = 7

# Of a step: its limits on a storage, the windows of its jobs, the cuts that it makes, or what it streams.
Entry = LearnedLimit | LearnedWindow | Verdict | Proof


@dataclass(frozen=True)
class LimitList:
    """The result of `list`."""

    path: Path
    limits: Sequence[LearnedLimit]
    windows: Sequence[LearnedWindow] = ()
    verdicts: Sequence[Verdict] = ()
    proofs: Sequence[Proof] = ()
    ok = True

    def to_json(self) -> dict[str, Any]:
        return {
            "file": str(self.path),
            "learned": list(map(limit_to_json, self.limits)),
            "windows": list(map(window_to_json, self.windows)),
            "splits": list(map(verdict_to_json, self.verdicts)),
            "streams": list(map(proof_to_json, self.proofs)),
        }

    def show(self, console: Console) -> None:
        steps = [limit for limit in self.limits if not is_of_readers(limit)]
        readers = [limit for limit in self.limits if is_of_readers(limit)]
        keys = iter(_short_keys([*steps, *readers, *self.windows, *self.verdicts, *self.proofs]))
        if steps:
            console.print(limits_table(list(islice(keys, len(steps))), steps))
        if readers:
            console.print(readers_table(list(islice(keys, len(readers))), readers))
        if self.windows:
            console.print(windows_table(list(islice(keys, len(self.windows))), self.windows))
        if self.verdicts:
            console.print(verdicts_table(list(islice(keys, len(self.verdicts))), self.verdicts))
        if self.proofs:
            console.print(proofs_table(list(keys), self.proofs))
        if not self.limits and not self.windows and not self.verdicts and not self.proofs:
            say(console, f"Nothing is learned yet: {self.path}")


@dataclass(frozen=True)
class LimitDetails:
    """The result of `show`."""

    limit: LearnedLimit
    ok = True

    def to_json(self) -> dict[str, Any]:
        return limit_to_json(self.limit)

    def show(self, console: Console) -> None:
        show_limit(console, self.limit)


@dataclass(frozen=True)
class WindowDetails:
    """The result of `show`."""

    window: LearnedWindow
    ok = True

    def to_json(self) -> dict[str, Any]:
        return window_to_json(self.window)

    def show(self, console: Console) -> None:
        show_window(console, self.window)


@dataclass(frozen=True)
class VerdictDetails:
    """The result of `show`."""

    verdict: Verdict
    ok = True

    def to_json(self) -> dict[str, Any]:
        return verdict_to_json(self.verdict)

    def show(self, console: Console) -> None:
        show_verdict(console, self.verdict)


@dataclass(frozen=True)
class ProofDetails:
    """The result of `show`."""

    proof: Proof
    ok = True

    def to_json(self) -> dict[str, Any]:
        return proof_to_json(self.proof)

    def show(self, console: Console) -> None:
        show_proof(console, self.proof)


@dataclass(frozen=True)
class Forgotten:
    """The result of `forget`."""

    entries: Sequence[Entry]
    ok = True

    @property
    def limits(self) -> list[LearnedLimit]:
        return [entry for entry in self.entries if isinstance(entry, LearnedLimit)]

    @property
    def windows(self) -> list[LearnedWindow]:
        return [entry for entry in self.entries if isinstance(entry, LearnedWindow)]

    @property
    def verdicts(self) -> list[Verdict]:
        return [entry for entry in self.entries if isinstance(entry, Verdict)]

    @property
    def proofs(self) -> list[Proof]:
        return [entry for entry in self.entries if isinstance(entry, Proof)]

    def to_json(self) -> dict[str, Any]:
        windows, verdicts = map(window_to_json, self.windows), map(verdict_to_json, self.verdicts)
        return {"forgotten": [*map(limit_to_json, self.limits), *windows, *verdicts, *map(proof_to_json, self.proofs)]}

    def show(self, console: Console) -> None:
        for entry in self.entries:
            say(console, f"Forgotten: {entry.key.digest[:_SHORT_KEY]} {_what(entry)}")
        if not self.entries:
            say(console, "There is nothing to forget")


Result = LimitList | LimitDetails | WindowDetails | VerdictDetails | ProofDetails | Forgotten | Exported


def add_arguments(parser: argparse.ArgumentParser) -> None:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "--file", metavar="FILE", type=Path, help="the learned limits (default: learned.db in your data directory)"
    )
    # Without a default, so that it does not undo a `--json` before the subcommand.
    common.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print JSON for programs")
    commands = parser.add_subparsers(dest="action", required=True, metavar="COMMAND")
    texts = {
        "list": "what is learned",
        "show": "all that is known of one",
        "forget": "delete what was learned",
        "export": "what streams without a hint, to be shared with a workflow",
    }
    parsers = {name: commands.add_parser(name, parents=[common], help=text) for name, text in texts.items()}
    key = f"as `list` shows it, or its beginning (at least {_SHORTEST_KEY} characters)"
    parsers["show"].add_argument("key", metavar="KEY", help=key)
    chosen = parsers["forget"].add_mutually_exclusive_group(required=True)
    chosen.add_argument("keys", metavar="KEY", nargs="*", default=[], help=key)
    chosen.add_argument("--all", action="store_true", help="everything")
    chosen.add_argument("--step", metavar="STEP", help="everything of a step, such as /align")
    learned_export.add_arguments(parsers["export"])


def run(arguments: argparse.Namespace) -> Result:
    """:raises HintErrors: if the file cannot be used, or a key or a step is not in it"""
    if arguments.action == "export":
        return learned_export.run(arguments)
    path: Path = arguments.file or default_path()
    try:
        return asyncio.run(_run(arguments, path))
    except LearnedLimitsError as error:
        allowed = "a file of learned limits (if it is damaged, delete it: limits are then learned anew)"
        raise HintErrors.one(path, "file", error.reason, allowed) from None


async def _run(arguments: argparse.Namespace, path: Path) -> Result:
    # Opening would create it.
    if not await aiofiles.os.path.exists(path):
        return _act(arguments, path, LimitList(path, ()))
    async with AsyncExitStack() as opened:
        limits = await LearnedLimits.open(path)
        opened.push_async_callback(limits.close)
        windows = await LearnedWindows.open(path)
        opened.push_async_callback(windows.close)
        verdicts = await Verdicts.open(path)
        opened.push_async_callback(verdicts.close)
        proofs = await Proofs.open(path)
        opened.push_async_callback(proofs.close)
        known = LimitList(path, await limits.list(), await windows.list(), await verdicts.list(), await proofs.list())
        result = _act(arguments, path, known)
        if isinstance(result, Forgotten):
            await limits.forget(limit.key for limit in result.limits)
            await windows.forget(window.key for window in result.windows)
            await verdicts.forget(verdict.key for verdict in result.verdicts)
            await proofs.forget(proof.key for proof in result.proofs)
        return result


def _act(arguments: argparse.Namespace, path: Path, known: LimitList) -> Result:
    if arguments.action == "list":
        return known
    entries: list[Entry] = [*known.limits, *known.windows, *known.verdicts, *known.proofs]
    if arguments.action == "show":
        (entry,) = _find([arguments.key], path, entries)
        return _details(entry)
    if arguments.all:
        return Forgotten(entries)
    if arguments.step is not None:
        return Forgotten(_of_step(arguments.step, path, entries))
    return Forgotten(_find(arguments.keys, path, entries))


def _details(entry: Entry) -> Result:
    match entry:
        case LearnedLimit():
            return LimitDetails(entry)
        case LearnedWindow():
            return WindowDetails(entry)
        case Verdict():
            return VerdictDetails(entry)
        case Proof():
            return ProofDetails(entry)


def _what(entry: Entry) -> str:
    """What it is of, on one line."""
    match entry:
        case LearnedLimit():
            return what_limit(entry)
        case LearnedWindow():
            return what_window(entry)
        case Verdict():
            return f"{entry.step}, {outcome(entry)}"
        case Proof():
            return what_proof(entry)


def _find(keys: Sequence[str], path: Path, entries: Sequence[Entry]) -> list[Entry]:
    """Those with these keys, each once.

    :raises HintErrors: if a key means none of them, or several
    """
    found: dict[str, Entry] = {}
    errors = []
    known = ", ".join(f"{key} ({_step(entry)})" for key, entry in zip(_short_keys(entries), entries, strict=True))
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


def _of_step(step: str, path: Path, entries: Sequence[Entry]) -> list[Entry]:
    """:raises HintErrors: if nothing was learned of the step"""
    found = [entry for entry in entries if _step(entry) == step]
    if not found:
        known = ", ".join(dict.fromkeys(map(_step, entries))) or "nothing is learned yet"
        raise HintErrors.one(path, "--step", f"nothing is learned of {step!r}", known)
    return found


def _step(entry: Entry) -> str:
    return entry.facts.step if isinstance(entry, LearnedLimit) else entry.step


def _short_keys(entries: Sequence[Entry]) -> list[str]:
    """The beginnings of the keys, as long as it takes to tell them apart."""
    digests = [entry.key.digest for entry in entries]
    length = _SHORT_KEY
    while len({digest[:length] for digest in digests}) < len(digests):
        length += 1
    return [digest[:length] for digest in digests]
