"""Logs the warnings of the node runtime once for each step, or for the run, and counts them."""

from __future__ import annotations

from streamflow.core.utils import get_job_step_name
from streamflow.log_handler import logger

from streamflow_io.adapters.jobs import JobState, Listener
from streamflow_io.hints.inheritance import port_path
from streamflow_io.runtime.protocol import Event, WarningEvent
from streamflow_io.runtime.wire import is_without_gate
from streamflow_io.wording import counted


class JobWarnings(Listener):
    """Logs the first of equal warnings of a step's jobs at once, and the number of the others at the end."""

    def __init__(self) -> None:
        # By step, and by input or message: the message, and the names of the jobs.
        self._told: dict[tuple[str, str], tuple[str, set[str]]] = {}

    def event(self, job: JobState, event: Event) -> None:
        """Log a warning if it is new. Warnings about one input are equal, whatever paths they name."""
        if not isinstance(event, WarningEvent):
            return
        # The event names an input by the job and the port that write it.
        about = said = event.message
        if event.input is not None:
            about = port_path(get_job_step_name(event.input), event.port or "")
            said = f"{about}: {event.message.removeprefix(f'input {event.input}: ')}"
        # Where one job has no gate, other jobs have none: such a warning is for the run.
        step = "" if is_without_gate(event) else job.step
        message, jobs = self._told.setdefault((step, about), (said, set()))
        if not jobs:
            logger.warning(f"Job {job.name}: {message}")
        jobs.add(job.name)

    async def run_closed(self) -> None:
        for (step, _), (message, jobs) in self._told.items():
            if (more := len(jobs) - 1) and step:
                logger.warning(f"{counted(more, 'more job')} of {step}, with the same warning: {message}")
        self._told.clear()
