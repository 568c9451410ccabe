"""Deploys containers when the first job is submitted, those of a gang side by side."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Mapping

from streamflow.core.workflow import Step

from streamflow_io.adapters.jobs import JobState, Listener
from streamflow_io.graph.gangs import Gang


class GangDeployment(Listener):
    """StreamFlow deploys a container when the first job of its step is scheduled, one after the other along a chain.

    It leaves a container whose deployment is cut short, as all that it does for a job is when the run fails or is
    interrupted; hence no job asks first.

    :param deploy_ahead: lets a deployment of containers begin; see :meth:`.Deployments.deploy_ahead`
    :param steps: StreamFlow's, by name
    """

    def __init__(self, deploy_ahead: Callable[[str], None], steps: Mapping[str, Step], gangs: Iterable[Gang]) -> None:
        self._deploy_ahead = deploy_ahead
        self._steps = steps
        self._followers = {
            head: [step for step in gang.steps if step not in gang.heads] for gang in gangs for head in gang.heads
        }

    def submitted(self, job: JobState) -> None:
        """Deploy the containers of a job, and for the first job of a gang those of its readers.

        A reader with several targets may run in another container. The reader waits for that as with plain StreamFlow.
        """
        ahead = [*job.targets]
        for step in self._followers.pop(job.step, ()):
            schedule = self._steps.get(posixpath.join(step, "__schedule__"))
            found = [] if schedule is None else schedule.binding_config.targets
            ahead += found if len(found) == 1 else ()
        for target in ahead:
            self._deploy_ahead(target.deployment.name)
