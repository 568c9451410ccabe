"""Messages of a run that fails."""

from __future__ import annotations

import asyncio
import errno
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

from streamflow_io._streamflow import NoHostsError
from streamflow_io.adapters.jobs import NeverStartsError
from streamflow_io.engine.scheduler import IOAwareScheduler
from streamflow_io.jobs.failure import Failure
from streamflow_io.jobs.job_logs import LastWords

JAVASCRIPT = (
    "script was:\n01 var inputs = {};\n02 (f())()\nstdout was: ''\n"
    "stderr was: 'evalmachine.<anonymous>:2\n(f())()\n  ^\n\n"
    "TypeError: no 'y'\n    at evalmachine.<anonymous>:2:31'"
)
IN_STREAMFLOW = "/lib/streamflow/workflow/step.py"


@pytest.fixture
def failure() -> Iterator[Failure]:
    """A failed run: /a has failed while two jobs of /b ran, and /c had not begun.

    An earlier workflow had a step /c, too.
    """

    def step(cls: type[Any], status: Status) -> Any:
        made = object.__new__(cls)
        made.status = status
        return made

    statuses = {"/a": Status.RUNNING, "/b": Status.RUNNING, "/c": Status.WAITING, "/d": Status.SKIPPED}
    steps = {name: step(ExecuteStep, status) for name, status in statuses.items()}
    steps["/out-collector"] = step(CWLTransferStep, Status.CANCELLED)
    running = ("/a/0", "/b/0.0", "/b/0.1", "/out-collector/0")
    jobs = {"/c/0": SimpleNamespace(status=Status.COMPLETED)}
    tested = Failure(cast(Any, SimpleNamespace(steps=steps)), cast(Any, jobs))
    jobs |= {name: SimpleNamespace(status=Status.RUNNING) for name in running}
    level = logger.level
    logger.setLevel(logging.INFO)
    yield tested
    logger.setLevel(level)
    for log in (logger, logging.getLogger("asyncio")):
        log.removeFilter(tested)


def record(message: str, level: int = logging.ERROR, path: str = IN_STREAMFLOW, error: Any = None) -> logging.LogRecord:
    information = None if error is None else (type(error), error, None)
    return logging.LogRecord("streamflow", level, path, 1, message, (), information)


def fail(failure: Failure, job: str, error: str, words: LastWords | None = None) -> Status:
    """Fail as StreamFlow does: the last line that it logs before it tells of a job is the reason."""
    failure.filter(record(error))
    return failure.job_failed(job, words)


def test_what_keeps_jobs_from_starting_is_told_once(failure: Failure) -> None:
    """StreamFlow logs the same error of a job several times, and the same for each other job."""
    told = [record("no space", error=error) for error in (*[NeverStartsError("no space")] * 2, None)]
    assert [failure.filter(each) for each in told] == [True, False, False]
    assert told[0].exc_info is None


def test_jobs_that_have_lost_their_last_node_at_once_say_the_same() -> None:
    scheduler = object.__new__(IOAwareScheduler)
    scheduler._never_starts = None
    jobs = [SimpleNamespace(name=name) for name in ("/a/0", "/a/1")]
    errors = [scheduler._noted(job, NoHostsError("no node is left")) for job in jobs]
    assert all(isinstance(error, NeverStartsError) for error in errors)
    assert {str(error).partition(" [")[0] for error in errors} == {"Job /a/0 cannot start: no node is left"}


def test_the_end_of_a_recovery_is_not_that_of_the_run(failure: Failure) -> None:
    end = "FAILED Workflow execution"
    ends = [record(end, path=path) for path in ("/lib/streamflow/core/recovery.py", "/lib/streamflow/main.py")]
    assert [failure.filter(each) for each in ends] == [False, True]


@pytest.mark.parametrize("end", ["FAILED Workflow execution", "\x1b[31;1mFAILED\x1b[0m Workflow execution"])
def test_the_end_says_which_job_failed_first_and_shows_its_standard_error(failure: Failure, end: str) -> None:
    # A reader may be ended before its producer is known to have failed.
    assert fail(failure, "/b/0.0", "CANCELLED Job /b/0.0: job /a/0, from which it reads, has failed") is (
        Status.CANCELLED
    )
    words = LastWords(3, ["no luck", "at all"], "stderr", "no luck\n\tat all")
    assert fail(failure, "/a/0", "FAILED Job /a/0 with error:\n\tno luck\n\tat all\n\t(exit code 3)", words) is (
        Status.FAILED
    )
    fail(failure, "/b/0.1", "FAILED Job /b/0.1 with error:\n\t", LastWords(1, [], "stderr"))
    failure.closing()
    failure.recorded("run")
    last = record(end, error=WorkflowExecutionException(end))
    assert failure.filter(last)
    assert last.exc_info is None
    assert last.getMessage().split("\n") == [
        "FAILED Workflow execution: job /a/0 of step /a has failed (exit code 3); not run: step /c",
        "The last lines of its standard error:",
        "\tno luck",
        "\tat all",
        "More: streamflow-io logs run /a 0",
    ]


def test_the_end_says_why_a_failure_manager_has_given_a_job_up(failure: Failure) -> None:
    for job, error in (("/a/0", "the allocation has ended"), ("/b/0.0", "another error")):
        failure.filter(record(error))
        failure.filter(record(f"Handling NoHostsError failure for job {job}", logging.INFO))
    given_up = "FAILED Job /a/0 3 times. Execution aborted"
    # StreamFlow logs the same of each recovery of the job, which are in each other.
    assert [failure.filter(record(given_up)) for _ in range(2)] == [True, False]
    assert fail(failure, "/a/0", given_up) is Status.FAILED
    failure.closing()
    failure.filter(last := record("FAILED Workflow execution"))
    assert "job /a/0 of step /a has failed (the allocation has ended)" in last.getMessage()


