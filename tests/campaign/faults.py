"""Brings about the fault of a trial in a run."""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
from collections.abc import Callable
from pathlib import Path

from .cases import Case
from .disk import fill
from .processes import Process, of_run


def strike(case: Case, driver: subprocess.Popen[str], temporary: Path) -> str | None:
    """Wait for the moment of a trial and do its damage.

    :param temporary: the run's directory for temporary files
    :return: what was done, for people; None: the run, or what the fault is about, had ended before
    """

    def jobs_run() -> bool:
        return any(process.is_exec or process.roles for process in of_run(temporary))

    if not case.early and not _wait(jobs_run, driver):
        return None
    with contextlib.suppress(subprocess.TimeoutExpired):
        driver.wait(case.delay)
    if case.fault.victim == "disk":
        return _fill(temporary, case.relief, driver)
    found: list[Process] = []

    def candidates() -> bool:
        found[:] = _victims(case, driver, of_run(temporary))
        return bool(found)

    while _wait(candidates, driver):
        victim = found[int(case.pick * len(found))]
        with contextlib.suppress(ProcessLookupError):
            if case.fault.kind == "limit":
                # Of `exec`, only the events grow.
                limit = case.limit // 30 if victim.is_exec else case.limit
                resource.prlimit(victim.pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
                return f"file size limit {limit} for {_describe(victim)}"
            os.kill(victim.pid, case.fault.signal)
            return f"{case.fault.signal.name} to {_describe(victim)}"
    return None


def _describe(process: Process) -> str:
    program = os.path.basename(process.command[0])
    if process.roles:
        return f"{program} of {process.job or process.roles[0]}"
    job = process.command[process.command.index("--job") + 1] if process.is_exec else ""
    return " ".join(("exec of" if job else program, os.path.basename(job))).strip()


def _wait(condition: Callable[[], bool], driver: subprocess.Popen[str]) -> bool:
    """Wait until something holds. False: the driver has ended before."""
    while not condition():
        with contextlib.suppress(subprocess.TimeoutExpired):
            driver.wait(0.03)
            return False
    return True


def _victims(case: Case, driver: subprocess.Popen[str], processes: list[Process]) -> list[Process]:
    match case.fault.victim:
        case "driver":
            return [Process(driver.pid, ("streamflow",))] if driver.poll() is None else []
        case "serve":
            return [process for process in processes if process.is_serve]
        case "exec":
            return [process for process in processes if process.is_exec]
        case role:
            return [process for process in processes if role in process.roles]


def _fill(directory: Path, relief: float | None, driver: subprocess.Popen[str]) -> str | None:
    """Leave no byte free on the file system of a directory, for `relief` seconds or until the driver has ended."""
    if driver.poll() is not None:
        return None
    filler = directory / "filler"
    fill(filler)
    with contextlib.suppress(subprocess.TimeoutExpired):
        driver.wait(relief)
    filler.unlink()
    return f"no space in {directory}" + ("" if relief is None else f" for {relief:.2f} s")
