"""One file that many jobs read, each its part, on a disk that is slow: a split that writes nothing.

The jobs wait instead of computing, as if each had a core of its own, about as long as the disk needs for their input.
Input and work directories are on the disk, which the kernel keeps to its limits; nothing of the input is in the page
cache at first.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .loop_device import Limits, LoopDeviceError, limited_disk
from .model import Comparison
from .tools import MEBIBYTE, WAIT
from .workflows import JSON, TOOL, Site, StreamFlowRun, tool, write_workflow
from .workload import Outcome, Variant, Workload

SIZE = 256 * MEBIBYTE
PARTS = 16
#: Two jobs at once wait for their share of a disk of 100 MB/s.
WAIT_SECONDS = 0.02
WRITTEN, READ = "written / file", "read / file"
_DISK_BYTES = 2048 * MEBIBYTE
_LINE_BYTES = 128
_SPLIT = Path(__file__).resolve().parent.parent / "workflows" / "tools" / "partition.py"
_PLAIN, _CLOSE, _SESSION = "split", "split, on_close", "read session"


@dataclass(frozen=True)
class Disk:
    """A kind of disk.

    :ivar read_ahead: KiB that the kernel reads at a time for those who read front to back
    """

    name: str
    limits: Limits
    read_ahead: int = 2560


BANDWIDTH = Disk("100 MB/s", Limits(read=100e6, write=100e6))
REQUESTS = Disk("200 MB/s, 400 requests/s", Limits(read=200e6, write=200e6, requests=400), 128)
DISKS = (BANDWIDTH, REQUESTS)

_WAYS: dict[str, JSON] = {
    _CLOSE: {"class": "sfio:Streaming", "rules": [{"port": "parts", "committed": "on_close"}]},
    _SESSION: {"class": "sfio:ReadSession", "rules": [{"port": "parts", "of": "whole"}]},
}


_DELIVERIES = {_CLOSE: ["commit"], _SESSION: ["part"]}


def _prepare(directory: Path) -> Sequence[Variant]:
    mount = directory / "disk"
    obstacle = _obstacle()
    whole = _write_lines(directory / "whole", 0 if obstacle else SIZE)
    document = _write_split(directory / "split.cwl", mount / whole.name)
    schedulers: dict[str, dict[str, JSON] | None] = {_PLAIN: None}
    for name, hint in _WAYS.items():
        annotations = directory / f"{name}.yml"
        annotations.write_text(json.dumps({"steps": {"/split": [hint]}}), encoding="utf-8")
        schedulers[name] = {"annotations": str(annotations)}

    def variant(disk: Disk, way: str) -> Variant:
        here: JSON = {"type": "local", "config": {}, "workdir": str(mount)}
        site = Site({"here": here}, {"/": "here"})
        streamflow = StreamFlowRun(document, schedulers[way], _DELIVERIES.get(way, ()), site=site)

        def run(run_directory: Path) -> Outcome:
            return _run(streamflow, disk, whole, mount, run_directory)

        return Variant(_name(disk, way), run, streamflow.verify if way in _DELIVERIES else None, obstacle)

    return [variant(disk, way) for disk in DISKS for way in schedulers]


def _name(disk: Disk, way: str) -> str:
    return f"{way}, {disk.name}"


def _obstacle() -> str | None:
    """Why the disk cannot be made here, if so."""
    with tempfile.TemporaryDirectory() as directory:
        (mount := Path(directory, "disk")).mkdir()
        try:
            with limited_disk(mount, 32 * MEBIBYTE):
                return None
        except LoopDeviceError as error:
            return str(error)


def _run(streamflow: StreamFlowRun, kind: Disk, whole: Path, mount: Path, directory: Path) -> Outcome:
    mount.mkdir(exist_ok=True)
    with limited_disk(mount, _DISK_BYTES) as disk:
        _copy_uncached(whole, mount / whole.name)
        disk.read_ahead(kind.read_ahead)
        disk.limit(kind.limits)
        before = disk.moved()
        outcome = streamflow.run(directory)
        # What is still in memory would be written some time.
        os.sync()
        read, written = (after - since for after, since in zip(disk.moved(), before, strict=True))
    further = {**outcome.sample.further, READ: read / SIZE, WRITTEN: written / SIZE}
    return dataclasses.replace(outcome, sample=outcome.sample.model_copy(update={"further": further}))


def _copy_uncached(source: Path, target: Path) -> None:
    """Copy a file to a disk, so that the page cache has nothing of the copy."""
    shutil.copyfile(source, target)
    with target.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _write_lines(path: Path, size: int) -> Path:
    with path.open("wb") as file:
        for first in range(0, size // _LINE_BYTES, MEBIBYTE // _LINE_BYTES):
            numbers = range(first, first + MEBIBYTE // _LINE_BYTES)
            file.write(b"".join(f"{number:0{_LINE_BYTES - 1}}\n".encode() for number in numbers))
    return path


def _write_split(path: Path, whole: Path) -> Path:
    """A file in parts of whole lines, and a job for each of them."""
    # StreamFlow runs no job where less is free than it may need: by default 1 GiB for each of its two directories.
    resources: JSON = {"coresMin": 1, "ramMin": 64, "outdirMin": SIZE // MEBIBYTE, "tmpdirMin": 1}  # MiB
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


def _ratio(disk: Disk, baseline: str, at_most: float) -> Comparison:
    return Comparison(
        name=f"{disk.name}: read session / {baseline}",
        variant=_name(disk, _SESSION),
        baseline=_name(disk, baseline),
        at_most=at_most,
    )


READ_SESSIONS = Workload(
    "read-sessions",
    "a file of 256 MiB in 16 parts, and a job for each, on disks that the kernel keeps slow. As root",
    _prepare,
    tuple(
        comparison
        for disk in DISKS
        for comparison in (
            _ratio(disk, _PLAIN, 0.65),
            _ratio(disk, _CLOSE, 1.0),
            Comparison(
                name=f"{disk.name}: read of the disk / file",
                measure=READ,
                variant=_name(disk, _SESSION),
                at_most=1.02,
            ),
            Comparison(
                name=f"{disk.name}: written to the disk / file",
                measure=WRITTEN,
                variant=_name(disk, _SESSION),
                at_most=0.01,
            ),
        )
    ),
)
