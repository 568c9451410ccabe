"""The messages of jobs that are kept: how much, where, and that it is safe to show them."""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
from collections.abc import MutableSequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from streamflow.core.deployment import ExecutionLocation
from streamflow.core.utils import create_command
from streamflow.deployment.connector.local import LocalConnector
from streamflow.deployment.connector.queue_manager import QueueManagerConnector, SlurmConnector

from lab import telemetry
from streamflow_io import _streamflow
from streamflow_io.commands.logs import run as show_logs
from streamflow_io.jobs import job_logs
from streamflow_io.jobs.job_logs import HEAD, MOST_KEPT, TAIL, JobLogs, KeptOutput, bounded, command_text, log_file
from streamflow_io.records.jobs import CommandRecord
from streamflow_io.records.records import Record
from streamflow_io.runtime.allocation.connector import AllocationConnector
from streamflow_io.wording import last_lines

LARGE = bytes(range(256)) * 1000


def logs() -> tuple[JobLogs, list[CommandRecord], dict[str, bytes]]:
    records: list[Record] = []
    files: dict[str, bytes] = {}
    made = JobLogs(cast(Any, None), {}, records.append, files.__setitem__)
    return made, cast(Any, records), files


def ended(code: int | None, job: str = "/a/0") -> CommandRecord:
    return CommandRecord(
        time=2, job=job, step="/a", attempt=1, command="tool", location="here", directory="/d", started=1, code=code
    )


@pytest.mark.parametrize("content", [b"", b"one\n", b"\xff\x00" * 10, LARGE])
def test_the_same_is_read_here_and_at_a_location(tmp_path: Path, content: bytes) -> None:
    here, there = tmp_path / "here", tmp_path / "there's"
    for path in (here, there):
        path.write_bytes(content)
    done = subprocess.run(["sh", "-c", job_logs._ASK, "sh", there, "1"], capture_output=True, check=True, text=True)
    expected = bounded(content)
    assert job_logs._read_here(here, True) == job_logs._parsed(done.stdout) == expected
    assert len(expected.kept) <= HEAD + TAIL
    assert expected.size == len(content)
    assert (expected.cut is None) is (expected.kept == content)
    assert not here.exists()
    assert not there.exists()


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    assert job_logs._read_here(tmp_path / "fifo", False) == KeptOutput()
    done = subprocess.run(
        ["sh", "-c", job_logs._ASK, "sh", tmp_path / "fifo", ""], capture_output=True, text=True, check=False
    )
    assert job_logs._parsed(done.stdout) == KeptOutput()


async def test_a_file_that_cannot_be_read_is_no_error() -> None:
    made, _, _ = logs()
    location = cast(Any, SimpleNamespace(local=True, wraps=None))
    assert await made.read(cast(Any, None), location, "/nowhere/at/all", removes=True) == KeptOutput()


def test_each_attempt_is_kept(tmp_path: Path) -> None:
    made, records, files = logs()
    assert made.command_ended(ended(1), bounded(b"first\n")).lines == ["first"]
    assert made.command_ended(ended(0), bounded(LARGE)).code == 0
    assert [(each.attempt, each.file, each.bytes, each.cut) for each in records] == [
        (1, "jobs/a/0/stderr", 6, None),
        (2, "jobs/a/0/stderr-2", len(LARGE), HEAD),
    ]
    assert files == {"jobs/a/0/stderr": b"first\n", "jobs/a/0/stderr-2": LARGE[:HEAD] + LARGE[-TAIL:]}


def test_of_many_jobs_that_say_much_those_that_fail_are_kept() -> None:
    made, records, files = logs()
    jobs = MOST_KEPT // (HEAD + TAIL) + 3
    for number in range(jobs):
        made.command_ended(ended(0, f"/a/{number}"), bounded(LARGE))
    made.command_ended(ended(1, "/a/failed"), bounded(LARGE))
    assert sum(map(len, files.values())) <= MOST_KEPT + HEAD + TAIL
    assert records[jobs - 1].file is None
    assert records[jobs - 1].bytes == len(LARGE)
    assert records[jobs].file in files


@pytest.mark.parametrize("job", ["/a/../../0", "/a/./0", f"/{'ä' * 200}/0", "/a\nb/0", "//0"])
def test_a_file_is_below_the_directory_whatever_a_step_is_called(job: str) -> None:
    parts = log_file(job, 1).split("/")
    assert not {"", ".", ".."} & set(parts)
    assert all(len(part.encode()) < 256 and part.isprintable() for part in parts)
    assert log_file(f"{job}1", 1) != log_file(job, 1)


def test_a_command_is_shown_as_it_was_written() -> None:
    hidden = '"$(echo bHMgfCB3Yw== | base64 -d)"'
    assert command_text(["/bin/sh", "-c", hidden], "in", "the out", None) == "/bin/sh -c \"ls | wc\" < in > 'the out'"
    assert len(command_text(["x" * 100_000], None, None, None)) < 20_000


