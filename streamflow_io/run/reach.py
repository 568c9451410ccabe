"""Where there are node runtimes, and which job can read the stream of which; each obstacle is told once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamflow.log_handler import logger

from streamflow_io.runtime import NodeRuntime, NodeRuntimeError

from .attempts import Attempt
from .tokens import StreamToken

if TYPE_CHECKING:
    from .scheduler import IOAwareScheduler


class Reach:
    """The fallbacks of a run.

    Without a node runtime a job runs as with plain StreamFlow, and delivers all at its end. A job that cannot read a
    stream gets the file when it is final.
    """

    def __init__(self, scheduler: IOAwareScheduler) -> None:
        self._scheduler = scheduler
        self._told: set[str] = set()

    async def runtime(self, job_name: str) -> NodeRuntime | None:
        """The node runtime where a job runs that has been scheduled; None: there is none."""
        try:
            return await self._scheduler.node_runtime(job_name)
        except NodeRuntimeError as error:
            location = self._scheduler.get_locations(job_name)[0]
            self._warn(str(location), f"On {location} nothing streams, all is as with plain StreamFlow: {error}")
            return None

    async def can_read(self, job_name: str, token: StreamToken, attempt: Attempt) -> bool:
        """Whether a job that has been scheduled can read the stream of another.

        :param attempt: any one of the other job: all of them run at the same location
        """
        if attempt.node_job is None or (reader := await self.runtime(job_name)) is None:
            return False
        producer = attempt.node_job.runtime
        if reader is producer:
            return True
        obstacle = "files at the gate do not leave it" if token.source.gate else await reader.obstacle(producer)
        if obstacle is not None:
            pair = f"{reader.location} reads files of {producer.location}"
            self._warn(pair, f"{pair} when they are complete, not while they are written: {obstacle}")
            self._scheduler.keep_together(job_name, token.source.job)
        return obstacle is None

    def _warn(self, about: str, message: str) -> None:
        if about not in self._told:
            self._told.add(about)
            logger.warning(message)
