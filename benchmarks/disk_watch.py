"""Bytes that are written to a disk while something else happens."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import NamedTuple

from lab.loop_device import LimitedDisk


class Written(NamedTuple):
    """:ivar seconds: in which it was: the interval, but for how late it was looked"""

    bytes: float
    seconds: float


@contextmanager
def written_each(disk: LimitedDisk, interval: float) -> Iterator[list[Written]]:
    """Notes the bytes that are written to a disk in each interval of this length, for as long as the context lasts."""
    amounts: list[Written] = []
    ended = threading.Event()

    def look() -> None:
        last, since = disk.moved()[1], time.monotonic()
        begin = since
        while not ended.wait(max(0.0, begin + (len(amounts) + 1) * interval - time.monotonic())):
            now, moved = time.monotonic(), disk.moved()[1]
            amounts.append(Written(moved - last, now - since))
            last, since = moved, now

    with ThreadPoolExecutor(1) as pool:
        looking = pool.submit(look)
        try:
            yield amounts
        finally:
            ended.set()
        looking.result()
