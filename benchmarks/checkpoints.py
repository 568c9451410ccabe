"""A loop that computes and saves a checkpoint beside its next iteration, on a disk of 100 MB/s.

The pattern of HACC-IO in the paper (Tarraf et al., CLUSTER 2024). A checkpoint needs a fifth of the bandwidth of the
disk to be done in time. As an I/O task it takes all of it, and the disk has nothing to do for the rest of the time;
with `storageBW: required` it moves all the time that it has. Compute waits instead of computing, so that the disk
decides. All variants run the same CWL, with other annotations.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from streamflow_io.records.history import read_history
from streamflow_io.records.reader import read_records
from streamflow_io.records.records import RequestRecord
from streamflow_io.records.runs import TELEMETRY_FILE
from streamflow_io.report.analysis.requirements import requests_of, requirements

from .model import Comparison
from .slow_disks import BANDWIDTH, cold_on, obstacle
from .workflows import JSON, Site, StreamFlowRun, tool, workflow, write_workflow
from .workload import Outcome, Variant, Workload

ITERATIONS = 12
COMPUTE_SECONDS = 5
MEBIBYTES = 96
STATIC_MB = 25

_DISK_BYTES = 2**31
_STORAGE = "disk"
_STEP = "/iteration/save"
_STATIC = f"static {STATIC_MB}"
_REQUIRED, _TWICE = "required", "required(2)"
# Further measures, of the I/O tasks.
_EXPLOITATION, _WAITS, _LIMITED, _OFF = "exploitation", "waits / run", "limited phases", "off the limit, %"


def _prepare(directory: Path) -> Sequence[Variant]:
    document, mount = _write_loop(directory / "checkpoints.cwl"), directory / _STORAGE
    skipped = obstacle()

    def variant(name: str, storage_bw: float | str | None) -> Variant:
        bandwidth: Mapping[str, JSON] | None = None if storage_bw is None else {"storageBW": storage_bw}

        def run(run_directory: Path) -> Outcome:
            return _run(document, mount, _scheduler_config(run_directory, mount, bandwidth), run_directory)

        return Variant(name, run, skipped=skipped)

    return (
        Variant("plain", lambda run: _run(document, mount, None, run), skipped=skipped),
        variant("IOTask", None),
        variant(_STATIC, STATIC_MB),
        *(variant(name, name) for name in (_REQUIRED, _TWICE)),
    )


def _scheduler_config(directory: Path, mount: Path, bandwidth: Mapping[str, JSON] | None) -> dict[str, JSON]:
    """Write annotations for a run, where nothing is known of earlier ones, and return what the scheduler is to be told.

    :param bandwidth: fields of the hint StorageBandwidth of the I/O tasks; none: they have none
    """
    hints: list[JSON] = [{"class": "sfio:IOTask"}]
    if bandwidth is not None:
        hints.append({"class": "sfio:StorageBandwidth", "storage": _STORAGE, **bandwidth})
    annotations = directory / "annotations.yml"
    annotations.write_text(json.dumps({"steps": {_STEP: hints}}), encoding="utf-8")
    return {
        "annotations": str(annotations),
        "storages": [{"name": _STORAGE, "path": str(mount), "write": BANDWIDTH.megabytes}],
        "learned": str(directory / "learned.db"),
    }


def _run(document: Path, mount: Path, scheduler: Mapping[str, JSON] | None, directory: Path) -> Outcome:
    here: JSON = {"type": "local", "config": {}, "workdir": str(mount)}
    with cold_on(BANDWIDTH, mount, directory, (), _DISK_BYTES):
        outcome = StreamFlowRun(document, scheduler, site=Site({"here": here}, {"/": "here"})).run(directory)
    if scheduler is None:
        return outcome
    [telemetry] = directory.rglob(TELEMETRY_FILE)
    further = {**outcome.sample.further, **_measures(telemetry)}
    return dataclasses.replace(outcome, sample=outcome.sample.model_copy(update={"further": further}))


def _measures(telemetry: Path) -> dict[str, float]:
    """Return the measures of the I/O tasks of a run, as far as there are any."""
    history = read_history("run", read_records(telemetry))
    found = requirements(history)
    [step] = found.steps
    requests = requests_of(history)
    rates = [(one.bytes / 1e6 / (one.ended - one.started), one.limit) for one in requests]
    off = [100 * abs(rate / limit - 1) for rate, limit in rates if limit is not None]
    return {
        _EXPLOITATION: _exploitation(requests),
        _WAITS: found.wait_seconds / found.seconds,
        _LIMITED: step.limited / max(1, step.phases),
        **({_OFF: median(off)} if off else {}),
    }


def _exploitation(requests: Sequence[RequestRecord]) -> float:
    """Return the share of the lifetime of the only channel in which data moved and no job waited for it."""
    hidden = sum(max(0.0, min(one.ended, one.required) - one.started) for one in requests if one.rule != "exposed")
    return hidden / (max(max(one.required, one.ended) for one in requests) - min(one.ready for one in requests))


def _tool(script: str, inputs: dict[str, JSON], outputs: dict[str, JSON], mebibytes: int) -> JSON:
    # StreamFlow runs no job where less is free than it may need.
    resources: JSON = {"coresMin": 1, "ramMin": 64, "outdirMin": mebibytes, "tmpdirMin": 1}
    needed: JSON = {"ResourceRequirement": resources, "InlineJavascriptRequirement": {}}
    return tool(["sh", "-euc", script], inputs, outputs, requirements=needed)


def _write_loop(path: Path) -> Path:
    """Write the workflow: the I/O tasks are those of the step `/iteration/save`."""
    compute = _tool(
        f'sleep {COMPUTE_SECONDS}; echo "$0" > state.txt',
        {"number": {"type": "int", "inputBinding": {"position": 1}}},
        {
            "state": {"type": "File", "outputBinding": {"glob": "state.txt"}},
            "next": {"type": "int", "outputBinding": {"outputEval": "$(inputs.number + 1)"}},
        },
        mebibytes=1,
    )
    save = _tool(
        f'cat "$0" > checkpoint.bin; dd if=/dev/zero of=checkpoint.bin bs=1M count={MEBIBYTES} oflag=append '
        "iflag=fullblock conv=notrunc,fdatasync status=none",
        {"state": {"type": "File", "inputBinding": {"position": 1}}},
        {"checkpoint": {"type": "File", "outputBinding": {"glob": "checkpoint.bin"}}},
        mebibytes=2 * MEBIBYTES,
    )
    inner = workflow(
        inputs={"number": "int"},
        outputs={
            "next": {"type": "int", "outputSource": "compute/next"},
            "checkpoint": {"type": "File", "outputSource": "save/checkpoint"},
        },
        steps={
            "compute": {"run": compute, "in": {"number": "number"}, "out": ["state", "next"]},
            "save": {"run": save, "in": {"state": "compute/state"}, "out": ["checkpoint"]},
        },
    )
    loop: JSON = {
        "InlineJavascriptRequirement": {},
        "cwltool:Loop": {
            "loopWhen": f"$(inputs.number < {ITERATIONS})",
            "loop": {"number": "next"},
            "outputMethod": "last",
        },
    }
    iteration: JSON = {"run": inner, "in": {"number": {"default": 0}}, "out": ["checkpoint"], "requirements": loop}
    return write_workflow(
        path,
        inputs={},
        outputs={"saved": {"type": "File", "outputSource": "iteration/checkpoint"}},
        steps={"iteration": iteration},
    )


def _exploitations() -> Sequence[Comparison]:
    goals: dict[str, dict[str, float]] = {
        "IOTask": {"at_most": 0.35},
        _REQUIRED: {"at_least": 0.70},
    }
    return [
        Comparison(name=f"exploitation: {name}", measure=_EXPLOITATION, variant=name, **goals.get(name, {}))
        for name in ("IOTask", _STATIC, _REQUIRED, _TWICE)
    ]


CHECKPOINTS = Workload(
    "checkpoints",
    f"a loop of {ITERATIONS} that computes {COMPUTE_SECONDS} s, and saves {MEBIBYTES} MiB beside the next, at 100 MB/s",
    _prepare,
    (
        *(
            Comparison(name=f"window: {name} / IOTask", measure="window", variant=name, baseline="IOTask", at_most=1.02)
            for name in (_REQUIRED, _TWICE)
        ),
        Comparison(name="window: IOTask / plain", measure="window", variant="IOTask", baseline="plain"),
        *_exploitations(),
        *(
            Comparison(name=f"{what}: {_REQUIRED}", measure=what, variant=_REQUIRED, at_most=limit)
            for what, limit in ((_WAITS, 0.02), (_OFF, 5.0))
        ),
        Comparison(name=f"{_LIMITED}: {_REQUIRED}", measure=_LIMITED, variant=_REQUIRED),
    ),
)
