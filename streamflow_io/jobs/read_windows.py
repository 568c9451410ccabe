"""The windows that one job reads: files whose bytes are discarded when their readers have them."""

from __future__ import annotations

import asyncio

from streamflow_io.adapters.attempts import Attempt
from streamflow_io.adapters.inputs import Producers


class ReadWindows:
    """The attempts of other jobs that discard what one job has read of them.

    :param reader: the name of the job that reads
    """

    def __init__(self, reader: str) -> None:
        self._reader = reader
        self._attempts: set[Attempt] = set()

    def __bool__(self) -> bool:
        """Whether the job reads a window."""
        return bool(self._attempts)

    def begin(self, producers: Producers) -> None:
        """Note the windows that an attempt of the job reads."""
        for token, attempt in producers:
            if token.source.port in attempt.windows:
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
