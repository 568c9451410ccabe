"""Learns at which close an output that streams without a hint is complete: similar jobs need not end first.

This is a lesson, not a proof. Readers get the end of the stream at the close. Their results are handed on only when the
job has ended, and has not written the file again.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import AsyncIterator

from msgspec.structs import replace
from streamflow.log_handler import logger

from streamflow_io.hints.inheritance import port_path
from streamflow_io.records.learned.proofs import Proof
from streamflow_io.runtime.protocol import ClosedEvent, Event, ExitEvent, WatchedOutput
from streamflow_io.wording import counted

from .learned_streams import LearnedStreams

# The least gain for readers: seconds, and a part of the time of the job.
_LEAST_SECONDS = 2.0
_LEAST_PART = 0.1


class LearnedWrites:
    """The closes of one job's outputs that stream without a hint."""

    def __init__(self, learned: LearnedStreams, step: str) -> None:
        self._learned = learned
        self._step = step
        # By output and file: the last close in the last attempt.
        self._closed: dict[str, dict[str, ClosedEvent]] = {}

    def watched(self, output: WatchedOutput) -> WatchedOutput:
        """An output as it is to be watched. If it streams without a hint, its closes are reported, too."""
        if not self._learned.is_streamed(self._step, output.port):
            return output
        return replace(output, closes=True)

    async def told(self, events: AsyncIterator[Event]) -> AsyncIterator[Event]:
        """Pass on the events of an attempt, and note its closes."""
        self._closed = defaultdict(dict)
        async for event in events:
            if isinstance(event, ClosedEvent) and self._learned.is_streamed(self._step, event.port):
                self._closed[event.port][str(event.path)] = event
            yield event

    async def succeeded(self, exit_event: ExitEvent) -> None:
        """Remember the last close of an output that was complete long before the end, unless one is known."""
        ended, started = exit_event.ended or 0.0, exit_event.started or 0.0
        least = max(_LEAST_SECONDS, _LEAST_PART * (ended - started))
        for port, files in self._closed.items():
            (last, *others) = files.values()
            key = self._learned.written(self._step, port)
            if others or ended - last.time < least or self._learned.proofs.of(key) is not None:
                continue
            name, times = port_path(self._step, port), counted(last.closes, "time")
            logger.info(
                f"{name} was complete {ended - last.time:.1f} s before its job ended, when it was closed {times}"
            )
            await self._learned.proofs.remember(Proof(key, self._step, time.time(), closes=last.closes))
