"""The bytes that a file system which nodes of an allocation share reads and writes for streams, as the system counts.

The file system is a distributed one, and each node is a client. The driver, with the results, is elsewhere.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from lab.machines.allocation import held_allocation
from lab.machines.deployments import allocation_deployment
from lab.machines.glusterfs import bytes_seen
from lab.machines.laboratory import GLUSTERFS, Laboratory, missing_programs, start_slurm

from .chain import STEPS, Chain, check_streamed
from .model import Comparison
from .tools import MEBIBYTE, WAIT
from .workflows import Site, StreamFlowRun
from .workload import Outcome, Variant

# Steps take longer than the next step needs to start.
_CHAIN = Chain(32, 4 * MEBIBYTE, f"{WAIT}0.1")
_STREAMED = 2 * _CHAIN.chunks * _CHAIN.chunk_bytes
_NAME = "shared bytes"
#: The work directories, below the directory of the laboratory.
_WORKDIRS = {"shared": "volume/work", "of each node": "local/work"}


def _measure(way: StreamFlowRun, laboratory: Laboratory, workdir: Path, directory: Path) -> tuple[Outcome, float]:
    """Run the chain; return the bytes that the file system sees, as a fraction of those of the streams."""
    directory.mkdir()
    before = bytes_seen(laboratory.directory)
    with held_allocation(laboratory, 2, "60") as environment:
        site = Site({"nodes": allocation_deployment(workdir)}, {"/": "nodes"}, laboratory.prefix, environment)
        outcome = replace(way, site=site).run(directory)
    check_streamed(directory, STEPS)
    return outcome, (bytes_seen(laboratory.directory) - before) / _STREAMED


def _run(workflow: Path, directory: Path) -> Outcome:
    further = {}
    with start_slurm(is_distributed=True) as laboratory:
        for name, workdir in _WORKDIRS.items():
            place = laboratory.directory / workdir
            way = StreamFlowRun(workflow, {})
            outcome, further[name] = _measure(way, laboratory, place, directory / name.replace(" ", "-"))
    sample = outcome.sample.model_copy(update={"further": {**outcome.sample.further, **further}})
    return Outcome(sample, {_NAME: next(iter(outcome.outputs.values()))})


def shared_bytes(directory: Path, skipped: str | None) -> Variant:
    """The variant, which needs a workflow in a directory.

    :param skipped: why there can be no allocation here
    """
    if skipped is None and (missing := missing_programs(GLUSTERFS)):
        skipped = f"needs programs that are not installed: {', '.join(missing)}"
    workflow = _CHAIN.write(directory / "shared-bytes.cwl")
    return Variant(_NAME, lambda run: _run(workflow, run), skipped=skipped)


SHARED_BYTES = tuple(
    Comparison(
        name=f"bytes that the shared file system sees / bytes of streams, work directory {name}",
        measure=name,
        variant=_NAME,
        at_most=at_most,
    )
    for name, at_most in zip(_WORKDIRS, (None, 0.001), strict=True)
)
