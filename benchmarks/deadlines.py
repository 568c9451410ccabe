"""I/O tasks that come in bursts, each with a time at which a job waits for its file, on a disk of 100 MB/s.

Bursts come so often that they need 0.7 of the disk. Where all share it equally, or wait for each other, jobs with
little time come last, and are late because of the others. With `storageBW: required` the job with the earliest deadline
gets the bandwidth that it needs. Compute waits instead of computing, so that the disk decides. All variants run the
same commands. The I/O tasks of `auto` have one tool, so that they learn together; in all other variants each has its
own.
"""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from streamflow_io.records.history import read_history
from streamflow_io.records.reader import read_records
from streamflow_io.records.runs import TELEMETRY_FILE
from streamflow_io.report.analysis.requirements import requirements

from .disk_watch import written_each
from .model import Comparison
from .slow_disks import BANDWIDTH, cold_on, obstacle
from .workflows import JSON, Site, StreamFlowRun, tool, write_workflow
from .workload import Outcome, Variant, Workload

BURSTS, BURST_SECONDS = 3, 10
# Of each burst: seconds, and MB.
WINDOWS = (3, 4.5, 6.5, 9, 13, 19, 28, 40)
SIZES = (80, 80, 60, 40, 80, 120, 120, 120)
# The numbers at once: 8, 4, 2, 1.
STATIC_MB = (12, 25, 50, 100)
IO_EXECUTORS = 16
# The jobs of a burst come one after the other, with the most time first: an order by arrival is wrong.
APART_SECONDS = 0.1

_LEAD_SECONDS = 25
_DISK_BYTES = 8 * 2**30
_STORAGE = "disk"
_IO_TASK, _AUTO, _WITHIN, _REMEMBERED = "IOTask", "auto", "required, within", "required, remembered"
_STATIC = tuple(f"static {limit}" for limit in STATIC_MB)
_OTHERS = (_IO_TASK, *_STATIC, _AUTO)
_WAITS, _WAITS_OF_RUN, _BUSY = "waits, s", "waits / run", "seconds above 90 % of the disk"
_BUSY_SHARE = 0.9
_LEAST_WAIT = 0.01


@dataclass(frozen=True)
class Task:
    """An I/O task.

    :ivar ready: seconds after the beginning
    :ivar megabytes: what it writes
    :ivar window: another job computes for this number of seconds, beside it; then a third job needs both
    """

    ready: float
    megabytes: int
    window: float


def tasks() -> dict[str, Task]:
    """All I/O tasks, by number. Those of a burst come with most time first."""
    of_burst = [*reversed([*zip(SIZES, WINDOWS, strict=True)])]
    found = [
        Task(BURST_SECONDS * burst + APART_SECONDS * number, megabytes, window)
        for burst in range(BURSTS)
        for number, (megabytes, window) in enumerate(of_burst)
    ]
    return {f"{number:02}": task for number, task in enumerate(found)}


def _prepare(directory: Path) -> Sequence[Variant]:
    found = tasks()
    mount, beginning, skipped = directory / _STORAGE, directory / "beginning", obstacle()
    document = _write_workflow(directory / "deadlines.cwl", beginning, found)
    alike = _write_workflow(directory / "alike.cwl", beginning, found, alike=True)
    learned = directory / "learned.db"

    def variant(
        name: str,
        bandwidth: Callable[[Task], Mapping[str, JSON] | None],
        database: Callable[[Path], Path] = lambda run: run / "learned.db",
    ) -> Variant:
        hints = {f"/save{number}": _hints(bandwidth(task)) for number, task in found.items()}
        annotations = directory / f"{name}.yml"
        annotations.write_text(json.dumps({"steps": hints}), encoding="utf-8")

        def run(run_directory: Path) -> Outcome:
            scheduler: dict[str, JSON] = {
                "annotations": str(annotations),
                "storages": [{"name": _STORAGE, "path": str(mount), "write": BANDWIDTH.megabytes}],
                "ioExecutors": IO_EXECUTORS,
                "learned": str(database(run_directory)),
            }
            beginning.write_text(f"{time.time() + _LEAD_SECONDS:.3f}\n", encoding="utf-8")
            return _run(alike if name == _AUTO else document, mount, scheduler, run_directory)

        return Variant(name, run, skipped=skipped)

    def afresh(_: Path) -> Path:
        learned.unlink(missing_ok=True)
        return learned

    return (
        variant(_IO_TASK, lambda _: None),
        *(variant(name, _just(limit)) for name, limit in zip(_STATIC, STATIC_MB, strict=True)),
        variant(_AUTO, _just("auto")),
        variant(_WITHIN, lambda task: {"storageBW": "required", "within": task.window}, afresh),
        variant(_REMEMBERED, _just("required"), lambda _: learned),
    )


def _just(storage_bw: float | str) -> Callable[[Task], Mapping[str, JSON]]:
    return lambda _: {"storageBW": storage_bw}


