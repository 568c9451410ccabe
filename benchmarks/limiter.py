"""How well I/O tasks, and byte streams, are held to a rate, and what that costs.

Without StreamFlow: a job under `sfio-node exec` with a limit copies a file that is in the page cache, with programs
that write in different ways; and a file that is complete is fed to a program that notes what comes when, by the feeder
and by `pv -L`. On a disk of 100 MB/s, how evenly is written what a job writes and syncs that is held to a rate.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamflow_io.runtime.embedded import EmbeddedRuntime
from streamflow_io.runtime.protocol import InputStream, JobSpec, RateLimit, StreamLimit

from .feeder import write_events
from .flat_disk import FLAT_DISK, flat_disk
from .model import Comparison, Sample
from .node import with_runtime
from .processes import CommandError, Finished, run
from .tools import MEBIBYTE, chunk
from .workload import Outcome, Variant, Workload

MB = 10**6
RATES = (20, 50, 200)
MEBIBYTES = 200
PAUSE_OFF, PAUSE_CPU = 5.0, 1.5
FED_RATES = (10, 50, 200, 500)
FED_SECONDS = 3
FEED_OFF, FEED_WINDOW_OFF, FEED_CPU = 1.0, 15.0, 3.0
#: How much of a stream is looked at at once.
WINDOW_SECONDS = 0.1

_READER = f"""
import json, os, sys, time
file = os.open(sys.argv[1], os.O_RDONLY)
total, windows, start, last = 0, [], None, None
while piece := os.read(file, 1 << 16):
    last = time.monotonic()
    start = last if start is None else start
    index = int((last - start) / {WINDOW_SECONDS})
    windows += [0] * (index + 1 - len(windows))
    windows[index] += len(piece)
    total += len(piece)
print(json.dumps(dict(bytes=total, seconds=last - start, windows=windows)), file=sys.stderr)
"""

_MMAP = """
import mmap, sys
with open(sys.argv[1], "rb") as source, open("out", "w+b") as file:
    data = mmap.mmap(source.fileno(), 0, prot=mmap.PROT_READ)
    file.truncate(len(data))
    mapped = mmap.mmap(file.fileno(), 0)
    for at in range(0, len(data), 1 << 20):
        mapped[at : at + (1 << 20)] = data[at : at + (1 << 20)]
"""
_FOUR = """
truncate -s 0 out
for part in 0 1 2 3; do
    dd if="$0" of=out bs=1M skip=$((part * $1 / 4)) seek=$((part * $1 / 4)) count=$(($1 / 4)) conv=notrunc status=none &
