"""The writes of compute jobs, as node runtimes report them.

:mod:`streamflow_io.bandwidth.writes` decides.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from msgspec.structs import replace
from streamflow.core.workflow import Status

from streamflow_io.adapters.jobs import JobState, Listener
from streamflow_io.hints.models import Way
from streamflow_io.records.records import Record
from streamflow_io.runtime.node_runtime import NodeRuntime
from streamflow_io.runtime.protocol import Event, JobSpec, PhaseEvent
from streamflow_io.runtime.wire import with_observation
from streamflow_io.storage.admission.demand import Capacity, StoragePlace
from streamflow_io.storage.storages import Storages

from .phases import request_record
from .writes import WriteBursts, Writer, Writes, Written


class WriteChannels(Listener):
    """The compute jobs of a run under node runtimes.

    :param storages: the storages of the config
    :param record: keeps a record for telemetry
    """

    def __init__(self, storages: Storages, record: Callable[[Record], None]) -> None:
        self._storages = storages
        self._record = record
        self._writes = Writes()

    def starting(self, job: JobState, spec: JobSpec, runtime: NodeRuntime) -> JobSpec:
        """Request reports of the bursts in which the job writes, if the job computes."""
        if job.is_io_task:
            return spec
        directory = str(job.job.output_directory)
        storage = self._storages.of(None, job.target, directory)
        name = None if storage is None else storage.name
        holds = job.hints is not None and job.hints.storage_bandwidth is not None
        if (before := job.drop(WriteBursts)) is not None:
            self._writes.ended(before, succeeded=False)
        job.keep(self._writes.started(Writer(job.name, job.step, name, job.location.name, holds)))
        return with_observation(spec, writes=directory)

    def event(self, job: JobState, event: Event) -> None:
        if not isinstance(event, PhaseEvent) or event.port is not None:
            return
        if (bursts := job.kept(WriteBursts)) is not None:
            # Clocks of hosts differ, and reports come a moment later.
            later = time.time() - event.time
            bursts.bursts.append(Written(event.start + later, event.last + later, event.bytes))

    def ended(self, job: JobState) -> None:
        """Record what the job has written, if the job has succeeded."""
        if (bursts := job.drop(WriteBursts)) is not None:
            for request in self._writes.ended(bursts, job.status is Status.COMPLETED):
                self._record(request_record(request, time.time()))

    def left(self, capacity: Capacity | None, place: StoragePlace, way: Way) -> Capacity | None:
        """Return the capacity of a storage that is left for others, without what jobs write there in a rhythm."""
        if capacity is None or way == "read":
            return capacity

        is_shared = capacity.is_shared

        def is_there(writer: Writer) -> bool:
            return writer.storage == place.storage and (is_shared or writer.location == place.location)

        return replace(capacity, bandwidth=max(0.0, capacity.bandwidth - self._writes.expected(is_there)))
