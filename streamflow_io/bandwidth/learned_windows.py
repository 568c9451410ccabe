"""Learned windows: seconds until the data of an I/O task are needed."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from streamflow_io.records.learned.database import LearnedEntry
from streamflow_io.records.learned.remembered import Remembered
from streamflow_io.records.learned.sizes import SizeKey, size_class_of

from .expectations import Learned


class LearnedWindow(LearnedEntry, frozen=True):
    """The window of a step.

    :ivar key: its `storage` names the storages that the jobs may use
    """

    kind: ClassVar[str] = "window"
    key: SizeKey
    of: Learned

    @property
    def order(self) -> tuple[Any, ...]:
        return self.step, self.key.storage, self.key.size_class


class RememberedWindows:
    """Windows of earlier runs, and of this one.

    A file that cannot be read or written never makes a run fail: one warning says so.

    :param path: the file
    :param tools: the digest of the tool of each step
    :param storages: the `storage` of the key, by step
    """

    def __init__(self, path: Path, tools: Mapping[str, str], storages: Mapping[str, str]) -> None:
        self._tools = tools
        self._storages = storages
        self._kept = Remembered(path, LearnedWindow, (), "Windows are")
        self._known: Mapping[SizeKey, Learned] | None = None
        self._keys: dict[str, SizeKey] = {}

    def of(self, step: str, input_bytes: float) -> Learned | None:
        """Return what is known of a step. None: nothing is known, or the step has no tool.

        :param input_bytes: bytes that its job reads. What this run learns is kept for the size of the first call
        """
        if step not in self._tools:
            return None
        if self._known is None:
            self._known = {one.key: one.of for one in self._kept.read()}
        key = SizeKey(self._tools[step], self._storages[step], size_class_of(input_bytes))
        self._keys.setdefault(step, key)
        return next((self._known[near] for near in key.near if near in self._known), None)

    async def keep(self, learned: Mapping[str, Learned]) -> None:
        """Keep what was learned, by step, for later runs."""
        now = time.time()
        windows = [LearnedWindow(self._keys[step], step, now, of) for step, of in learned.items() if step in self._keys]
        if windows:
            await self._kept.remember(*windows)
