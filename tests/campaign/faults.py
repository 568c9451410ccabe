"""Brings about the fault of a trial in a run."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lab.container_sites import Containers
from lab.disks import fill
from lab.forked import Driver
from lab.runs import Bench

from . import containers
from .allocations import Allocation
from .cases import Case
from .containers import Engine
from .hosts import Hosts
from .processes import Process, of_run
from .standstill import frozen, stuck

#: Seconds that a workflow takes at most if it does not hang; a longer wait is reported as a hang.
_LONGEST = 120.0


@dataclass(frozen=True)
class Place:
    """Where a run is.

    :ivar temporary: its directory for temporary files
    :ivar jump: the file that tells its clock by how much to be wrong
    :ivar hold: the file for which producers wait that are held
    :ivar bench: what has started it
    :ivar where: its jobs run; None: here
    """

    temporary: Path
    jump: Path
    hold: Path
    bench: Bench
    where: Hosts | Engine | Allocation | None = None


def strike(case: Case, driver: Driver, place: Place) -> str | None:
    """Wait for the moment of a trial and do its damage.

    :return: what was done, for people; None: the run, or what the fault is about, had ended before
    """
    try:
        return _strike(case, driver, place)
    finally:
        place.hold.touch()


def _strike(case: Case, driver: Driver, place: Place) -> str | None:
    def jobs_run() -> bool:
        if isinstance(place.where, Hosts):
            return bool(place.where.jobs())
        return any(process.is_exec or process.roles for process in of_run(place.temporary))

    if not case.early and not _wait(jobs_run, driver):
        return None
    with contextlib.suppress(subprocess.TimeoutExpired):
        driver.wait(case.delay)
    if driver.poll() is not None:
        return None
    match case.fault.victim:
        case "disk":
            return _disk(case, place, driver)
        case "clock":
            place.jump.write_text(str(case.jump))
            return f"the clock jumps by {case.jump:g} s"
        case "hosts":
            assert isinstance(place.where, Hosts)
            return place.where.strike(case, driver)
        case "node":
            assert isinstance(place.where, Allocation)
            return place.where.strike(case)
        case "container" | "dockerd":
            assert isinstance(place.bench, Containers)
            return containers.strike(case, driver, place.bench)
    if case.fault.is_limit:
        return _limit(case, driver, place.temporary)
    return _one_victim(case, driver, place.temporary)


def _one_victim(case: Case, driver: Driver, temporary: Path) -> str | None:
    found: list[Process] = []

    def candidates() -> bool:
        found[:] = _victims(case, driver, of_run(temporary))
        return bool(found)

    while _wait(candidates, driver):
        victim = found[int(case.pick * len(found))]
        what = _describe(victim)
        match case.fault.kind:
            case "STOP":
                if _stop(victim.pid, case.relief, driver):
                    return f"SIGSTOP to {what} for {case.relief or 0:.2f} s"
            case "frozen":
                job = [process.pid for process in found if process.job == victim.job]
                with frozen(f"sfio-campaign-{driver.pid}", job) as count:
                    if count:
                        _pause(case.relief, driver)
                if count:
                    return f"{count} processes of {victim.job or what} frozen for {case.relief or 0:.2f} s"
            case _:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(victim.pid, case.fault.signal)
                    return f"{case.fault.signal.name} to {what}"
    return None


def _pause(seconds: float | None, driver: Driver) -> None:
    """Until the time is over, or the driver."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        driver.wait(seconds)


def _stop(pid: int, seconds: float | None, driver: Driver) -> bool:
    try:
        os.kill(pid, signal.SIGSTOP)
        # One that stands still does not end.
        time.sleep(seconds or 0) if pid == driver.pid else _pause(seconds, driver)
        os.kill(pid, signal.SIGCONT)
    except ProcessLookupError:
        return False
    return True


def _limit(case: Case, driver: Driver, temporary: Path) -> str | None:
    """From now on, until relief or the end, no process of the victim gets more than it has."""
    end = None if case.relief is None else time.monotonic() + case.relief
    limited: dict[int, str] = {}

    def over() -> bool:
        for victim in _victims(case, driver, of_run(temporary)):
            if victim.pid not in limited and (amount := _limit_one(case, victim)) is not None:
                limited[victim.pid] = f"{_describe(victim)} ({amount})"
        return end is not None and time.monotonic() > end and bool(limited)

    _wait(over, driver)
    if not limited:
        return None
    more = f" and {len(limited) - 1} more" if len(limited) > 1 else ""
    return f"limit of {case.fault.kind} for {next(iter(limited.values()))}{more}"


def _limit_one(case: Case, victim: Process) -> int | None:
    """Allow a process no more than it has; None is returned if the process has ended.

    :return: how much it is allowed
    """
    place = Path("/proc", str(victim.pid))
    with contextlib.suppress(OSError):
        match case.fault.kind:
            case "size":
                # Of `exec`, only the events grow.
                kind, amount = resource.RLIMIT_FSIZE, case.limit // 30 if victim.is_exec else case.limit
            case "files":
                kind, amount = resource.RLIMIT_NOFILE, 1 + max(map(int, os.listdir(place / "fd")), default=2)
            case _:
                pages = int((place / "statm").read_text().split()[0])
                kind, amount = resource.RLIMIT_AS, pages * resource.getpagesize()
        resource.prlimit(victim.pid, kind, (amount, resource.prlimit(victim.pid, kind)[1]))
        return amount
    return None


def _describe(process: Process) -> str:
    program = os.path.basename(process.command[0])
    if process.roles:
        return f"{program} of {process.job or process.roles[0]}"
    job = process.command[process.command.index("--job") + 1] if process.is_exec else ""
    return " ".join(("exec of" if job else program, os.path.basename(job))).strip()


def _wait(condition: Callable[[], bool], driver: Driver) -> bool:
    """Wait until something holds. False: the driver has ended before, or seems to hang."""
    end = time.monotonic() + _LONGEST
    while not condition():
        if time.monotonic() > end:
            return False
        with contextlib.suppress(subprocess.TimeoutExpired):
            driver.wait(0.03)
            return False
    return True


def _victims(case: Case, driver: Driver, processes: list[Process]) -> list[Process]:
    match case.fault.victim:
        case "driver":
            return [Process(driver.pid, ("streamflow",))] if driver.poll() is None else []
        case "serve":
            return [process for process in processes if process.is_serve]
        case "exec":
            return [process for process in processes if process.is_exec]
        case "srun":
            return [process for process in processes if process.is_srun]
        case role:
            return [process for process in processes if role in process.roles]


def _disk(case: Case, place: Place, driver: Driver) -> str:
    """Leave no byte free on a file system, or let it do nothing, for `relief` seconds or until the driver has ended."""
    directory = place.temporary
    if case.fault.kind == "stuck":
        with stuck(directory):
            # Whoever waits for it cannot end.
            time.sleep(case.relief or 0)
        return f"{directory} was stuck for {case.relief or 0:.2f} s"
    filler = directory / "filler"
    fill(filler)
    place.hold.touch()
    _pause(case.relief, driver)
    filler.unlink()
    return f"no space in {directory}" + ("" if case.relief is None else f" for {case.relief:.2f} s")
