"""A pipeline of three programs: how much of it runs at the same time.

Each stage uses 50 ms of CPU for each of the 64 chunks, besides reading and writing. With work in all stages there is
something to overlap; with CPU time, not sleep, the three of them share the cores of the machine in every variant, as
real programs do. On two cores the ideal is half of the time of one after the other.
"""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .model import Comparison
from .processes import CommandError
from .tools import MEBIBYTE
from .workflows import JSON, TOOL, job_times, run_bash, streamflow, tool, write_workflow
from .workload import Variant, Workload

STEPS = ("/a", "/b", "/c")
STDOUT_NAME = "data"
FILE: JSON = {"type": "File", "streamable": True}
STDOUT: JSON = {"type": "File", "streamable": True, "outputBinding": {"glob": STDOUT_NAME}}


@dataclass(frozen=True)
class Chain:
    """Steps `a`, `b` and `c`; each hands its chunks to the next.

    :ivar chunks: how many
    :ivar chunk_bytes: bytes of each
    :ivar work: of each step on each chunk, in the words of `tools.py`
    :ivar program: the words that run `tools.py` where the steps run
    :ivar cores: of each step
    """

    chunks: int
    chunk_bytes: int
    work: str
    program: Sequence[str] = TOOL
    cores: float = 1

    @property
    def source(self) -> list[str]:
        """The command of `a`."""
        return [*self.program, "chain-source", str(self.chunks), str(self.chunk_bytes), self.work]

    @property
    def transform(self) -> list[str]:
        """The command of `b`."""
        return [*self.program, "chain-transform", str(self.chunk_bytes), self.work]

    @property
    def sum(self) -> list[str]:
        """The command of `c`."""
        return [*self.program, "chain-sum", str(self.chunk_bytes), self.work]

    def write(self, path: Path) -> Path:
        """Write it as a workflow whose result is the file `sum.txt`."""
        return write_workflow(
            path,
            inputs={},
            outputs={"sum": {"type": "File", "outputSource": "c/sum"}},
            steps={
                "a": {
                    "run": tool(self.source, {}, {"data": STDOUT}, self.cores, stdout=STDOUT_NAME),
                    "in": {},
                    "out": ["data"],
                },
                "b": {
                    "run": tool(
                        self.transform,
                        {"data": FILE},
                        {"transformed": STDOUT},
                        self.cores,
                        stdin="$(inputs.data.path)",
                        stdout=STDOUT_NAME,
                    ),
                    "in": {"data": "a/data"},
                    "out": ["transformed"],
                },
                "c": {
                    "run": tool(
                        self.sum,
                        {"transformed": FILE},
                        {"sum": "stdout"},
                        self.cores,
                        stdin="$(inputs.transformed.path)",
                        stdout="sum.txt",
                    ),
                    "in": {"transformed": "b/transformed"},
                    "out": ["sum"],
                },
            },
        )


def check_streamed(directory: Path, steps: Sequence[str] = STEPS) -> None:
    """A planned stream may still fall back while it runs: then a step begins after the step from which it reads.

    :param steps: each of them reads from the one before
    :raises CommandError: if so, with the warnings of the run
    """
    jobs = {job.step: job for job in job_times(directory)}
    for producer, consumer in itertools.pairwise(steps):
        late = jobs[consumer].start - jobs[producer].end
        if late >= 0:
            log = (directory / "errors.0").read_text(encoding="utf-8", errors="replace")
            warnings = "\n".join(dict.fromkeys(line for line in log.splitlines() if "WARNING" in line))
            raise CommandError(
                f"nothing streamed from {producer} to {consumer}, which started {late:.1f} s after its end:\n{warnings}"
            )


DATA = Chain(chunks=64, chunk_bytes=8 * MEBIBYTE, work="0.05")


def _prepare(directory: Path) -> Sequence[Variant]:
    workflow = DATA.write(directory / "chain.cwl")
    pipe = " | ".join(map(shlex.join, (DATA.source, DATA.transform, DATA.sum))) + " > result/sum.txt"
    return (
        Variant("bash pipe", lambda run: run_bash(run, pipe)),
        streamflow("plain", workflow),
        streamflow("streaming", workflow, {}, deliveries=["stream", "stream"]),
    )


CHAIN = Workload(
    "chain",
    "A writes 512 MiB in 64 chunks, B transforms, C sums; each works 50 ms per chunk",
    _prepare,
    (
        Comparison(name="streaming / plain", variant="streaming", baseline="plain", at_most=0.70),
        Comparison(
            name="execution window, streaming / bash pipe",
            measure="window",
            variant="streaming",
            baseline="bash pipe",
            at_most=1.10,
        ),
        Comparison(name="execution window, streaming / plain", measure="window", variant="streaming", baseline="plain"),
        Comparison(name="bash pipe / plain", variant="bash pipe", baseline="plain"),
    ),
)