def _hints(bandwidth: Mapping[str, JSON] | None) -> JSON:
    io_task: JSON = {"class": "sfio:IOTask"}
    return (
        [io_task]
        if bandwidth is None
        else [io_task, {"class": "sfio:StorageBandwidth", "storage": _STORAGE, **bandwidth}]
    )


def _run(document: Path, mount: Path, scheduler: Mapping[str, JSON], directory: Path) -> Outcome:
    here: JSON = {"type": "local", "config": {}, "workdir": str(mount)}
    with cold_on(BANDWIDTH, mount, directory, (), _DISK_BYTES) as disk, written_each(disk, 1.0) as amounts:
        outcome = StreamFlowRun(document, scheduler, site=Site({"here": here}, {"/": "here"})).run(directory)
    [telemetry] = directory.rglob(TELEMETRY_FILE)
    found = requirements(read_history("run", read_records(telemetry)))
    busy = _BUSY_SHARE * BANDWIDTH.megabytes * 10**6
    further = {
        **outcome.sample.further,
        # What is compared with it is divided by it.
        _WAITS: max(found.wait_seconds, _LEAST_WAIT),
        _WAITS_OF_RUN: found.wait_seconds / found.seconds,
        _BUSY: float(sum(one.bytes > busy * one.seconds for one in amounts)),
    }
    return Outcome(outcome.sample.model_copy(update={"further": further}), outcome.outputs)


def _tool(script: str, inputs: dict[str, JSON], name: str, mebibytes: int = 1) -> JSON:
    # StreamFlow runs no job where less is free than it may need. All jobs that wait do so at once.
    resources: JSON = {"coresMin": 0, "ramMin": 8, "outdirMin": mebibytes, "tmpdirMin": 1}
    outputs: dict[str, JSON] = {name: {"type": "File", "outputBinding": {"glob": name}}}
    return tool(["sh", "-euc", script], inputs, outputs, requirements={"ResourceRequirement": resources})


def _write_workflow(path: Path, beginning: Path, found: Mapping[str, Task], alike: bool = False) -> Path:
    """:param alike: all I/O tasks have the same tool; else each has its own: windows are remembered by the tool"""
    steps: dict[str, JSON] = {}
    for number, task in found.items():
        wait = f"{{ left = $1 + {task.ready} - now; print (left > 0 ? left : 0) }}"
        sleep = f"sleep \"$(awk -v now=$(date +%s.%N) '{wait}' {shlex.quote(str(beginning))})\""
        # What is to be written is known by the size of the input, which is not on the disk.
        sized = f"echo {number} > state; truncate -s {task.megabytes * 10**6} state"
        state: dict[str, JSON] = {"state": {"type": "File", "inputBinding": {"position": 1}}}
        steps[f"state{number}"] = {"run": _tool(f"{sleep}; {sized}", {}, "state"), "in": {}, "out": ["state"]}
        steps[f"turn{number}"] = {
            "run": _tool(f"sleep {task.window}; echo {number} > turn", state, "turn"),
            "in": {"state": f"state{number}/state"},
            "out": ["turn"],
        }
        save = f': {"" if alike else number}; dd if="$0" of=saved bs=1M conv=fdatasync status=none'
        steps[f"save{number}"] = {
            "run": _tool(save, state, "saved", task.megabytes),
            "in": {"state": f"state{number}/state"},
            "out": ["saved"],
        }
        both: dict[str, JSON] = {
            name: {"type": "File", "inputBinding": {"position": position}}
            for position, name in enumerate(("saved", "turn"))
        }
        steps[f"use{number}"] = {
            "run": _tool(f'head -qn 1 "$0" "$1" > used{number}', both, f"used{number}"),
            "in": {"saved": f"save{number}/saved", "turn": f"turn{number}/turn"},
            "out": [f"used{number}"],
        }
    outputs: dict[str, JSON] = {
        f"used{number}": {"type": "File", "outputSource": f"use{number}/used{number}"} for number in found
    }
    return write_workflow(path, inputs={}, outputs=outputs, steps=steps)


_COMPARISONS = (
    *(
        Comparison(name=f"waits: {name} / best other", measure=_WAITS, variant=name, baseline=_OTHERS, at_most=0.25)
        for name in (_WITHIN, _REMEMBERED)
    ),
    *(
        Comparison(name=f"waits / run: {name}", measure=_WAITS_OF_RUN, variant=name, at_most=0.03)
        for name in (_WITHIN, _REMEMBERED)
    ),
    *(Comparison(name=f"waits, s: {name}", measure=_WAITS, variant=name) for name in _OTHERS),
    *(
        Comparison(name=f"{_BUSY}: {name} / {_IO_TASK}", measure=_BUSY, variant=name, baseline=_IO_TASK, at_most=0.5)
        for name in (_WITHIN, _REMEMBERED)
    ),
)
_SUMMARY = f"{len(tasks())} I/O tasks with 3 to 40 s until a job waits for them, which need 0.7 of a disk of 100 MB/s"

DEADLINES = Workload("deadlines", _SUMMARY, _prepare, _COMPARISONS)
