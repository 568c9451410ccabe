"""What the node runtime warns of: said once for each step, or for the run, and counted."""

from __future__ import annotations

from streamflow.core.utils import get_job_step_name
from streamflow.log_handler import logger

from streamflow_io.adapters.jobs import JobState, Listener
from streamflow_io.runtime.protocol import Event, WarningEvent
from streamflow_io.runtime.wire import is_without_gate
from streamflow_io.wording import counted


class JobWarnings(Listener):
    """Says the first of the same warnings of the jobs of a step; how many more there were, it says at the end."""

    def __init__(self) -> None:
        # By step, and what it reads or the message: the message, and the jobs.
        self._told: dict[tuple[str, str], tuple[str, set[str]]] = {}

    def event(self, job: JobState, event: Event) -> None:
        """Say a warning. Warnings of one input are the same, whatever paths they name."""
        if not isinstance(event, WarningEvent):
            return
        # An input is named by the job that writes it.
        about = event.message if event.input is None else f"{get_job_step_name(event.input)}/{event.port}"
        # Where there is no gate for one, there is none for others.
        step = "" if is_without_gate(event) else job.step
        message, jobs = self._told.setdefault((step, about), (event.message, set()))
        if not jobs:
            logger.warning(f"Job {job.name}: {message}")
        jobs.add(job.name)

    async def run_closed(self) -> None:
        for (step, _), (message, jobs) in self._told.items():
            if (more := len(jobs) - 1) and step:
                logger.warning(f"{counted(more, 'more job')} of {step}, as one before: {message}")
        self._told.clear()
