"""Evaluation of samples: bandwidths, and the entry of the StreamFlow file.

MB is 10^6 bytes.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from decimal import ROUND_FLOOR, Decimal
from typing import Literal

from msgspec import Struct

from streamflow_io.hints.config import StorageConfig

from .mounts import MountPoint

Access = Literal["direct", "buffered"]
# A shorter sample shows caches and the start of threads more than the storage.
_SHORT_SECONDS = 0.25
_STILL_RISING = 1.10


class ProbeTransfer(Struct, frozen=True):
    """The bytes that one writer wrote or read.

    :ivar start: seconds of a clock that all transfers share
    :ivar end: includes the time until the bytes have arrived
    """

    start: float
    end: float
    bytes: int

    @property
    def seconds(self) -> float:
        return self.end - self.start

    @property
    def bandwidth(self) -> float:
        """Bandwidth in MB/s."""
        return self.bytes / 1e6 / max(self.seconds, 1e-9)


class Sample(Struct, frozen=True):
    """Transfers that ran at the same time, in one direction; never empty."""

    transfers: tuple[ProbeTransfer, ...]

    @property
    def bytes(self) -> int:
        return sum(transfer.bytes for transfer in self.transfers)

    @property
    def seconds(self) -> float:
        """Seconds from the start of the first transfer to the end of the last."""
        return max(each.end for each in self.transfers) - min(each.start for each in self.transfers)

    @property
    def bandwidth(self) -> float:
        """Bandwidth of all transfers together, in MB/s."""
        return self.bytes / 1e6 / max(self.seconds, 1e-9)


class LoadLevel(Struct, frozen=True):
    """The samples of a number of writers that write at the same time, and then read at the same time."""

    write: Sample
    read: Sample

    @property
    def writers(self) -> int:
        return len(self.write.transfers)


class Measurement(Struct, frozen=True):
    """The measurement of a storage; at least one level.

    :ivar path: absolute
    :ivar bytes: the bound of each level
    :ivar seconds: the bound of each sample
    """

    path: str
    mount: MountPoint
    access: Access
    bytes: int
    seconds: float
    levels: tuple[LoadLevel, ...]

    @property
    def best_write(self) -> Sample:
        return self._best([level.write for level in self.levels])

    @property
    def best_read(self) -> Sample:
        return self._best([level.read for level in self.levels])

    def _best(self, samples: Sequence[Sample]) -> Sample:
        # A short sample with few bytes, because time ran out, may be a burst of some cache.
        telling = [each for each in samples if each.seconds >= _SHORT_SECONDS or self.is_full(each)]
        if not telling:
            return max(samples, key=lambda sample: sample.seconds)
        return max(telling, key=lambda sample: sample.bandwidth)

    def is_full(self, sample: Sample) -> bool:
        """Whether the size of a sample was bounded by `bytes`, not by `seconds`."""
        return sample.bytes >= self.bytes / 2


def round_down(bandwidth: float) -> float:
    """Round down to two significant digits, by at most 10 percent. Samples vary by more than the third digit."""
    exact = Decimal(str(bandwidth))
    return float(exact.quantize(Decimal(1).scaleb(exact.adjusted() - 1), ROUND_FLOOR))


def storage_entry(measurement: Measurement) -> StorageConfig:
    """Return the entry of `storages`: in each direction the best bandwidth of all levels, rounded down."""
    point = measurement.mount.point
    named_by = point if point != "/" else measurement.path
    return StorageConfig(
        name=os.path.basename(named_by.rstrip("/")) or "root",
        path=measurement.path,
        scope=measurement.mount.scope,
        write=round_down(measurement.best_write.bandwidth),
        read=round_down(measurement.best_read.bandwidth),
    )


def entry_fields(entry: StorageConfig) -> dict[str, str | int | float]:
    """Return the fields of an entry in the order of the documentation. Whole numbers have no fraction."""
    fields: dict[str, str | int | float] = entry.model_dump(exclude_none=True)
    return {
        key: int(value) if isinstance(value, float) and value.is_integer() else value for key, value in fields.items()
    }


def meaning(entry: StorageConfig) -> str:
    """Explain the effect of an entry."""
    where = "all locations together" if entry.scope == "shared" else "each location"
    return (
        "Jobs with `storageBW` share this storage. The sum of the storageBW of jobs that run is at most "
        f"{entry.bandwidth('write'):g} MB/s of writing and {entry.bandwidth('read'):g} MB/s of reading on {where}."
    )


def warnings(measurement: Measurement) -> tuple[str, ...]:
    """Return reasons why the measured bandwidth may not be that of the storage."""
    mount, levels = measurement.mount, measurement.levels
    found = []
    if mount.in_memory:
        found.append(f"{measurement.path} is memory ({mount.file_system}), not a storage device.")
    elif measurement.access == "buffered":
        found.append(
            f"{mount.file_system} has no direct I/O here: writes were synced, the page cache was dropped before reads."
        )
    if mount.scope == "shared":
        found.append(
            "Measured from this node only: all nodes together may get more, and less when others use the file system."
        )
    directions = (
        ("write", measurement.best_write, [level.write for level in levels]),
        ("read", measurement.best_read, [level.read for level in levels]),
    )
    for direction, best, samples in directions:
        if best.seconds < _SHORT_SECONDS:
            option = "--bytes" if measurement.is_full(best) else "--seconds"
            found.append(
                f"The best {direction} sample took {best.seconds:.2g} s only: a higher {option} gives longer ones."
            )
        if len(samples) > 1 and best is samples[-1] and best.bandwidth > _STILL_RISING * samples[-2].bandwidth:
            found.append(f"{direction.capitalize()} bandwidth still rises with {levels[-1].writers} writers.")
    return tuple(found)
