"""Adapter: what is recorded when a run begins: its configuration, and the plan."""

from __future__ import annotations

from collections.abc import Iterator

from streamflow_io.graph.io_graph import Delivery
from streamflow_io.hints.config import SchedulerConfig
from streamflow_io.records.files import OFF, EdgeRecord, RouteRecord
from streamflow_io.records.records import Record, RunRecord, RunStorage, StepRecord

from .plan import Plan
from .step_order import steps_before


def start_records(plan: Plan, config: SchedulerConfig, now: float) -> Iterator[Record]:
    """The first records of a run, in order.

    :param now: in seconds since the epoch
    """
    yield RunRecord(
        time=now,
        name=plan.workflow.name,
        workflow=plan.file,
        storages=tuple(RunStorage(**storage.model_dump()) for storage in config.storages),
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
    why = OFF if config.runtime == "off" else plan.unavailable
    for edge in plan.edges:
        consumer = edge.route.consumer
        yield EdgeRecord(
            time=now,
            output=edge.route.output.name,
            input=None if consumer is None else consumer.name,
            delivery=edge.delivery if why is None else Delivery.TERMINATION,
            fallback=edge.fallback if why is None else why,
            capio=plan.runtime_edges.get(edge),
        )
    for route in plan.possible:
        yield RouteRecord(time=now, **vars(route))