def test_what_a_terminal_would_obey_is_not_shown() -> None:
    said = "\x1b[31mred\x1b[0m \x1b]0;title\x07text\x1b[2J\n10%\r20%\r100%\r\n\x9bbell\x07\n\n"
    assert last_lines(said) == ["red text", "100%", "\N{REPLACEMENT CHARACTER}bell\N{REPLACEMENT CHARACTER}"]
    assert last_lines("\n".join(map(str, range(100)))) == [str(number) for number in range(80, 100)]
    assert len(last_lines("x" * 10_000)[0]) < 600
    assert last_lines(" \n") == []


@pytest.mark.parametrize(("stderr", "same"), [("err.txt", False), ("out.txt", True)])
async def test_a_queue_manager_keeps_standard_error_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stderr: str, same: bool
) -> None:
    """StreamFlow submits a command that ends with `2>&1`, and names only the files of the job to the queue manager."""
    given: dict[str, Any] = {}

    async def submit(self: Any, location: Any, command: list[str], **options: Any) -> tuple[str, int]:
        given.update(options, command=command)
        return "", 0

    monkeypatch.setattr(_streamflow, "_run_queued", submit)
    monkeypatch.setattr(QueueManagerConnector, "run", QueueManagerConnector.run)
    _streamflow.mend_queue_managers()
    queue = cast(Any, SimpleNamespace(_run_batch_command=None))
    words = ["sh", "-c", "'echo data; echo progress >&2'"]
    job = {"workdir": str(tmp_path), "stdout": "out.txt", "stderr": stderr, "job_name": "/a/0"}
    await QueueManagerConnector.run(queue, cast(Any, None), words, **cast(Any, job))
    assert given["stderr"] == given["stdout"] == "out.txt"
    script = create_command("", given["command"], None, str(tmp_path))
    assert script.endswith(" 2>&1")
    with (tmp_path / "out.txt").open("w") as out:
        await asyncio.to_thread(subprocess.run, ["sh", "-c", script], stdout=out, stderr=out, check=True)
    assert (tmp_path / "out.txt").read_text() == ("data\nprogress\n" if same else "data\n")
    assert same or (tmp_path / "err.txt").read_text() == "progress\n"


class Queue(SlurmConnector):  # type: ignore[misc]
    """A queue manager that takes jobs, and that runs none."""

    def __init__(self, directory: Path) -> None:
        super().__init__("queue", str(directory), LocalConnector("local", str(directory)), None)
        self.submitting, self.answers = asyncio.Event(), asyncio.Event()
        self.removed: list[tuple[ExecutionLocation, list[str]]] = []

    async def _run_batch_command(self, **options: Any) -> str:
        self.submitting.set()
        await self.answers.wait()
        return "7"

    async def _get_running_jobs(self, location: ExecutionLocation) -> list[str]:
        return ["7"]

    async def _remove_jobs(self, location: ExecutionLocation, jobs: MutableSequence[str]) -> None:
        self.removed.append((location, list(jobs)))


@pytest.mark.parametrize("is_cancelled", [True, False])
async def test_a_job_that_was_submitted_at_the_end_of_a_run_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_cancelled: bool
) -> None:
    """A queue manager has the job before the answer arrives."""
    monkeypatch.setattr(QueueManagerConnector, "run", QueueManagerConnector.run)
    _streamflow.mend_queue_managers()
    queue, location = Queue(tmp_path), ExecutionLocation("queue", "queue")
    running = asyncio.create_task(queue.run(location, ["true"], job_name="/a/0"))
    await queue.submitting.wait()
    if is_cancelled:
        running.cancel()
    removing = asyncio.create_task(_streamflow.remove_jobs(queue))
    await asyncio.sleep(0)
    queue.answers.set()
    await removing
    assert queue.removed == [(location, ["7"])]
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_no_job_is_submitted_after_the_jobs_of_a_run_were_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """StreamFlow ends no jobs of its own when a run is interrupted: a job may be about to be submitted."""
    monkeypatch.setattr(QueueManagerConnector, "run", QueueManagerConnector.run)
    _streamflow.mend_queue_managers()
    queue, location = Queue(tmp_path), ExecutionLocation("queue", "queue")
    queue._scheduled_jobs["6"] = location
    removing = asyncio.create_task(_streamflow.remove_jobs(queue))
    await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await queue.run(location, ["true"], job_name="/a/0")
    assert not queue.submitting.is_set()
    await removing
    assert queue.removed == [(location, ["6"])]


