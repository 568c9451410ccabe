"""`streamflow-io logs`: the output of the jobs of a run, and how their commands ended."""

from __future__ import annotations

import argparse
import difflib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, field, to_builtins
from rich.console import Console

from streamflow_io.hints.errors import HintErrors
from streamflow_io.records.files import StreamedRecord
from streamflow_io.records.jobs import CommandRecord, EndedRecord, JobRecord, SubmittedRecord
from streamflow_io.records.learned.database import date_of
from streamflow_io.records.reader import read_records
from streamflow_io.records.runs import LAST, find_run, run_label
from streamflow_io.wording import counted, first_of, last_lines, size_text

from .console import say, table

# Up to this many jobs are shown whole. Of more jobs, those that failed are shown.
_SHOWN = 10


class JobLog(Struct):
    """The facts of a job.

    :ivar status: how the job ended. None: no end was recorded
    :ivar commands: the commands, one for each attempt
    :ivar read: byte streams that the job has read
    :ivar written: byte streams that other jobs have read from the job
    """

    job: str
    step: str
    status: str | None = None
    commands: list[CommandRecord] = field(default_factory=list)
    read: list[StreamedRecord] = field(default_factory=list)
    written: list[StreamedRecord] = field(default_factory=list)

    @property
    def tag(self) -> str:
        return self.job.rpartition("/")[2]

    @property
    def code(self) -> int | None:
        return self.commands[-1].code if self.commands else None


class Logs(Struct, frozen=True):
    """The result of the command.

    :ivar directory: the directory of the run
    :ivar jobs: the chosen jobs, in the order in which they were submitted
    :ivar is_list: show only how the jobs ended
    """

    run: str
    directory: Path
    jobs: Sequence[JobLog]
    is_list: bool
    ok = True

    def to_json(self) -> dict[str, Any]:
        return {"run": self.run, "jobs": [self._job_json(job) for job in self.jobs]}

    def _job_json(self, job: JobLog) -> dict[str, Any]:
        told: dict[str, Any] = {"job": job.job, "step": job.step, "tag": job.tag, "status": job.status}
        told |= {"code": job.code, "attempts": []}
        for command in job.commands:
            attempt = to_builtins(command)
            for name in ("event", "job", "step"):
                del attempt[name]
            if not self.is_list:
                attempt["text"] = _text(self.directory, command)
            told["attempts"].append(attempt)
        for name, streams in (("read", job.read), ("written", job.written)):
            told[name] = [
                {"source": one.source, "outputs": one.outputs, "job": one.job, "input": one.input, "bytes": one.bytes}
                for one in streams
            ]
        return told

    def show(self, console: Console) -> None:
        if not self.jobs:
            say(console, f"No job of {self.run} has been submitted")
        elif self.is_list:
            self._show_list(console)
        else:
            chosen = list(self.jobs)
            if len(chosen) > _SHOWN:
                chosen = ([job for job in chosen if job.status == "failed"] or chosen)[:_SHOWN]
            for job in chosen:
                self._show_job(console, job)
            if more := len(self.jobs) - len(chosen):
                of = f"{self.run} {self.jobs[0].step}"
                say(console, f"{counted(more, 'more job')}: streamflow-io logs {of} --list, or {of} TAG")

    def _show_list(self, console: Console) -> None:
        rows = (
            (
                f"{job.step} {job.tag}",
                job.status or "",
                # The command of a cancelled job was ended, and has no code of its own.
                "" if job.code is None or job.status == "cancelled" else str(job.code),
                str(len(job.commands)) if len(job.commands) > 1 else "",
                size_text(job.commands[-1].bytes) if job.commands else "",
            )
            for job in self.jobs
        )
        columns = ("job", "status", "exit code", "attempts", "said")
        numbers = ("exit code", "attempts", "said")
        console.print(table(None, columns, rows, numbers=numbers, unfolded=columns))
        say(console, f"The output of one job: streamflow-io logs {self.run} STEP TAG")

    def _show_job(self, console: Console, job: JobLog) -> None:
        say(console, f"{job.step} {job.tag}: {job.status or 'has not ended'}", "bold")
        if not job.commands:
            say(console, "  no command of the job has ended")
        for command in job.commands:
            how = "exit code not known" if command.code is None else f"exit code {command.code}"
            if job.status == "cancelled" and command is job.commands[-1]:
                how = "ended with the run"
            again = "" if len(job.commands) == 1 else f"attempt {command.attempt}: "
            seconds = f"{max(0.0, command.time - command.started):,.1f} s"
            say(console, f"  {again}{how} after {seconds}, from {date_of(command.started)}, on {command.location}")
            say(console, f"  in {command.directory}")
            say(console, f"  {command.command}")
            for line in self._lines(command):
                say(console, f"    {line}")
        for stream in job.read:
            of = " or ".join(stream.outputs)
            say(console, f"  read {of} as a byte stream: {counted(stream.bytes, 'byte')}, of {stream.source}")
        for stream in job.written:
            of = " or ".join(stream.outputs)
            say(console, f"  wrote {of} as a byte stream: {counted(stream.bytes, 'byte')}, for {stream.job}")

    def _lines(self, command: CommandRecord) -> Iterator[str]:
        what = "standard error" if command.stream == "stderr" else "standard output and standard error"
        if not command.bytes:
            yield f"nothing on its {what}"
            return
        text = _text(self.directory, command)
        if text is None:
            yield f"({counted(command.bytes, 'byte')} on its {what}, which are not kept)"
            return
        parts = [text] if isinstance(text, str) else text
        for number, part in enumerate(parts):
            if number:
                yield f"... {counted(command.bytes - self._kept(command), 'byte')} are left out ..."
            yield from last_lines(part, len(part))

    def _kept(self, command: CommandRecord) -> int:
        return (self.directory / str(command.file)).stat().st_size


