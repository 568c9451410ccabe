"""The proofs about the steps of a workflow, by which these stream without a hint."""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace
from streamflow.core.workflow import Workflow
from streamflow.cwl.command import CWLCommand
from streamflow.cwl.step import CWLExecuteStep
from streamflow.log_handler import logger
from streamflow.workflow.step import ScatterStep

from streamflow_io.graph.candidates import (
    Candidate,
    Proved,
    Reader,
    Stamp,
    Wiring,
    candidate_inputs,
    hoped_readers,
    wire_for_later,
    with_proofs,
    writers_of,
)
from streamflow_io.graph.io_graph import Delivery, IOGraph, StreamEdge
from streamflow_io.hints.inheritance import StepAnnotations, port_path
from streamflow_io.messages import Code, coded
from streamflow_io.records.learned.database import E, LearnedStoreError, known_entries
from streamflow_io.records.learned.extents import Extent, bound_of
from streamflow_io.records.learned.proofs import InconclusiveRehearsal, Proof, ProofKey, TriedBeside, with_known
from streamflow_io.wording import size_text

_NETWORK = "the tool has NetworkAccess, and does not run twice"
_TIMED = "the time of its jobs counts, and the jobs do not run twice"


class KnownTools(Struct, frozen=True):
    """The tools of a workflow as they are known before they run; each mapping is by step path.

    :ivar contents: the digests of all that is known of the tools
    :ivar programs: the words of the tools that may name programs, with their stamps
    :ivar networked: the steps that may use the network
    :ivar directories: an input of the tool that is always a Directory
    :ivar kept_out: the steps that neither read nor write streams without a hint
    """

    contents: Mapping[str, str]
    programs: Mapping[str, tuple[tuple[str, Stamp], ...]]
    networked: Collection[str] = ()
    directories: Mapping[str, str] = field(default_factory=dict)
    kept_out: Collection[str] = ()

    def candidate(self, step: str, inputs: tuple[str, ...], once: str | None) -> Candidate:
        """The step as a candidate for streams that no hint asks for.

        :param once: why its jobs do not run twice; None: its jobs may run twice
        """
        programs, directory = self.programs.get(step, ()), self.directories.get(step)
        return Candidate(self.contents[step], inputs, programs, once, directory=directory)


def known_to(
    path: Path, annotations: Mapping[str, StepAnnotations]
) -> tuple[tuple[Proof, ...] | None, tuple[InconclusiveRehearsal, ...]]:
    """Return the proofs of earlier runs, and those in the annotations file. Of two, the better one counts.

    :return: the proofs, and the rehearsals that have shown nothing. None: the proofs of earlier runs cannot be read; a
        warning was logged
    """
    if (remembered := _remembered(path, Proof)) is None:
        return None, ()
    proofs = {proof.key: proof for proof in remembered}
    for step, hints in annotations.items():
        for entry in hints.proven:
            key = ProofKey(entry.tool, "reads", entry.input.rpartition("/")[2], entry.options)
            extents = tuple(Extent(*each) for each in entry.extents)
            beside = tuple(TriedBeside(each.port, each.read, each.sizes, each.other_sizes) for each in entry.beside)
            said = Proof(key, step, 0, entry.read, excerpt=entry.first, extents=extents, beside=beside)
            proofs[key] = with_known(proofs.get(key, said), said)
    return tuple(proofs.values()), _remembered(path, InconclusiveRehearsal) or ()


def _remembered(path: Path, of: type[E]) -> tuple[E, ...] | None:
    try:
        return known_entries(path, of)
    except LearnedStoreError as error:
        unknown = f"What earlier runs have proven to stream is not known, and nothing is learned now: {error}"
        logger.warning(coded(unknown, Code.STORE_NOT_USED))
        return None


def steps_kept_out(workflow: Workflow, annotations: Mapping[str, StepAnnotations]) -> frozenset[str]:
    """The steps of a translated workflow that neither read nor write streams without a hint.

    The time of their jobs counts, and it would be longer if these jobs waited for the bytes of others.
    """
    timed = {
        step.name
        for step in workflow.steps.values()
        if isinstance(step, CWLExecuteStep) and isinstance(step.command, CWLCommand) and step.command.time_limit
    }
    return frozenset(timed | {path for path, hints in annotations.items() if hints.concern_storage})


def find_candidates(graph: IOGraph, tools: KnownTools) -> dict[str, Candidate]:
    """The steps that may read streams without a hint, by step path.

    :param graph: with all obstacles
    """
    found = {
        step: tools.candidate(step, names, _NETWORK if step in tools.networked else None)
        for step, names in candidate_inputs(graph, tools.kept_out).items()
    }
    writers = writers_of(graph)
    return {step: replace(candidate, writers=writers[step]) for step, candidate in found.items()}


def refuted_inputs(
    steps: Iterable[str], tools: Mapping[str, str], proofs: Collection[Proof]
) -> dict[tuple[str, str], str]:
    """Why inputs are not read as they are declared, by step and port; only if that is so with all options known.

    :param steps: the paths of the steps with declared inputs
    :param tools: the digests of all that is known of the tools, by step path
    """
    refused: dict[tuple[str, str], str] = {}
    believed = {(proof.key.tool, proof.key.port) for proof in _declared(proofs) if not proof.is_refused}
    for proof in _declared(proofs):
        if proof.is_refused and (proof.key.tool, proof.key.port) not in believed:
            refused[proof.key.tool, proof.key.port] = proof.reason or "it is refused"
    return {
        (step, port): coded(
            f"{port_path(step, port)} is declared `streamable`, but an earlier run has found: {reason}",
            Code.NOT_AS_DECLARED,
        )
        for step in steps
        for (tool, port), reason in refused.items()
        if tools.get(step) == tool
    }


