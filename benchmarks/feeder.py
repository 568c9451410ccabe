"""Throughput of byte streams alone: files in the page cache, through the feeder and through pipes, to the same readers.

The files are complete, so that only the way of the bytes is measured: `cat FILE | dd` against `dd` on a FIFO that is
fed. Each consumer and each file has a pipe of its own, and all run at once. Three pipes with a `cat` each are faster
than one with `tee`. Before all repetitions the readers of the stream are `cmp` once: every byte is compared.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from streamflow_io.runtime.embedded import EmbeddedRuntime
from streamflow_io.runtime.protocol import InputStream, JobSpec

from .model import Comparison, Sample
from .node import with_runtime
from .processes import Finished, run
from .tools import MEBIBYTE, chunk
from .workload import Outcome, Variant, Workload

GOAL = 0.95


@dataclass(frozen=True)
class Case:
    """Some files of one size, and their readers.

    :ivar block: bytes that a reader asks for at a time
    :ivar consumers: jobs that read all of the files each
    """

    files: int
    mebibytes: int
    block: int
    consumers: int = 1

    @property
    def name(self) -> str:
        block = "1 MiB" if self.block == MEBIBYTE else f"{self.block // 1024} KiB"
        consumers = f", {self.consumers} consumers" if self.consumers > 1 else ""
        return f"{self.files} x {self.mebibytes} MiB, {block} buffers{consumers}"


CASES = (
    Case(1, 2048, MEBIBYTE),
    Case(1, 2048, 1024),
    Case(10, 200, MEBIBYTE),
    Case(10, 200, 1024),
    Case(1, 1024, MEBIBYTE, consumers=3),
)

_SCRIPT = """
into=$1; shift
pids=()
for file in "$@"; do {{ {reader}; }} & pids+=($!); done
for pid in "${{pids[@]}}"; do wait "$pid"; done
"""
_FROM_PIPE = 'cat "$file" | dd of=/dev/null bs={block}'
_FROM_FEEDER = 'dd if="$into/${{file##*/}}" of=/dev/null bs={block}'
COMPARE = 'cmp "$into/${file##*/}" "$file"'


def _prepare(directory: Path) -> Sequence[Variant]:
    variants: list[Variant] = []
    for case in CASES:
        files = _write_files(directory, case)
        events = write_events(directory / f"{case.files}x{case.mebibytes}.jsonl", files)
        variants += (_pipe(case, files), _feeder(case, files, events))
    return variants


def _pipe(case: Case, files: Sequence[Path]) -> Variant:
    command = bash_readers(_FROM_PIPE.format(block=case.block), files)
    return Variant(_pipe_name(case), lambda directory: _outcome(case, run([command] * case.consumers, directory)))


def _feeder(case: Case, files: Sequence[Path], events: Path) -> Variant:
    def feed(directory: Path, reader: str) -> Finished:
        async def action(runtime: EmbeddedRuntime) -> Finished:
            commands = []
            for number in range(case.consumers):
                (into := directory / f"fifos.{number}").mkdir()
                commands.append(await _wrap(runtime, into, files, events) + bash_readers(reader, files, into))
            return await asyncio.to_thread(run, commands, directory)

        return with_runtime(directory, action)

    return Variant(
        _feeder_name(case),
        lambda directory: _outcome(case, feed(directory, _FROM_FEEDER.format(block=case.block))),
        verify=lambda directory: (feed(directory, COMPARE), None)[1],
    )


def _outcome(case: Case, finished: Finished) -> Outcome:
    """The bytes that the readers counted are the output."""
    total = count_bytes(finished.errors)
    further = {"mb_per_s": total / finished.seconds / 1e6}
    sample = Sample(wall=finished.seconds, window=finished.seconds, further=further)
    return Outcome(sample, {f"bytes of {case.name}": str(total)})


def count_bytes(said: str) -> int:
    """The bytes that several `dd` have read, which say it at the same time.

    It writes the end of its last line by itself: another one may begin in the same line.
    """
    return sum(map(int, re.findall(r"(\d+) bytes", said)))


def bash_readers(reader: str, files: Sequence[Path], into: Path = Path()) -> list[str]:
    """The command of a consumer: a reader for each file, all at once; fails if one does."""
    script = _SCRIPT.format(reader=reader)
    return ["bash", "-euo", "pipefail", "-c", script, "bash", str(into), *map(str, files)]


async def _wrap(runtime: EmbeddedRuntime, into: Path, files: Sequence[Path], events: Path) -> list[str]:
    inputs = tuple(
        InputStream(
            name=file.name, port="data", path=str(file), events=str(events), target={"fifo": str(into / file.name)}
        )
        for file in files
    )
    return await (await runtime.create_job("consumer")).wrap(JobSpec(name="consumer", streams=inputs))


def _write_files(directory: Path, case: Case) -> list[Path]:
    files = [directory / f"{case.files}x{case.mebibytes}.{number}" for number in range(case.files)]
    for number, file in enumerate(files):
        if file.exists():
            continue
        with file.open("wb") as stream:
            for index in range(case.mebibytes):
                stream.write(chunk(number * case.mebibytes + index, MEBIBYTE))
    return files


def write_events(path: Path, files: Sequence[Path]) -> Path:
    """Write the events of a producer that has written the files and ended."""
    now = time.time()
    events: list[dict[str, object]] = [{"event": "started", "pid": 1, "command_pid": 1}]
    for file in files:
        events += (
            {"event": "opened", "port": "data", "path": str(file)},
            {"event": "committed", "port": "data", "path": str(file), "size": file.stat().st_size},
        )
    events.append({"event": "complete", "port": "data"})
    events.append(
        {"event": "exit", "code": 0, "success": True, "reason": "exited", "started": now, "ended": now, "usage": {}}
    )
    path.write_text("".join(json.dumps(event | {"time": now}) + "\n" for event in events), encoding="utf-8")
    return path


def _pipe_name(case: Case) -> str:
    return f"pipe, {case.name}"


def _feeder_name(case: Case) -> str:
    return f"feeder, {case.name}"


FEEDER = Workload(
    "feeder",
    "throughput of byte streams alone against shell pipes: 1 x 2 GiB, 10 x 200 MiB, three consumers of one file",
    _prepare,
    tuple(
        Comparison(
            name=f"throughput, feeder / pipe: {case.name}",
            measure="mb_per_s",
            variant=_feeder_name(case),
            baseline=_pipe_name(case),
            at_least=GOAL,
        )
        for case in CASES
    ),
)