def _text(directory: Path, command: CommandRecord) -> str | list[str] | None:
    """Return the output of a command: all of it, or its beginning and its end. None: the output is not kept."""
    if command.file is None:
        return None if command.bytes else ""
    try:
        content = (directory / command.file).read_bytes()
    except OSError:
        return None
    if command.cut is None:
        return content.decode(errors="replace")
    return [part.decode(errors="replace") for part in (content[: command.cut], content[command.cut :])]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run",
        metavar="RUN",
        nargs="?",
        default=LAST,
        help="the name of a run, `last` (default), or the path of telemetry",
    )
    parser.add_argument(
        "job",
        metavar="JOB",
        nargs="*",
        help="a step, as /align, or one of its jobs, as /align 0.1 or /align/0.1 (default: all jobs, as a list)",
    )
    parser.add_argument("--list", action="store_true", help="show only how the jobs ended, without their output")


def run(arguments: argparse.Namespace) -> Logs:
    """Show the logs of jobs.

    :raises HintErrors: if there is no such run, step or job
    """
    file = find_run(arguments.run)
    jobs = _read(file)
    if len(arguments.job) > 2:
        raise HintErrors.one(run_label(file), "JOB", "there are too many words", "a step, and a tag of its jobs")
    chosen = _chosen(run_label(file), jobs, arguments.job) if arguments.job else jobs
    return Logs(run_label(file), file.parent, chosen, arguments.list or not arguments.job)


def _read(file: Path) -> list[JobLog]:
    jobs: dict[str, JobLog] = {}
    streams: defaultdict[str, list[StreamedRecord]] = defaultdict(list)
    for record in read_records(file):
        if not isinstance(record, JobRecord):
            continue
        job = jobs.setdefault(record.job, JobLog(record.job, record.step))
        if isinstance(record, CommandRecord):
            job.commands.append(record)
        elif isinstance(record, SubmittedRecord):
            # The job runs again.
            job.status = None
        elif isinstance(record, EndedRecord):
            job.status = record.status
        elif isinstance(record, StreamedRecord):
            job.read.append(record)
            streams[record.source or ""].append(record)
    for name, written in streams.items():
        if name in jobs:
            jobs[name].written = written
    return list(jobs.values())


def _chosen(run: str, jobs: Sequence[JobLog], words: Sequence[str]) -> list[JobLog]:
    """Return the jobs that the words of the command line choose.

    :raises HintErrors: if there is no such job
    """
    step = "/" + words[0].strip("/")
    found = [job for job in jobs if job.step == step]
    if len(words) == 1 and not found:
        found = [job for job in jobs if job.job == step]
    if not found:
        steps = list(dict.fromkeys(job.step for job in jobs))
        near = difflib.get_close_matches(step, steps, n=3, cutoff=0.4) or steps[:5]
        allowed = ", ".join(near) or "a step of the run"
        raise HintErrors.one(run, "JOB", f"there is no job of a step {words[0]}", allowed)
    if len(words) == 2:
        tags = [job.tag for job in found]
        found = [job for job in found if job.tag == words[1]]
        if not found:
            raise HintErrors.one(run, "JOB", f"{step} has no job {words[1]}", first_of(tags, 5))
    return found
