"""The messages of a run that fails: which job failed first, and why.

StreamFlow closes its database while steps still run, and logs the errors that follow from that. These errors are shown
only with `--debug`.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import posixpath
import re
import shlex
import traceback
from collections.abc import Callable, Mapping

from streamflow.core.exception import WorkflowExecutionException
from streamflow.core.workflow import Status, Workflow
from streamflow.log_handler import logger
from streamflow.scheduling.scheduler import JobAllocation
from streamflow.workflow.step import ExecuteStep

from streamflow_io.adapters.jobs import NeverStartsError
from streamflow_io.records.records import RunStatus
from streamflow_io.runtime.node_commands import CannotWriteError
from streamflow_io.wording import displayed, first_of

from .job_logs import LastWords

_SAID = "with error:\n\t"
_END = "FAILED Workflow execution"
# The recovery of a job is the execution of a workflow, too. What its failure means for the run follows.
_RECOVERY = "/streamflow/core/recovery.py"
_LONGEST_REASON = 500
_MOST_STEPS = 10
# StreamFlow colours messages for a terminal.
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_NOT_ONE = re.compile(r"Expected (\S+) token of type (File|Directory), got list\.")
# The last line of the script, with its number before, and the standard error of its interpreter.
_JAVASCRIPT = re.compile(r"script was:.*\n\d+ ([^\n]*)\nstdout was: .*?\nstderr was: '(.*)'", re.DOTALL)
_ERROR = re.compile(r"\w*Error\b")
# The path at the end is the one that could not be written.
_FULL = re.compile(rf"\[Errno (?:{errno.ENOSPC}|{errno.EDQUOT})\] (\w[^:]*): (?:.* -> )?(.*)", re.DOTALL)
# A failure manager handles the error that StreamFlow has logged just before. At last, it gives the job up.
_HANDLED = re.compile(r"Handling \S+ failure for job (.+)")
_GIVEN_UP = re.compile(r"FAILED Job (.+) \d+ times\. Execution aborted")
# Errors that only follow from the closing of the run come from these packages. Errors of connectors matter.
_FALLING_APART = tuple(
    f"/streamflow/{package}/"
    for package in ("core", "cwl", "data", "persistence", "recovery", "scheduling", "workflow")
)


class SafeLog(logging.Filter):
    """Lets each record pass, without control sequences: names, commands and errors come from the CWL of others.

    Colours stay, because StreamFlow sets colours itself.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        if (shown := displayed(message, colours=True)) != message:
            record.msg, record.args = shown, ()
        if record.exc_info and record.exc_text is None:
            # A handler prints this text instead of the exception.
            record.exc_text = displayed("".join(traceback.format_exception(*record.exc_info))).rstrip("\n")
        return True


# The kernel, and queue managers, end what gets more memory than it may by SIGKILL, without a word.
_KILLED = {137: ", that of SIGKILL: perhaps a process wanted more memory than it may have"}


