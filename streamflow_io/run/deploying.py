"""Adapter: deploys the containers of a gang side by side, because their jobs run at the same time."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping
from typing import Protocol

from streamflow.core.utils import get_job_step_name
from streamflow.core.workflow import Job, Step

from streamflow_io.graph.gangs import Gang


class Ahead(Protocol):
    """What deploys containers before a job asks for them."""

    def deploy_ahead(self, deployment: str, service: str | None) -> None: ...


class GangDeployment:
    """StreamFlow deploys a container when the first job of its step is scheduled, one after the other along a chain.

    :param steps: StreamFlow's, by name
    """

    def __init__(self, runtimes: Ahead, steps: Mapping[str, Step], gangs: Iterable[Gang]) -> None:
        self._runtimes = runtimes
        self._steps = steps
        self._followers = {
            head: [step for step in gang.steps if step not in gang.heads] for gang in gangs for head in gang.heads
        }

    def submitted(self, job: Job) -> None:
        """A job has all its input: if it is the first of a gang, the containers of those that read of it are deployed.

        A step with several targets may run in another; it waits, as without us.
        """
        for step in self._followers.pop(get_job_step_name(job.name), ()):
            schedule = self._steps.get(posixpath.join(step, "__schedule__"))
            targets = [] if schedule is None else schedule.binding_config.targets
            if len(targets) == 1:
                self._runtimes.deploy_ahead(targets[0].deployment.name, targets[0].service)
