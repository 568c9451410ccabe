"""`streamflow run` for which everything is proven that may stream without a hint: what comes of wrong proofs.

And each output is taken to be complete when it was closed once. Or all of that is proven while the run goes on, of an
input when it was asked for some times.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from unittest.mock import patch

from streamflow.main import main as streamflow

from streamflow_io.engine import planning
from streamflow_io.engine.proving import KnownTools, Proving
from streamflow_io.graph.candidates import Candidate
from streamflow_io.graph.io_graph import IOGraph
from streamflow_io.jobs import learned_streams
from streamflow_io.proofs import findings
from streamflow_io.records.learned.extents import UNBOUNDED, Extents
from streamflow_io.records.learned.proofs import Proof, ProofKey, RememberedProofs


def _proof(key: ProofKey) -> Proof:
    return Proof(key, "", 0.0, "net", extents=UNBOUNDED)


def _all_proven(
    graph: IOGraph, candidates: Mapping[str, Candidate], tools: KnownTools, proofs: Iterable[Proof]
) -> Proving:
    keys = [ProofKey(each.tool, "reads", port) for each in candidates.values() for port in each.inputs]
    return Proving(graph, candidates, tools, [*proofs, *map(_proof, keys)])


def _known(proofs: RememberedProofs, key: ProofKey) -> Proof | None:
    if (found := _of(proofs, key)) is not None:
        return found
    return _proof(key) if key.kind == "reads" else Proof(key, "", 0.0, closes=1)


_of = RememberedProofs.of


def _at_once(proofs: Mapping[str, Proof], files: Mapping[str, int], _: object) -> dict[str, Extents]:
    return {port: proof.extents_of(files[port]) for port, proof in proofs.items()}


def _all_tried_together() -> ExitStack:
    stack = ExitStack()
    stack.enter_context(patch.object(learned_streams, "streams_at_once", _at_once))
    stack.enter_context(patch.object(findings, "tried_together", lambda *_: ((UNBOUNDED, UNBOUNDED),)))
    stack.enter_context(patch.object(findings, "tried_with_declared", lambda *_: (UNBOUNDED,)))
    return stack


def main(arguments: list[str]) -> int:
    with (
        _all_tried_together(),
        patch.object(planning, "Proving", _all_proven),
        patch.object(RememberedProofs, "of", _known),
    ):
        code: int = streamflow(arguments)
        return code


_ASKED = 4
_asked: Counter[tuple[str, str]] = Counter()


def _is_read_by_now(proofs: RememberedProofs, tool: str, port: str) -> bool:
    _asked[tool, port] += 1
    return _asked[tool, port] > _ASKED


def _known_by_now(proofs: RememberedProofs, key: ProofKey) -> Proof | None:
    return _of(proofs, key) if key.kind == "reads" and _asked[key.tool, key.port] <= _ASKED else _known(proofs, key)


async def _news(proofs: RememberedProofs) -> None:
    await asyncio.sleep(0.1)


def main_later(arguments: list[str]) -> int:
    later = patch.multiple(RememberedProofs, of=_known_by_now, is_read=_is_read_by_now, news=_news)
    with _all_tried_together(), later:
        code: int = streamflow(arguments)
        return code
