"""Warns of jobs that wait for free space on a disk. Plain StreamFlow would wait for ever, and say nothing."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Container

from streamflow.core.scheduling import AvailableLocation, Hardware
from streamflow.core.utils import get_job_step_name
from streamflow.log_handler import logger

from streamflow_io.messages import Code, coded

#: The seconds after which a waiting job is reported: before, other jobs that have reserved the space may end.
PATIENCE_SECONDS = 10.0


class DiskWaits:
    """Warns of jobs that wait for free space, once for each step.

    :param scheduled: the names of the jobs that have been scheduled
    """

    def __init__(self, scheduled: Container[str]) -> None:
        self._scheduled = scheduled
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def look(
        self, job_name: str, location: AvailableLocation, used: Hardware, asked: Hardware, where: Callable[[], str]
    ) -> None:
        """Note that a job cannot start at a location now.

        :param used: what other jobs have reserved there
        :param where: returns the location, for people
        """
        if (step := get_job_step_name(job_name)) in self._timers or location.hardware is None:
            return
        if (why := _lack(location.hardware, used, asked)) is not None:
            message = coded(f"Job {job_name} waits for free space on {where()}: {why}", Code.NO_SPACE)
            loop = asyncio.get_running_loop()
            self._timers[step] = loop.call_later(PATIENCE_SECONDS, self._tell, job_name, message)

    def close(self) -> None:
        """Warn of nothing any more."""
        for timer in self._timers.values():
            timer.cancel()

    def _tell(self, job_name: str, message: str) -> None:
        if job_name in self._scheduled:
            # Another job of the step may wait longer.
            del self._timers[get_job_step_name(job_name)]
        else:
            logger.warning(message)


def _lack(has: Hardware, used: Hardware, asked: Hardware) -> str | None:
    """The disk that has too little space left for a job, in words; None: all disks have enough."""
    there, reserved, wanted = map(_by_disk, (has, used, asked))
    for disk, size in wanted.items():
        if disk not in there:
            continue
        left = max(there[disk] - reserved[disk], 0.0)
        if size > left:
            return (
                f"it asks for {size:,.0f} MiB on {disk} (`outdirMin` and `tmpdirMin` of a "
                f"ResourceRequirement, 1,024 each by default). {left:,.0f} are left of {there[disk]:,.0f} MiB "
                "that were free when the run began, and StreamFlow does not look again"
            )
    return None


def _by_disk(hardware: Hardware) -> defaultdict[str, float]:
    """The sizes of disks by mount point, in MiB."""
    sizes: defaultdict[str, float] = defaultdict(float)
    for disk in hardware.storage.values():
        sizes[disk.mount_point] += disk.size
    return sizes
