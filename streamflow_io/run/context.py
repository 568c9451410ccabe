"""Adapter: a run whose hints are served: its observer, its storages, its telemetry."""

from __future__ import annotations

import asyncio
import posixpath
import time
from pathlib import Path
from typing import TYPE_CHECKING

from streamflow.core.workflow import Port
from streamflow.log_handler import logger
from streamflow.workflow.token import TerminationToken

from streamflow_io.learned.limits import RememberedLimits
from streamflow_io.telemetry.records import EndRecord, Record, RouteRecord, RunRecord, StepRecord, Storage
from streamflow_io.telemetry.retention import remove_old_runs
from streamflow_io.telemetry.runs import TELEMETRY_FILE, create_run_directory
from streamflow_io.telemetry.writer import TelemetryWriter

from .coordination_record import CoordinationRecord
from .failure import Failure
from .gang_placement import GangPlacement
from .observer import JobObserver
from .plan import Plan
from .steps import StreamingExecuteStep
from .storage_admission import StorageAdmission

if TYPE_CHECKING:
    from .scheduler import IOAwareScheduler


class HintedRun:
    """Everything that lives as long as one run of one workflow with hints.

    :ivar observer: follows its jobs
    :ivar storages: keeps jobs back until their storage has room
    :ivar gangs: lets the jobs of gangs meet
    :ivar failure: what is said if the run fails
    """

    def __init__(self, scheduler: IOAwareScheduler, plan: Plan) -> None:
        streaming = {name for name, step in plan.workflow.steps.items() if isinstance(step, StreamingExecuteStep)}
        self._plan = plan
        self._coordination = CoordinationRecord(plan)
        self._config = scheduler.config
        self._directory: Path | None = None
        self._telemetry = TelemetryWriter(self._locate)
        self._remembered = RememberedLimits(scheduler.learned_path, plan.tools)
        self.observer = JobObserver(scheduler, plan.annotations, streaming, self._record)
        self.gangs = GangPlacement(scheduler, plan.gang_cores)
        self.failure = Failure(plan.workflow, scheduler.job_allocations)
        self.storages = StorageAdmission(
            scheduler.context,
            scheduler.config,
            plan.annotations,
            self._remembered,
            self._more_jobs,
            self._arrived,
            scheduler.wake,
            self._record,
        )
        self._started = False

    async def close(self) -> None:
        """Keep what was learned, and end the telemetry."""
        self.failure.closing()
        await self._remembered.close()
        self.observer.close()
        if self._started:
            self._telemetry.write(EndRecord(time=time.time()))
            self._telemetry.close()
        if self._directory is not None:
            await asyncio.to_thread(self._coordination.write_ran, self._directory)
            logger.info(f"Telemetry of this run is in {self._directory}: streamflow-io report {self._directory.name}")

    def _more_jobs(self, step: str) -> bool:
        """Whether further jobs of a step may be scheduled."""
        return not self._plan.workflow.steps[posixpath.join(step, "__schedule__")].terminated

    def _arrived(self, step: str) -> int:
        """How many jobs of a step have all their input."""
        schedule = self._plan.workflow.steps[posixpath.join(step, "__schedule__")]
        ports = [port for name, port in schedule.get_input_ports().items() if not name.startswith("__connector__")]
        return min(map(_count_tokens, ports), default=1)

    def _locate(self) -> Path:
        remove_old_runs()
        self._directory = create_run_directory(self._plan.workflow.name)
        self._coordination.write_planned(self._directory)
        return self._directory / TELEMETRY_FILE

    def _record(self, record: Record) -> None:
        # Not before there is something to tell: a workflow that is only planned is no run.
        if not self._started:
            self._started = True
            self._record_start()
        self._telemetry.write(record)

    def _record_start(self) -> None:
        now = time.time()
        self._telemetry.write(
            RunRecord(
                time=now,
                name=self._plan.workflow.name,
                workflow=self._plan.file,
                storages=tuple(Storage(**storage.model_dump()) for storage in self._config.storages),
                io_executors=self._config.io_executors,
            )
        )
        for step, hints in self._plan.annotations.items():
            bandwidth = hints.storage_bandwidth
            if hints.io_task is not None or bandwidth is not None:
                self._telemetry.write(
                    StepRecord(
                        time=now,
                        step=step,
                        io_task=hints.io_task is not None,
                        storage_bw=None if bandwidth is None else str(bandwidth.value.storage_bw),
                        direction="write" if bandwidth is None else bandwidth.value.direction,
                    )
                )
        for route in self._plan.possible:
            self._telemetry.write(RouteRecord(time=now, **vars(route)))


def _count_tokens(port: Port) -> int:
    tokens = port.token_list
    return len(tokens) - (1 if tokens and isinstance(tokens[-1], TerminationToken) else 0)
