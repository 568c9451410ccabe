"""What is proven of the steps of a workflow, so that they stream without a hint."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from streamflow.core.workflow import Workflow
from streamflow.cwl.command import CWLCommand
from streamflow.cwl.step import CWLExecuteStep
from streamflow.log_handler import logger

from streamflow_io.graph.candidates import Candidate, Proved, candidate_inputs, with_proofs
from streamflow_io.graph.io_graph import IOGraph
from streamflow_io.hints.inheritance import StepAnnotations
from streamflow_io.learned.database import LearnedLimitsError
from streamflow_io.learned.proofs import Proof, known_proofs


def remembered_proofs(path: Path) -> tuple[Proof, ...]:
    """What earlier runs have proven; nothing if it cannot be read."""
    try:
        return known_proofs(path)
    except LearnedLimitsError as error:
        logger.warning(f"What earlier runs have proven to stream is not known: {error}")
        return ()


def find_candidates(
    workflow: Workflow, graph: IOGraph, annotations: Mapping[str, StepAnnotations], tools: Mapping[str, str]
) -> dict[str, Candidate]:
    """The steps of a translated workflow that may stream without a hint, by step path.

    :param graph: with all obstacles
    :param tools: the digests of all that is known of the tools, by step path
    """
    found = candidate_inputs(graph, {path for path in graph.steps if _keeps_out(workflow, annotations, path)})
    return {step: Candidate(tools[step], inputs) for step, inputs in found.items()}


def _keeps_out(workflow: Workflow, annotations: Mapping[str, StepAnnotations], path: str) -> bool:
    """Whether the time of a job counts: it would be another one if the job waited for the bytes of another."""
    step, hints = workflow.steps.get(path), annotations.get(path)
    command = step.command if isinstance(step, CWLExecuteStep) else None
    is_timed = isinstance(command, CWLCommand) and bool(command.time_limit)
    return is_timed or (hints is not None and hints.concern_storage)


def prove(
    graph: IOGraph, candidates: Mapping[str, Candidate], tools: Mapping[str, str], proofs: Iterable[Proof]
) -> Proved:
    """The graph of a workflow, with what is proven of its steps.

    An input that hints declare `streamable` needs no proof. One that is proven with some options counts: whether that
    holds for a job is seen when it starts.
    """
    proofs = list(proofs)
    read = {(proof.key.tool, proof.key.port) for proof in proofs if proof.is_proven and proof.key.kind == "reads"}
    rewritten = {(proof.key.tool, proof.key.port) for proof in proofs if proof.key.kind == "writes"}
    readers = [route.consumer for route in graph.routes if route.consumer is not None]
    proven = {(reader.step, reader.port) for reader in readers if reader.streamable}
    for step, each in candidates.items():
        proven |= {(step, port) for port in each.inputs if (each.tool, port) in read}
    outputs = {output.name for output in graph.outputs if (tools.get(output.step), output.port) in rewritten}
    return with_proofs(graph, proven, outputs)
