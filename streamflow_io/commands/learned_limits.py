"""Learned limits, as `streamflow-io learned` shows them: of the jobs of a step, or of the chunks of read sessions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from streamflow_io.admission.demand import READ_SESSIONS
from streamflow_io.admission.registry import RegisteredConstraint
from streamflow_io.learned.database import date_of
from streamflow_io.learned.store import LearnedLimit, size_range

from .console import say, table


def is_of_readers(limit: LearnedLimit) -> bool:
    """Whether it is how many chunks read sessions read at the same time."""
    return limit.facts.step == READ_SESSIONS


def show_limit(console: Console, limit: LearnedLimit) -> None:
    """All that is known of one."""
    learned = date_of(limit.facts.learned)
    facts = {
        "key": limit.key.digest,
        "step": limit.facts.step,
        "tool": limit.key.tool,
        "storage": limit.key.storage,
        "input files": f"{size_text(limit.key.size_class)}, all of a job together",
        "learned": f"{learned}, with {limit.facts.executors} I/O executors{_unfinished(limit)}",
        "used in": _runs_text(limit),
    }
    if is_of_readers(limit):
        facts |= {
            "step": "none: how many chunks read sessions read at the same time",
            "chunks": size_text(limit.key.size_class),
        }
        del facts["tool"], facts["input files"]
    for name, value in facts.items():
        say(console, f"{name + ':':13}{value}")
    console.print(_registry_of_readers(limit) if is_of_readers(limit) else _registry(limit))


def what_limit(limit: LearnedLimit) -> str:
    """What it is of, on one line."""
    if is_of_readers(limit):
        return f"readers of read sessions on {limit.facts.storage}, chunks of {size_text(limit.key.size_class)}"
    return f"{limit.facts.step} on {limit.facts.storage}, {size_text(limit.key.size_class)}"


def limit_to_json(limit: LearnedLimit) -> dict[str, Any]:
    """All that is known of one, for programs."""
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


def limits_table(keys: Sequence[str], limits: Sequence[LearnedLimit]) -> Table:
    """Those of steps."""
    columns = ("key", "step", "storage", "input files", "MB/s: seconds", "learned", "used in")
    rows = []
    for key, limit in zip(keys, limits, strict=True):
        times = "\n".join(f"{entry.constraint:.4g}: {entry.seconds:.3g}" for entry in limit.registry.entries)
        facts, learned = limit.facts, date_of(limit.facts.learned) + _unfinished(limit)
        rows.append(
            (key, facts.step, facts.storage, size_text(limit.key.size_class), times, learned, _runs_text(limit))
        )
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


def readers_table(keys: Sequence[str], limits: Sequence[LearnedLimit]) -> Table:
    """Those of read sessions."""
    columns = ("key", "storage", "chunks of", "readers: MB/s together", "learned", "used in")
    rows = []
    for key, limit in zip(keys, limits, strict=True):
        rates = "\n".join(f"{entry.concurrency}: {_rate(limit, entry):.4g}" for entry in limit.registry.entries)
        learned = date_of(limit.facts.learned) + _unfinished(limit)
        rows.append((key, limit.facts.storage, size_text(limit.key.size_class), rates, learned, _runs_text(limit)))
    return table("Readers of read sessions", columns, rows, unfolded=("key",))


def _registry_of_readers(limit: LearnedLimit) -> Table:
    columns = ("readers", "MB/s together", "mean seconds of a chunk", "mean of chunks", "storageBW of a chunk, MB/s")
    rows = [
        (
            str(entry.concurrency),
            f"{_rate(limit, entry):.4g}",
            f"{entry.seconds:.4g}",
            str(entry.jobs),
            f"{entry.constraint:.4g}",
        )
        for entry in limit.registry.entries
    ]
    return table("How fast so many readers were", columns, rows, numbers=columns)


def _rate(limit: LearnedLimit, entry: RegisteredConstraint) -> float:
    """MB/s of all readers together."""
    return entry.concurrency * (limit.registry.job_bytes or 0.0) / entry.seconds / 1e6


def size_text(size_class: int) -> str:
    """The bytes of a class of jobs, for people."""
    lower, upper = size_range(size_class)
    return f"{_bytes(lower)} to {_bytes(upper)}" if lower else f"below {_bytes(upper)}"


def _bytes(number: int) -> str:
    """Of a power of two from 1 MiB."""
    units = ("MiB", "GiB", "TiB", "PiB")
    unit = min((number.bit_length() - 21) // 10, len(units) - 1)
    return f"{number >> 20 + 10 * unit} {units[unit]}"


def _unfinished(limit: LearnedLimit) -> str:
    return "" if limit.registry.is_complete else "; not finished, the next run goes on"


def _runs_text(limit: LearnedLimit) -> str:
    return "1 run" if limit.used == 1 else f"{limit.used} runs"
