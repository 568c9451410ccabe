"""Running commands: timed, with a time limit, and with nothing left behind."""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

TIME_LIMIT = 600.0
_STOP_SECONDS = 20.0
_LOOK_SECONDS = 0.1
_MESSAGE_LINES = 20


class CommandError(Exception):
    """A command failed, or did not end in time; the message has the last lines of its output."""


@dataclass(frozen=True)
class Used:
    """The resources that one process has used.

    :ivar cpu_seconds: user and system time, without those of its children
    :ivar peak_kb: the most memory that was resident at a time, in kB, as last seen before its end
    """

    cpu_seconds: float
    peak_kb: float


@dataclass(frozen=True)
class Finished:
    """A command, or several at once, that succeeded.

    :ivar seconds: from the first start to the last end
    :ivar cpu_seconds: user and system time of the commands and of all processes that were waited for
    :ivar errors: what they wrote to standard error
    :ivar first: what the first command has used
    """

    seconds: float
    cpu_seconds: float
    errors: str
    first: Used


def run(
    commands: Sequence[Sequence[str]],
    directory: Path,
    environment: Mapping[str, str] | None = None,
    time_limit: float | None = None,
) -> Finished:
    """Run commands at the same time; their standard output goes to `output.N` in the directory.

    Guarantee: when this returns or raises, the commands and the processes of their sessions have ended.

    :param environment: added to the environment
    :param time_limit: seconds; none: :data:`TIME_LIMIT`
    :raises CommandError: if one fails, or after the time limit
    """
    time_limit = TIME_LIMIT if time_limit is None else time_limit
    processes: list[subprocess.Popen[bytes]] = []
    logs = [directory / f"errors.{index}" for index in range(len(commands))]
    start, cpu_start = time.monotonic(), _cpu_seconds()
    try:
        for index, command in enumerate(commands):
            with logs[index].open("wb") as errors, (directory / f"output.{index}").open("wb") as output:
                processes.append(
                    subprocess.Popen(
                        command, cwd=directory, env={**_environment(), **(environment or {})},
                        stdin=subprocess.DEVNULL, stdout=output, stderr=errors, start_new_session=True,
                    )
                )  # fmt: skip
        used = [_wait(process, start + time_limit) for process in processes]
        seconds = time.monotonic() - start
    except subprocess.TimeoutExpired:
        raise CommandError(f"does not end in {time_limit:.0f} s: {_line(processes[0].args)}") from None
    finally:
        for process in processes:
            _stop(process)
    texts = [log.read_text(errors="replace") for log in logs]
    for process, text in zip(processes, texts, strict=True):
        if process.returncode != 0:
            tail = "\n".join(text.splitlines()[-_MESSAGE_LINES:])
            raise CommandError(f"exit code {process.returncode}: {_line(process.args)}\n{tail}")
    return Finished(seconds, _cpu_seconds() - cpu_start, "".join(texts), used[0])


def _wait(process: subprocess.Popen[bytes], deadline: float) -> Used:
    # With a time limit, `Popen.wait` only looks every 50 ms.
    descriptor = os.pidfd_open(process.pid)
    try:
        ended = select.poll()
        ended.register(descriptor, select.POLLIN)
        # The kernel's figure at the end, `ru_maxrss`, is never less than what this process holds.
        peak_kb = _peak_kb(process.pid)
        while not ended.poll(1000 * min(_LOOK_SECONDS, max(0.0, deadline - time.monotonic()))):
            peak_kb = max(peak_kb, _peak_kb(process.pid))
            if time.monotonic() >= deadline:
                break
    finally:
        os.close(descriptor)
    # The CPU time of a process alone can be read until the process is waited for.
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    if fields[0] != "Z":
        raise subprocess.TimeoutExpired(process.args, max(0.0, deadline - time.monotonic()))
    _, status = os.waitpid(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    ticks = int(fields[11]) + int(fields[12])
    return Used(ticks / os.sysconf("SC_CLK_TCK"), peak_kb)


def _peak_kb(process: int) -> float:
    """The most memory that a process has held so far, in kB; 0: it has ended."""
    lines = Path(f"/proc/{process}/status").read_text(errors="replace").splitlines()
    return next((float(line.split()[1]) for line in lines if line.startswith("VmHWM:")), 0.0)


def _environment() -> dict[str, str]:
    # What is installed is compiled already; without this, only what is run from a clone would be compiled in each run.
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _line(arguments: object) -> str:
    words = [str(word) for word in arguments] if isinstance(arguments, Sequence) else [str(arguments)]
    return " ".join(words)[:500]


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End a process that still runs as Ctrl-C would, so that it can clean up; then whatever is left of its session."""
    if process.poll() is None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            os.killpg(process.pid, signal.SIGINT)
            process.wait(_STOP_SECONDS)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
