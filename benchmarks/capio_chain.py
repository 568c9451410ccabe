"""The chain of three steps with `runtime: capio`, which serves files that are no standard output.

What CAPIO gains or loses against the embedded node runtime, with the same workflow, and all that keeps results right.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from .chain import FILE, STDOUT, Chain
from .model import Comparison
from .tools import MEBIBYTE
from .workflows import streamflow, tool, write_workflow
from .workload import Variant, Workload

_NAME = "data"


def write(chain: Chain, path: Path) -> Path:
    """Write a chain whose steps write files, as a workflow whose result is the file `sum.txt`."""
    steps = {
        "a": {"run": tool([*chain.source, _NAME], {}, {"data": STDOUT}), "in": {}, "out": ["data"]},
        "b": {
            "run": tool([*chain.transform, _NAME], {"data": FILE}, {"data": STDOUT}, stdin="$(inputs.data.path)"),
            "in": {"data": "a/data"},
            "out": ["data"],
        },
        "c": {
            "run": tool(chain.sum, {"data": FILE}, {"sum": "stdout"}, stdin="$(inputs.data.path)", stdout="sum.txt"),
            "in": {"data": "b/data"},
            "out": ["sum"],
        },
    }
    return write_workflow(path, inputs={}, outputs={"sum": {"type": "File", "outputSource": "c/sum"}}, steps=steps)


def _prepare(directory: Path) -> Sequence[Variant]:
    workflow = write(Chain(chunks=64, chunk_bytes=4 * MEBIBYTE, work="0.05"), directory / "chain.cwl")
    streams = ["stream", "stream"]
    capio = streamflow("capio", workflow, {"runtime": "capio"}, deliveries=streams)
    return (
        streamflow("plain", workflow),
        streamflow("embedded", workflow, {}, deliveries=streams),
        replace(capio, skipped=_missing()),
    )


def _missing() -> str | None:
    if os.environ.get("CAPIO_HOME"):
        return None
    return "CAPIO is not installed: `CAPIO_HOME` is not set"


def _compare(variant: str, baseline: str) -> Comparison:
    return Comparison(
        name=f"execution window, {variant} / {baseline}", measure="window", variant=variant, baseline=baseline
    )


CAPIO_CHAIN = Workload(
    "capio-chain",
    "A writes 256 MiB in 64 chunks, B transforms, C sums; each works 50 ms per chunk; with CAPIO",
    _prepare,
    (_compare("embedded", "plain"), _compare("capio", "plain"), _compare("capio", "embedded")),
)
