"""Knows where node runtimes are, and which jobs can read each other's streams. Each obstacle is logged once."""

from __future__ import annotations

import posixpath
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import PurePosixPath

from streamflow.core.utils import get_job_step_name
from streamflow.log_handler import logger

from streamflow_io.adapters.attempts import Attempt
from streamflow_io.adapters.jobs import JobState, Listener
from streamflow_io.adapters.tokens import StreamToken
from streamflow_io.messages import Code, coded
from streamflow_io.records.files import FallbackRecord
from streamflow_io.records.records import Record
from streamflow_io.runtime.node_commands import NodeRuntimeError
from streamflow_io.runtime.node_runtime import NodeJob, NodeRuntime
from streamflow_io.runtime.node_runtimes import NodeRuntimes
from streamflow_io.runtime.protocol import Event, WarningEvent

_ASKS = coded("the command asks by path for more than its bytes, and waits for the whole file", Code.ASKS_BY_PATH)
# The locations of a deployment that are named for the same reason.
_MOST_NAMED = 3


class Reach(Listener):
    """The fallbacks of a run.

    Without a node runtime a job runs as with plain StreamFlow, and delivers all at its end. A job that cannot read a
    stream gets the file when it is final.

    :param part: called with a reader and the name of a producer if the reader cannot read its stream from where both
        run
    :param record: keeps a record for telemetry
    """

    def __init__(
        self,
        runtimes: NodeRuntimes,
        part: Callable[[JobState, str], None],
        record: Callable[[Record], None],
    ) -> None:
        self._runtimes = runtimes
        self._part = part
        self._record = record
        self._told: set[str] = set()
        # By deployment and reason: the locations that warnings have named.
        self._named: dict[tuple[str, str], set[str]] = defaultdict(set)
        self._recorded: set[tuple[str, str | None, str]] = set()

    async def runtime(self, job: JobState) -> NodeRuntime | None:
        """Return the node runtime at the location of a scheduled job; None: the job runs without one."""
        try:
            return await self._runtimes.for_streams_at(job.location, job.target.workdir)
        except NodeRuntimeError as error:
            where = self._runtimes.deployments.where(job.location)
            why = str(error).removeprefix(f"{where.partition(' ')[2]}: ")
            self.fell_back(job, None, coded(f"no node runtime {where}: {why}", Code.NO_NODE_RUNTIME))
            plain = f"Nothing streams {where}, all is as with plain StreamFlow: {why}"
            # The reason may differ between work directories.
            self._warn_of(job, why, coded(plain, Code.NO_NODE_RUNTIME))
            return None

    def made_for(self, job: JobState) -> tuple[str, ...]:
        """The directories that StreamFlow has made in the work directory for this job alone.

        Any other directory, as a `dockerOutputDirectory`, may belong to other jobs, too.
        """
        workdir = PurePosixPath(job.target.workdir)
        directories = (str(job.job.input_directory), str(job.job.output_directory))
        return tuple(path for path in directories if workdir in PurePosixPath(path).parents)

    async def measured_job(self, job: JobState, otherwise: str) -> NodeJob | None:
        """Return a new job of the node runtime that is only measured; None: the job runs without a node runtime.

        :param otherwise: the beginning of the warning in that case
        """
        try:
            return await (await self._runtimes.at(job.location, job.target.workdir)).create_job(job.name)
        except NodeRuntimeError as error:
            location = job.location
            where = "in this run" if location.local else self._runtimes.deployments.where(location)
            why = otherwise if location.local else f"{otherwise}: {str(error).removeprefix(f'{location}: ')}"
            self._warn_of(job, why, f"{otherwise} {where}: {error}")
            return None

    async def can_read(self, job: JobState, token: StreamToken, attempt: Attempt) -> bool:
        """Whether a scheduled job can read the stream of another.

        :param attempt: the last attempt of the other job: the next one runs at the same location, unless that is lost
        """
        if attempt.node_job is None or (reader := await self.runtime(job)) is None:
            return False
        producer = attempt.node_job.runtime
        if reader is producer:
            return True
        obstacle = await reader.obstacle(producer, attempt.output_directory, gate=token.source.gate is not None)
        # A place that is lost, or that is left at the end of a failed run, says nothing about the network.
        if obstacle is not None and not (reader.is_ending or producer.is_ending):
            pair = f"{reader.location} reads files of {producer.location}"
            late = f"{pair} when they are complete, not while they are written: {obstacle}"
            self._warn(pair, coded(late, Code.OUT_OF_REACH))
            self._part(job, token.source.job)
            why = f"{reader.location} cannot read it from {producer.location}: {obstacle}"
            self.fell_back(job, (token.source.job, token.source.port), coded(why, Code.OUT_OF_REACH))
        return obstacle is None

    def fell_back(self, job: JobState, source: tuple[str, str] | None, reason: str, without: str | None = None) -> None:
        """Record that a job gets an output only when it is complete, once for each reason and step.

        :param source: the job that writes the output, and the port; None: all inputs of the job come late
        :param without: the feature without which a lost attempt is repeated; None: no attempt was lost
        """
        step = job.step
        output = None if source is None else posixpath.join(get_job_step_name(source[0]), source[1])
        if (found := (step, output, reason)) not in self._recorded:
            self._recorded.add(found)
            now = time.time()
            self._record(
                FallbackRecord(time=now, job=job.name, step=step, output=output, reason=reason, without=without)
            )

    def event(self, job: JobState, event: Event) -> None:
        """Record that a command asks for its whole input, or that a commit rule has waited to the end of its job."""
        if not isinstance(event, WarningEvent) or event.port is None:
            return
        if event.input is not None:
            self.fell_back(job, (event.input, event.port), _ASKS)
        else:
            self.fell_back(job, (job.name, event.port), event.message.removeprefix(f"output {event.port}: "))

    def _warn_of(self, job: JobState, why: str, message: str) -> None:
        """Warn of the location of a job, once. Of many locations with the same reason, only some are named."""
        location = job.location
        named = self._named[location.deployment, why]
        if location.name in named or len(named) > _MOST_NAMED:
            return
        named.add(location.name)
        if len(named) <= _MOST_NAMED:
            logger.warning(message)
        else:
            logger.warning(
                f"The same holds for other locations of {location.deployment}: `streamflow-io doctor --location "
                f"{location.deployment}` looks at all"
            )

    def _warn(self, about: str, message: str) -> None:
        if about not in self._told:
            self._told.add(about)
            logger.warning(message)
