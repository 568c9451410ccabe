"""A pipeline of three programs: how much of it runs at the same time.

Each stage uses 50 ms of CPU for each of the 64 chunks, besides reading and writing. With work in all stages there is
something to overlap; with CPU time, not sleep, the three of them share the cores of the machine in every variant, as
real programs do. On two cores the ideal is half of the time of one after the other.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from .model import Comparison
from .tools import MEBIBYTE
from .workflows import JSON, TOOL, run_bash, streamflow, tool, write_workflow
from .workload import Variant, Workload

CHUNKS = 64
CHUNK_BYTES = 8 * MEBIBYTE
WORK_SECONDS = 0.05

_SOURCE = [*TOOL, "chain-source", str(CHUNKS), str(CHUNK_BYTES), str(WORK_SECONDS)]
_TRANSFORM = [*TOOL, "chain-transform", str(CHUNK_BYTES), str(WORK_SECONDS)]
_SUM = [*TOOL, "chain-sum", str(CHUNK_BYTES), str(WORK_SECONDS)]
_FILE_NAME = "data"
_FILE: JSON = {"type": "File", "streamable": True}
_STDOUT: JSON = {"type": "File", "streamable": True, "outputBinding": {"glob": _FILE_NAME}}


def _prepare(directory: Path) -> Sequence[Variant]:
    workflow = write_workflow(
        directory / "chain.cwl",
        inputs={},
        outputs={"sum": {"type": "File", "outputSource": "c/sum"}},
        steps={
            "a": {"run": tool(_SOURCE, {}, {"data": _STDOUT}, stdout=_FILE_NAME), "in": {}, "out": ["data"]},
            "b": {
                "run": tool(
                    _TRANSFORM,
                    {"data": _FILE},
                    {"transformed": _STDOUT},
                    stdin="$(inputs.data.path)",
                    stdout=_FILE_NAME,
                ),
                "in": {"data": "a/data"},
                "out": ["transformed"],
            },
            "c": {
                "run": tool(
                    _SUM,
                    {"transformed": _FILE},
                    {"sum": "stdout"},
                    stdin="$(inputs.transformed.path)",
                    stdout="sum.txt",
                ),
                "in": {"transformed": "b/transformed"},
                "out": ["sum"],
            },
        },
    )
    pipe = " | ".join(map(shlex.join, (_SOURCE, _TRANSFORM, _SUM))) + " > result/sum.txt"
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
