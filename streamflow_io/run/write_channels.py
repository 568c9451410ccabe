"""Adapter: what compute jobs write themselves, as their node runtimes tell it.

Decides nothing: :mod:`streamflow_io.bandwidth.writes` does.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

from streamflow.core.utils import get_job_step_name
from streamflow.core.workflow import Job
from streamflow.scheduling.scheduler import JobAllocation

from streamflow_io.admission.demand import Capacity
from streamflow_io.bandwidth.pacing import Place
from streamflow_io.bandwidth.writes import Writer, Writes, Written
from streamflow_io.hints.inheritance import StepAnnotations
from streamflow_io.hints.models import Way
from streamflow_io.records.jobs import EndedRecord
from streamflow_io.records.records import Record, RequestRecord
from streamflow_io.runtime.protocol import Event, JobSpec, PhaseEvent, WrittenTo

from .request_records import request_record
from .storages import Storages


class WriteChannels:
    """The compute jobs of a run under node runtimes.

    :param jobs: those that were scheduled, by name
    :param annotations: by step path
    :param storages: that the config has
    """

    def __init__(
        self, jobs: Mapping[str, JobAllocation], annotations: Mapping[str, StepAnnotations], storages: Storages
    ) -> None:
        self._allocations = jobs
        self._annotations = annotations
        self._storages = storages
        self._writes = Writes()
        self._jobs: dict[str, Job] = {}

    def submitted(self, job: Job) -> None:
        """A job has all its input, and is to be scheduled."""
        hints = self._annotations.get(get_job_step_name(job.name))
        # One without hints may be observed.
        if hints is None or hints.io_task is None:
            self._jobs[job.name] = job

    def asked(self, spec: JobSpec) -> JobSpec:
        """A job has its directories, and is about to run its command under the node runtime.

        :return: what the node runtime is to be told of it: to tell the bursts in which it writes, if it computes
        """
        if (job := self._jobs.get(spec.name)) is None:
            return spec
        step, directory = get_job_step_name(job.name), str(job.output_directory)
        hints, allocation = self._annotations.get(step), self._allocations[job.name]
        storage = self._storages.of(None, allocation.target, directory)
        name, location = None if storage is None else storage.name, allocation.locations[0].name
        holds = hints is not None and hints.storage_bandwidth is not None
        self._writes.started(Writer(job.name, step, name, location, holds))
        return spec.model_copy(update={"phases": WrittenTo(path=directory)})

    def happened(self, job_name: str, event: Event) -> None:
        """The node runtime tells something of a job."""
        if isinstance(event, PhaseEvent) and event.port is None:
            # Clocks of hosts differ, and what is told comes a moment later.
            later = time.time() - event.time
            self._writes.burst(job_name, Written(event.start + later, event.last + later, event.bytes))

    def told(self, record: Record) -> list[RequestRecord]:
        """Something has happened to a job.

        :return: what it has written, if it has ended well
        """
        if not isinstance(record, EndedRecord):
            return []
        self._jobs.pop(record.job, None)
        requests = self._writes.ended(record.job, record.status == "completed")
        return [request_record(request, record.time) for request in requests]

    def left(self, capacity: Capacity | None, place: Place, way: Way) -> Capacity | None:
        """What of a storage is left for others, without what jobs write there in a rhythm."""
        if capacity is None or way == "read":
            return capacity

        is_shared = capacity.is_shared

        def is_there(writer: Writer) -> bool:
            return writer.storage == place.storage and (is_shared or writer.location == place.location)

        return replace(capacity, bandwidth=max(0.0, capacity.bandwidth - self._writes.expected(is_there)))