class Failure(logging.Filter):
    """Filters the log of a run that has failed, and completes its last message.

    Only messages that tell something new pass.

    :param jobs: the scheduled jobs, by name
    :param succeeds: whether a command of a step succeeds with an exit code
    """

    def __init__(
        self,
        workflow: Workflow,
        jobs: Mapping[str, JobAllocation],
        succeeds: Callable[[str, int | None], bool] = lambda _, code: code == 0,
    ) -> None:
        super().__init__()
        self._workflow = workflow
        self._jobs = jobs
        # The jobs of workflows that have run before in the same context, maybe with the same names.
        self._earlier = dict(jobs)
        self._succeeds = succeeds
        # The last error that was logged, and the first one.
        self._error = ""
        self._first_error = ""
        #: The last error, if that says that files cannot be written at the place of a job.
        self.no_space: str | None = None
        # By what keeps jobs from starting, or runs from going on, which StreamFlow logs several times: the reason.
        self._final: dict[str, str] = {}
        # By job: the last error that the failure manager has handled.
        self._handled: dict[str, str] = {}
        # By job: how the command of its last attempt has ended.
        self._tried: dict[str, LastWords | None] = {}
        self._failed: str | None = None
        self._reason = ""
        self._words: LastWords | None = None
        self._run: str | None = None
        self._not_run: list[str] = []
        self._is_closing = False
        logger.addFilter(self)

    def job_is_tried_again(self, job: str, words: LastWords | None) -> None:
        """Note that a failure manager handles the failure of a job.

        :param words: as for :meth:`job_failed`
        """
        self._tried[job] = words

    def job_failed(self, job: str, words: LastWords | None = None) -> Status:
        """Note that a job has failed for good, or was cancelled because another job has failed.

        StreamFlow must have logged the reason just before.

        :param words: how its command has ended; None: the job has run no command
        :return: failed or cancelled
        """
        if self._error.startswith(f"CANCELLED Job {job}"):
            return Status.CANCELLED
        if self._failed is None:
            if self._has_failed_step:
                # An expression, or a merge of inputs, has failed before. StreamFlow has ended this job.
                return Status.CANCELLED
            self._failed, self._reason, self._words = job, self._error, words or self._tried.get(job)
            self._install()
        return Status.FAILED

    def recorded(self, run: str) -> None:
        """Note the name of the record of the run."""
        self._run = run

    def closing(self) -> None:
        """Note that the run has ended, and that its context is being closed."""
        steps = self._workflow.steps.values()
        if any(step.status in (Status.FAILED, Status.CANCELLED) for step in steps):
            ran = {posixpath.dirname(job) for job, at in self._jobs.items() if at is not self._earlier.get(job)}
            self._not_run = sorted(name for name, step in self._tools.items() if name not in ran and _is_undone(step))
            self._is_closing = True
            self._install()
        else:
            # The next messages are about another workflow.
            logger.removeFilter(self)

    @property
    def status(self) -> RunStatus:
        """How the run has ended, as far as its steps show."""
        # An expression may fail before any tool runs.
        if self._failed is not None or self._has_failed_step:
            return "failed"
        statuses = {step.status for step in self._tools.values()}
        return "completed" if statuses <= {Status.COMPLETED, Status.SKIPPED} else "cancelled"

    @property
    def _has_failed_step(self) -> bool:
        return any(step.status is Status.FAILED for step in self._workflow.steps.values())

    @property
    def _tools(self) -> dict[str, ExecuteStep]:
        return {name: step for name, step in self._workflow.steps.items() if isinstance(step, ExecuteStep)}

    def _install(self) -> None:
        for log in (logger, logging.getLogger("asyncio")):
            log.addFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        message = _COLOUR.sub("", record.getMessage())
        is_shown: bool = logger.isEnabledFor(logging.DEBUG)
        if (reason := self._final.get(message)) is not None:
            self._error = reason
            return is_shown
        if message == _END and record.pathname.endswith(_RECOVERY):
            return is_shown
        if message == _END:
            record.msg, record.args = f"{_END}{self._summary()}", ()
            if record.exc_info and isinstance(record.exc_info[1], WorkflowExecutionException):
                record.exc_info = None
            return True
        if record.exc_info and isinstance(record.exc_info[1], NeverStartsError):
            self._final[message] = message
            if not is_shown:
                record.exc_info = None
        if (handled := _HANDLED.fullmatch(message)) is not None:
            self._handled[handled[1]] = self._error
        if record.levelno >= logging.ERROR:
            given_up = _GIVEN_UP.fullmatch(message)
            self._error = message
            self.no_space = message if record.exc_info and isinstance(record.exc_info[1], CannotWriteError) else None
            if given_up is not None:
                self._error = self._final[message] = self._handled.get(given_up[1], message)
            self._first_error = self._first_error or message
        if not is_shown and _is_cancellation(record):
            return False
        if is_shown or not (self._failed is not None or self._is_closing):
            return True
        if message.startswith("CANCELLED Job "):
            return False
        if record.levelno < logging.WARNING or not self._is_closing:
            return True
        return not (record.name == "asyncio" or any(package in record.pathname for package in _FALLING_APART))

    def _summary(self) -> str:
        parts = []
        if (job := self._failed) is not None:
            parts.append(f"job {job} of step {posixpath.dirname(job)} has failed ({self._how(job)})")
        elif self._first_error:
            # An expression of a step has failed, before the step had any job.
            parts.append(_on_one_line(self._first_error)[:_LONGEST_REASON])
        if names := self._not_run:
            parts.append(f"not run: step{'s' if len(names) > 1 else ''} {first_of(names, _MOST_STEPS)}")
        told = ": " + "; ".join(parts) if parts else ""
        words = self._words
        if words is not None and not self._is_reason(words):
            what = "standard error" if words.stream == "stderr" else "output"
            told += f"\nThe last lines of its {what}:" if words.lines else f"\nIt has written nothing to its {what}"
            told = "\n\t".join([told, *words.lines])
            told += f"\n{words.full}" if words.full else ""
        if job is not None and self._run is not None:
            told += f"\nMore: streamflow-io logs {shlex.join([self._run, *posixpath.split(job)])}"
        return told

    def _is_reason(self, words: LastWords) -> bool:
        """Whether the lines are the error of a connector: then the command has not ended, and has written nothing."""
        return words.code is None and bool(words.lines) and "\n\t".join(words.lines) in self._reason

    def _how(self, job: str) -> str:
        """Why a job has failed, without the last lines of its command."""
        words, reason = self._words, self._reason.removeprefix(f"FAILED Job {job}").lstrip(": ")
        if (said := reason.removeprefix(_SAID)) != reason:
            reason = said if words is None else said.strip().removeprefix(words.printed.strip())
        reason = _on_one_line(reason)
        reason = re.sub(r"^\(([^()]*)\)", r"\1", reason)
        if words is not None and words.code is not None and not self._succeeds(posixpath.dirname(job), words.code):
            named = "" if words.code else ", which the permanentFailCodes of the tool name"
            named = named or _KILLED.get(words.code, "")
            reason = reason or f"exit code {words.code}{named}"
        return reason[:_LONGEST_REASON] or "no reason is known"


def _on_one_line(reason: str) -> str:
    return " ".join(displayed(_in_short(reason)).split())


def _in_short(reason: str) -> str:
    """A reason, without what StreamFlow adds for its developers: attempts at types, scripts, stacks of calls."""
    if (found := _NOT_ONE.search(reason)) is not None:
        return f"the output `{found[1]}` has to be one {found[2]}, and the tool has made none, or several"
    if (found := _JAVASCRIPT.search(reason)) is not None:
        lines = [line for line in found[2].split("\n") if line.strip()]
        error = next((line for line in lines if _ERROR.match(line)), lines[0] if lines else reason)
        return f"the expression {found[1].strip()} fails: {error}"
    if (found := _FULL.fullmatch(reason)) is not None:
        path = found[2].strip("'\"")
        return (
            f"{found[1]}: StreamFlow cannot write {path}. Remove files from its file system, as with "
            "`streamflow-io clean`, or set another `--outdir` or `workdir`"
        )
    return reason


def _is_cancellation(record: logging.LogRecord) -> bool:
    return isinstance(record.exc_info[1] if record.exc_info else None, asyncio.CancelledError)


def _is_undone(step: ExecuteStep) -> bool:
    return step.status not in (Status.COMPLETED, Status.SKIPPED)
