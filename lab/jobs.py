"""Jobs of a run that never was."""

from __future__ import annotations

from streamflow.core.deployment import DeploymentConfig, ExecutionLocation, Target
from streamflow.core.scheduling import Hardware
from streamflow.core.workflow import Job, Status, Token
from streamflow.scheduling.scheduler import JobAllocation

from streamflow_io.adapters.jobs import JobState
from streamflow_io.adapters.tokens import streams_of
from streamflow_io.hints.inheritance import StepAnnotations


def allocation(name: str, location: str = "here") -> JobAllocation:
    """The place of a job on a host of the deployment `site`."""
    target = Target(DeploymentConfig("site", "ssh", {}))
    return JobAllocation(name, target, [ExecutionLocation(location, "site")], Status.RUNNING, Hardware())


def job_state(name: str, hints: StepAnnotations | None = None, location: str = "here", **inputs: Token) -> JobState:
    """A job that has a place, and writes to `/out`."""
    state = JobState(Job(name, 1, inputs, "/in", "/out", "/tmp"), hints)
    state.sources = tuple(dict.fromkeys(token.source.job for token in streams_of(inputs)))
    state.allocation = allocation(name, location)
    return state
