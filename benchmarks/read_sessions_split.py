"""A split that writes nothing, through StreamFlow: one file that many jobs read, each its part, on a slow disk.

The jobs wait instead of computing, as if each had a core of its own, about as long as the disk needs for their input.
Input and work directories are on the disk, which the kernel keeps to its limits; nothing of the input is in the page
cache at first. StreamFlow reads all of it for its checksum: plain StreamFlow before the first job, which then has
it in the page cache where the memory has room for it; so a file that is larger than the memory is tried, too.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lab import memory_limit
from lab.memory_limit import limited_memory

from .model import Comparison
from .slow_disks import BANDWIDTH, READ, REQUESTS, WRITTEN, Disk, cold_on, counted, write_lines
from .tools import MEBIBYTE, WAIT
from .workflows import JSON, TOOL, Site, StreamFlowRun, tool, write_workflow
from .workload import Outcome, Variant

PARTS = 16
#: Two jobs at once wait for their share of a disk of 100 MB/s.
WAIT_SECONDS = 0.02
_SPLIT = Path(__file__).resolve().parent.parent / "workflows" / "tools" / "partition.py"
_PLAIN, _CLOSE, _SESSION = "split", "split, on_close", "read session"


@dataclass(frozen=True)
class Place:
    """Where it runs.

    :ivar size: bytes of the file
    :ivar memory: bytes that all of the run have, StreamFlow included; none: what the machine has
    """

    name: str
    disk: Disk
    size: int = 256 * MEBIBYTE
    memory: int | None = None

    def obstacle(self, of_disks: str | None) -> str | None:
        """Why it cannot be made here, if so."""
        return of_disks or (memory_limit.obstacle() if self.memory is not None else None)


LITTLE_MEMORY = Place("100 MB/s, little memory", BANDWIDTH, 512 * MEBIBYTE, 448 * MEBIBYTE)
PLACES = (Place(BANDWIDTH.name, BANDWIDTH), Place(REQUESTS.name, REQUESTS), LITTLE_MEMORY)

_WAYS: dict[str, JSON] = {
    _CLOSE: {"class": "sfio:Streaming", "rules": [{"port": "parts", "committed": "on_close"}]},
    _SESSION: {"class": "sfio:ReadSession", "rules": [{"port": "parts", "of": "whole"}]},
}


_DELIVERIES = {_CLOSE: ["commit"], _SESSION: ["part"]}


def splits(directory: Path, obstacle: str | None) -> list[Variant]:
    """By place, each way to get the parts to their jobs.

    :param obstacle: why there can be no slow disk, if so
    """
    schedulers: dict[str, dict[str, JSON] | None] = {_PLAIN: None}
    for name, hint in _WAYS.items():
        annotations = directory / f"{name}.yml"
        annotations.write_text(json.dumps({"steps": {"/split": [hint]}}), encoding="utf-8")
        schedulers[name] = {"annotations": str(annotations)}
    return [
        variant for place in PLACES for variant in _variants(directory, place, schedulers, place.obstacle(obstacle))
    ]


def _variants(
    directory: Path, place: Place, schedulers: dict[str, dict[str, JSON] | None], obstacle: str | None
) -> Sequence[Variant]:
    mount = directory / "disk"
    whole = directory / f"whole-{place.size}"
    if obstacle is None and not whole.exists():
        write_lines(whole, place.size)
    document = _write_split(directory / f"{whole.name}.cwl", mount / whole.name, place.size)

    def variant(way: str) -> Variant:
        here: JSON = {"type": "local", "config": {}, "workdir": str(mount)}
        site = Site({"here": here}, {"/": "here"})
        streamflow = StreamFlowRun(document, schedulers[way], _DELIVERIES.get(way, ()), site=site)

        def run(run_directory: Path) -> Outcome:
            with cold_on(place.disk, mount, directory, (whole.name,)) as disk:
                return counted(disk, place.size, lambda: _run(streamflow, place, run_directory))

        return Variant(_name(place, way), run, streamflow.verify if way in _DELIVERIES else None, obstacle)

    return [variant(way) for way in schedulers]


def _run(streamflow: StreamFlowRun, place: Place, directory: Path) -> Outcome:
    if place.memory is None:
        outcome = streamflow.run(directory)
    else:
        assert streamflow.site is not None
        with limited_memory(place.memory) as limited:
            site = replace(streamflow.site, prefix=limited.prefix)
            outcome = replace(streamflow, site=site).run(directory)
    return Outcome(outcome.sample, {f"{label} of {place.size}": digest for label, digest in outcome.outputs.items()})


def _name(place: Place, way: str) -> str:
    return f"{way}, {place.name}"


def _write_split(path: Path, whole: Path, size: int) -> Path:
    """A file in parts of whole lines, and a job for each of them."""
    # StreamFlow runs no job where less is free than it may need: by default 1 GiB for each of its two directories.
    resources: JSON = {"coresMin": 1, "ramMin": 64, "outdirMin": size // MEBIBYTE, "tmpdirMin": 1}  # MiB
    needs: dict[str, JSON] = {"ResourceRequirement": resources}
    split = tool(
        ["python3", "-S", "-E", str(_SPLIT), "--records", "lines", "--parts", str(PARTS), "--names", "part-%04d"],
        {"whole": {"type": "File", "inputBinding": {}}},
        {"parts": {"type": "File[]", "outputBinding": {"glob": "part-*"}}},
        requirements=needs,
    )
    read = tool(
        [*TOOL, "chain-sum", str(MEBIBYTE), f"{WAIT}{WAIT_SECONDS}"],
        {"part": {"type": "File", "streamable": True}},
        {"sum": "stdout"},
        stdin="$(inputs.part.path)",
        stdout="sum.txt",
        requirements=needs,
    )
    gather = tool(
        ["cat"],
        {"sums": {"type": "File[]", "inputBinding": {}}},
        {"all": "stdout"},
        stdout="sums.txt",
        requirements=needs,
    )
    return write_workflow(
        path,
        inputs={"whole": {"type": "File", "default": {"class": "File", "location": whole.as_uri()}}},
        outputs={"sums": {"type": "File", "outputSource": "gather/all"}},
        steps={
            "split": {"run": split, "in": {"whole": "whole"}, "out": ["parts"]},
            "read": {"run": read, "scatter": "part", "in": {"part": "split/parts"}, "out": ["sum"]},
            "gather": {"run": gather, "in": {"sums": "read/sum"}, "out": ["all"]},
        },
    )


def _ratio(place: Place, baseline: str, at_most: float) -> Comparison:
    return Comparison(
        name=f"{place.name}: read session / {baseline}",
        variant=_name(place, _SESSION),
        baseline=_name(place, baseline),
        at_most=at_most,
    )


SPLIT_COMPARISONS = [
    comparison
    for place in PLACES
    for comparison in (
        _ratio(place, _PLAIN, 0.65),
        _ratio(place, _CLOSE, 1.0),
        # StreamFlow's checksum and the session read the same, also where the file has no room in the memory.
        Comparison(
            name=f"{place.name}: read of the disk / file",
            measure=READ,
            variant=_name(place, _SESSION),
            at_most=1.02 if place.memory is None else 1.05,
        ),
        Comparison(
            name=f"{place.name}: written to the disk / file",
            measure=WRITTEN,
            variant=_name(place, _SESSION),
            at_most=0.01,
        ),
    )
]
