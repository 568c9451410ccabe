"""Tasks that compute and then write a checkpoint to a disk that gets slower when several write at once.

With plain StreamFlow a checkpoint holds a core, so that no more write than there are cores. As I/O tasks they overlap
with compute; all at once, they congest the disk; a storageBW limits how many write at once. The best limit follows from
the curve of the disk, and is learned by `auto`. Compute and checkpoint are a subworkflow, and that is scattered: so a
checkpoint waits for its own compute alone, in every variant.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from streamflow_io.records.reader import read_records
from streamflow_io.records.records import ChoiceRecord
from streamflow_io.records.runs import TELEMETRY_FILE

from .disk import CongestedDisk, Curve
from .model import Comparison
from .workflows import JSON, TOOL, Site, StreamFlowRun, tool, workflow, write_workflow
from .workload import Outcome, Variant, Workload

TASKS = 64
WORK_SECONDS = 1.0
CHECKPOINT_BYTES = 8_000_000
# One writer gets 5.5 MB/s, two 11, four 12.3, eight 9.4: the best is in the middle.
CURVE = Curve(bandwidth=16e6, writer=5.5e6, degradation=0.1)
STORAGE_MB = 16
IO_EXECUTORS = 8
STATIC_MB = (2, 4, 8, 16)
BOUNDED = "auto(2,8,2)"

_STATIC = tuple(f"static {limit}" for limit in STATIC_MB)
_STORAGE = "disk"
_LEARNED = "learned.db"
_REMEMBERED = "remembered"


def _prepare(directory: Path) -> Sequence[Variant]:
    disk = CongestedDisk(directory / "disk", f"@benchmark-io-tasks-{os.getpid()}", CURVE)
    learned = directory / _LEARNED
    document = _write_workflow(directory / "io-tasks.cwl", disk)

    def variant(name: str, hints: JSON, remembered: Callable[[Path], Path] = lambda run: run / _LEARNED) -> Variant:
        annotations = directory / f"{name}.yml"
        annotations.write_text(json.dumps({"steps": {"/task/checkpoint": hints}}), encoding="utf-8")

        def run(run_directory: Path) -> Outcome:
            scheduler: dict[str, JSON] = {
                "annotations": str(annotations),
                "storages": [{"name": _STORAGE, "path": str(disk.directory), "write": STORAGE_MB}],
                "ioExecutors": IO_EXECUTORS,
                "learned": str(remembered(run_directory)),
            }
            return _run(document, disk, scheduler, run_directory)

        return Variant(name, run)

    def afresh(_: Path) -> Path:
        learned.unlink(missing_ok=True)
        return learned

    return (
        Variant("plain", lambda run: _run(document, disk, None, run)),
        variant("unconstrained", [_IO_TASK]),
        *(variant(name, _limited(limit)) for name, limit in zip(_STATIC, STATIC_MB, strict=True)),
        variant("auto", _limited("auto"), afresh),
        variant(_REMEMBERED, _limited("auto"), lambda _: learned),
        variant(BOUNDED, _limited(BOUNDED)),
    )


_IO_TASK: JSON = {"class": "sfio:IOTask"}


def _limited(storage_bw: float | str) -> JSON:
    return [_IO_TASK, {"class": "sfio:StorageBandwidth", "storageBW": storage_bw, "storage": _STORAGE}]


def _run(document: Path, disk: CongestedDisk, scheduler: dict[str, JSON] | None, directory: Path) -> Outcome:
    with disk.mounted() as limited:
        here: JSON = {"type": "local", "config": {}, "workdir": str(disk.directory)}
        outcome = StreamFlowRun(document, scheduler, site=Site({"here": here}, {"/": "here"})).run(directory)
    further = {**outcome.sample.further, _REMEMBERED: float(is_remembered(directory))}
    return dataclasses.replace(
        outcome,
        sample=outcome.sample.model_copy(update={"further": further}),
        notes=[f"The bandwidth of the disk is limited {limited}."],
    )


def is_remembered(directory: Path) -> bool:
    """Whether a run began with limits that an earlier one had learned."""
    records = (record for telemetry in directory.rglob(TELEMETRY_FILE) for record in read_records(telemetry))
    return any(isinstance(record, ChoiceRecord) and record.reason == "remembered" for record in records)


def _tool(command: Sequence[str], inputs: dict[str, JSON], outputs: dict[str, JSON], **fields: JSON) -> JSON:
    # StreamFlow runs no job where less is free than it may need: by default 1 GiB for each of its two directories.
    resources: JSON = {"coresMin": 1, "ramMin": 64, "outdirMin": 16, "tmpdirMin": 1}  # MiB
    return tool(command, inputs, outputs, 1, requirements={"ResourceRequirement": resources}, **fields)


def _write_workflow(path: Path, disk: CongestedDisk) -> Path:
    compute = _tool(
        [*TOOL, "compute"],
        {"number": {"type": "int", "inputBinding": {"position": 1}}},
        {"state": "stdout"},
        arguments=[{"valueFrom": str(WORK_SECONDS), "position": 2}],
        stdout="state.txt",
    )
    checkpoint = _tool(
        [*TOOL, "checkpoint", disk.address, str(CHECKPOINT_BYTES)],
        {"state": {"type": "File", "inputBinding": {"position": 1}}},
        {"digest": "stdout"},
        stdout="digest.txt",
    )
    task = workflow(
        inputs={"number": "int"},
        outputs={"digest": {"type": "File", "outputSource": "checkpoint/digest"}},
        steps={
            "compute": {"run": compute, "in": {"number": "number"}, "out": ["state"]},
            "checkpoint": {"run": checkpoint, "in": {"state": "compute/state"}, "out": ["digest"]},
        },
    )
    gather = _tool(
        ["cat"],
        {"digests": {"type": "File[]", "inputBinding": {}}},
        {"gathered": "stdout"},
        stdout="digests.txt",
    )
    return write_workflow(
        path,
        inputs={"numbers": {"type": "int[]", "default": list(range(TASKS))}},
        outputs={"gathered": {"type": "File", "outputSource": "gather/gathered"}},
        steps={
            "task": {"run": task, "scatter": "number", "in": {"number": "numbers"}, "out": ["digest"]},
            "gather": {"run": gather, "in": {"digests": "task/digest"}, "out": ["gathered"]},
        },
    )


IO_TASKS = Workload(
    "io-tasks",
    "64 tasks that compute 1 s and write a checkpoint of 8 MB to a disk that congests",
    _prepare,
    (
        Comparison(
            name="unconstrained / best static (else the disk is wrong)",
            variant="unconstrained",
            baseline=_STATIC,
            at_least=1.0,
        ),
        Comparison(name="auto / best static", variant="auto", baseline=_STATIC, at_most=1.10),
        Comparison(name="remembered / best static", variant=_REMEMBERED, baseline=_STATIC, at_most=1.03),
        # On a busy machine the disk is not what the tasks wait for, and nothing is learned.
        Comparison(
            name="remembered: began with what `auto` learned", measure=_REMEMBERED, variant=_REMEMBERED, at_least=1
        ),
        Comparison(name="best static / plain", variant=_STATIC, baseline="plain", at_most=0.75),
        Comparison(name=f"{BOUNDED} / best static", variant=BOUNDED, baseline=_STATIC),
        Comparison(name="auto / plain", variant="auto", baseline="plain"),
    ),
)
