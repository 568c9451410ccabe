"""Outputs that stream as soon as a proof allows it, while the run goes on.

Before the proof, a file is delivered when its job has ended. Afterwards it is delivered while it is written, to the
jobs for which the proof holds. Other jobs wait for the complete file before they ask for a place, and so hold no place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping

from msgspec import Struct, field
from streamflow.core.exception import UnrecoverableWorkflowException
from streamflow.core.workflow import Token
from streamflow.workflow.utils import get_token_value

from streamflow_io.adapters.attempts import ProducerFailedError, StreamingJobs
from streamflow_io.adapters.jobs import JobState
from streamflow_io.adapters.tokens import StreamSource, StreamToken, file_tokens, stream_tokens, with_files
from streamflow_io.graph.candidates import Candidate

from .learned_streams import LearnedStreams, written_by_now
from .proof_key import proof_key


class _LateStreams(Struct):
    """The streams that a job gets as complete files."""

    sources: set[StreamSource] = field(default_factory=set)


class AwaitedStreams:
    """Lets jobs wait for streams that may yet be proven.

    :param jobs: the jobs that may be read while they run
    :param here: the steps whose jobs all run on the driver's node
    """

    def __init__(self, learned: LearnedStreams, jobs: StreamingJobs, here: Collection[str]) -> None:
        self._learned = learned
        self._jobs = jobs
        self._here = here

    async def permitted(self, step: str, port: str) -> None:
        """Wait until a proof allows an output of a step to be read while it is written."""
        while not self._learned.may_stream(step, port):
            await self._learned.proofs.news()

    async def ready(self, state: JobState) -> bool:
        """Wait until a job can be scheduled: each input is a complete file, or proven to be read as a stream.

        :return: whether the job reads a stream that was not known when the run began
        """
        job = state.job
        awaited = {
            name for name, token in job.inputs.items() if any(map(self._learned.is_awaited, stream_tokens(token)))
        }
        candidate = self._learned.candidates.get(state.step)
        if candidate is None or not awaited:
            return False
        while late := [name for name in sorted(awaited) if not self._is_proven(state, candidate, name)]:
            news = asyncio.ensure_future(self._learned.proofs.news())
            files = asyncio.ensure_future(self._complete(job.inputs[name] for name in late))
            try:
                await asyncio.wait({news, files}, return_when=asyncio.FIRST_COMPLETED)
                if files.done():
                    self._take(state, late, files.result())
                    return len(late) < len(awaited)
            except (ProducerFailedError, UnrecoverableWorkflowException):
                return False  # the job itself reports the failure
            finally:
                news.cancel()
                files.cancel()
                await asyncio.gather(news, files, return_exceptions=True)
        return True

    def comes_late(self, job: JobState, token: StreamToken) -> bool:
        """Whether a job gets the complete file in place of this stream."""
        late = job.kept(_LateStreams)
        return late is not None and token.source in late.sources

    def _is_proven(self, job: JobState, candidate: Candidate, name: str) -> bool:
        is_here = job.step in self._here
        programs = [()] if is_here else self._learned.programs.known(candidate.programs)
        values = {port: get_token_value(token) for port, token in job.job.inputs.items()}
        # A wrong answer about a Directory costs time only: the job looks its proofs up again when it runs.
        keys = (proof_key(candidate, name, values, there, sees_files=is_here) for there in programs)
        proofs = (self._learned.proofs.of(key) for key in keys if key is not None)
        sizes = [self._size(token) for token in file_tokens(job.job.inputs[name])]
        return any(proof is not None and proof.is_proven and proof.holds_for(sizes) for proof in proofs)

    def _size(self, token: Token) -> int:
        """The present size of a file, as far as it is known; else 0."""
        if not isinstance(token, StreamToken):
            return int(token.value.get("size") or 0)
        try:
            return written_by_now(token, self._jobs.get(token.source.job).latest)
        except ProducerFailedError:
            return 0

    async def _complete(self, tokens: Iterable[Token]) -> dict[StreamSource, Token]:
        """Return the final files in place of the streams of some inputs, when all are complete."""
        sources = [stream.source for token in tokens for stream in stream_tokens(token)]
        final = (self._jobs.get(source.job).final(source.port, source.path) for source in sources)
        return dict(zip(sources, await asyncio.gather(*final), strict=True))

    def _take(self, state: JobState, names: Iterable[str], files: Mapping[StreamSource, Token]) -> None:
        job, late = state.job, state.kept(_LateStreams) or _LateStreams()
        late.sources.update(files)
        state.keep(late)
        instead = {
            id(stream): _retagged(files[stream.source], stream.tag)
            for name in names
            for stream in stream_tokens(job.inputs[name])
        }
        job.inputs = {**job.inputs, **{name: with_files(job.inputs[name], instead) for name in names}}


def _retagged(file: Token, tag: str) -> Token:
    retagged = file.retag(tag)
    retagged.persistent_id = file.persistent_id
    return retagged
