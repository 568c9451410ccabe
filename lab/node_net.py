"""Commands under the reader net of sfio-node, and the same commands with the file."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.node import Job, Node, job_text, output, wait_for

#: Writes standard input to a file, the second half when it is told to: by a file.
_GROW = """
import os, sys, time
path, go = sys.argv[1:]
data = sys.stdin.buffer.read()
with open(path, "wb", 0) as file:
    file.write(data[:len(data) // 2])
    while not os.path.exists(go): time.sleep(0.002)
    file.write(data[len(data) // 2:])
"""
#: A command waits for the second half if its processes rest at this number of looks, one after the other.
_LOOKS = 20


@dataclass(frozen=True)
class Ran:
    """How a command has ended that was given a stream.

    :ivar held: the first call that a stream could not serve; empty: none
    :ivar said: what it has written to its standard error
    """

    code: int
    out: bytes
    held: str
    reason: object
    said: str
    job: Job


def native(command: Sequence[str], data: bytes, place: Path, stdin: bool = False) -> tuple[int, bytes]:
    """Runs a command in a directory in which the file ``f`` is whole; returns its exit code, and what it prints."""
    place.mkdir()
    (place / "f").write_bytes(data)
    with open(place / "f" if stdin else os.devnull, "rb") as source:
        done = subprocess.run(command, cwd=place, stdin=source, capture_output=True, timeout=30)
    return done.returncode, done.stdout


class Growing:
    """The file of a producer, with its first half."""

    def __init__(self, runtime: Node, data: bytes, name: str = "p") -> None:
        self.runtime, self.name = runtime, name
        self.path, self.go = runtime.base / "out" / name / "f", runtime.base / f"go-{name}"
        self.path.parent.mkdir()
        words: list[str | bytes | Path] = [sys.executable, "-ISc", _GROW, self.path, self.go]
        outputs = [output(self.path.parent, self.path.name, "on_close")]
        self.producer = runtime.start(name, words, outputs=outputs, stdin=subprocess.PIPE)
        assert self.producer.process.stdin is not None
        self.producer.process.stdin.write(data)
        self.producer.process.stdin.close()

    def input(
        self, target: Path | None, name: str = "in", pipe: int | None = None, reader: Node | None = None
    ) -> dict[str, object]:
        """An entry of ``inputs``, under the net; up to ``pipe`` bytes it is a pipe. ``reader``: another node."""
        if reader is None or reader is self.runtime:
            stream = self.runtime.stream(self.producer, self.path, target, name)
        else:
            stream = reader.link(self.producer, self.path, target, self.runtime.address, name)
        return {**stream, "net": True} if pipe is None else {**stream, "net": True, "pipe": pipe}

    def finish(self) -> None:
        self.go.touch()


def start(
    runtime: Node,
    command: Sequence[str],
    growing: Growing,
    stdin: bool = False,
    pipe: int | None = None,
    **options: object,
) -> Job:
    """Starts a command that finds the stream as ``f``, or at its standard input; it prints to ``printed``."""
    place = runtime.base / "in"
    streams = [growing.input(None if stdin else place / "f", pipe=pipe, reader=runtime)]
    printed, said = str(runtime.base / "printed"), str(runtime.base / "said")
    spec = job_text("c", streams, command={"stdout": printed, "stderr": said})
    return runtime.start("c", ["env", f"--chdir={place}", *command], job=spec, **options)  # type: ignore[arg-type]


def _rests(job: Job) -> bool:
    """Whether the processes of a job, and its `exec`, sleep for a while: then the command waits for bytes."""
    for _ in range(_LOOKS):
        time.sleep(0.02)
        processes = job.processes()
        if not processes or any(process_state(pid) != "S" for pid in (job.process.pid, *processes)):
            return False
    return True


def process_state(pid: int) -> str:
    """The state of a process, as `/proc` tells it; empty: it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
    except OSError:
        return ""


def run(
    runtime: Node,
    command: Sequence[str],
    data: bytes,
    stdin: bool = False,
    pipe: int | None = None,
    source: Node | None = None,
    **options: object,
) -> Ran:
    """Runs a command while the file grows; ``source``: on another node."""
    growing = Growing(source or runtime, data)
    job = start(runtime, command, growing, stdin, pipe, **options)
    wait_for(lambda: job.named("held") or job.process.poll() is not None or _rests(job), "a command that waits")
    growing.finish()
    code = job.wait(30)
    held = "".join(str(event["call"]) for event in job.named("held"))
    printed = (runtime.base / "printed").read_bytes()
    return Ran(code, printed, held, job.exit()["reason"], (runtime.base / "said").read_text(errors="replace"), job)