async def test_a_submission_that_does_not_answer_leaves_no_other_job(tmp_path: Path) -> None:
    queue, location = Queue(tmp_path), ExecutionLocation("queue", "queue")
    queue._scheduled_jobs["6"] = location
    submission = asyncio.create_task(_streamflow._submit(queue, queue._run_batch_command, location=location))
    await queue.submitting.wait()
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(_streamflow.remove_jobs(queue), 0.01)
    assert queue.removed == [(location, ["6"])]
    queue.answers.set()
    assert await submission == "7", "it goes on"


_NO_ANSWER = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"
# Each tells what it says when it is called for the first time, the second time, and so on.
_SLURM = {
    "sbatch": ["echo 7"],
    "squeue": [f"echo '{_NO_ANSWER}' >&2; exit 1", "echo 7", f"echo '{_NO_ANSWER}' >&2; exit 1", ""],
    "scontrol": [f"echo '{_NO_ANSWER}' >&2; exit 1", "echo JobId=7 ExitCode=3:0 StdOut=/dev/null"],
}


def write_slurm(directory: Path, **commands: list[str]) -> None:
    for name, calls in {**_SLURM, **commands}.items():
        cases = "".join(f"{number}) {script} ;;\n" for number, script in enumerate(calls, 1))
        (directory / name).write_text(
            f"#!/bin/sh\necho >> {directory}/{name}.calls\ncase $(wc -l < {directory}/{name}.calls) in\n{cases}esac\n"
        )
        (directory / name).chmod(0o755)


@pytest.mark.parametrize("is_forgotten", [False, True])
async def test_slurm_that_does_not_answer_ends_no_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_forgotten: bool
) -> None:
    """The job runs when `squeue` fails for the first time, and has ended when `scontrol` fails."""
    monkeypatch.setattr(QueueManagerConnector, "run", QueueManagerConnector.run)
    monkeypatch.setattr(_streamflow, "_LOOK_SECONDS", 0.0)
    _streamflow.mend_queue_managers()
    forgotten = ["echo slurm_load_jobs error: Invalid job id specified >&2; exit 1"]
    write_slurm(tmp_path, **({"squeue": forgotten} if is_forgotten else {}))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    connector, location = LocalConnector("local", str(tmp_path)), ExecutionLocation("local", "local", local=True)
    queue = SlurmConnector("queue", str(tmp_path), connector, None, pollingInterval=0.01)
    slurm = ExecutionLocation("slurmctld", "queue", wraps=location)
    said = await queue.run(slurm, ["true"], job_name="/a/0", stdout="/dev/null", stderr="/dev/null")
    assert said == (None, 3)
    calls = {name: len((tmp_path / f"{name}.calls").read_text()) for name in _SLURM}
    assert calls == {"sbatch": 1, "squeue": 1 if is_forgotten else 4, "scontrol": 2}


def test_a_job_that_runs_again_has_not_failed(tmp_path: Path) -> None:
    first, again = (telemetry.job("/a/0", begin, begin, begin + 1, status="failed") for begin in (0, 1))
    for records, status in ((first, "failed"), ([*first, *again[:3]], None)):
        file = telemetry.write(tmp_path / "telemetry.jsonl", [next(telemetry.saving_run()), *records])
        (shown,) = show_logs(argparse.Namespace(run=str(file), job=[], list=False)).jobs
        assert shown.status == status


async def test_the_driver_reads_what_it_sees_itself(tmp_path: Path) -> None:
    """No process runs on the node. Where the driver does not see the file, the node reads it."""
    nodes, asked = AllocationConnector("nodes", "/"), list[str]()

    async def ask(**options: Any) -> tuple[str, int]:
        asked.append(" ".join(options["command"]))
        done = await asyncio.create_subprocess_exec("sh", "-c", asked[-1], stdout=asyncio.subprocess.PIPE)
        return (await done.communicate())[0].decode(), 0

    context = SimpleNamespace(
        deployment_manager=SimpleNamespace(get_connector=lambda _: nodes),
        data_manager=SimpleNamespace(get_data_locations=lambda **_: []),
    )
    made = JobLogs(cast(Any, context), {}, lambda _: None, lambda *_: None)
    node, connector = ExecutionLocation("n1", "nodes"), cast(Any, SimpleNamespace(run=ask))
    for number, is_asked in enumerate((True, False)):
        (file := tmp_path / f"{number}.err").write_text("said\n")
        assert await made.read(connector, node, str(file), removes=True) == KeptOutput(b"said\n", 5)
        assert bool(asked) is is_asked
        assert not file.exists()
        asked.clear()
        # From now on the driver and the node share the directory.
        assert await nodes._files.answer("n1", f"mkdir -m 777 {tmp_path}/{number}", _shell) == ("", 0)


async def _shell(script: str) -> tuple[str, int]:
    done = await asyncio.create_subprocess_exec("sh", "-c", script, stdout=asyncio.subprocess.PIPE)
    return (await done.communicate())[0].decode().strip(), await done.wait()
