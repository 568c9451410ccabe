"""Keeps the standard error of each command of a job, and how the command ended, in the record of the run."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import os
import posixpath
import re
import shlex
import stat
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import cast

from msgspec import Struct
from msgspec.structs import replace
from streamflow.core.context import StreamFlowContext
from streamflow.core.deployment import Connector, ExecutionLocation
from streamflow.core.workflow import Step
from streamflow.cwl.command import CWLCommand
from streamflow.data.remotepath import RemoteStreamFlowPath, StreamFlowPath
from streamflow.log_handler import logger
from streamflow.workflow.step import ExecuteStep

from streamflow_io._streamflow import carried_out_here, is_separate_standard_error
from streamflow_io.adapters.connector import CommandConnector, CommandOptions
from streamflow_io.adapters.jobs import JobState
from streamflow_io.adapters.paths import innermost
from streamflow_io.records.jobs import CommandRecord
from streamflow_io.records.records import Record
from streamflow_io.records.runs import LOGS_DIRECTORY
from streamflow_io.runtime.locations import node_name
from streamflow_io.wording import last_lines

from .full_disks import told_if_full

#: Bytes. Of a longer output than both together, only the beginning and the end are kept.
HEAD, TAIL = 16384, 49152
#: Bytes that a run keeps. Beyond that, only the outputs of jobs that fail are kept.
MOST_KEPT = 64_000_000
_LONGEST_COMMAND = 16384
_LONGEST_NAME = 150
# How StreamFlow hides a command from the shell that starts it.
_HIDDEN = re.compile(r"\$\(echo ([A-Za-z0-9+/=]*) \| base64 -d\)")

_ASK_SECONDS = 30.0
_ASK = f"""if test -f "$1" && test -s "$1"; then
size=$(wc -c < "$1"); echo $size
if test "$size" -le {HEAD + TAIL}; then base64 < "$1"
else (head -c {HEAD} "$1"; tail -c {TAIL} "$1") | base64
fi; fi
test -z "$2" || rm -f "$1" """


class LastWords(Struct, frozen=True):
    """How the last command of a job has ended. The job keeps it, from its first command on.

    :ivar code: its exit code; None: unknown
    :ivar lines: the last lines that it has written, safe for a terminal
    :ivar stream: as in :class:`CommandRecord`
    :ivar printed: the text that StreamFlow shows for a failed command
    :ivar full: a sentence about its file system, if that is full; empty otherwise
    """

    code: int | None
    lines: list[str]
    stream: str
    printed: str = ""
    full: str = ""


class JobLogs:
    """Keeps the output of jobs when their commands end, and makes space where one has failed on a full disk.

    No job waits for that, or fails because of it.

    :param steps: by name
    :param keep: keeps a file in the directory of the run, by its relative path
    :param make_space: removes files that no job needs; None: the run removes no files
    """

    def __init__(
        self,
        context: StreamFlowContext,
        steps: Mapping[str, Step],
        record: Callable[[Record], None],
        keep: Callable[[str, bytes], None],
        make_space: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._context = context
        self._steps = steps
        self._record = record
        self._keep = keep
        self.make_space = make_space
        self._attempts: Counter[str] = Counter()
        self._kept = 0

    def connector(self, job: JobState, inner: Connector) -> Connector:
        """Return the connector for the command of a job."""
        return _LoggedConnector(self, job, inner)

    def is_success(self, step_name: str, code: int | None) -> bool:
        """Whether a command of a step succeeds with an exit code, as far as CWL says."""
        step = self._steps.get(step_name)
        command = step.command if isinstance(step, ExecuteStep) else None
        if isinstance(command, CWLCommand) and code in (command.failure_codes or ()):
            return False
        return code == 0 or (isinstance(command, CWLCommand) and code in (command.success_codes or ()))

    def command_ended(self, record: CommandRecord, output: KeptOutput) -> LastWords:
        """Keep the output of the command of a job."""
        self._attempts[record.job] += 1
        attempt, is_well = self._attempts[record.job], self.is_success(record.step, record.code)
        file = None
        if output.kept and (not is_well or self._kept + len(output.kept) <= MOST_KEPT):
            self._kept += len(output.kept)
            file = log_file(record.job, attempt)
            self._keep(file, output.kept)
        cut = None if file is None else output.cut
        self._record(replace(record, attempt=attempt, file=file, bytes=output.size, cut=cut))
        # Only the last lines are kept in memory.
        lines = last_lines(output.kept[-TAIL:].decode(errors="replace"))
        return LastWords(record.code, lines, record.stream)

    def on_node(self, location: ExecutionLocation, path: str) -> str:
        """Return a path at a location as the node has it: a container is gone after the run. Raises nothing."""
        try:
            return str(innermost(StreamFlowPath(path, context=self._context, location=location)))
        except Exception as error:
            # A connector may raise anything: the job goes on all the same.
            logger.debug(f"No path on a node is known for {path} at {location}: {error}")
            return path

    async def read(self, connector: Connector, location: ExecutionLocation, path: str, *, removes: bool) -> KeptOutput:
        """Return the content of a file at a location: all of it, or its beginning and its end. Raises nothing."""
        try:
            found = innermost(StreamFlowPath(path, context=self._context, location=location))
            if isinstance(found, RemoteStreamFlowPath):
                # A process on a node takes longer than a look at a file that the driver sees.
                read = partial(_read_here, Path(path), removes)
                if (output := await carried_out_here(self._context, location, path, read)) is not None:
                    return output
                words = ["sh", "-c", shlex.quote(_ASK), "sh", shlex.quote(path), "1" if removes else "''"]
                asked = connector.run(location=location, command=words, capture_output=True)
                said, _ = await asyncio.wait_for(asked, _ASK_SECONDS) or ("", 0)
                return _parsed(said)
            # Without a thread: to change threads takes longer than to read so few bytes, and every job waits for this.
            return _read_here(Path(found), removes)
        except Exception as error:
            # A connector may raise anything: the job has ended all the same.
            logger.debug(f"What a job has written to {path} cannot be read: {error}")
            return KeptOutput()


class _LoggedConnector(CommandConnector):
    """Runs the command of one job through another connector, and keeps how the command ends."""

    def __init__(self, logs: JobLogs, job: JobState, inner: Connector) -> None:
        super().__init__(inner, job.name)
        self._logs = logs
        self._state = job

    async def run_of_job(self, options: CommandOptions) -> tuple[str, int] | None:
        location, workdir = options["location"], options["workdir"]
        stdin, stdout, stderr = options["stdin"], options["stdout"], options["stderr"]
        is_ours = is_separate_standard_error(stderr)
        names = [name if isinstance(name, str) else None for name in (stdin, stdout, None if is_ours else stderr)]
        on_node = None if workdir is None else self._logs.on_node(location, workdir)
        record = CommandRecord(
            time=0,
            job=self._state.name,
            step=self._state.step,
            attempt=1,
            command=command_text(list(options["command"]), names[0], names[1], names[2]),
            location=node_name(location),
            directory=on_node,
            started=time.time(),
            stream="both" if stderr == stdout else "stderr",
        )
        said, code = "", None
        try:
            result = await self.run_plainly(options)
            said, code = result or ("", None)
        except asyncio.CancelledError:
            # At another location, nothing would wait for the removal of the file.
            if is_ours and location.local:
                with contextlib.suppress(OSError):
                    os.unlink(cast(str, stderr))
            raise
        except Exception as error:
            await self._ended(record, location, bounded(str(error).encode()), None, (workdir, stderr, is_ours))
            raise
        # With a `stdout`, the text comes from the shell, or from the program that runs the job.
        printed = "" if isinstance(stderr, str) and not isinstance(stdout, str) else said or ""
        output = bounded(printed.encode(errors="replace"))
        words = await self._ended(record, location, output, code, (workdir, stderr, is_ours))
        if code is not None and not self._logs.is_success(self._state.step, code):
            said = "\n\t".join(last_lines(said or "") or words.lines)
            full = ""
            if workdir is not None and on_node is not None:
                full = await told_if_full(self.connector, location, workdir, on_node)
            if full and self._logs.make_space is not None:
                await self._logs.make_space()
            self._state.keep(replace(words, printed=said, full=full))
        return None if result is None else (said, cast(int, code))

    async def _ended(
        self,
        record: CommandRecord,
        location: ExecutionLocation,
        printed: KeptOutput,
        code: int | None,
        to: tuple[str | None, int | str, bool],
    ) -> LastWords:
        """Keep how a command has ended.

        :param printed: what is kept if the standard error has no file, or the file is empty
        :param to: the directory of the command, the file of its standard error, and whether the plugin has added that
            file
        """
        workdir, stderr, is_ours = to
        output = printed
        if isinstance(stderr, str):
            path = posixpath.join(workdir or "", stderr)
            written = await self._logs.read(self.connector, location, path, removes=is_ours)
            output = written if written.size else printed
        words = self._logs.command_ended(replace(record, time=time.time(), code=code), output)
        self._state.keep(words)
        return words


def _read_here(path: Path, removes: bool) -> KeptOutput:
    """Return the content of a file on the driver's node; empty if it is no regular file.

    :raises OSError: if the file cannot be read
    """
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                return KeptOutput()
            if found.st_size <= HEAD + TAIL:
                content = file.read(HEAD + TAIL)
                return KeptOutput(content, len(content))
            head = file.read(HEAD)
            file.seek(found.st_size - TAIL)
            return KeptOutput(head + file.read(TAIL), found.st_size)
    finally:
        if removes:
            path.unlink(missing_ok=True)


def _parsed(said: str) -> KeptOutput:
    """Return the content of a file, from what :data:`_ASK` has printed.

    :raises ValueError: if the text has another form
    """
    size, _, text = said.strip().partition("\n")
    return KeptOutput(base64.b64decode("".join(text.split())), int(size)) if size else KeptOutput()


class KeptOutput(Struct, frozen=True):
    """The output of a command.

    :ivar kept: all of it, or its first :data:`HEAD` and its last :data:`TAIL` bytes
    :ivar size: bytes of the whole output
    """

    kept: bytes = b""
    size: int = 0

    @property
    def cut(self) -> int | None:
        """The number of bytes kept of the beginning; None: all bytes are kept."""
        return HEAD if self.size > len(self.kept) else None


def bounded(content: bytes) -> KeptOutput:
    """The output of a command, reduced to what may be kept."""
    size = len(content)
    return KeptOutput(content if size <= HEAD + TAIL else content[:HEAD] + content[-TAIL:], size)


def log_file(job: str, attempt: int) -> str:
    """The file with the standard error of an attempt, relative to the directory of the run.

    :param job: as `/step/0.1`
    """
    parts = [_file_name(part) for part in job.split("/") if part]
    return "/".join((LOGS_DIRECTORY, *parts, "stderr" if attempt == 1 else f"stderr-{attempt}"))


def command_text(words: list[str], stdin: str | None, stdout: str | None, stderr: str | None) -> str:
    """A command line as people read it, with its redirections.

    :param words: as StreamFlow gives them to a shell
    """
    text = _HIDDEN.sub(_shown, " ".join(words))
    for sign, path in (("<", stdin), (">", stdout), ("2>", stderr)):
        text += "" if path is None else f" {sign} {shlex.quote(path)}"
    return text if len(text) <= _LONGEST_COMMAND else f"{text[:_LONGEST_COMMAND]}..."


def _shown(hidden: re.Match[str]) -> str:
    return base64.b64decode(hidden[1]).decode(errors="replace")


def _file_name(name: str) -> str:
    made = re.sub(r"[\x00-\x1f\x7f]", "_", name)
    if made == name and name not in (".", "..") and len(name.encode(errors="replace")) <= _LONGEST_NAME:
        return name
    digest = hashlib.sha256(name.encode(errors="surrogateescape")).hexdigest()[:12]
    return f"{made[:30].replace('.', '_')}-{digest}"
