"""Sizes of the outputs of steps, kept from run to run."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from streamflow_io.records.learned.database import LearnedEntry
from streamflow_io.records.learned.remembered import Remembered
from streamflow_io.records.learned.sizes import SizeKey

from .disk_sizes import MeasuredSize, StepSizes


class LearnedSize(LearnedEntry, frozen=True):
    """The job of a tool that has written most, of those with about as much input.

    :ivar key: its `storage` is empty: what a tool writes is the same everywhere
    """

    kind: ClassVar[str] = "size"
    key: SizeKey
    of: MeasuredSize

    @property
    def order(self) -> tuple[Any, ...]:
        return self.step, self.key.size_class


class RememberedSizes:
    """Sizes of earlier runs, and of this one.

    A file that cannot be read or written never makes a run fail: one warning says so.

    :ivar sizes: all that is known
    :param path: the file
    :param tools: the digest of the tool of each step
    """

    def __init__(self, path: Path, tools: Mapping[str, str]) -> None:
        self._tools = tools
        self._kept = Remembered(path, LearnedSize, (), "Sizes of outputs are")
        self._new = StepSizes()
        self.sizes = StepSizes()
        steps: dict[str, list[str]] = {}
        for step, tool in tools.items():
            steps.setdefault(tool, []).append(step)
        for entry in self._kept.read():
            for step in steps.get(entry.key.tool, ()):
                self.sizes.measured(step, entry.of.inputs, entry.of.written)

    def measured(self, step: str, inputs: int, written: int) -> None:
        """Note what a job has written."""
        self.sizes.measured(step, inputs, written)
        self._new.measured(step, inputs, written)

    async def close(self) -> None:
        """Keep what this run has learned."""
        now = time.time()
        new = [
            LearnedSize(SizeKey(self._tools[step], "", of_class), step, now, measured)
            for step, of_class, measured in self._new.all()
            if step in self._tools
        ]
        if new:
            await self._kept.remember(*new)
        await self._kept.close()
