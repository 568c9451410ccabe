"""Adapter: what a run says when it fails: who failed, why, and what was cancelled because of it.

StreamFlow closes its database while steps still run, and logs what each of them then runs into. Whoever wants to see
that sees it with `--debug`.
"""

from __future__ import annotations

import asyncio
import logging
import posixpath
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from streamflow.core.exception import WorkflowExecutionException
from streamflow.core.workflow import Status, Workflow
from streamflow.log_handler import logger
from streamflow.scheduling.scheduler import JobAllocation
from streamflow.workflow.step import ExecuteStep

if TYPE_CHECKING:
    from streamflow_io.telemetry.records import RunStatus

_END = "FAILED Workflow execution"
_LONGEST_REASON = 500
# StreamFlow puts them into messages for a terminal.
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
# What StreamFlow runs into once all is being closed comes from these; what connectors say is another matter.
_FALLING_APART = tuple(
    f"/streamflow/{package}/"
    for package in ("core", "cwl", "data", "persistence", "recovery", "scheduling", "workflow")
)


class Failure(logging.Filter):
    """Lets pass of the log of a run that has failed what tells something new.

    :param jobs: those that were scheduled, by name
    """

    def __init__(self, workflow: Workflow, jobs: Mapping[str, JobAllocation]) -> None:
        super().__init__()
        self._workflow = workflow
        self._jobs = jobs
        self._reasons: dict[str, str] = {}
        self._failed: str | None = None
        self._given_up: list[str] = []
        self._not_run: list[str] = []
        self._is_closing = False

    def explain(self, job: str, reason: str) -> None:
        """A job is about to fail for good."""
        text = " ".join(reason.removeprefix(f"FAILED Job {job}").split()).lstrip(": ")
        self._reasons[job] = text.removeprefix("with error: ")

    def job_failed(self, job: str) -> None:
        """A job has failed for good, or was cancelled because another has failed."""
        if self._failed is None:
            self._failed = job
            running = (name for name, known in self._jobs.items() if known.status is Status.RUNNING and name != job)
            self._given_up = sorted(name for name in running if posixpath.dirname(name) in self._tools)
            self._install()

    def closing(self) -> None:
        """The run has ended, and its context is being closed."""
        steps = self._workflow.steps.values()
        if any(step.status in (Status.FAILED, Status.CANCELLED) for step in steps):
            ran = {posixpath.dirname(job) for job in self._jobs}
            self._not_run = sorted(name for name, step in self._tools.items() if name not in ran and _is_undone(step))
            self._is_closing = True
            self._install()

    @property
    def status(self) -> RunStatus:
        """How the run has ended, as far as its steps tell."""
        statuses = {step.status for step in self._tools.values()}
        if self._failed is not None or Status.FAILED in statuses:
            return "failed"
        return "completed" if statuses <= {Status.COMPLETED, Status.SKIPPED} else "cancelled"

    @property
    def _tools(self) -> dict[str, ExecuteStep]:
        return {name: step for name, step in self._workflow.steps.items() if isinstance(step, ExecuteStep)}

    def _install(self) -> None:
        for log in (logger, logging.getLogger("asyncio")):
            log.addFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        if logger.isEnabledFor(logging.DEBUG):
            return True
        message = _COLOUR.sub("", record.getMessage())
        if message == _END:
            record.msg, record.args = f"{_END}{self._summary()}", ()
            if record.exc_info and isinstance(record.exc_info[1], WorkflowExecutionException):
                record.exc_info = None
            return True
        if message.startswith("CANCELLED Job ") or _is_cancellation(record):
            return False
        if record.levelno < logging.WARNING or not self._is_closing:
            return True
        return not (record.name == "asyncio" or any(package in record.pathname for package in _FALLING_APART))

    def _summary(self) -> str:
        parts = []
        if self._failed is not None:
            reason = self._reasons.get(self._failed)
            parts.append(f"job {self._failed} has failed" + (f" ({reason[:_LONGEST_REASON]})" if reason else ""))
        parts += _some("given up because of that: job", self._given_up)
        parts += _some("not run: step", self._not_run)
        return ": " + "; ".join(parts) if parts else ""


def _is_cancellation(record: logging.LogRecord) -> bool:
    return isinstance(record.exc_info[1] if record.exc_info else None, asyncio.CancelledError)


def _is_undone(step: ExecuteStep) -> bool:
    return step.status not in (Status.COMPLETED, Status.SKIPPED)


def _some(what: str, names: Iterable[str], most: int = 10) -> list[str]:
    names = list(names)
    if not names:
        return []
    shown = ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
    return [f"{what}{'s' if len(names) > 1 else ''} {shown}"]
