"""Sizes of the outputs of steps, kept from run to run."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, ClassVar

from msgspec.structs import replace
from typing_extensions import Self

from streamflow_io.records.learned.database import LearnedEntry
from streamflow_io.records.learned.remembered import Remembered
from streamflow_io.records.learned.sizes import SizeKey

from .disk_sizes import MeasuredSize, StepSizes

#: Stands in a key for the storage.
WINDOW = "window"


class LearnedSize(LearnedEntry, frozen=True):
    """The job of a tool that has written most, of those with about as much input.

    :ivar key: what a tool writes is the same everywhere. Instead of a storage, the key says whether an output has a
        window: then less stays on disk
    """

    kind: ClassVar[str] = "size"
    key: SizeKey
    of: MeasuredSize

    @property
    def order(self) -> tuple[Any, ...]:
        return self.step, self.key.size_class

    def merged(self, known: Self | None) -> Self:
        return self if known is None or known.of.written <= self.of.written else replace(self, of=known.of)


class RememberedSizes:
    """Sizes of earlier runs, and of this one.

    A file that cannot be read or written never makes a run fail: one warning says so.

    :ivar sizes: all that is known
    :param path: the file
    :param tools: the digest of the tool of each step
    :param windowed: the steps with a window
    """

    def __init__(self, path: Path, tools: Mapping[str, str], windowed: Collection[str] = ()) -> None:
        self._keys = {step: SizeKey(tool, WINDOW if step in windowed else "", 0) for step, tool in tools.items()}
        self._kept = Remembered(path, LearnedSize, (), "Sizes of outputs are")
        self._new = StepSizes()
        self.sizes = StepSizes()
        steps: dict[SizeKey, list[str]] = {}
        for step, key in self._keys.items():
            steps.setdefault(key, []).append(step)
        for entry in self._kept.read():
            for step in steps.get(replace(entry.key, size_class=0), ()):
                self.sizes.measured(step, entry.of.inputs, entry.of.written)

    def measured(self, step: str, inputs: int, written: int) -> None:
        """Note what a job has written."""
        self.sizes.measured(step, inputs, written)
        self._new.measured(step, inputs, written)

    async def close(self) -> None:
        """Keep what this run has learned."""
        now = time.time()
        new = [
            LearnedSize(replace(self._keys[step], size_class=of_class), step, now, measured)
            for step, of_class, measured in self._new.all()
            if step in self._keys
        ]
        if new:
            await self._kept.remember(*new)
        await self._kept.close()
