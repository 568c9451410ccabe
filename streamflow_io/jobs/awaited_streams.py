"""Outputs that stream as soon as it is proven that they can, while the run goes on.

Until then all is as if they did not: what is written comes when its job has ended. Afterwards it comes while it is
written, to jobs for which the proof holds; others wait for it before they ask for a place, and so hold nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping

from streamflow.core.exception import UnrecoverableWorkflowException
from streamflow.core.utils import get_job_step_name
from streamflow.core.workflow import Job, Token
from streamflow.workflow.utils import get_token_value

from streamflow_io.adapters.attempts import ProducerFailedError, StreamingJobs
from streamflow_io.adapters.jobs import JobState, Listener
from streamflow_io.adapters.tokens import StreamSource, StreamToken, file_tokens, stream_tokens, with_files
from streamflow_io.graph.candidates import Candidate
from streamflow_io.records.learned.extents import hold_for

from .learned_streams import LearnedStreams, written_by_now
from .proof_key import proof_key


class AwaitedStreams(Listener):
    """Lets jobs wait for streams that may yet be proven.

    :param learned: what is proven
    :param jobs: those that may be read while they run
    :param here: the steps whose jobs all run on the driver's node
    """

    def __init__(self, learned: LearnedStreams, jobs: StreamingJobs, here: Collection[str]) -> None:
        self._learned = learned
        self._jobs = jobs
        self._here = here
        # What a job gets when it is complete, which came while it was written.
        self._late: dict[str, set[StreamSource]] = {}

    async def permitted(self, job_name: str, port: str) -> None:
        """Wait until an output of a job may be read while it is written."""
        while not self._learned.may_stream(job_name, port):
            await self._learned.proofs.news()

    async def ready(self, job: Job) -> bool:
        """Wait until a job can be scheduled: each input that is not proven to be read as a stream is a complete file.

        :return: whether the job reads a stream, of which that was not known when the run began
        """
        awaited = {
            name for name, token in job.inputs.items() if any(map(self._learned.is_awaited, stream_tokens(token)))
        }
        candidate = self._learned.candidates.get(get_job_step_name(job.name))
        if candidate is None or not awaited:
            return False
        while late := [name for name in sorted(awaited) if not self._is_proven(job, candidate, name)]:
            news = asyncio.ensure_future(self._learned.proofs.news())
            files = asyncio.ensure_future(self._complete(job.inputs[name] for name in late))
            try:
                await asyncio.wait({news, files}, return_when=asyncio.FIRST_COMPLETED)
                if files.done():
                    self._take(job, late, files.result())
                    return len(late) < len(awaited)
            except (ProducerFailedError, UnrecoverableWorkflowException):
                return False  # The job itself will tell so.
            finally:
                news.cancel()
                files.cancel()
                await asyncio.gather(news, files, return_exceptions=True)
        return True

    def comes_late(self, job_name: str, token: StreamToken) -> bool:
        """Whether a job gets what it was to read as a stream when it is complete."""
        return token.source in self._late.get(job_name, ())

    def ended(self, job: JobState) -> None:
        self._late.pop(job.name, None)

    def _is_proven(self, job: Job, candidate: Candidate, name: str) -> bool:
        programs = [()] if get_job_step_name(job.name) in self._here else self._learned.programs.known(candidate)
        values = {port: get_token_value(token) for port, token in job.inputs.items()}
        keys = (proof_key(candidate, name, values, there) for there in programs)
        proofs = (self._learned.proofs.of(key) for key in keys)
        sizes = [self._size(token) for token in file_tokens(job.inputs[name])]
        return any(proof is not None and proof.is_proven and hold_for(proof.extents, sizes) for proof in proofs)

    def _size(self, token: Token) -> int:
        """How large a file is by now, as far as that is known."""
        if not isinstance(token, StreamToken):
            return int(token.value.get("size") or 0)
        try:
            return written_by_now(token, self._jobs.get(token.source.job).latest)
        except ProducerFailedError:
            return 0

    async def _complete(self, tokens: Iterable[Token]) -> dict[StreamSource, Token]:
        """The files that some inputs are in the end, when they are complete."""
        sources = [stream.source for token in tokens for stream in stream_tokens(token)]
        final = (self._jobs.get(source.job).final(source.port, source.path) for source in sources)
        return dict(zip(sources, await asyncio.gather(*final), strict=True))

    def _take(self, job: Job, names: Iterable[str], files: Mapping[StreamSource, Token]) -> None:
        self._late.setdefault(job.name, set()).update(files)
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
