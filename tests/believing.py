"""`streamflow run` for which everything is proven that may stream without a hint: what comes of wrong proofs.

And each output is taken to be complete when it was closed once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from unittest.mock import patch

from streamflow.main import main as streamflow

from streamflow_io.graph.candidates import Candidate, Proved
from streamflow_io.graph.io_graph import IOGraph
from streamflow_io.learned.proofs import Proof, ProofKey, RememberedProofs
from streamflow_io.translation import planning
from streamflow_io.translation.proving import prove


def _all_proven(
    graph: IOGraph,
    candidates: Mapping[str, Candidate],
    tools: Mapping[str, str],
    proofs: Iterable[Proof],
    kept_out: Collection[str],
) -> Proved:
    keys = [ProofKey(each.tool, "reads", port) for each in candidates.values() for port in each.inputs]
    return prove(graph, candidates, tools, [*proofs, *(Proof(key, "", 0.0, "net") for key in keys)], kept_out)


def _known(proofs: RememberedProofs, key: ProofKey) -> Proof | None:
    if (found := _of(proofs, key)) is not None:
        return found
    return Proof(key, "", 0.0, "net") if key.kind == "reads" else Proof(key, "", 0.0, closes=1)


_of = RememberedProofs.of


def main(arguments: list[str]) -> int:
    with patch.object(planning, "prove", _all_proven), patch.object(RememberedProofs, "of", _known):
        code: int = streamflow(arguments)
        return code
