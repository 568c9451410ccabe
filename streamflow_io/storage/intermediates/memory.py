"""Lets jobs write into /dev/shm of the driver's node what is removed before the run ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import posixpath
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, MutableMapping
from pathlib import Path

from msgspec import convert
from streamflow.core.scheduling import Hardware
from streamflow.core.utils import random_name
from streamflow.log_handler import logger

from streamflow_io.adapters.jobs import JobState
from streamflow_io.graph.memory_steps import MemoryPlan
from streamflow_io.runtime.embedded import find_sfio_node
from streamflow_io.runtime.node_commands import NodeRuntimeError
from streamflow_io.runtime.protocol import Memory

from .disk_sizes import StepSizes
from .job_in_memory import JobInMemory
from .memory_ledger import FreeMemory, MemoryLedger
from .size_learner import JobSize
from .space_watcher import SpaceWatcher

#: The file system in memory that Linux has.
PLACE = Path("/dev/shm")
#: The name of the directory of a run in memory begins so.
PREFIX = "streamflow-io-outputs-"
# Jobs with equal input may write different amounts.
_MARGIN = 2
# Bytes of an output directory that is empty, with its few small files.
_LEAST = 2**20
_MEBIBYTE = 2**20
# Where systemd runs, and which users stay without a session. Users below this number are those of the system.
_SYSTEMD, _LINGERING = Path("/run/systemd/system"), Path("/var/lib/systemd/linger")
_FIRST_USER = 1000
# Seconds between two looks at what running jobs have written.
_PERIOD = 0.5
_END_SECONDS = 15.0
# Removes a directory when the driver has ended, however. A job that goes on for a moment may write still.
_GUARD = """trap '' INT TERM HUP; cat > /dev/null
for t in 0 1 2 3 4 5 6 7 8 9; do rm -rf "$1"; test -e "$1" || exit 0; sleep 1; done"""


def memory_obstacle() -> str | None:
    """Why no file of a job can lie in memory on this node; None: no obstacle."""
    try:
        mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
        cgroup = Path("/proc/self/cgroup").read_text()
    except OSError as error:
        return str(error)
    if not any(mount[1:3] == [str(PLACE), "tmpfs"] for mount in mounts) or not os.access(PLACE, os.W_OK | os.X_OK):
        return f"{PLACE} is no tmpfs that you can write to"
    if os.statvfs(PLACE).f_flag & os.ST_NOEXEC:
        return f"{PLACE} is mounted with `noexec`, and a tool may run a file that another tool has made"
    return None if survives_logout(os.getuid(), cgroup) else f"systemd would empty {PLACE} when you log out"


def survives_logout(user: int, cgroup: str) -> bool:
    """Whether the files of a user in memory stay there while a process runs.

    `systemd-logind` removes them with the last session of the user (`RemoveIPC`), except those of system users.

    :param cgroup: of the process, as in `/proc/self/cgroup`
    """
    if user < _FIRST_USER or not _SYSTEMD.exists() or f"/user-{user}.slice/" in cgroup:
        return True
    try:
        return (_LINGERING / pwd.getpwuid(user).pw_name).exists()
    except (KeyError, OSError):
        return False


def free_memory() -> int | None:
    """The bytes that files in memory can still take on this node; None: no file can lie in memory.

    The limit of a cgroup counts, too.
    """
    return _free_bytes() if memory_obstacle() is None else None


def _free_bytes() -> int | None:
    try:
        place = os.statvfs(PLACE)
        said = subprocess.run([find_sfio_node(), "memory"], check=True, capture_output=True, timeout=10).stdout
        memory = convert(json.loads(said), Memory)
    except (OSError, ValueError, subprocess.SubprocessError, NodeRuntimeError):
        return None
    return min(place.f_bavail * place.f_frsize, memory.available or 0)


class OutputsInMemory(SpaceWatcher):
    """Gives jobs an output directory in memory, as far as that fits.

    - The size of a job is known from earlier jobs of its step. A job of unknown size writes to the disk.
    - What is granted counts as memory that a job asks for, until the files are removed.
    - A job that writes more than was granted is ended. The next attempt of any job writes to the disk.
    - Nothing is left in memory when the driver has ended, however.

    :param plan: which steps may use how much
    :param sizes: of earlier jobs
    :param used: the resources of running jobs as StreamFlow counts them, by location
    :param wake: lets StreamFlow ask again for the jobs that wait
    """

    def __init__(
        self, plan: MemoryPlan, sizes: StepSizes, used: MutableMapping[str, Hardware], wake: Callable[[], None]
    ) -> None:
        self._plan = plan
        self._sizes = sizes
        self._used = used
        self._wake = wake
        self._ledger = MemoryLedger(plan.limit, math.ceil(plan.largest) * _MEBIBYTE)
        self._open: dict[str, JobState] = {}
        self._granted: dict[str, JobInMemory] = {}
        self._directory: str | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._is_measured = True

    def submitted(self, job: JobState) -> None:
        if job.step in self._plan.steps:
            self._open[job.name] = job

    def placed(self, job: JobState) -> None:
        known, place = job.kept(JobSize), job.places[0]
        if known is None or job.name not in self._open or not self._is_measured:
            return
        if len(job.places) > 1 or place.stacked or place.hardware is None:
            return
        expected = self._sizes.expect(job.step, known.inputs)
        if expected.certainty == "unknown" or not place.local or job.job.output_directory is not None:
            return
        size = _MARGIN * expected.bytes + self._plan.steps[job.step] + _LEAST
        if size > self._plan.limit or (directory := self._home()) is None or (free := _free_bytes()) is None:
            return
        used = self._used[place.name]
        there = FreeMemory(free, int(place.hardware.memory) * _MEBIBYTE, int(used.memory * _MEBIBYTE))
        if not self._ledger.grant(job.name, size, there):
            return
        used.memory += size / _MEBIBYTE
        path = posixpath.join(directory, random_name())
        on_disk = posixpath.join(job.target.workdir, random_name())
        job.job.output_directory = path
        self._granted[job.name] = grant = JobInMemory(path, on_disk, size, place.name)
        job.keep(grant)
        if self._watching is None:
            self._watching = asyncio.create_task(self._watch())

    def ended(self, job: JobState) -> None:
        self._open.pop(job.name, None)

    def measured(self, held: Mapping[str, int], written: Mapping[JobState, int | None]) -> None:
        for job, size in written.items():
            if size is not None and job.name not in self._open:
                self._take_back(job.name, self._ledger.ended(job.name, size))
        for name in [name for name in self._granted if name not in self._open]:
            if not os.path.lexists(self._granted[name].directory):
                self._take_back(name, self._ledger.removed(name))
                del self._granted[name]

    def give_up(self) -> None:
        self._is_measured = False

    async def run_closed(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        if self._directory is not None:
            await asyncio.to_thread(shutil.rmtree, self._directory, ignore_errors=True)
        if self._guard is not None and self._guard.stdin is not None:
            self._guard.stdin.close()
            # If the guard needs longer, it goes on.
            with contextlib.suppress(subprocess.TimeoutExpired):
                await asyncio.to_thread(self._guard.wait, _END_SECONDS)

    def _take_back(self, name: str, size: int) -> None:
        if size and (used := self._used.get(self._granted[name].location)) is not None:
            used.memory -= size / _MEBIBYTE
            self._wake()

    def _home(self) -> str | None:
        """The directory in memory of the run, which goes when the driver ends; None: the directory cannot be made."""
        if self._directory is None:
            directory = None
            try:
                if memory_obstacle() is not None:
                    # The plan says why.
                    self._is_measured = False
                    return None
                directory = tempfile.mkdtemp(prefix=PREFIX, dir=PLACE)
                self._guard = subprocess.Popen(
                    ["sh", "-c", _GUARD, "sh", directory],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    cwd="/",
                    start_new_session=True,
                )
            except OSError as error:
                logger.warning(f"No file lies in memory: {error}")
                if directory is not None:
                    os.rmdir(directory)
                self._is_measured = False
                return None
            self._directory = os.path.realpath(directory)
        return self._directory

    async def _watch(self) -> None:
        """End the jobs that write more than they were granted, and all if memory is full."""
        while True:
            await asyncio.sleep(_PERIOD)
            for name, job in [*self._open.items()]:
                grant = job.kept(JobInMemory)
                if grant is None or grant.has_outgrown or job.node_job is None:
                    continue
                is_too_much = grant.is_full or await asyncio.to_thread(_bytes_below, grant.directory) > grant.size
                if is_too_much and name in self._open:
                    grant.has_outgrown = True
                    await job.node_job.cancel()


def _bytes_below(directory: str) -> int:
    """The bytes that the files in a directory take."""
    total = 0
    for place, _, names in os.walk(directory):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(place, name)).st_blocks * 512
    return total