def test_the_last_words_of_a_job_that_a_failure_manager_has_given_up(failure: Failure) -> None:
    """StreamFlow says only how often the job has failed."""
    for words in (LastWords(4, ["at first"], "stderr"), LastWords(3, [], "stderr", full="It is full")):
        failure.filter(record("FAILED Job /a/0 with error:\n\t"))
        failure.filter(record("Handling FailureHandlingException failure for job /a/0", logging.INFO))
        failure.job_is_tried_again("/a/0", words)
    assert fail(failure, "/a/0", "FAILED Job /a/0 2 times. Execution aborted") is Status.FAILED
    failure.closing()
    failure.filter(last := record("FAILED Workflow execution"))
    told = last.getMessage()
    assert "job /a/0 of step /a has failed (exit code 3)" in told
    assert "at first" not in told
    assert told.endswith("It has written nothing to its standard error\nIt is full")


@pytest.mark.parametrize(
    ("error", "words", "told"),
    [
        (
            "FAILED Job /a/0 with error:\n\t",
            LastWords(137, [], "stderr"),
            ["exit code 137, that of SIGKILL: ", "nothing"],
        ),
        (
            "FAILED Job /a/0 with error:\n\tsaid",
            LastWords(2, ["said"], "both", "said"),
            ["exit code 2", "of its output", "said"],
        ),
        (
            "FAILED Job /a/0 with error:\n\t",
            LastWords(1, [], "stderr", full="It is full"),
            ["nothing to its standard error\nIt is full"],
        ),
        # Words of the message itself, and a text on a standard output that no file gets.
        ("FAILED Job /a/0 with error:\n\tout", LastWords(6, ["err"], "stderr", "out"), ["(exit code 6)", "\terr"]),
        ("FAILED Job /a/0 with error:\n\te", LastWords(6, ["e"], "stderr", "e"), ["(exit code 6)", "\te"]),
        (
            "Tried A, but received error x\nTried B, but received error Expected o token of type File, got list.",
            LastWords(0, [], "stderr"),
            ["(the output `o` has to be one File, and the tool has made none, or several)"],
        ),
        (f"Expecting value: line 1\n{JAVASCRIPT}", None, ["(the expression (f())() fails: TypeError: no 'y')"]),
        (f"{JAVASCRIPT.partition('evalmachine')[0]}boom'", None, ["(the expression (f())() fails: boom)"]),
        (
            f"[Errno {errno.ENOSPC}] No space left on device: '/w/it\\'s -> here' -> '/out/o: 1.txt'",
            None,
            [
                "(No space left on device: StreamFlow cannot write /out/o: 1.txt. Remove files ",
                " `--outdir` or `workdir`)",
            ],
        ),
        (f'[Errno {errno.EDQUOT}] Disk quota exceeded: "/o\'s"', None, ["(Disk quota exceeded: ", " write /o's. "]),
        ("a container has ended", LastWords(None, ["a container has ended"], "stderr"), ["(a container has ended)"]),
        ("no output `x`", LastWords(0, ["hm"], "stderr"), ["(no output `x`)", "hm"]),
        ("the expression fails\x1b[2J", None, ["(the expression fails\N{REPLACEMENT CHARACTER}[2J)"]),
    ],
)
def test_why_a_job_has_failed(failure: Failure, error: str, words: LastWords | None, told: list[str]) -> None:
    fail(failure, "/a/0", error, words)
    last = record("FAILED Workflow execution")
    failure.filter(last)
    assert [part for part in told if part not in last.getMessage()] == []


def test_a_code_of_failure_may_be_0(failure: Failure) -> None:
    failure._succeeds = lambda _, code: code != 0
    fail(failure, "/a/0", "FAILED Job /a/0 with error:\n\tbad", LastWords(0, ["bad"], "stderr", "bad"))
    last = record("FAILED Workflow execution")
    failure.filter(last)
    assert "(exit code 0, which the permanentFailCodes of the tool name)" in last.getMessage()


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
    assert failure.filter(record("it cannot be written", path="/lib/streamflow_io/records/writer.py"))


def test_the_stacks_of_jobs_that_are_cancelled_are_not_said(failure: Failure) -> None:
    """Ctrl-C, or the end of a batch job, ends all jobs, and none has failed before."""
    assert not failure.filter(record("", error=asyncio.CancelledError()))


def test_all_is_said_with_debug(failure: Failure) -> None:
    failure.job_failed("/a/0")
    failure.closing()
    logger.setLevel(logging.DEBUG)
    assert failure.filter(record("'NoneType' object has no attribute 'execute'"))


def test_a_run_that_fails_before_any_job_names_its_first_error(failure: Failure) -> None:
    """An expression has failed, so StreamFlow ends the jobs that run. No job has failed first."""
    failure.filter(record(JAVASCRIPT))
    failure._workflow.steps["/c"].status = Status.FAILED
    failure.filter(record("FAILED Step /c"))
    ended = LastWords(143, [], "stderr")
    assert fail(failure, "/a/0", "FAILED Job /a/0 with error:\n\tended by signal 15", ended) is Status.CANCELLED
    failure.closing()
    last = record("FAILED Workflow execution")
    failure.filter(last)
    told = "FAILED Workflow execution: the expression (f())() fails: TypeError: no 'y'; not run: step /c"
    assert last.getMessage() == told
    assert failure.status == "failed"
