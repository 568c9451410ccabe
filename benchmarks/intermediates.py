"""A chain of three programs that computes little: what a window saves on disk, and what it costs.

The peak is that of the files in the work directories. The bytes written to the device are those of all programs of the
machine: use an idle one.
"""

from __future__ import annotations

import os
import shlex
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from .chain import Chain
from .model import Comparison
from .tools import MEBIBYTE
from .workflows import RESULT, run_bash, streamflow
from .workload import Outcome, Variant, Workload

#: MiB that the first program writes.
SIZE = 1024
_CHUNK = 8
_WINDOW_MB = 256
_SECTOR = 512
_PAUSE = 0.05


def intermediates(size: int) -> Workload:
    """:param size: MiB that the first program writes"""
    return Workload(
        "intermediates",
        f"A writes {size} MiB, B transforms, C sums; without a window and with one of {_WINDOW_MB} MB",
        lambda directory: _prepare(directory, size),
        (
            Comparison(name="window / streaming", variant="window", baseline="streaming", at_most=1.03),
            Comparison(
                name="execution window, window / bash pipe",
                measure="window",
                variant="window",
                baseline="bash pipe",
                at_most=1.05,
            ),
            Comparison(
                name="largest intermediate files, window, MB",
                measure="peak_mb",
                variant="window",
                at_most=3.0 * _WINDOW_MB,
            ),
            Comparison(name="largest intermediate files, streaming, MB", measure="peak_mb", variant="streaming"),
            Comparison(
                name="written to the device, window / streaming",
                measure="written_mb",
                variant="window",
                baseline="streaming",
                at_most=0.01,
            ),
            Comparison(name="written to the device, window, MB", measure="written_mb", variant="window"),
        ),
    )


def _prepare(directory: Path, size: int) -> Sequence[Variant]:
    chain = Chain(chunks=max(1, size // _CHUNK), chunk_bytes=_CHUNK * MEBIBYTE, work="0")
    workflow = chain.write(directory / "chain.cwl")
    pipe = " | ".join(map(shlex.join, (chain.source, chain.transform, chain.sum))) + " > result/sum.txt"
    ways = (
        Variant("bash pipe", lambda run: run_bash(run, pipe)),
        streamflow("streaming", workflow, {}, deliveries=["stream", "stream"]),
        streamflow("window", workflow, {"intermediates": "window"}, deliveries=["stream", "stream"]),
    )
    return [replace(way, run=measured(way.run)) for way in ways]


def measured(run: Callable[[Path], Outcome]) -> Callable[[Path], Outcome]:
    """Measure also the peak of the files of a run, what it writes, and what jobs have left beside the results."""

    def run_measured(directory: Path) -> Outcome:
        peak, ended = 0, threading.Event()

        def look() -> None:
            nonlocal peak
            while not ended.wait(_PAUSE):
                peak = max(peak, _on_disk(directory))

        thread = threading.Thread(target=look)
        before = _written(directory)
        thread.start()
        try:
            outcome = run(directory)
        finally:
            ended.set()
            thread.join()
        # What is still in memory would be written some time.
        os.sync()
        left = max(0, _on_disk(directory / "tmp") - _on_disk(directory / RESULT))
        further = {"peak_mb": peak / 1e6, "written_mb": (_written(directory) - before) / 1e6, "left_mb": left / 1e6}
        return replace(outcome, sample=outcome.sample.model_copy(update={"further": further}))

    return run_measured


def _on_disk(directory: Path) -> int:
    """The bytes that the files below a directory take."""
    total = 0
    for place, _, names in os.walk(directory):
        for name in names:
            try:
                total += os.lstat(os.path.join(place, name)).st_blocks * _SECTOR
            except OSError:
                continue
    return total


def _written(directory: Path) -> int:
    """The bytes that were written to the device of a directory; 0 where the kernel does not tell."""
    device = directory.stat().st_dev
    stat = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat")
    return int(stat.read_text().split()[6]) * _SECTOR if stat.exists() else 0


INTERMEDIATES = intermediates(SIZE)