done
wait
"""
#: Each copies `$0`, of `$1` MiB, to `out`.
TOOLS = {
    "dd 4 KiB": 'dd if="$0" of=out bs=4k status=none',
    "dd 1 MiB": 'dd if="$0" of=out bs=1M status=none',
    "cp": 'cp --reflink=never "$0" out',
    "tar | cat": 'tar cf - -C "${0%/*}" "${0##*/}" | cat | tar xOf - > out',
    "mmap": f"exec {sys.executable} -ISc '{_MMAP}' \"$0\"",
    "four writers": _FOUR,
}


@dataclass(frozen=True)
class Case:
    """An I/O task that is held to a rate.

    :ivar rate: MB/s
    """

    tool: str
    rate: int

    @property
    def name(self) -> str:
        return f"{self.tool} at {self.rate} MB/s"


CASES = tuple(Case(tool, rate) for tool in TOOLS for rate in RATES)


def _prepare(directory: Path) -> Sequence[Variant]:
    source = directory / "source"
    write_source(source, MEBIBYTES)
    fed: list[Variant] = []
    for rate in FED_RATES:
        (file := directory / f"fed.{rate}").touch()
        # Holes are read as any bytes are.
        os.truncate(file, rate * FED_SECONDS * MB)
        # In the page cache for whoever comes first.
        shutil.copyfile(file, os.devnull)
        events = write_events(directory / f"fed.{rate}.jsonl", [file])
        fed += (_piped(rate, file), _fed(rate, file, events))
    return [*fed, *(paused(case, source, MEBIBYTES) for case in CASES), *flat_disk(directory / "disk")]


def _piped(rate: int, file: Path) -> Variant:
    script = (
        f"""TIMEFORMAT='%U %S'; {{ time pv -q -L {rate * MB} "$0"; }} 2> cpu | {sys.executable} -ISc "$1" /dev/stdin"""
    )

    def measure(directory: Path) -> Outcome:
        finished = run([["bash", "-euo", "pipefail", "-c", script, str(file), _READER]], directory)
        cpu_seconds = sum(map(float, (directory / "cpu").read_text(encoding="utf-8").split()))
        return _fed_outcome(rate, finished, cpu_seconds)

    return Variant(_pv_name(rate), measure, skipped=None if shutil.which("pv") else "pv is not installed")


def _fed(rate: int, file: Path, events: Path) -> Variant:
    async def action(runtime: EmbeddedRuntime, directory: Path) -> Outcome:
        stream = InputStream(
            name="fed",
            port="data",
            path=str(file),
            events=str(events),
            target={"fifo": str(directory / "fifo")},
            limit=StreamLimit(rate=rate * MB),
        )
        job = await runtime.create_job("reader")
        words = await job.wrap(JobSpec(name="reader", streams=(stream,)))
        command = [*words, sys.executable, "-ISc", _READER, f"{directory}/fifo"]
        finished = await asyncio.to_thread(run, [command], directory)
        usage = last_event(Path(job.events_path))["usage"]
        return _fed_outcome(rate, finished, usage["wrapper_cpu"])

    return Variant(_feeder_name(rate), lambda directory: with_runtime(directory, lambda it: action(it, directory)))


def _fed_outcome(rate: int, finished: Finished, cpu_seconds: float) -> Outcome:
    lines = finished.errors.splitlines()
    if not lines or not lines[-1].startswith("{"):
        raise CommandError(f"the reader does not say what it has read: {finished.errors}")
    found = json.loads(lines[-1])
    # Without the first window: the reader does not know when its first bytes set out.
    reached = (found["bytes"] - found["windows"][0]) / MB / (found["seconds"] - WINDOW_SECONDS)
    further = {
        "mb_per_s": reached,
        "off_percent": 100 * abs(reached / rate - 1),
        "window_off_percent": most_off(rate, found["windows"]),
        "cpu_percent": 100 * cpu_seconds / found["seconds"],
    }
    sample = Sample(wall=finished.seconds, window=found["seconds"], further=further)
    return Outcome(sample, {f"bytes at {rate} MB/s": str(found["bytes"])})


def most_off(rate: float, windows: Sequence[int]) -> float:
    """By how many percent a window is off its rate at most, but for the first one, and the last, which may be shorter.

    :param rate: MB/s
    :param windows: bytes of each
    """
    expected = rate * MB * WINDOW_SECONDS
    return max((100 * abs(moved / expected - 1) for moved in windows[1:-1]), default=0.0)


def _feeder_name(rate: int) -> str:
    return f"feeder at {rate} MB/s"


def _pv_name(rate: int) -> str:
    return f"pv at {rate} MB/s"


def write_source(source: Path, mebibytes: int) -> None:
    """Write a file to be copied."""
    with source.open("wb") as stream:
        for index in range(mebibytes):
            stream.write(chunk(index, MEBIBYTE))


def paused(case: Case, source: Path, mebibytes: int) -> Variant:
    """Copies a file of this number of MiB."""

    async def action(runtime: EmbeddedRuntime, directory: Path) -> Outcome:
        job = await runtime.create_job("task")
        limit = RateLimit(rate=case.rate * MB, direction="write", path=str(directory))
        words = await job.wrap(JobSpec(name="task", limit=limit))
        command = [*words, "bash", "-euc", TOOLS[case.tool], str(source), str(mebibytes)]
        finished = await asyncio.to_thread(run, [command], directory)
        exit_event = last_event(Path(job.events_path))
        seconds, usage = exit_event["ended"] - exit_event["started"], exit_event["usage"]
        reached = mebibytes * MEBIBYTE / MB / seconds
        further = {
            "mb_per_s": reached,
            "off_percent": 100 * abs(reached / case.rate - 1),
            "cpu_percent": 100 * usage["wrapper_cpu"] / seconds,
        }
        out = directory / "out"
        digest = hashlib.sha256(out.read_bytes()).hexdigest()
        out.unlink()
        return Outcome(Sample(wall=finished.seconds, window=seconds, further=further), {"copy": digest})

    def measure(directory: Path) -> Outcome:
        return with_runtime(directory, lambda runtime: action(runtime, directory))

    return Variant(case.name, measure)


def last_event(events: Path) -> dict[str, Any]:
    """The last one of a file of events."""
    found: dict[str, Any] = json.loads(events.read_text(encoding="utf-8").splitlines()[-1])
    return found


def _comparisons_of_feeding(rate: int) -> Sequence[Comparison]:
    feeder, pv = _feeder_name(rate), _pv_name(rate)
    return (
        Comparison(name=f"off, %: {feeder}", measure="off_percent", variant=feeder, at_most=FEED_OFF),
        Comparison(name=f"off, %: {pv}", measure="off_percent", variant=pv),
        Comparison(
            name=f"off in 100 ms at most, %: {feeder}",
            measure="window_off_percent",
            variant=feeder,
            at_most=FEED_WINDOW_OFF,
        ),
        Comparison(name=f"off in 100 ms at most, %: {pv}", measure="window_off_percent", variant=pv),
        Comparison(name=f"CPU, % of a core: {feeder}", measure="cpu_percent", variant=feeder, at_most=FEED_CPU),
        Comparison(name=f"CPU, % of a core: {pv}", measure="cpu_percent", variant=pv),
        Comparison(
            name=f"CPU, feeder / pv: at {rate} MB/s", measure="cpu_percent", variant=feeder, baseline=pv, at_most=1.0
        ),
    )


def _comparisons(case: Case) -> Sequence[Comparison]:
    return (
        Comparison(name=f"off, %: {case.name}", measure="off_percent", variant=case.name, at_most=PAUSE_OFF),
        Comparison(name=f"CPU, % of a core: {case.name}", measure="cpu_percent", variant=case.name, at_most=PAUSE_CPU),
    )


LIMITER = Workload(
    "limiter",
    "streams at 10 to 500 MB/s, I/O tasks at 20 to 200 MB/s: how far off they are, and what that costs",
    _prepare,
    (
        *(comparison for rate in FED_RATES for comparison in _comparisons_of_feeding(rate)),
        *(comparison for case in CASES for comparison in _comparisons(case)),
        FLAT_DISK,
    ),
)
