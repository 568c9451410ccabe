"""What the node runtime warns of: said once for each step, and counted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamflow.core.utils import get_job_step_name
from streamflow.log_handler import logger

from streamflow_io.wording import counted

if TYPE_CHECKING:
    from streamflow_io.runtime.protocol import WarningEvent


class JobWarnings:
    """Says the first of the same warnings of the jobs of a step; how many more there were, it says at the end."""

    def __init__(self) -> None:
        # By step, and what it reads or the message: the message, and the jobs.
        self._told: dict[tuple[str, str], tuple[str, set[str]]] = {}

    def tell(self, job_name: str, event: WarningEvent) -> None:
        """A job is warned of something; warnings of one input are the same, whatever paths they name."""
        # An input is named by the job that writes it.
        about = event.message if event.input is None else f"{get_job_step_name(event.input)}/{event.port}"
        message, jobs = self._told.setdefault((get_job_step_name(job_name), about), (event.message, set()))
        if not jobs:
            logger.warning(f"Job {job_name}: {message}")
        jobs.add(job_name)

    def close(self) -> None:
        """The run ends."""
        for (step, _), (message, jobs) in self._told.items():
            if more := len(jobs) - 1:
                logger.warning(f"{counted(more, 'more job')} of {step}, as one before: {message}")
        self._told.clear()
