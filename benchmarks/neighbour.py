"""The loop of `checkpoints` beside another process that writes 150 MB to the same disk, and syncs, again and again.

Out of step: each has a period of its own, so that bursts meet now and then. In step: the neighbour begins whenever we
begin to save a checkpoint, and both together need 0.7 of the disk. What a limit is worth is how long the
neighbour waits for its sync, and whether we wait for ours.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from .checkpoints import run_loop, scheduler_config, write_loop
from .model import Comparison, Sample
from .processes import CommandError
from .slow_disks import BANDWIDTH, cold_on, obstacle
from .workflows import JSON
from .workload import Outcome, Variant, Workload

ITERATIONS = 8
NEIGHBOUR_BYTES = 150 * 10**6
ALONE_PHASES = 6

_DISK_BYTES = 3 * 2**30
_ALONE, _IO_TASK, _STATIC, _REQUIRED = "neighbour alone", "IOTask", "static", "required"
_MEAN, _WORST = "mean phase of the neighbour, s", "worst phase of the neighbour, s"
_LOOK_SECONDS = 0.01


@dataclass(frozen=True)
class Way:
    """How our checkpoints and the phases of the neighbour lie.

    :ivar mebibytes: of a checkpoint
    :ivar static: MB/s with which a checkpoint takes some 4 s
    :ivar period: seconds from one phase of the neighbour to the next; none: each begins with one of our checkpoints
    """

    name: str
    mebibytes: int
    static: int
    period: float | None

    def variant(self, name: str) -> str:
        return f"{name}, {self.name}"

    @property
    def hints(self) -> Mapping[str, Mapping[str, JSON] | None]:
        """Fields of the hint StorageBandwidth, by variant."""
        return {
            _IO_TASK: None,
            _STATIC: {"storageBW": self.static, "limited": True},
            _REQUIRED: {"storageBW": "required"},
        }


OUT_OF_STEP = Way("out of step", 96, 25, 3.7)
IN_STEP = Way("in step", 192, 50, None)


class Neighbour:
    """Writes and syncs a file on a disk, again and again, in a thread of its own.

    :ivar phases: when each began, in seconds since the epoch, and how long it took
    """

    def __init__(self, file: Path, begun: Path, period: float | None) -> None:
        """
        :param file: is there while a phase lasts only
        :param begun: gets a line for each checkpoint that we begin to save
        :param period: as in :class:`Way`
        """
        self.phases: list[tuple[float, float]] = []
        self._file = file
        self._begun = begun
        self._period = period
        self._seen = 0
        self._ended = threading.Event()

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """For as long as the context lasts, until its last phase is over."""
        with ThreadPoolExecutor(1) as pool:
            work = pool.submit(self._work)
            try:
                yield
            finally:
                self._ended.set()
            work.result()

    def phase(self) -> None:
        """Write and sync once."""
        piece, start = bytes(10**6), time.time()
        with self._file.open("wb", buffering=0) as stream:
            for _ in range(0, NEIGHBOUR_BYTES, len(piece)):
                stream.write(piece)
            os.fsync(stream.fileno())
        self.phases.append((start, time.time() - start))
        self._file.unlink()

    def _work(self) -> None:
        while self._next():
            self.phase()

    def _next(self) -> bool:
        """Wait until the next phase begins; false: there is none."""
        if self._period is not None:
            due = self.phases[-1][0] + self._period if self.phases else None
            return due is None or not self._ended.wait(max(0.0, due - time.time()))
        while not self._ended.wait(_LOOK_SECONDS):
            if (begun := len(begin_times(self._begun))) > self._seen:
                self._seen = begun
                return True
        return False


def begin_times(begun: Path) -> list[float]:
    """When we began to save each checkpoint, in seconds since the epoch."""
    return [float(line) for line in begun.read_text(encoding="utf-8").splitlines(keepends=True) if line[-1] == "\n"]


def counted(phases: Sequence[tuple[float, float]], begun: Sequence[float]) -> list[float]:
    """The seconds of those phases that lie beside a checkpoint that may have a limit.

    Of the first nothing is known yet. The last is waited for at once.

    :param phases: as in :class:`Neighbour`
    :param begun: when we began to save each checkpoint
    """
    end = begun[-1] - NEIGHBOUR_BYTES / (BANDWIDTH.megabytes * 10**6)
    return [seconds for start, seconds in phases if begun[1] <= start < end]


def _prepare(directory: Path) -> Sequence[Variant]:
    mount, begun, skipped = directory / "disk", directory / "begun", obstacle()

    def alone(run_directory: Path) -> Outcome:
        with cold_on(BANDWIDTH, mount, run_directory, (), _DISK_BYTES):
            neighbour, start = Neighbour(mount / "neighbour", begun, None), time.monotonic()
            for _ in range(ALONE_PHASES):
                neighbour.phase()
            seconds = time.monotonic() - start
        return Outcome(Sample(wall=seconds, window=seconds, further=_figures([took for _, took in neighbour.phases])))

    def variant(way: Way, document: Path, name: str, bandwidth: Mapping[str, JSON] | None) -> Variant:
        def run(run_directory: Path) -> Outcome:
            begun.write_bytes(b"")
            with cold_on(BANDWIDTH, mount, run_directory, (), _DISK_BYTES):
                neighbour = Neighbour(mount / "neighbour", begun, way.period)
                with neighbour.at_work():
                    outcome = run_loop(
                        document, mount, scheduler_config(run_directory, mount, bandwidth), run_directory
                    )
            figures = _figures(counted(neighbour.phases, begin_times(begun)))
            further = {**outcome.sample.further, **figures}
            sample = outcome.sample.model_copy(update={"further": further})
            return Outcome(sample, {f"{way.name}: {label}": digest for label, digest in outcome.outputs.items()})

        return Variant(way.variant(name), run, skipped=skipped)

    variants = [Variant(_ALONE, alone, skipped=skipped)]
    for way in (OUT_OF_STEP, IN_STEP):
        document = write_loop(directory / f"{way.name}.cwl", ITERATIONS, way.mebibytes, begun)
        variants += [variant(way, document, name, bandwidth) for name, bandwidth in way.hints.items()]
    return variants


def _figures(seconds: Sequence[float]) -> dict[str, float]:
    if not seconds:
        raise CommandError("no phase of the neighbour was beside a checkpoint")
    return {_MEAN: mean(seconds), _WORST: max(seconds)}


def _compared(
    way: Way, name: str, mean_at_most: float | None, worst: float | None, wall: float | None
) -> list[Comparison]:
    measures = {"mean phase": (_MEAN, mean_at_most), "worst phase": (_WORST, worst), "our run": ("wall", wall)}
    return [
        Comparison(
            name=f"{way.name}: {what}: {name} / {_IO_TASK}",
            measure=measure,
            variant=way.variant(name),
            baseline=way.variant(_IO_TASK),
            at_most=at_most,
        )
        for what, (measure, at_most) in measures.items()
    ]


def _beside_it(way: Way) -> list[Comparison]:
    return [
        Comparison(
            name=f"{way.name}: {what}: {_IO_TASK} / {_ALONE}",
            measure=measure,
            variant=way.variant(_IO_TASK),
            baseline=_ALONE,
        )
        for what, measure in (("mean phase", _MEAN), ("worst phase", _WORST))
    ]


NEIGHBOUR = Workload(
    "neighbour",
    f"a loop of {ITERATIONS} that saves checkpoints, beside somebody who writes and syncs 150 MB, at 100 MB/s",
    _prepare,
    (
        *_beside_it(OUT_OF_STEP),
        *_compared(OUT_OF_STEP, _STATIC, None, None, None),
        *_compared(OUT_OF_STEP, _REQUIRED, 1.02, 0.95, 1.02),
        *_beside_it(IN_STEP),
        *_compared(IN_STEP, _STATIC, None, None, None),
        *_compared(IN_STEP, _REQUIRED, 0.80, 0.65, 1.00),
    ),
)
