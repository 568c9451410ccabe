"""Tells a running job a limit that has changed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import cast

from .protocol import ExitEvent, JobLimits
from .wire import text_of

logger = logging.getLogger("streamflow")

_RETRY_SECONDS = 2.0
#: A larger limit is no limit.
_MOST = 2**62


class NewLimits:
    """The limit of one job that has changed since its start.

    Only the latest value is told, in one message after the other. A message that fails is tried again until the job
    has ended.

    :param tell: tells the job its limit, as JSON; may raise any exception
    :param ended: is done when the job has ended
    :param seconds: the shortest time between two messages; the end of a limit is told at once, because the job waits
    """

    def __init__(
        self, tell: Callable[[str], Awaitable[None]], ended: asyncio.Future[ExitEvent], seconds: float
    ) -> None:
        self._tell = tell
        self._ended = ended
        self._seconds = seconds
        self._limits = JobLimits(rate=None)
        self._has_begun = False
        self._untold = False
        # Set only while limits are told: most jobs have none.
        self._ends: asyncio.Event | None = None
        self._telling: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Note that the job can be told its limits from now on."""
        self._has_begun = True
        self._go_on()

    def change(self, rate: float | None) -> None:
        """Change the limit; see :meth:`NodeJob.limit`."""
        limit = None if rate is None or rate > _MOST else max(1, round(rate))
        self._limits = JobLimits(rate=limit)
        self._untold = True
        if limit is None and self._ends is not None:
            self._ends.set()
        self._go_on()

    def _go_on(self) -> None:
        if self._untold and self._has_begun and (self._telling is None or self._telling.done()):
            self._telling = asyncio.create_task(self._tell_all())

    async def _tell_all(self) -> None:
        while self._untold and not self._ended.done():
            self._untold, pause = False, self._seconds
            ends = self._ends = asyncio.Event()
            try:
                await self._tell(text_of(self._limits))
            except Exception as error:  # each connector raises errors of its own
                logger.debug(f"A job did not get its limits: {error}")
                self._untold, pause = True, _RETRY_SECONDS
            await self._rest(pause, ends)

    async def _rest(self, seconds: float, ended: asyncio.Event) -> None:
        ends = asyncio.create_task(ended.wait())
        try:
            either = cast("set[asyncio.Future[object]]", {ends, self._ended})
            await asyncio.wait(either, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ends.cancel()
