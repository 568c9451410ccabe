"""What jobs read as byte streams though no hint says so, because it was proven."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from streamflow.core.utils import get_job_step_name
from streamflow.core.workflow import Token
from streamflow.log_handler import logger
from streamflow.workflow.utils import get_token_value

from streamflow_io.graph.candidates import Candidate
from streamflow_io.hints.inheritance import port_path
from streamflow_io.learned.proofs import Proof, ProofKey, RememberedProofs, Way

from .proof_key import proof_key
from .tokens import StreamToken, stream_tokens


@dataclass
class LearnedReads:
    """The inputs of a job that are byte streams though no hint says so.

    :ivar ways: how those are read of which it is proven, by name
    :ivar keys: of their proofs
    :ivar as_files: those that are read when they are complete: it is not proven with the options of the job, or has
        turned out to be wrong
    """

    ways: dict[str, Way] = field(default_factory=dict)
    keys: dict[str, ProofKey] = field(default_factory=dict)
    as_files: set[str] = field(default_factory=set)

    @property
    def streams(self) -> frozenset[str]:
        """Those that are read as streams."""
        return frozenset(self.ways.keys() - self.as_files)

    def from_job(self, inputs: Mapping[str, Token], job_name: str | None) -> frozenset[str]:
        """Those that are read as streams from one job."""
        return frozenset(
            name for name in self.streams if any(token.source.job == job_name for token in stream_tokens(inputs[name]))
        )

    def under_net(self, inputs: Mapping[str, Token]) -> set[int]:
        """The streams of which the command must not see that they are none, by the identity of their tokens."""
        nets = (name for name in self.streams if self.ways[name] == "net")
        return {id(token) for name in nets for token in stream_tokens(inputs[name])}


class LearnedStreams:
    """Those of all jobs of a run.

    :param candidates: the steps that may read streams without a hint
    :param tools: digests of all that is known of the tools before they run, by step
    :param streamed: the outputs that are streamed without a hint, by name
    :param proofs: what is known
    """

    def __init__(
        self,
        candidates: Mapping[str, Candidate],
        tools: Mapping[str, str],
        streamed: Collection[str],
        proofs: RememberedProofs,
    ) -> None:
        self._candidates = candidates
        self._tools = tools
        self._streamed = streamed
        self._proofs = proofs

    def of(self, step: str, inputs: Mapping[str, Token]) -> LearnedReads:
        """What a job reads so."""
        reads = LearnedReads()
        if (candidate := self._candidates.get(step)) is None:
            return reads
        values = {name: get_token_value(token) for name, token in inputs.items()}
        for name in candidate.inputs:
            if name not in inputs or next(stream_tokens(inputs[name]), None) is None:
                continue
            key = proof_key(candidate, name, values)
            proof = self._proofs.of(key)
            if proof is None or proof.way is None:
                reads.as_files.add(name)
            else:
                reads.ways[name], reads.keys[name] = proof.way, key
        return reads

    def is_learned(self, token: StreamToken) -> bool:
        """Whether a stream was not asked for by a hint."""
        return port_path(get_job_step_name(token.source.job), token.source.port) in self._streamed

    async def rewritten(self, token: StreamToken, how: str) -> None:
        """An output that is streamed without a hint is not written front to back: it will not be again."""
        step, port = get_job_step_name(token.source.job), token.source.port
        if (tool := self._tools.get(step)) is None:
            return
        key = ProofKey(tool, "writes", port)
        if self._proofs.of(key) is None:
            logger.info(f"{port_path(step, port)} is not streamed any more without a hint: it {how}")
            await self._proofs.remember(Proof(key, step, time.time(), reason=how))

    async def failed(self, step: str, reads: LearnedReads, names: Collection[str], why: str) -> None:
        """A job that has failed with some streams has succeeded with the files: they are not streamed any more."""
        for name in names:
            reason = f"it fails with a stream, and not with the file: {why}"
            logger.info(f"{port_path(step, name)} is not read any more while it is written: {reason}")
            await self._proofs.remember(Proof(reads.keys[name], step, time.time(), reason=reason))

    async def succeeded(self, reads: LearnedReads) -> None:
        """A job has succeeded with what it has read as streams."""
        await self._proofs.streamed(reads.keys[name] for name in reads.streams)
