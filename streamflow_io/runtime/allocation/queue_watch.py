"""Says why an allocation waits in the queue."""

from __future__ import annotations

import logging

from streamflow_io.runtime.waiting_deployments import tell

from .managers import Reason

logger = logging.getLogger("streamflow")


class QueueWatch:
    """Says at once that an allocation waits, and each reason once, after two looks in a row that have found it.

    Queue managers change their reasons often, and may name one for a moment that does not hold.

    :param deployment: its name in messages
    :param manager: the name of the queue manager
    :param job: the number of the allocation
    """

    def __init__(self, deployment: str, manager: str, job: str) -> None:
        self._name = f"allocation {job} of {manager}"
        self._deployment = deployment
        self._last: str | None = None
        self._told: set[str] = set()
        logger.info(f"The deployment {deployment} waits in the queue of {manager} for allocation {job}")
        tell(deployment, self._name)

    def looked(self, reason: Reason | None) -> str | None:
        """Note the reason that a look has found.

        :return: why the queue manager will never grant the allocation; None: the allocation may still come
        """
        before, self._last = self._last, None if reason is None else reason.kind
        if reason is None or reason.kind != before:
            return None
        if reason.remedy is not None:
            return f"{self._name} can never start ({reason.text}): change {reason.remedy} in `submit`"
        if reason.kind not in self._told:
            self._told.add(reason.kind)
            logger.info(f"The deployment {self._deployment} still waits for {self._name}: {reason.text}")
        tell(self._deployment, f"{self._name}: {reason.text}")
        return None
