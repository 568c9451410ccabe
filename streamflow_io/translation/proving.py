"""What is proven of the steps of a workflow, so that they stream without a hint."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from streamflow.core.workflow import Workflow
from streamflow.cwl.command import CWLCommand
from streamflow.cwl.step import CWLExecuteStep
from streamflow.log_handler import logger

from streamflow_io.graph.candidates import Candidate, Proved, Stamp, candidate_inputs, with_proofs
from streamflow_io.graph.io_graph import IOGraph
from streamflow_io.hints.inheritance import StepAnnotations
from streamflow_io.learned.database import LearnedLimitsError
from streamflow_io.learned.proofs import Proof, ProofKey, known_proofs
from streamflow_io.messages import Code, coded

_NETWORK = "it has NetworkAccess, and does not run twice"


def known_to(path: Path, annotations: Mapping[str, StepAnnotations]) -> tuple[Proof, ...] | None:
    """What earlier runs have proven, and what the annotations file says that others have; what is known better wins.

    :return: None: what earlier runs have proven cannot be read, and this is said
    """
    if (remembered := _remembered(path)) is None:
        return None
    proofs = {proof.key: proof for proof in remembered}
    for step, hints in annotations.items():
        for entry in hints.proven:
            key = ProofKey(entry.tool, "reads", entry.input.rpartition("/")[2], entry.options)
            proofs.setdefault(key, Proof(key, step, 0, entry.read))
    return tuple(proofs.values())


def _remembered(path: Path) -> tuple[Proof, ...] | None:
    try:
        return known_proofs(path)
    except LearnedLimitsError as error:
        unknown = f"What earlier runs have proven to stream is not known, and nothing is learned now: {error}"
        logger.warning(coded(unknown, Code.STORE_NOT_USED))
        return None


def steps_kept_out(workflow: Workflow, annotations: Mapping[str, StepAnnotations]) -> frozenset[str]:
    """The steps of a translated workflow that neither read nor write streams without a hint.

    The time of their jobs counts: it would be another one if these waited for the bytes of others.
    """
    timed = {
        step.name
        for step in workflow.steps.values()
        if isinstance(step, CWLExecuteStep) and isinstance(step.command, CWLCommand) and step.command.time_limit
    }
    return frozenset(timed | {path for path, hints in annotations.items() if hints.concern_storage})


def find_candidates(
    graph: IOGraph,
    kept_out: Collection[str],
    tools: Mapping[str, str],
    programs: Mapping[str, tuple[tuple[str, Stamp], ...]],
    networked: Collection[str],
) -> dict[str, Candidate]:
    """The steps that may read streams without a hint, by step path.

    :param graph: with all obstacles
    :param tools: the digests of all that is known of the tools, by step path
    :param programs: what they name, by step path
    :param networked: the steps that may use the network
    """
    return {
        step: Candidate(tools[step], names, programs.get(step, ()), _NETWORK if step in networked else None)
        for step, names in candidate_inputs(graph, kept_out).items()
    }


def prove(
    graph: IOGraph,
    candidates: Mapping[str, Candidate],
    tools: Mapping[str, str],
    proofs: Iterable[Proof],
    kept_out: Collection[str] = (),
) -> Proved:
    """The graph of a workflow, with what is proven of its steps.

    An input that hints declare `streamable` needs no proof. One that is proven with some options counts: whether that
    holds for a job is seen when it starts.
    """
    proofs = list(proofs)
    read = {(proof.key.tool, proof.key.port) for proof in proofs if proof.is_proven and proof.key.kind == "reads"}
    rewritten = {
        (proof.key.tool, proof.key.port) for proof in proofs if proof.key.kind == "writes" and proof.is_refused
    }
    readers = [route.consumer for route in graph.routes if route.consumer is not None]
    proven = {(reader.step, reader.port) for reader in readers if reader.streamable and reader.step not in kept_out}
    for step, each in candidates.items():
        proven |= {(step, port) for port in each.inputs if (each.tool, port) in read}
    refused = {output.name for output in graph.outputs if (tools.get(output.step), output.port) in rewritten}
    refused |= {output.name for output in graph.outputs if output.step in kept_out}
    return with_proofs(graph, proven, refused, kept_out)
