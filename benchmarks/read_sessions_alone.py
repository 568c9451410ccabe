"""The gain of a read session for many consumers of one file, on slow disks, without StreamFlow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from lab import memory_limit
from lab.loop_device import LimitedDisk
from lab.memory_limit import limited_memory

from .model import Comparison
from .session_alone import CPU, MEMORY, Consumers, Session, read_ahead, read_alone
from .slow_disks import BANDWIDTH, FAST, READ, REQUESTS, Disk, cold_on, counted, forget, write_lines
from .tools import MEBIBYTE
from .workload import Outcome, Variant

SIZE = 256 * MEBIBYTE
COUNTS = (1, 16, 128, 1024)
HIDDEN = "hidden / input"
_NAIVE, _SESSION, _OVERLAP = "alone", "session", "overlap"
_COMPUTE = 1.5
"""Times the time of the input."""
_CGROUP = 256 * MEBIBYTE
_FILES = (BANDWIDTH, REQUESTS)


class Files:
    """The files that are read: written when the first variant needs them, in a directory that is removed at the end."""

    def __init__(self, directory: Path) -> None:
        self.mount = directory / "disk"
        self._directory = directory

    def file(self, size: int) -> Path:
        path = self._directory / f"lines-{size}"
        return path if path.exists() else write_lines(path, size)


def throughput(files: Files, counts: Sequence[int], obstacle: str | None) -> list[Variant]:
    """Run as many consumers as the name says, which read by themselves, or after a session."""

    def run(kind: Disk, count: int, way: str, directory: Path) -> Outcome:
        consumers = Consumers(count, selects=count == 1)
        if way == _NAIVE:
            return on_disk(files, kind, SIZE, lambda file, _: read_alone(file, consumers))
        session = Session(kind.megabytes)
        return on_disk(files, kind, SIZE, lambda file, _: read_ahead(file, consumers, session, directory))

    return [
        Variant(_count_name(kind, count, way), partial(run, kind, count, way), skipped=obstacle)
        for kind in _FILES
        for count in counts
        for way in (_NAIVE, _SESSION)
    ]


def throughput_comparisons(counts: Sequence[int]) -> list[Comparison]:
    """Flat from the second count on; the more consumers, the more is gained where a request has its price."""
    found = []
    for kind in _FILES:
        first, *more = counts
        for count in counts:
            goal = 3.0 if kind is REQUESTS and count == max(counts) else 1.0 if count == first else None
            found.append(
                Comparison(
                    name=f"{kind.name}: {count} alone / after a session",
                    variant=_count_name(kind, count, _NAIVE),
                    baseline=_count_name(kind, count, _SESSION),
                    at_least=goal,
                )
            )
        found += [
            Comparison(
                name=f"{kind.name}: session of {count} / of {more[0]}",
                variant=_count_name(kind, count, _SESSION),
                baseline=_count_name(kind, more[0], _SESSION),
                at_most=1.10,
            )
            for count in more[1:]
        ]
    return found


def overlap(files: Files, obstacle: str | None) -> list[Variant]:
    """Consumers that need 1.5 times as long as their input, which is read at the same time."""

    def run(kind: Disk, directory: Path) -> Outcome:
        session = Session(kind.megabytes)
        consumers = Consumers(64, 2 * _COMPUTE / (kind.megabytes * 1e6) * MEBIBYTE)

        def read(file: Path, _: LimitedDisk) -> Outcome:
            for name in ("input", "both"):
                (directory / name).mkdir()
            only = read_ahead(file, Consumers(64), session, directory / "input").sample.wall
            # The file is in the page cache now.
            compute = read_alone(file, consumers).sample.wall
            with file.open("rb") as opened:
                forget(opened.fileno())
            both = read_ahead(file, consumers, session, directory / "both")
            further = {**both.sample.further, HIDDEN: (only + compute - both.sample.wall) / only}
            return replace(both, sample=both.sample.model_copy(update={"further": further}))

        return on_disk(files, kind, SIZE, read)

    return [Variant(f"{_OVERLAP}, {kind.name}", partial(run, kind), skipped=obstacle) for kind in _FILES]


OVERLAP_COMPARISONS = [
    Comparison(
        name=f"{kind.name}: input hidden behind compute",
        measure=HIDDEN,
        variant=f"{_OVERLAP}, {kind.name}",
        at_least=0.8,
    )
    for kind in _FILES
]


def memory(files: Files, obstacle: str | None) -> list[Variant]:
    """A window of a quarter of the file; of half of a cgroup's memory; and one that is larger than all of it."""
    no_cgroup = obstacle or memory_limit.obstacle()

    def run(window: int | None, cgroup: int | None, size: int, kind: Disk, directory: Path) -> Outcome:
        # Consumers need about twice as long as their input, so that the window is full.
        consumers, session = Consumers(64, 4e-6 / kind.megabytes * MEBIBYTE), Session(kind.megabytes, window=window)

        def read(file: Path, _: LimitedDisk) -> Outcome:
            if cgroup is None:
                return read_ahead(file, consumers, session, directory)
            with limited_memory(cgroup) as limited, limited.joined():
                return read_ahead(file, consumers, session, directory)

        return on_disk(files, kind, size, read)

    quarter = SIZE // 4_000_000
    return [
        Variant("window of a quarter", partial(run, quarter, None, SIZE, REQUESTS), skipped=obstacle),
        Variant("half of a cgroup", partial(run, None, _CGROUP, 2 * SIZE, REQUESTS), skipped=no_cgroup),
        Variant("more than a cgroup", partial(run, 512, _CGROUP // 2, 2 * SIZE, REQUESTS), skipped=no_cgroup),
        Variant("fast disk", partial(run, None, None, 4 * SIZE, FAST), skipped=obstacle),
    ]


MEMORY_COMPARISONS = [
    Comparison(
        name="window of a quarter of the file: read / file", measure=READ, variant="window of a quarter", at_most=1.05
    ),
    Comparison(name="window of half of a cgroup: read / file", measure=READ, variant="half of a cgroup", at_most=1.05),
    Comparison(name="window of four times a cgroup: read / file", measure=READ, variant="more than a cgroup"),
    *(
        Comparison(name=f"reader, {variant}: {name}", measure=name, variant=variant, at_most=at_most)
        for variant in ("fast disk", "half of a cgroup")
        for name, at_most in ((MEMORY, 16), (CPU, 0.1))
    ),
]


def on_disk(files: Files, kind: Disk, size: int, read: Callable[[Path, LimitedDisk], Outcome]) -> Outcome:
    """Do something with a file on a new disk, and count what that moves."""
    whole = files.file(size)
    with cold_on(kind, files.mount, whole.parent, (whole.name,)) as disk:
        return counted(disk, size, lambda: read(files.mount / whole.name, disk))


def _count_name(kind: Disk, count: int, way: str) -> str:
    return f"{count} {way}, {kind.name}"
