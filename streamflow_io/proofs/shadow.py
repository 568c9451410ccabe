"""Runs a job without a trace in StreamFlow: stand-ins for the parts of StreamFlow that keep something.

A job leaves rows in the database, locations of data, and checkpoints. The stand-ins take and forget them. Everything
else is StreamFlow's own, so that this run is like the job's own run. `tests/integration/test_shadow.py` fails when
StreamFlow asks for more than is here.
"""

from __future__ import annotations

from copy import copy, deepcopy
from typing import Any

from streamflow.core.data import DataLocation
from streamflow.core.deployment import Connector
from streamflow.core.scheduling import Hardware
from streamflow.core.workflow import Job
from streamflow.data.manager import DefaultDataManager

from streamflow_io._streamflow import OwnPaths, is_separate_standard_error
from streamflow_io.adapters.steps import StreamingExecuteStep


class NoShadowError(Exception):
    """StreamFlow is configured with a part that has no stand-in."""


def shadow_of(step: StreamingExecuteStep, job: Job, connector: Connector, hardware: Hardware) -> StreamingExecuteStep:
    """A step that runs one job, and collects its outputs, without a trace.

    :param job: with directories of its own
    :raises NoShadowError: if the data manager is not StreamFlow's own
    """
    context = copy(step.workflow.context)
    if not isinstance(context.data_manager, DefaultDataManager):
        raise NoShadowError(f"the data manager is {type(context.data_manager).__name__}")
    context.database = _NoDatabase()
    context.checkpoint_manager = _NoCheckpoints()
    context.scheduler = _Scheduler(context.scheduler, job, connector, hardware)
    data_manager = copy(context.data_manager)
    data_manager.context = context
    data_manager.path_mapper = OwnPaths(context.data_manager.path_mapper, context)
    context.data_manager = data_manager
    workflow = copy(step.workflow)
    workflow.context = context
    shadow = copy(step)
    shadow.workflow = workflow
    shadow.command = copy(step.command)
    shadow.command.step = shadow
    if is_separate_standard_error(shadow.command.stderr):
        shadow.command.stderr = "/dev/null"
    shadow.output_processors = deepcopy(step.output_processors, {id(step.workflow): workflow})
    location = context.scheduler.get_locations(job.name)[0]
    for directory in (job.input_directory, job.output_directory, job.tmp_directory):
        data_manager.register_path(location=location, path=directory, relpath=directory)
    return shadow


class _NoDatabase:
    async def add_execution(self, step_id: int, job_token_id: int, cmd: str) -> int:
        return 0

    async def update_execution(self, execution_id: int, updates: dict[str, Any]) -> int:
        return 0


class _NoCheckpoints:
    def register(self, data_location: DataLocation) -> None:
        pass


class _Scheduler:
    """StreamFlow's scheduler, with another connector and hardware for one job."""

    def __init__(self, inner: Any, job: Job, connector: Connector, hardware: Hardware) -> None:
        self._inner = inner
        self._job = job
        self._connector = connector
        self._hardware = hardware

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def get_connector(self, job_name: str) -> Connector:
        return self._connector if job_name == self._job.name else self._inner.get_connector(job_name)

    def get_hardware(self, job_name: str) -> Hardware:
        return self._hardware if job_name == self._job.name else self._inner.get_hardware(job_name)
