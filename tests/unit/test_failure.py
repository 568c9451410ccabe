"""What a run says when it fails."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from streamflow.core.exception import WorkflowExecutionException
from streamflow.core.workflow import Status
from streamflow.cwl.step import CWLTransferStep
from streamflow.log_handler import logger
from streamflow.workflow.step import ExecuteStep

from streamflow_io.run.failure import Failure

IN_STREAMFLOW = "/lib/streamflow/workflow/step.py"


@pytest.fixture
def failure() -> Iterator[Failure]:
    """Of a run in which /a has failed while two jobs of /b ran, and /c had not begun."""

    def step(cls: type[Any], status: Status) -> Any:
        made = object.__new__(cls)
        made.status = status
        return made

    statuses = {"/a": Status.FAILED, "/b": Status.FAILED, "/c": Status.FAILED, "/d": Status.SKIPPED}
    steps = {name: step(ExecuteStep, status) for name, status in statuses.items()}
    steps["/out-collector"] = step(CWLTransferStep, Status.CANCELLED)
    running = ("/a/0", "/b/0.0", "/b/0.1", "/out-collector/0")
    jobs = {name: SimpleNamespace(status=Status.RUNNING) for name in running}
    tested = Failure(cast(Any, SimpleNamespace(steps=steps)), cast(Any, jobs))
    level = logger.level
    logger.setLevel(logging.INFO)
    yield tested
    logger.setLevel(level)
    for log in (logger, logging.getLogger("asyncio")):
        log.removeFilter(tested)


def record(message: str, level: int = logging.ERROR, path: str = IN_STREAMFLOW, error: Any = None) -> logging.LogRecord:
    information = None if error is None else (type(error), error, None)
    return logging.LogRecord("streamflow", level, path, 1, message, (), information)


@pytest.mark.parametrize("end", ["FAILED Workflow execution", "\x1b[31;1mFAILED\x1b[0m Workflow execution"])
def test_the_end_says_who_failed_why_and_what_was_given_up(failure: Failure, end: str) -> None:
    failure.explain("/a/0", "FAILED Job /a/0 with error:\n\tno luck\n\t(exit code 3)")
    for job in ("/a/0", "/b/0.0", "/b/0.1"):
        failure.job_failed(job)
    failure.closing()
    last = record(end, error=WorkflowExecutionException(end))
    assert failure.filter(last)
    assert last.exc_info is None
    assert last.getMessage() == (
        "FAILED Workflow execution: job /a/0 has failed (no luck (exit code 3)); "
        "given up because of that: jobs /b/0.0, /b/0.1; not run: step /c"
    )


def test_what_follows_from_a_failure_is_not_said(failure: Failure) -> None:
    failure.job_failed("/a/0")
    own = record("FAILED Job /z/0 with error:\n\texit code 1")
    fallen_apart = record("'NoneType' object has no attribute 'execute'")
    assert failure.filter(own)
    assert not failure.filter(record("CANCELLED Job /b/0.0: job /a/0, from which it reads, has failed"))
    assert not failure.filter(record("", error=asyncio.CancelledError()))
    assert failure.filter(fallen_apart)
    failure.closing()
    assert not failure.filter(fallen_apart)
    assert failure.filter(record("telemetry", logging.INFO))
    assert failure.filter(record("cannot undeploy", path="/lib/streamflow/deployment/connector/ssh.py"))
    assert failure.filter(record("it cannot be written", path="/lib/streamflow_io/telemetry/writer.py"))


def test_all_is_said_with_debug(failure: Failure) -> None:
    failure.job_failed("/a/0")
    failure.closing()
    logger.setLevel(logging.DEBUG)
    assert failure.filter(record("'NoneType' object has no attribute 'execute'"))
