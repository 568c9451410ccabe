"""`streamflow-io learned`: what was learned in earlier runs: list, show, forget."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import aiofiles.os
from rich.console import Console
from rich.table import Table

from streamflow_io.hints.errors import HintError, HintErrors
from streamflow_io.learned.database import LearnedLimitsError, default_path
from streamflow_io.learned.store import LearnedLimit, LearnedLimits, size_range

from .console import say, table

_SHORTEST_KEY = 4
_SHORT_KEY = 7


@dataclass(frozen=True)
class LimitList:
    """The result of `list`."""

    path: Path
    limits: Sequence[LearnedLimit]
    ok = True

    def to_json(self) -> dict[str, Any]:
        return {"file": str(self.path), "learned": [_to_json(limit) for limit in self.limits]}

    def show(self, console: Console) -> None:
        if self.limits:
            console.print(_table(self.limits))
        else:
            say(console, f"Nothing is learned yet: {self.path}")


@dataclass(frozen=True)
class LimitDetails:
    """The result of `show`."""

    limit: LearnedLimit
    ok = True

    def to_json(self) -> dict[str, Any]:
        return _to_json(self.limit)

    def show(self, console: Console) -> None:
        limit = self.limit
        for name, value in {
            "key": limit.key.digest,
            "step": limit.facts.step,
            "tool": limit.key.tool,
            "storage": limit.key.storage,
            "input files": f"{_size_range(limit)}, all of a job together",
            "learned": f"{_date(limit)}, with {limit.facts.executors} I/O executors{_unfinished(limit)}",
            "used in": _runs(limit),
        }.items():
            say(console, f"{name + ':':13}{value}")
        console.print(_registry(limit))


@dataclass(frozen=True)
class ForgottenLimits:
    """The result of `forget`."""

    limits: Sequence[LearnedLimit]
    ok = True

    def to_json(self) -> dict[str, Any]:
        return {"forgotten": [_to_json(limit) for limit in self.limits]}

    def show(self, console: Console) -> None:
        for limit in self.limits:
            what = f"{limit.facts.step} on {limit.facts.storage}, {_size_range(limit)}"
            say(console, f"Forgotten: {limit.key.digest[:_SHORT_KEY]} {what}")
        if not self.limits:
            say(console, "There is nothing to forget")


Result = LimitList | LimitDetails | ForgottenLimits


def add_arguments(parser: argparse.ArgumentParser) -> None:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "--file", metavar="FILE", type=Path, help="the learned limits (default: learned.db in your data directory)"
    )
    # Without a default, so that it does not undo a `--json` before the subcommand.
    common.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print JSON for programs")
    commands = parser.add_subparsers(dest="action", required=True, metavar="COMMAND")
    texts = {"list": "what is learned", "show": "all that is known of one", "forget": "delete what was learned"}
    parsers = {name: commands.add_parser(name, parents=[common], help=text) for name, text in texts.items()}
    key = f"as `list` shows it, or its beginning (at least {_SHORTEST_KEY} characters)"
    parsers["show"].add_argument("key", metavar="KEY", help=key)
    chosen = parsers["forget"].add_mutually_exclusive_group(required=True)
    chosen.add_argument("keys", metavar="KEY", nargs="*", default=[], help=key)
    chosen.add_argument("--all", action="store_true", help="everything")
    chosen.add_argument("--step", metavar="STEP", help="everything of a step, such as /align")


def run(arguments: argparse.Namespace) -> Result:
    """:raises HintErrors: if the file cannot be used, or a key or a step is not in it"""
    path: Path = arguments.file or default_path()
    try:
        return asyncio.run(_run(arguments, path))
    except LearnedLimitsError as error:
        allowed = "a file of learned limits (if it is damaged, delete it: limits are then learned anew)"
        raise HintErrors.one(path, "file", error.reason, allowed) from None


async def _run(arguments: argparse.Namespace, path: Path) -> Result:
    # Opening would create it.
    if not await aiofiles.os.path.exists(path):
        return _act(arguments, path, ())
    limits = await LearnedLimits.open(path)
    try:
        result = _act(arguments, path, await limits.list())
        if isinstance(result, ForgottenLimits):
            await limits.forget(limit.key for limit in result.limits)
        return result
    finally:
        await limits.close()


def _act(arguments: argparse.Namespace, path: Path, limits: Sequence[LearnedLimit]) -> Result:
    if arguments.action == "list":
        return LimitList(path, limits)
    if arguments.action == "show":
        (limit,) = _find([arguments.key], path, limits)
        return LimitDetails(limit)
    if arguments.all:
        return ForgottenLimits(limits)
    if arguments.step is not None:
        return ForgottenLimits(_of_step(arguments.step, path, limits))
    return ForgottenLimits(_find(arguments.keys, path, limits))


def _find(keys: Sequence[str], path: Path, limits: Sequence[LearnedLimit]) -> list[LearnedLimit]:
    """The limits with these keys, each once.

    :raises HintErrors: if a key means none of them, or several
    """
    found: dict[str, LearnedLimit] = {}
    errors = []
    known = ", ".join(f"{key} ({limit.facts.step})" for key, limit in zip(_short_keys(limits), limits, strict=True))
    for key in keys:
        matching = [limit for limit in limits if limit.key.digest.startswith(key)]
        if len(matching) == 1 and len(key) >= _SHORTEST_KEY:
            found[matching[0].key.digest] = matching[0]
        else:
            message = f"{key!r} is too short" if matching else f"there is no {key!r}"
            errors.append(HintError(str(path), None, "KEY", message, known or "nothing is learned yet"))
    if errors:
        raise HintErrors(errors)
    return list(found.values())


def _of_step(step: str, path: Path, limits: Sequence[LearnedLimit]) -> list[LearnedLimit]:
    """:raises HintErrors: if nothing was learned of the step"""
    found = [limit for limit in limits if limit.facts.step == step]
    if not found:
        known = ", ".join(dict.fromkeys(limit.facts.step for limit in limits)) or "nothing is learned yet"
        raise HintErrors.one(path, "--step", f"nothing is learned of {step!r}", known)
    return found


def _short_keys(limits: Sequence[LearnedLimit]) -> list[str]:
    """The beginnings of the keys, as long as it takes to tell them apart."""
    digests = [limit.key.digest for limit in limits]
    length = _SHORT_KEY
    while len({digest[:length] for digest in digests}) < len(digests):
        length += 1
    return [digest[:length] for digest in digests]


def _to_json(limit: LearnedLimit) -> dict[str, Any]:
    lower, upper = size_range(limit.key.size_class)
    return {
        "key": limit.key.digest,
        "step": limit.facts.step,
        "tool": limit.key.tool,
        "storage": limit.facts.storage,
        "conditions": limit.key.storage,
        "sizeClass": limit.key.size_class,
        "inputBytes": {"from": lower, "below": upper},
        "learned": limit.facts.learned,
        "ioExecutors": limit.facts.executors,
        "used": limit.used,
        "jobBytes": limit.registry.job_bytes,
        "complete": limit.registry.is_complete,
        "constraints": [
            {
                "storageBW": entry.constraint,
                "concurrency": entry.concurrency,
                "seconds": entry.seconds,
                "jobs": entry.jobs,
            }
            for entry in limit.registry.entries
        ],
    }


def _table(limits: Sequence[LearnedLimit]) -> Table:
    columns = ("key", "step", "storage", "input files", "MB/s: seconds", "learned", "used in")
    rows = []
    for key, limit in zip(_short_keys(limits), limits, strict=True):
        times = "\n".join(f"{entry.constraint:.4g}: {entry.seconds:.3g}" for entry in limit.registry.entries)
        facts, learned = limit.facts, _date(limit) + _unfinished(limit)
        rows.append((key, facts.step, facts.storage, _size_range(limit), times, learned, _runs(limit)))
    return table("Learned limits", columns, rows, unfolded=("key",))


def _registry(limit: LearnedLimit) -> Table:
    job_bytes = limit.registry.job_bytes
    of = "" if job_bytes is None else f", of a job that moves {job_bytes / 1e6:.4g} MB"
    columns = ("storageBW, MB/s", "jobs at once", "mean seconds of a job", "mean of jobs")
    rows = [
        (f"{entry.constraint:.4g}", str(entry.concurrency), f"{entry.seconds:.4g}", str(entry.jobs))
        for entry in limit.registry.entries
    ]
    return table(f"Constraint registry{of}", columns, rows, numbers=columns)


def _size_range(limit: LearnedLimit) -> str:
    lower, upper = size_range(limit.key.size_class)
    return f"{_bytes(lower)} to {_bytes(upper)}" if lower else f"below {_bytes(upper)}"


def _bytes(number: int) -> str:
    """Of a power of two from 1 MiB."""
    units = ("MiB", "GiB", "TiB", "PiB")
    unit = min((number.bit_length() - 21) // 10, len(units) - 1)
    return f"{number >> 20 + 10 * unit} {units[unit]}"


def _date(limit: LearnedLimit) -> str:
    return datetime.fromtimestamp(limit.facts.learned).astimezone().strftime("%Y-%m-%d %H:%M")


def _unfinished(limit: LearnedLimit) -> str:
    return "" if limit.registry.is_complete else "; not finished, the next run goes on"


def _runs(limit: LearnedLimit) -> str:
    return "1 run" if limit.used == 1 else f"{limit.used} runs"
