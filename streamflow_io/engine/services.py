"""The services with which all parts of a run are made."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping, MutableMapping
from pathlib import Path
from typing import Protocol

from msgspec import Struct
from streamflow.core.context import StreamFlowContext
from streamflow.core.scheduling import Hardware
from streamflow.core.workflow import Port
from streamflow.scheduling.scheduler import JobAllocation
from streamflow.workflow.token import TerminationToken

from streamflow_io.adapters.jobs import Jobs
from streamflow_io.hints.config import SchedulerConfig
from streamflow_io.records.records import Record
from streamflow_io.runtime.node_runtimes import NodeRuntimes
from streamflow_io.storage.storages import Storages

from .plan import Plan


class Scheduling(Protocol):
    """StreamFlow's scheduler, as a run uses it."""

    context: StreamFlowContext
    job_allocations: Mapping[str, JobAllocation]
    hardware_locations: MutableMapping[str, Hardware]

    @property
    def config(self) -> SchedulerConfig: ...
    def wake(self) -> None: ...


class Services(Struct, frozen=True):
    """The services with which all parts of a run are made.

    :ivar scheduler: StreamFlow's
    :ivar plan: of the workflow
    :ivar learned: the file with all that was learned
    :ivar runtimes: the node runtimes of the run
    :ivar storages: of the StreamFlow file
    :ivar jobs: that have their input and have not ended
    :ivar record: keeps a record for telemetry, and begins the telemetry with the first one
    :ivar write: keeps a record that follows from others
    """

    scheduler: Scheduling
    plan: Plan
    learned: Path
    runtimes: NodeRuntimes
    storages: Storages
    jobs: Jobs
    record: Callable[[Record], None]
    write: Callable[[Record], None]

    @property
    def config(self) -> SchedulerConfig:
        return self.scheduler.config

    @property
    def context(self) -> StreamFlowContext:
        return self.scheduler.context

    def more_jobs(self, step: str) -> bool:
        """Whether further jobs of a step may be scheduled."""
        return not self.plan.workflow.steps[posixpath.join(step, "__schedule__")].terminated

    def arrived(self, step: str) -> int:
        """The number of jobs of a step that have all their input."""
        schedule = self.plan.workflow.steps[posixpath.join(step, "__schedule__")]
        ports = [port for name, port in schedule.get_input_ports().items() if not name.startswith("__connector__")]
        return min(map(_count_tokens, ports), default=1)


def _count_tokens(port: Port) -> int:
    tokens = port.token_list
    return len(tokens) - (1 if tokens and isinstance(tokens[-1], TerminationToken) else 0)
