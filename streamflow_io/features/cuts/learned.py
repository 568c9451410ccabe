"""Verdicts about declared cuts in `streamflow-io learned`."""

from __future__ import annotations

import json
from typing import Any

from streamflow_io.commands.learned_entries import EntryKind, MoreKinds
from streamflow_io.records.learned.database import date_of
from streamflow_io.wording import counted

from .verdicts import Verdict


def _verdict_json(verdict: Verdict) -> dict[str, Any]:
    return {
        "rule": json.loads(verdict.key.rule),
        "inputs": verdict.key.inputs,
        "compared": verdict.learned,
        "verified": verdict.is_verified,
        "parts": verdict.parts,
        "difference": verdict.difference,
    }


def _verdict_outcome(verdict: Verdict) -> str:
    if verdict.difference is not None:
        return f"refuted: {verdict.difference}"
    return f"verified: {counted(verdict.parts, 'part')}"


def _rule(verdict: Verdict) -> str:
    rule = json.loads(verdict.key.rule)
    return ", ".join(f"{name}: {rule[name]}" for name in ("port", "of", *sorted(rule.keys() - {"port", "of"})))


VERDICTS = EntryKind(
    Verdict,
    "splits",
    "Declared splits",
    ("step", "rule", "verdict", "compared"),
    lambda verdict: (verdict.step, _rule(verdict), _verdict_outcome(verdict), date_of(verdict.learned)),
    lambda verdict: f"{verdict.step}, {_verdict_outcome(verdict)}",
    _verdict_json,
)


class Verdicts(MoreKinds):
    """Adds the verdicts."""

    kinds = (VERDICTS,)
