"""The transfer of files that are read before their producers have ended."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from pathlib import PurePosixPath
from typing import TypeVar, cast

from streamflow.core.data import DataType
from streamflow.core.deployment import ExecutionLocation
from streamflow.core.exception import WorkflowExecutionException
from streamflow.core.utils import random_name
from streamflow.core.workflow import Job, Status, Token
from streamflow.cwl.step import CWLTransferStep
from streamflow.cwl.workflow import CWLWorkflow
from streamflow.workflow.port import JobPort
from streamflow.workflow.token import ObjectToken

from streamflow_io._streamflow import sees_file_here
from streamflow_io.adapters.attempts import ProducerFailedError, ProducerMovesError
from streamflow_io.adapters.early_inputs import EarlyInputToken
from streamflow_io.adapters.paths import job_path
from streamflow_io.adapters.tokens import PartToken, StreamToken, file_tokens, inner_tokens, stream_tokens

from .streaming_run import MovesFirst, StreamingRun, may_leave_place

Placed = TypeVar("Placed", StreamToken, PartToken)
_OURS = (StreamToken, PartToken, EarlyInputToken)


class StreamingTransferStep(CWLTransferStep):  # type: ignore[misc]
    """Gives streams and parts a path in the job's input directory, where the node runtime makes the files.

    A job that cannot read a file early waits here until it is final, and gets it by StreamFlow's own transfer. Such a
    job holds its location meanwhile. There is no deadlock: its producer has a location already, or is in the queue of a
    queue manager. If its producer loses its location, the job gives up its own, too. Other jobs do not wait for the
    transfer.
    """

    def __init__(
        self, name: str, workflow: CWLWorkflow, job_port: JobPort, prefix_path: bool = True, writable: bool = False
    ) -> None:
        super().__init__(name, workflow, job_port, prefix_path, writable)
        self._waiting: list[asyncio.Task[None]] = []

    async def _run_transfer(self, job: Job, inputs: MutableMapping[str, Token], port_name: str, token: Token) -> None:
        early = [await self._is_read_early(job, stream) for stream in stream_tokens(token)]
        transfer = super()._run_transfer(job=job, inputs=inputs, port_name=port_name, token=token)
        if all(early):
            await transfer
        else:
            self._waiting.append(asyncio.create_task(transfer))

    async def terminate(self, status: Status) -> None:
        waiting, self._waiting = self._waiting, []
        if status in (Status.FAILED, Status.CANCELLED):
            for transfer in waiting:
                transfer.cancel()
        failed = [result for result in await asyncio.gather(*waiting, return_exceptions=True) if result is not None]
        if waiting and status not in (Status.FAILED, Status.CANCELLED):
            # The step was called skipped when nothing had come out yet.
            status = Status.FAILED if failed else Status.COMPLETED
        await super().terminate(status)

    async def transfer(self, job: Job, token: Token) -> Token:
        """Return the input at the place of a job; as the input is, if the job leaves this place first."""
        try:
            return await self._transfer(job, token)
        except WorkflowExecutionException as error:
            if not await may_leave_place(self._streams, self.workflow.context, job, error):
                raise
        self._streams.jobs.of(job).keep(MovesFirst())
        return cast(Token, token.retag(token.tag))

    async def _transfer(self, job: Job, token: Token) -> Token:
        if isinstance(token, StreamToken):
            if await self._is_read_early(job, token) or (final := await self._final(job, token)) is None:
                return await self._place(job, token)
            return cast(Token, await super().transfer(job, final))
        if isinstance(token, PartToken):
            return await self._place(job, token)
        if isinstance(token, EarlyInputToken):
            return await self._transfer_early(job, token)
        if any(isinstance(each, _OURS) for each in file_tokens(token)):
            moved = [await self._transfer(job, inner) for inner in inner_tokens(token)]
            return token.update(dict(zip(token.value, moved, strict=True)) if isinstance(token, ObjectToken) else moved)
        return cast(Token, await super().transfer(job, token))

    async def _transfer_early(self, job: Job, token: EarlyInputToken) -> Token:
        """Give a job a link to a file that is still read for its checksum, or a copy when the checksum is known."""
        locations = self.workflow.context.scheduler.get_locations(job.name)
        path = str(token.value["path"])
        if self.writable or not all([await self._has(location, path) for location in locations]):
            checksum = await token.checksum(self.workflow, f"{self.name} for {job.name}")
            return cast(Token, await super().transfer(job, token.update({**token.value, "checksum": checksum})))
        # StreamFlow compares the checksum only where it copies.
        linked = await super().transfer(job, token.update({"checksum": None, **token.value}))
        if linked.value["checksum"] is None:
            del linked.value["checksum"]
        return cast(Token, linked)

    async def _has(self, location: ExecutionLocation, path: str) -> bool:
        """Whether a file is at a location, where StreamFlow, or the connector, makes a link."""
        context = self.workflow.context
        found = context.data_manager.get_data_locations(path, data_type=DataType.PRIMARY)
        is_here = any(each.location.local for each in found)
        if location.local:
            return is_here
        if any((each.deployment, each.name) == (location.deployment, location.name) for each in found):
            return True
        return is_here and await sees_file_here(context, location, path)

    @property
    def _streams(self) -> StreamingRun:
        return cast(StreamingRun, self.workflow.context.scheduler.run)

    async def _is_read_early(self, job: Job, token: StreamToken) -> bool:
        state = self._streams.jobs.find(job.name)
        if state is not None and self._streams.proofs.awaited.comes_late(state, token):
            return False
        try:
            producer = self._streams.streaming_jobs.get(token.source.job)
        except ProducerFailedError:
            return True  # the job itself reports the failure
        if not producer.attempts:
            return True
        return bool(await self._streams.reach.can_read(self._streams.jobs.of(job), token, producer.latest))

    async def _final(self, job: Job, token: StreamToken) -> Token | None:
        """Return the token of the final file. None: the file never will be final, or the job has to move first."""
        try:
            producer = self._streams.streaming_jobs.get(token.source.job)
            final = await producer.final(token.source.port, token.source.path, from_place=True)
        except ProducerFailedError:
            return None
        except ProducerMovesError:
            self._streams.jobs.of(job).keep(MovesFirst())
            return None
        return cast(Token, final.retag(token.tag))

    async def _place(self, job: Job, token: Placed) -> Placed:
        directory = job_path(self.workflow.context, job, f"{job.input_directory}/{random_name()}")
        await directory.mkdir(mode=0o777, parents=True)
        path = PurePosixPath(str(directory)) / token.value["basename"]
        value = {**token.value, "path": str(path), "location": f"file://{path}"}
        return token.update({**value, "dirname": str(directory)} if "dirname" in value else value)
