"""A chain of three programs that computes little, with its files on a disk of 100 MB/s; for root.

With less data, plain StreamFlow does not wait for the disk: the kernel keeps what is written in memory for a while.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from .chain import Chain, check_streamed
from .model import Comparison
from .slow_disks import BANDWIDTH, cold_on, obstacle
from .tools import MEBIBYTE
from .workflows import JSON, Site, StreamFlowRun
from .workload import Outcome, Variant, Workload

_CHUNKS, _CHUNK = 512, 8
# Both files, and 2 GiB that StreamFlow wants free for each job.
_DISK_BYTES = 12 * 2**30


def _prepare(directory: Path) -> Sequence[Variant]:
    workflow = Chain(chunks=_CHUNKS, chunk_bytes=_CHUNK * MEBIBYTE, work="0").write(directory / "chain.cwl")
    mount, skipped = directory / "disk", obstacle()

    def variant(name: str, scheduler: Mapping[str, JSON] | None) -> Variant:
        def run(place: Path) -> Outcome:
            here: JSON = {"type": "local", "config": {}, "workdir": str(mount)}
            with cold_on(BANDWIDTH, mount, directory, (), _DISK_BYTES):
                outcome = StreamFlowRun(workflow, scheduler, site=Site({"here": here}, {"/": "here"})).run(place)
            if scheduler is not None:
                check_streamed(place)
            return outcome

        return Variant(name, run, skipped=skipped)

    return variant("plain", None), variant("window", {"intermediates": "window"})


SLOW_DISK = Workload(
    "slow-disk",
    f"A writes {_CHUNKS * _CHUNK} MiB to a disk of 100 MB/s, B transforms, C sums. As root",
    _prepare,
    (Comparison(name="window / plain", variant="window", baseline="plain", at_most=0.35),),
)
