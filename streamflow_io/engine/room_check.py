"""Checks that some location has as much room as a job asks for.

Jobs of runs without hints are checked, too. So the code that names deployments is imported only if no location will do.
"""

from __future__ import annotations

from collections.abc import Iterable

from streamflow.core.context import StreamFlowContext
from streamflow.core.deployment import Target
from streamflow.core.exception import WorkflowExecutionException
from streamflow.core.scheduling import AvailableLocation, HardwareRequirement
from streamflow.core.utils import get_job_step_name
from streamflow.core.workflow import Job
from streamflow.log_handler import logger

from streamflow_io.capacity import Room, too_large
from streamflow_io.messages import Code, coded


async def check_room(
    context: StreamFlowContext,
    known: set[tuple[str, bool]],
    job: Job,
    targets: Iterable[Target],
    requirement: HardwareRequirement | None,
    coreless: bool,
) -> None:
    """Find a job that waits for room that no location has: plain StreamFlow would wait for ever, and say nothing.

    :param known: steps that need not be looked at again, each with and without cores
    :param coreless: whether the job is admitted without cores
    :raises WorkflowExecutionException: if no location will ever do. A warning is logged instead if others may come
        later
    """
    step = get_job_step_name(job.name)
    if requirement is None or (step, coreless) in known:
        return
    if not any(isinstance(getattr(requirement, name, ""), str) for name in ("cores", "memory")):
        known.add((step, coreless))
    hardware = requirement.eval(job)
    asked = Room(None if coreless else float(hardware.cores), float(hardware.memory))
    reasons: list[str] = []
    deployments: list[str] = []
    for target in targets:
        connector = context.deployment_manager.get_connector(target.deployment.name)
        locations = await connector.get_available_locations(service=target.service)
        there = {_name(location, target): _room(location) for location in locations.values()}
        if (why := too_large(asked, there, target.locations)) is None:
            return
        from streamflow_io.adapters.deployment_sites import are_fixed, deployment_name

        reasons.append(f"{why} ({deployment_name(target.deployment)})" if target.deployment.type != "local" else why)
        deployments.append(str(target.deployment.type))
    message = f"No job of {step} can start: {'; '.join(reasons)}"
    if are_fixed(deployments):
        raise WorkflowExecutionException(coded(message, Code.NEVER_STARTS))
    known.add((step, coreless))
    logger.warning(coded(f"{message}; job {job.name} waits for a location that has as much", Code.NEVER_STARTS))


def _name(location: AvailableLocation, target: Target) -> str:
    if not location.stacked:
        return str(location.name)
    from streamflow_io.adapters.deployment_sites import location_shown

    return location_shown(location, target)


def _room(location: AvailableLocation) -> Room:
    """The room of a location. A job in a container also takes cores and memory of the container's host."""
    room = Room(None, None)
    inner: AvailableLocation | None = location
    while inner is not None:
        if inner.hardware is not None:
            room = room.within(Room(float(inner.hardware.cores), float(inner.hardware.memory)))
        inner = inner.wraps if inner.stacked else None
    return room
