"""What `streamflow-io learned` shows of what streams without a hint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from streamflow_io.hints.inheritance import port_path
from streamflow_io.learned.database import date_of
from streamflow_io.learned.extents import bound_of
from streamflow_io.learned.proofs import Proof
from streamflow_io.wording import counted, size_text

from .console import say, table

_WAYS = {
    "net": "as a file; what a pipe cannot do waits for the file",
    "pipe": "as a pipe",
}


def proof_to_json(proof: Proof) -> dict[str, Any]:
    """All that is known of one, for programs."""
    return {
        "key": proof.key.digest,
        "step": proof.step,
        "tool": proof.key.tool,
        "kind": proof.key.kind,
        "port": proof.key.port,
        "options": proof.key.options or None,
        "found": proof.found,
        "proven": proof.is_proven,
        "way": proof.way,
        "reason": proof.reason,
        "bytes": proof.bytes,
        "excerpt": proof.excerpt,
        "extents": [list(extent) for extent in proof.extents],
        "closes": proof.closes,
        "jobs": proof.runs,
        "failures": proof.failures,
    }


def proofs_table(keys: Sequence[str], proofs: Sequence[Proof]) -> Table:
    """:param keys: as long as it takes to tell them apart"""
    rows = [
        (key, port_path(proof.step, proof.key.port), _outcome(proof), str(proof.runs), date_of(proof.found))
        for key, proof in zip(keys, proofs, strict=True)
    ]
    return table("Byte streams", ("key", "of", "outcome", "jobs", "found"), rows, unfolded=("key", "of"))


def show_proof(console: Console, proof: Proof) -> None:
    """All that is known of one."""
    reads = proof.key.kind != "writes"
    for name, value in {
        "key": proof.key.digest,
        "step": proof.step,
        "tool": proof.key.tool,
        "input" if reads else "output": proof.key.port,
        "options": proof.key.options or "all",
        "outcome": _outcome(proof),
        "read": "" if proof.way is None else _WAYS[proof.way],
        "tried with": _tried_with(proof),
        "streamed in": counted(proof.runs, "job") if reads else "",
        "found": date_of(proof.found),
    }.items():
        if value:
            say(console, f"{name + ':':13}{value}")


def _tried_with(proof: Proof) -> str:
    if proof.excerpt is not None:
        return f"the first {proof.excerpt:,} of {proof.bytes:,} bytes"
    return f"{proof.bytes:,} bytes" if proof.bytes else ""


def what_proof(proof: Proof) -> str:
    """What it is of, on one line."""
    return f"{port_path(proof.step, proof.key.port)}, {_outcome(proof)}"


def proven_how(excerpt: int | None, bound: int | None) -> str:
    """What is said of a proof.

    :param excerpt: so many first bytes were enough
    :param bound: it holds for files of up to so many bytes
    """
    first = "" if excerpt is None else f" with the first {size_text(excerpt)}"
    return f"proven{first}" if bound is None else f"proven{first} up to {size_text(bound)}"


def _outcome(proof: Proof) -> str:
    if proof.closes is not None:
        when = f"when it is closed {counted(proof.closes, 'time')}" if proof.closes else "when its job has ended"
        return f"complete {when}"
    if proof.key.kind == "declared":
        how = "refuted" if proof.is_refused else "cannot be compared" if proof.reason else "compared"
        return f"declared, {how}" + (f": {proof.reason}" if proof.reason else "")
    if proof.is_proven:
        return proven_how(proof.excerpt, bound_of(proof.extents))
    again = " (it is rehearsed again)" if proof.may_be_tried_again else ""
    return f"not streamed: {proof.reason}{again}"
