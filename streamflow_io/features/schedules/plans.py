"""The schedules of a directory that runs share: `plans/NAME.json`. Effects: files, and the program that makes them.

Whoever has written a schedule, each run checks it before it follows it.
"""

from __future__ import annotations

import fcntl
import os
import stat
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from math import isclose
from pathlib import Path

from streamflow_io.files import NOT_BELIEVED
from streamflow_io.hints.models import Way

from .burst_profile import BurstProfile
from .check import check
from .files import ScheduleFile
from .followed import FollowedPlan
from .model import slots_of
from .plan_program import PlanRequest

_MOST_BYTES = 4_000_000
_SECONDS = 10.0
_END_SECONDS = 5.0
# As those of a schedule that is computed; a longer one would hold bursts for too long.
_LONGEST_PERIOD = 12.0
_SAME = 0.01
# A schedule begins when it is made, by the clock of another machine. Runs come back to it when a further run has ended.
_LATEST_START, _LONGEST_AGE = 3600.0, 366 * 86400.0


class SharedPlans:
    """The schedules of a shared directory.

    :param directory: that runs share
    :param mine: it is one user's alone
    :param curve: of the storage, where it is known: number of jobs, and MB/s of all together
    """

    def __init__(
        self, directory: Path, mine: bool, curve: Mapping[Way, Sequence[tuple[int, float]]] | None = None
    ) -> None:
        self._plans = directory / "plans"
        self._mine = mine
        self._curve = curve or {}
        self._making: _Making | None = None
        self._read: dict[str, FollowedPlan | None] = {}

    def of(self, name: str, profiles: Mapping[str, BurstProfile], own: str) -> FollowedPlan | None:
        """See :class:`streamflow_io.features.schedules.followed.Plans`."""
        if self._making is not None and self._making.is_over():
            if not self._making.has_made:
                self._read = {self._making.name: None}  # and it is not tried again
            self._making = None
        if name not in self._read:
            try:
                self._read = {name: self._plan(name, profiles, own)}
            except FileNotFoundError:
                pass  # it may come
            except (OSError, ValueError):  # ValidationError is a ValueError
                self._read = {name: None}
        return self._read.get(name)

    def make(self, name: str, profiles: Mapping[str, BurstProfile], bandwidth: float) -> None:
        """See :class:`streamflow_io.features.schedules.followed.Plans`."""
        if self._making is None and name not in self._read:
            with suppress(OSError):
                if self._mine:
                    self._plans.mkdir(mode=0o700, exist_ok=True)
                curve = self._curve.get(next(iter(profiles.values())).direction, ())
                request = PlanRequest(bandwidth=bandwidth, seconds=_SECONDS, runs=dict(profiles), curve=tuple(curve))
                self._making = _Making.begin(self._plans, name, request, self._mine)

    def close(self) -> None:
        """See :class:`streamflow_io.features.schedules.followed.Plans`."""
        if self._making is not None:
            self._making.stop()
            self._making = None

    def _plan(self, name: str, profiles: Mapping[str, BurstProfile], own: str) -> FollowedPlan | None:
        text = _text(self._plans / f"{name}.json")
        found = ScheduleFile.model_validate_json(text)
        schedule = found.to_schedule()
        names = [one.name for one in schedule.set.applications]
        if names != sorted(profiles) or check(schedule) or found.start is None:
            raise ValueError("it is a schedule of other runs, or cannot be kept")
        for one in schedule.set.applications:
            profile = profiles[one.name]
            for stated, known in ((one.work, profile.work), (one.volume, profile.volume)):
                if not isclose(stated, known, rel_tol=_SAME, abs_tol=_SAME):
                    raise ValueError("it is a schedule of runs that do something else")
        if not -_LONGEST_AGE < found.start - time.time() < _LATEST_START:
            raise ValueError("it does not begin about now")
        if schedule.pattern.period > _LONGEST_PERIOD * max(schedule.set.durations):
            raise ValueError("its period is too long")
        slots = slots_of(schedule.pattern)[names.index(own)] if found.followed else None
        return FollowedPlan(slots, found.start, found.reason or "")


class _Making:
    """A schedule that is being made; the lock keeps others from making one, and is free if this process dies."""

    def __init__(self, lock: int, process: subprocess.Popen[bytes], temporary: Path, file: Path) -> None:
        self.name = file.stem
        self.has_made = False
        self._lock = lock
        self._process = process
        self._temporary = temporary
        self._file = file

    @classmethod
    def begin(cls, plans: Path, name: str, request: PlanRequest, mine: bool) -> _Making | None:
        """Start the program that makes a schedule. None: another run makes one."""
        lock = _lock(plans / "lock", 0o600 if mine else 0o660)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            temporary = plans / f"{uuid.uuid4().hex}.tmp"
            os.close(_create(temporary, 0o600 if mine else 0o640))
            program = [sys.executable, "-m", "streamflow_io.features.schedules.plan_program", str(temporary)]
            process = subprocess.Popen(
                program, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            assert process.stdin is not None
            with process.stdin:
                process.stdin.write(request.model_dump_json().encode("utf-8"))
        except BlockingIOError:
            os.close(lock)
            return None
        except BaseException:
            os.close(lock)
            raise
        return cls(lock, process, temporary, plans / f"{name}.json")

    def is_over(self) -> bool:
        """Whether it has ended; then the schedule is there, unless none was found."""
        if self._process.poll() is None:
            return False
        self.has_made = self._process.returncode == 0
        self._end(self.has_made)
        return True

    def stop(self) -> None:
        self._process.kill()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_SECONDS)
        self._end(False)

    def _end(self, keep: bool) -> None:
        with suppress(OSError):
            if keep:
                self._temporary.replace(self._file)
            else:
                self._temporary.unlink()
        os.close(self._lock)


def _lock(path: Path, mode: int) -> int:
    try:
        # Without O_CREAT: see fs.protected_regular in proc_sys_fs(5), of files that another user has made.
        return os.open(path, os.O_RDWR | NOT_BELIEVED)
    except FileNotFoundError:
        return _create(path, mode)


def _create(path: Path, mode: int) -> int:
    """Make a file with a mode, whatever the umask is."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | NOT_BELIEVED, 0o600)
    os.fchmod(descriptor, mode)
    return descriptor


def _text(path: Path) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | NOT_BELIEVED)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_size > _MOST_BYTES:
            raise ValueError("it is no schedule")
        return os.read(descriptor, _MOST_BYTES)
    finally:
        os.close(descriptor)
