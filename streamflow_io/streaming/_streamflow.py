"""The seam: every use of what StreamFlow does not promise to keep, in one place.

`tests/integration/test_translation.py` breaks when one of them changes. Besides what is here, our steps override these
protected methods of their base classes, which the same test checks: `ExecuteStep._execute_command`,
`BaseStep._get_status`, `GatherStep._gather`, `TransferStep._run_transfer`; and call these:
`CWLExecuteStep._is_recoverable`, `BaseStep._persist_token`, `ScatterStep._scatter`. Our scheduler overrides
`DefaultScheduler._is_valid`, `._get_locations` and `._allocate_job`, which `._process_target` calls one after the other
while it holds the lock of `wait_queue`, and `._process_target`, which runs in a task of its own for each target; it
calls `._get_binding_filter`.
"""

from __future__ import annotations

from dataclasses import dataclass

import streamflow.cwl.main
from streamflow.core.deployment import Connector
from streamflow.core.recovery import FailureManager, RecoveryRequest
from streamflow.cwl.translator import CWLTranslator
from streamflow.deployment.connector.queue_manager import QueueManagerConnector
from streamflow.deployment.future import FutureConnector
from streamflow.recovery.failure_manager import RollbackFailureManager


def install_translator(translator: type[CWLTranslator]) -> None:
    """Make `streamflow run` and `cwl-runner` translate with our class, for want of an extension point."""
    streamflow.cwl.main.CWLTranslator = translator


@dataclass
class RetryPolicy:
    """How often a job may be tried again, under the failure manager that the user configured.

    :ivar delay: seconds to wait before a job is tried again
    """

    delay: float
    _maximum: int | None
    _request: RecoveryRequest | None

    def take(self) -> bool:
        """Count one more attempt. False if it is not allowed."""
        if self._request is None or (self._maximum is not None and self._request.version >= self._maximum):
            return False
        self._request.version += 1
        return True


def retry_policy(manager: FailureManager, job: str) -> RetryPolicy:
    """The policy for a job. Attempts are counted where `RollbackFailureManager` counts its own."""
    if isinstance(manager, RollbackFailureManager):
        return RetryPolicy(manager.retry_delay or 0, manager.max_retries, manager.get_request(job))
    return RetryPolicy(0, 0, None)


async def remove_jobs(connector: Connector) -> None:
    """Remove the jobs of this run that a queue manager still has, also those that wait in its queue.

    StreamFlow 0.2.0rc3 means to when it undeploys, but asks in the location that is inside the right one, and fails.
    """
    if isinstance(connector, FutureConnector):
        connector = connector._connector
    if not isinstance(connector, QueueManagerConnector):
        return
    jobs, connector._scheduled_jobs = connector._scheduled_jobs, {}
    for location in {location.name: location for location in jobs.values()}.values():
        await connector._remove_jobs(location, [job for job, other in jobs.items() if other.name == location.name])
