"""Jobs under `sfio-node exec` without StreamFlow."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeVar

from streamflow_io.runtime.embedded import EmbeddedRuntime
from streamflow_io.runtime.node_commands import NodeRuntimeError
from streamflow_io.runtime.protocol import JobSpec, ObservationSpec, OutputRule, WatchedOutput

from .model import Sample
from .processes import CommandError
from .processes import run as run_commands

T = TypeVar("T")

WRAPPED_JOBS = 200
_SLEEP_SECONDS = 0.2
_KIBIBYTES_PER_MEBIBYTE = 1024


def with_runtime(directory: Path, action: Callable[[EmbeddedRuntime], Awaitable[T]]) -> T:
    """Do something while a node runtime runs.

    :raises CommandError: if the node runtime cannot be started
    """

    async def run() -> T:
        try:
            runtime = await EmbeddedRuntime.start(directory)
        except NodeRuntimeError as error:
            raise CommandError(str(error)) from None
        try:
            return await action(runtime)
        finally:
            await runtime.close()

    return asyncio.run(run())


def measure_wrapper(directory: Path) -> Sample:
    """Measure the cost of the wrapper of a job with one watched output, whose bursts of writes the wrapper is told.

    :return: `cpu_ms`: the CPU time of `sfio-node exec ... -- true` less that of `true` alone, mean of
        :data:`WRAPPED_JOBS`; `memory_mib`: the greatest resident set of the wrapper of a job that runs for a while
    :raises CommandError: if a command fails
    """
    true, sleep = (_absolute(name) for name in ("true", "sleep"))

    async def measure(runtime: EmbeddedRuntime) -> Sample:
        wrapped = [[*await _wrap(runtime, directory, number), true] for number in range(WRAPPED_JOBS)]
        sleeping = [*await _wrap(runtime, directory, WRAPPED_JOBS), sleep, str(_SLEEP_SECONDS)]
        return await asyncio.to_thread(_measure, [true], wrapped, sleeping)

    return with_runtime(directory, measure)


def measure_phases(directory: Path, are_told: bool) -> Sample:
    """A job that writes again and again, with pauses, under the wrapper.

    :param are_told: in which bursts it writes
    """
    script = "for i in $(seq 40); do head -c 20000000 /dev/zero > out; sleep 0.02; done"

    async def measure(runtime: EmbeddedRuntime) -> Sample:
        spec = JobSpec(name="writer", observation=ObservationSpec(writes=str(directory) if are_told else None))
        command = [*await (await runtime.create_job("writer")).wrap(spec), _absolute("sh"), "-euc", script]
        finished = await asyncio.to_thread(run_commands, [command], directory)
        return Sample(wall=finished.seconds, window=finished.seconds)

    return with_runtime(directory, measure)


def _measure(bare: Sequence[str], wrapped: Sequence[Sequence[str]], sleeping: Sequence[str]) -> Sample:
    start = time.monotonic()
    seconds = sum(_cpu_seconds(command) - _cpu_seconds(bare) for command in wrapped)
    wall = time.monotonic() - start
    further = {"cpu_ms": 1000 * seconds / len(wrapped), "memory_mib": _memory(sleeping)}
    return Sample(wall=wall, window=wall, further=further)


async def _wrap(runtime: EmbeddedRuntime, directory: Path, number: int) -> list[str]:
    root = directory / "jobs" / str(number)
    root.mkdir(parents=True)
    globs = ("*.txt",)
    rule = OutputRule(globs=globs, committed="on_close")
    output = WatchedOutput(port="output", root=str(root), globs=globs, kind="file", rules=(rule,))
    spec = JobSpec(name=str(number), outputs=(output,), observation=ObservationSpec(writes=str(root)))
    return await (await runtime.create_job(str(number))).wrap(spec)


def _absolute(program: str) -> str:
    path = shutil.which(program)
    if path is None:
        raise CommandError(f"{program} is not on the PATH")
    return path


def _cpu_seconds(command: Sequence[str]) -> float:
    """User and system time of a command and of all processes that it waits for."""
    _, status, usage = os.wait4(os.posix_spawn(command[0], list(command), os.environ), 0)
    _check(command, status)
    return usage.ru_utime + usage.ru_stime


def _memory(command: Sequence[str]) -> float:
    """The greatest resident set in MiB, half a sleep after the start.

    Not `ru_maxrss`, which knows that of this process, too, from before the `exec`.
    """
    process = os.posix_spawn(command[0], list(command), os.environ)
    time.sleep(_SLEEP_SECONDS / 2)
    status = Path(f"/proc/{process}/status").read_text(encoding="ascii")
    _check(command, os.waitpid(process, 0)[1])
    line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / _KIBIBYTES_PER_MEBIBYTE


def _check(command: Sequence[str], status: int) -> None:
    if status != 0:
        raise CommandError(f"wait status {status}: {' '.join(command)}")
