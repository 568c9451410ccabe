"""The windows that one job reads: files whose bytes are discarded when their readers have them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from streamflow_io.adapters.attempts import Attempt


class ReadWindows:
    """The attempts of other jobs that discard what one job has read of them."""

    def __init__(self, reader: str) -> None:
        self._reader = reader
        self._attempts: set[Attempt] = set()

    def __bool__(self) -> bool:
        """Whether the job reads a window."""
        return bool(self._attempts)

    def begin(self, attempts: Iterable[Attempt]) -> None:
        """Note the attempts whose windows an attempt of the job reads."""
        for attempt in attempts:
            attempt.readers[self._reader] = asyncio.Event()
            self._attempts.add(attempt)

    async def read_again(self) -> None:
        """Let the jobs start again whose windows the job has begun to read: a window cannot be read a second time."""
        for attempt in self._attempts:
            attempt.lose()
        for attempt in self._attempts:
            await asyncio.shield(attempt.succeeded)
        self._attempts.clear()

    def end(self) -> None:
        """Say that the job needs no more of its windows."""
        for attempt in self._attempts:
            attempt.readers[self._reader].set()
