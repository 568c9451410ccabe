"""Read sessions on slow disks: many consumers without StreamFlow, and a split that writes nothing in real runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from . import slow_disks
from .read_sessions_alone import (
    COUNTS,
    MEMORY_COMPARISONS,
    OVERLAP_COMPARISONS,
    Files,
    memory,
    overlap,
    throughput,
    throughput_comparisons,
)
from .read_sessions_split import SPLIT_COMPARISONS, splits
from .workload import Variant, Workload


def read_sessions(counts: Sequence[int]) -> Workload:
    """The workload for a number of consumers.

    :param counts: least first
    """

    def prepare(directory: Path) -> Sequence[Variant]:
        obstacle = slow_disks.obstacle()
        files = Files(directory)
        return [
            *throughput(files, counts, obstacle),
            *overlap(files, obstacle),
            *memory(files, obstacle),
            *splits(directory, obstacle),
        ]

    return Workload(
        "read-sessions",
        "a file that many consumers read, each its part, on disks that the kernel keeps slow. As root",
        prepare,
        (
            *throughput_comparisons(counts),
            *OVERLAP_COMPARISONS,
            *MEMORY_COMPARISONS,
            *SPLIT_COMPARISONS,
        ),
    )


READ_SESSIONS = read_sessions(COUNTS)