def _declared(proofs: Collection[Proof]) -> Iterator[Proof]:
    return (proof for proof in proofs if proof.key.kind == "declared")


def with_declared(
    candidates: Mapping[str, Candidate],
    hinted: IOGraph,
    edges: Iterable[StreamEdge],
    tools: KnownTools,
) -> dict[str, Candidate]:
    """The steps that may read streams, together with those whose inputs are declared `streamable`, and stream.

    :param hinted: the graph without what is proven
    :param edges: how files are delivered
    """
    readers = (route.consumer for route in hinted.routes if route.consumer is not None)
    declared = {(reader.step, reader.port) for reader in readers if reader.streamable}
    early = (edge.route.consumer for edge in edges if edge.delivery in (Delivery.STREAM, Delivery.PART))
    read: dict[str, dict[str, None]] = {}
    for reader in early:
        if reader is not None and (reader.step, reader.port) in declared and reader.step in tools.contents:
            read.setdefault(reader.step, {})[reader.port] = None
    found = dict(candidates)
    for step, ports in read.items():
        once = _NETWORK if step in tools.networked else _TIMED if step in tools.kept_out else None
        candidate = found.get(step) or tools.candidate(step, (), once)
        found[step] = replace(candidate, declared=tuple(ports))
    return found


class Proving(Struct, frozen=True, dict=True):
    """A graph, and the proofs about its steps.

    :ivar candidates: the steps that may read streams without a hint, by path
    """

    graph: IOGraph
    candidates: Mapping[str, Candidate]
    tools: KnownTools
    proofs: Collection[Proof]

    def now(self) -> Proved:
        """The graph with the proven streams.

        An input that hints declare `streamable` needs no proof. A proof with any options counts here: whether the proof
        holds for a job is decided when the job starts.
        """
        return with_proofs(self.graph, self._proven, self._refused, self.tools.kept_out)

    def later(self, now: Proved, repeated: Collection[str], virtual: Collection[str]) -> Wiring | None:
        """The wiring with which streams can begin that are proven in this run; None: no such stream is possible.

        :param repeated: the steps that may have many jobs
        :param virtual: the outputs that are parts of other files, by name
        """
        known = {(proof.key.tool, proof.key.port) for proof in self.proofs if proof.key.kind == "reads"}
        settled = {(step, port) for step, port in self._inputs if (self.candidates[step].tool, port) in known}
        readers = hoped_readers(now, self.candidates, repeated, settled)
        once = {output.name for output in self.graph.outputs if output.step not in repeated} - now.streamed
        hoped = with_proofs(self.graph, self._proven | readers, self._refused | once, self.tools.kept_out)
        return wire_for_later(now, hoped, readers, virtual)

    @property
    def need_files(self) -> dict[Reader, str]:
        """The inputs whose jobs may need the whole file after all, whichever of their proofs holds, with the reason."""
        whys: dict[Reader, list[str | None]] = {}
        for proof in filter(_is_read, self.proofs):
            whys.setdefault((proof.key.tool, proof.key.port), []).append(_why_whole(proof))
        found = ((step, port, whys.get((self.candidates[step].tool, port), [])) for step, port in self._inputs)
        return {(step, port): why for step, port, known in found if None not in known for why in known[:1] if why}

    @property
    def _inputs(self) -> Iterator[Reader]:
        return ((step, port) for step, each in self.candidates.items() for port in each.inputs)

    @cached_property
    def _proven(self) -> set[Reader]:
        read = {(proof.key.tool, proof.key.port) for proof in self.proofs if _is_read(proof)}
        readers = [route.consumer for route in self.graph.routes if route.consumer is not None]
        declared = {
            (reader.step, reader.port)
            for reader in readers
            if reader.streamable and reader.step not in self.tools.kept_out
        }
        return declared | {(step, port) for step, port in self._inputs if (self.candidates[step].tool, port) in read}

    @cached_property
    def _refused(self) -> set[str]:
        proofs = (proof for proof in self.proofs if proof.key.kind == "writes" and proof.is_refused)
        rewritten = {(proof.key.tool, proof.key.port) for proof in proofs}
        return {
            output.name
            for output in self.graph.outputs
            if (self.tools.contents.get(output.step), output.port) in rewritten or output.step in self.tools.kept_out
        }


def _is_read(proof: Proof) -> bool:
    return proof.is_proven and proof.key.kind == "reads"


def _why_whole(proof: Proof) -> str | None:
    """Why a job that reads a stream by a proof may need the whole file; None: the job needs the stream alone."""
    if proof.excerpt is not None:
        return f"it is proven with the first {size_text(proof.excerpt)}"
    if proof.way == "net":
        return "it is proven under the net"
    bound = bound_of(proof.extents)
    return None if bound is None else f"it is proven up to {size_text(bound)}"


def repeated_steps(workflow: Workflow) -> frozenset[str]:
    """The tools of a translated workflow that may have many jobs: they are scattered, or inside a scatter."""
    scattered = {posixpath.dirname(step.name) for step in workflow.steps.values() if isinstance(step, ScatterStep)}

    def is_repeated(path: str) -> bool:
        return path in scattered or (path not in ("", "/") and is_repeated(posixpath.dirname(path)))

    tools = (step.name for step in workflow.steps.values() if isinstance(step, CWLExecuteStep))
    return frozenset(filter(is_repeated, tools))
