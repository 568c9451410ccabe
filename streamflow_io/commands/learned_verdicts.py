"""What `streamflow-io learned` shows of verdicts about declared splits."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from streamflow_io.learned.database import date_of
from streamflow_io.learned.verdicts import Verdict

from .console import say, table


def verdict_to_json(verdict: Verdict) -> dict[str, Any]:
    return {
        "key": verdict.key.digest,
        "step": verdict.step,
        "tool": verdict.key.tool,
        "rule": json.loads(verdict.key.rule),
        "inputs": verdict.key.inputs,
        "compared": verdict.compared,
        "verified": verdict.is_verified,
        "parts": verdict.parts,
        "difference": verdict.difference,
    }


def verdicts_table(keys: Sequence[str], verdicts: Sequence[Verdict]) -> Table:
    """:param keys: as long as it takes to tell them apart"""
    columns = ("key", "step", "rule", "verdict", "compared")
    rows = [
        (key, verdict.step, _rule(verdict), outcome(verdict), date_of(verdict.compared))
        for key, verdict in zip(keys, verdicts, strict=True)
    ]
    return table("Declared splits", columns, rows, unfolded=("key",))


def show_verdict(console: Console, verdict: Verdict) -> None:
    """All that is known of one."""
    for name, value in {
        "key": verdict.key.digest,
        "step": verdict.step,
        "tool": verdict.key.tool,
        "rule": _rule(verdict),
        "other inputs": verdict.key.inputs,
        "verdict": outcome(verdict),
        "compared": date_of(verdict.compared),
    }.items():
        say(console, f"{name + ':':14}{value}")


def outcome(verdict: Verdict) -> str:
    if verdict.difference is not None:
        return f"refuted: {verdict.difference}"
    return "verified: 1 part" if verdict.parts == 1 else f"verified: {verdict.parts} parts"


def _rule(verdict: Verdict) -> str:
    rule = json.loads(verdict.key.rule)
    return ", ".join(f"{name}: {rule[name]}" for name in ("port", "of", *sorted(rule.keys() - {"port", "of"})))
