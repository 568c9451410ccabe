"""Deploys containers when a job is submitted; those of a gang side by side."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Mapping

from streamflow.core.workflow import Step

from streamflow_io.adapters.jobs import JobState, Listener
from streamflow_io.graph.gangs import Gang


class GangDeployment(Listener):
    """Deploys the containers of jobs before StreamFlow does.

    StreamFlow deploys a container when the first job of its step is scheduled: one after the other along a chain. When
    a run fails or is interrupted, StreamFlow cancels all that it does for a job, and leaves a container whose
    deployment is cut short. Hence no job starts a deployment itself.

    :param deploy_ahead: begins a deployment of containers; see :meth:`.Deployments.deploy_ahead`
    :param steps: StreamFlow's, by name
    """

    def __init__(self, deploy_ahead: Callable[[str], None], steps: Mapping[str, Step], gangs: Iterable[Gang]) -> None:
        self._deploy_ahead = deploy_ahead
        self._steps = steps
        self._followers = {
            head: [step for step in gang.steps if step not in gang.heads] for gang in gangs for head in gang.heads
        }

    def submitted(self, job: JobState) -> None:
        """Deploy the containers of a job; for the first job of a gang, those of its readers, too.

        A reader with several targets may run in another container. Such a reader waits for its container as with plain
        StreamFlow.
        """
        ahead = [*job.targets]
        for step in self._followers.pop(job.step, ()):
            schedule = self._steps.get(posixpath.join(step, "__schedule__"))
            found = [] if schedule is None else schedule.binding_config.targets
            ahead += found if len(found) == 1 else ()
        for target in ahead:
            self._deploy_ahead(target.deployment.name)
