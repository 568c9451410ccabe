"""The telemetry of a run, and the messages about it at its end."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from msgspec import convert
from msgspec.structs import asdict
from streamflow.core.workflow import Step, Workflow
from streamflow.log_handler import logger
from streamflow.workflow.step import ExecuteStep

from streamflow_io.graph.io_graph import Delivery
from streamflow_io.hints.config import SchedulerConfig
from streamflow_io.records.files import (
    OFF,
    CommittedRecord,
    DiscardedRecord,
    EdgeRecord,
    FallbackRecord,
    ReadingRecord,
    RouteRecord,
    StreamedRecord,
)
from streamflow_io.records.history import HistoryReader
from streamflow_io.records.jobs import EndedRecord, StartedRecord, SubmittedRecord
from streamflow_io.records.records import (
    DiskRecord,
    EndRecord,
    ProgressRecord,
    QueuedRecord,
    Record,
    RemovedRecord,
    RunRecord,
    RunStatus,
    RunStorage,
    StepRecord,
)
from streamflow_io.records.runs import TELEMETRY_FILE, create_run_directory, remove_old_runs
from streamflow_io.records.writer import TelemetryWriter

from .plan import Plan

# The records that the messages at the end need. Most records are of other classes.
_KEPT = (
    StepRecord,
    EdgeRecord,
    SubmittedRecord,
    StartedRecord,
    EndedRecord,
    ReadingRecord,
    StreamedRecord,
    CommittedRecord,
    FallbackRecord,
    RemovedRecord,
    DiscardedRecord,
    DiskRecord,
    EndRecord,
)


class RunTelemetry:
    """Keeps the records of a run in its directory, and in memory those that the messages at its end need.

    The telemetry begins with the first record: a workflow that is only planned is no run.

    :param file: the StreamFlow file
    :ivar directory: of the run. None: the directory is not made yet, or cannot be made
    """

    def __init__(self, plan: Plan, config: SchedulerConfig, file: str) -> None:
        self.directory: Path | None = None
        self._plan = plan
        self._config = config
        self._file = file
        # A run that asks for nothing of the plugin has messages only about its failure.
        asks = config.observe or config.runtime == "off" or plan.proofs.candidates or any(plan.annotations.values())
        self._asks = bool(asks)
        self._writer = TelemetryWriter(self._locate)
        self._reader: HistoryReader | None = None

    @property
    def has_begun(self) -> bool:
        """Whether there is a record."""
        return self._reader is not None

    def write(self, record: Record) -> None:
        """Keep a record. Raises nothing; returns at once."""
        if self._reader is None:
            first, *others = start_records(self._plan, self._config, self._file, time.time())
            assert isinstance(first, RunRecord)
            self._reader = HistoryReader(first.name, first)
            self._keep(first)
            for one in others:
                self._keep(one)
        self._keep(record)

    def _keep(self, record: Record) -> None:
        self._writer.write(record)
        if self._reader is not None and isinstance(record, _KEPT):
            self._reader.told(record)

    def queued(self, deployment: str, waits: str | None) -> None:
        """Record what a deployment waits for in a queue. Raises nothing; returns at once.

        :param waits: None: the deployment waits no more
        """
        if self._asks and (waits is not None or self.has_begun):
            self.write(QueuedRecord(time=time.time(), deployment=deployment, waits=waits))

    def keep(self, name: str, content: bytes) -> None:
        """Keep a file in the directory of the run, by its relative path. Raises nothing; returns at once."""
        self._writer.write((name, content))

    def show(self, record: ProgressRecord) -> None:
        """Keep the present state of a run that has records, for `streamflow-io watch`. Raises nothing."""
        if self.has_begun:
            self._writer.show(record)

    async def close(self, status: RunStatus) -> None:
        """End the telemetry, if it has begun, and log the messages about the run. Waits some time for the disk."""
        if self._reader is None:
            return
        self.write(EndRecord(time=time.time(), status=status))
        self._writer.close()
        history = self._reader.history
        # Without hints and removals, there is nothing to say.
        if history.edges or history.steps or history.removed:
            # The start of a run is faster without the modules of reports.
            from streamflow_io.report.analysis.verdict import ending_lines

            for line in ending_lines(history):
                logger.info(line)
        if self.directory is not None and self._asks:
            logger.info(f"Telemetry of this run is in {self.directory}: streamflow-io report {self.directory.name}")

    def _locate(self) -> Path:
        remove_old_runs()
        self.directory = create_run_directory(self._plan.workflow.name)
        return self.directory / TELEMETRY_FILE


def steps_before(workflow: Workflow) -> dict[str, tuple[str, ...]]:
    """The steps that run jobs, each with the steps whose results it gets, also through steps without jobs.

    A step whose results go round a loop may be before itself.

    :return: each step after those whose results it gets, except in loops; otherwise in the order of the workflow
    """
    executing = {name: step for name, step in workflow.steps.items() if isinstance(step, ExecuteStep)}
    before = {name: tuple(dict.fromkeys(_before(step))) for name, step in executing.items()}
    ordered: dict[str, tuple[str, ...]] = {}
    for name in before:
        _place(name, before, ordered)
    return ordered


def _before(step: Step) -> Iterator[str]:
    """Yield the nearest steps before a step that run jobs."""
    seen, ahead = {step.name}, [step]
    while ahead:
        for port in ahead.pop().get_input_ports().values():
            for writer in port.get_input_steps():
                if isinstance(writer, ExecuteStep):
                    yield writer.name
                elif writer.name not in seen:
                    seen.add(writer.name)
                    ahead.append(writer)


def _place(name: str, before: dict[str, tuple[str, ...]], ordered: dict[str, tuple[str, ...]]) -> None:
    """Put a step into the order, after those before it."""
    ahead, entered = [name], set()
    while ahead:
        last = ahead[-1]
        is_new = last not in entered
        entered.add(last)
        missing = [other for other in before[last] if other not in ordered and other not in entered]
        if is_new and missing:
            ahead += reversed(missing)
        else:
            ahead.pop()
            ordered.setdefault(last, before[last])


def start_records(plan: Plan, config: SchedulerConfig, file: str, now: float) -> Iterator[Record]:
    """The first records of a run, in order.

    :param file: the StreamFlow file
    :param now: in seconds since the epoch
    """
    yield RunRecord(
        time=now,
        name=plan.workflow.name,
        workflow=plan.source.file,
        workflow_name=plan.source.name,
        streamflow_file=file,
        host=socket.gethostname(),
        pid=os.getpid(),
        storages=tuple(convert(storage, RunStorage, from_attributes=True) for storage in config.storages),
        io_executors=config.io_executors,
        streaming=config.streaming,
        oversubscribe=config.oversubscribe,
        steps=steps_before(plan.workflow),
    )
    for step, hints in plan.annotations.items():
        if hints.concern_storage:
            yield StepRecord(
                time=now,
                step=step,
                io_task=hints.io_task is not None,
                storage_bw=None if hints.storage_bw is None else str(hints.storage_bw),
                direction=hints.direction,
            )
    why = OFF if config.runtime == "off" else plan.service.unavailable
    for edge in plan.graph.edges:
        consumer = edge.route.consumer
        yield EdgeRecord(
            time=now,
            output=edge.route.output.name,
            input=None if consumer is None else consumer.name,
            delivery=edge.delivery if why is None else Delivery.TERMINATION,
            fallback=edge.fallback if why is None else why,
            capio=plan.service.runtime_edges.get(edge),
        )
    for route in plan.graph.possible:
        yield RouteRecord(time=now, **asdict(route))
