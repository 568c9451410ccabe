"""Several runs at once that write to one disk, which gets slower when several write at once.

Each run with a ledger of its own admits as many writers as the disk serves best. So k runs congest the disk with k
times as many. What helps without sharing is to divide the bandwidth by hand, or to do all in one run: those are the
baselines. Works wait, they do not compute: the runs of a cluster have cores of their own.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .disk import CongestedDisk, Curve
from .model import Comparison, Sample
from .processes import run
from .workflows import (
    JSON,
    RESULT,
    TOOL,
    Site,
    StreamFlowRun,
    job_times,
    tool,
    tree_digest,
    workflow,
    write_workflow,
)
from .workload import Outcome, Variant, Workload

TASKS = 16
RUNS = 4
JOB_BYTES = 8_000_000
# As in `io-tasks`: one writer gets 5.5 MB/s, two 11, four 12.3, eight 9.4.
CURVE = Curve(bandwidth=16e6, writer=5.5e6, degradation=0.1)
FLAT = Curve(bandwidth=16e6, writer=5.5e6, degradation=0.0)
STORAGE_MB, LIMIT_MB = 16, 4
IO_EXECUTORS = 16

_STORAGE = "disk"
_IN_TURNS = Path(__file__).with_name("streamflow_in_turns.py")
_IO_TASK: JSON = {"class": "sfio:IOTask"}
_LIMITED: JSON = [_IO_TASK, {"class": "sfio:StorageBandwidth", "storageBW": LIMIT_MB, "storage": _STORAGE}]


@dataclass(frozen=True)
class Way:
    """How runs use the disk.

    :ivar hints: of the steps that write; none: StreamFlow without the plugin
    :ivar share: of the storage's entry
    :ivar divided: each run has its part of the bandwidth, by hand
    :ivar program: in the place of `streamflow`
    """

    hints: JSON
    share: str = "off"
    divided: bool = False
    program: Path | None = None


OWN = Way(_LIMITED)
BY_HAND = Way(_LIMITED, divided=True)
SHARED = Way(_LIMITED, share="mine")
TURNS = Way(_LIMITED, share="mine", program=_IN_TURNS)
UNLIMITED = Way([_IO_TASK])
PLAIN = Way(None)


@dataclass(frozen=True)
class Several:
    """Workflows that run at the same time.

    :ivar documents: by the name of its run
    :ivar writes: the steps of each that write to the disk
    """

    disk: CongestedDisk
    documents: dict[str, Path]
    writes: dict[str, Sequence[str]]

    def variant(self, name: str, way: Way, only: Sequence[str] | None = None) -> Variant:
        """All runs, or some of them, in one way."""
        names = [*self.documents] if only is None else only
        return Variant(name, lambda directory: self._run(directory, way, names))

    def _run(self, directory: Path, way: Way, names: Sequence[str]) -> Outcome:
        (temporary := directory / "tmp").mkdir()
        for name in names:
            (directory / name).mkdir()
        with self.disk.mounted() as limited:
            site = Site({"here": {"type": "local", "config": {}, "workdir": str(self.disk.directory)}}, {"/": "here"})
            runs = {
                name: StreamFlowRun(
                    self.documents[name], self._scheduler(way, name, directory, len(names)), site=site,
                    program=way.program,
                )
                for name in names
            }  # fmt: skip
            began = time.time()
            # Runs of one user: what they share is below the same directory of data.
            places = {"TMPDIR": str(temporary), "XDG_DATA_HOME": str(directory / "data")}
            finished = run([each.command(directory / name) for name, each in runs.items()], directory, places)
        jobs = {name: job_times(directory / name) for name in names}
        ends = {name: max(job.end for job in jobs[name]) - began for name in names}
        first = min(job.start for each in jobs.values() for job in each) - began
        further = {f"{name}_s": end - first for name, end in ends.items()} | {"cpu_s": finished.cpu_seconds}
        outputs = {name: tree_digest(directory / name / RESULT) for name in names}
        sample = Sample(wall=finished.seconds, window=max(ends.values()) - first, further=further)
        return Outcome(sample, outputs, [f"The bandwidth of the disk is limited {limited}."])

    def _scheduler(self, way: Way, name: str, directory: Path, runs: int) -> dict[str, JSON] | None:
        if way.hints is None:
            return None
        annotations = directory / name / "annotations.yml"
        annotations.write_text(json.dumps({"steps": dict.fromkeys(self.writes[name], way.hints)}), encoding="utf-8")
        write = STORAGE_MB / runs if way.divided else STORAGE_MB
        return {
            "annotations": str(annotations),
            "storages": [{"name": _STORAGE, "path": str(self.disk.directory), "write": write, "share": way.share}],
            "ioExecutors": IO_EXECUTORS,
        }


def _disk(directory: Path, curve: Curve, name: str) -> CongestedDisk:
    return CongestedDisk(directory / name, f"@benchmark-{name}-{os.getpid()}", curve)


def _tool(command: Sequence[str], inputs: dict[str, JSON], outputs: dict[str, JSON], **fields: JSON) -> JSON:
    # StreamFlow runs no job where less is free than it may need: by default 1 GiB for each of its two directories.
    resources: JSON = {"coresMin": 1, "ramMin": 64, "outdirMin": 16, "tmpdirMin": 1}  # MiB
    return tool(command, inputs, outputs, 1, requirements={"ResourceRequirement": resources}, **fields)


def _work(seconds: float, is_first: bool) -> JSON:
    """Waits, and makes what is written next: of a number, or of the digests of earlier writes."""
    what, before = ("echo", "int") if is_first else ("cat", "File[]")
    return _tool(
        ["bash", "-c", f'sleep "$0"; {what} "$@" | sha256sum', str(seconds)],
        {"before": {"type": before, "inputBinding": {"position": 1}}},
        {"state": "stdout"},
        stdout="state.txt",
    )


def _save(disk: CongestedDisk) -> JSON:
    return _tool(
        [*TOOL, "checkpoint", disk.address, str(JOB_BYTES)],
        {"state": {"type": "File", "inputBinding": {"position": 1}}, "number": "int"},
        {"digest": "stdout"},
        stdout="digest.txt",
    )


# shared-runs


def _tasks(path: Path, disk: CongestedDisk, count: int) -> Path:
    """Tasks that do not wait for each other: each works 1 s, and writes."""
    task = workflow(
        inputs={"number": "int"},
        outputs={"digest": {"type": "File", "outputSource": "save/digest"}},
        steps={
            "work": {"run": _work(1.0, True), "in": {"before": "number"}, "out": ["state"]},
            "save": {"run": _save(disk), "in": {"state": "work/state", "number": "number"}, "out": ["digest"]},
        },
    )
    gather = _tool(
        ["cat"], {"digests": {"type": "File[]", "inputBinding": {}}}, {"gathered": "stdout"}, stdout="digests.txt"
    )
    return write_workflow(
        path,
        inputs={"numbers": {"type": "int[]", "default": list(range(count))}},
        outputs={"gathered": {"type": "File", "outputSource": "gather/gathered"}},
        steps={
            "task": {"run": task, "scatter": "number", "in": {"number": "numbers"}, "out": ["digest"]},
            "gather": {"run": gather, "in": {"digests": "task/digest"}, "out": ["gathered"]},
        },
    )


def _prepare_runs(directory: Path) -> Sequence[Variant]:
    disk = _disk(directory, CURVE, "shared-runs")
    parts = {f"run{number}": _tasks(directory / f"run{number}.cwl", disk, TASKS) for number in range(RUNS)}
    one = {"one": _tasks(directory / "one.cwl", disk, RUNS * TASKS)}
    written = ["/task/save"]
    apart, whole = (Several(disk, runs, dict.fromkeys(runs, written)) for runs in (parts, one))
    return (
        apart.variant("plain", PLAIN),
        apart.variant("no storageBW", UNLIMITED),
        apart.variant("own ledgers", OWN),
        apart.variant("divided by hand", BY_HAND),
        whole.variant("one run", OWN),
        apart.variant("shared", SHARED),
    )


# shared-bursts


@dataclass(frozen=True)
class Bursts:
    """A run that works and writes by turns: bursts of a number of jobs, each after some seconds of work."""

    count: int
    work: float
    jobs: int


SMALL, LARGE = Bursts(12, 2.0, 1), Bursts(3, 8.0, 16)
_KINDS = {"small0": SMALL, "small1": SMALL, "large0": LARGE, "large1": LARGE}


def _bursts(path: Path, disk: CongestedDisk, bursts: Bursts, number: int) -> tuple[Path, Sequence[str]]:
    steps: dict[str, JSON] = {}
    before = "number"
    for index in range(bursts.count):
        work = _work(bursts.work, is_first=index == 0)
        steps[f"work{index}"] = {"run": work, "in": {"before": before}, "out": ["state"]}
        steps[f"save{index}"] = {
            "run": _save(disk),
            "scatter": "number",
            "in": {"state": f"work{index}/state", "number": "numbers"},
            "out": ["digest"],
        }
        before = f"save{index}/digest"
    inputs: dict[str, JSON] = {
        "number": {"type": "int", "default": number},
        "numbers": {"type": "int[]", "default": list(range(bursts.jobs))},
    }
    outputs: dict[str, JSON] = {"digests": {"type": "File[]", "outputSource": before}}
    write_workflow(path, inputs, outputs, steps)
    return path, [f"/save{index}" for index in range(bursts.count)]


_WAYS = {"own": OWN, "divided": BY_HAND, "turns": TURNS, "due": SHARED}
_DISKS = {"": CURVE, "flat disk, ": FLAT}
_ALONE = {"small alone": "small0", "large alone": "large0"}


def several_bursts(directory: Path, kinds: Mapping[str, Bursts], curve: Curve, name: str) -> Several:
    """Runs with bursts on one disk, by their names.

    :param name: of the disk, and of their workflows
    """
    disk = _disk(directory, curve, name)
    made = {
        run: _bursts(directory / f"{name}-{run}.cwl", disk, bursts, number)
        for number, (run, bursts) in enumerate(kinds.items())
    }
    return Several(
        disk, {run: path for run, (path, _) in made.items()}, {run: steps for run, (_, steps) in made.items()}
    )


def _prepare_bursts(directory: Path) -> Sequence[Variant]:
    variants: list[Variant] = []
    for prefix, curve in _DISKS.items():
        several = several_bursts(directory, _KINDS, curve, "shared-bursts" + ("-flat" if prefix else ""))
        alone: dict[str, list[float]] = {}
        variants += [_alone(several, f"{prefix}{title}", name, alone) for title, name in _ALONE.items()]
        variants += [_together(several, f"{prefix}{title}", way, alone) for title, way in _WAYS.items()]
    return variants


def _alone(several: Several, title: str, name: str, alone: dict[str, list[float]]) -> Variant:
    """The time of an undisturbed run, with which the others are compared."""
    run_it = several.variant(title, OWN, [name]).run

    def run(directory: Path) -> Outcome:
        outcome = run_it(directory)
        alone.setdefault(name.rstrip("01"), []).append(outcome.sample.window)
        return outcome

    return Variant(title, run)


def _together(several: Several, title: str, way: Way, alone: dict[str, list[float]]) -> Variant:
    run_it: Callable[[Path], Outcome] = several.variant(title, way).run

    def run(directory: Path) -> Outcome:
        outcome = run_it(directory)
        further = outcome.sample.further
        dilations = [further[f"{name}_s"] / statistics.median(alone[name.rstrip("01")]) for name in _KINDS]
        added = {"slowest": max(dilations), "mean": statistics.mean(dilations)}
        sample = outcome.sample.model_copy(update={"further": {**further, **added}})
        return Outcome(sample, outcome.outputs, outcome.notes)

    return Variant(title, run)


def _ratio(measure: str, variant: str, baseline: str, at_most: float | None = None, prefix: str = "") -> Comparison:
    shown = {"slowest": "dilation of the slowest", "mean": "mean dilation", "window": "makespan"}[measure]
    return Comparison(
        name=f"{prefix}{shown}: {variant} / {baseline}",
        measure=measure,
        variant=f"{prefix}{variant}",
        baseline=f"{prefix}{baseline}",
        at_most=at_most,
    )


_FLAT = "flat disk, "

SHARED_RUNS = Workload(
    "shared-runs",
    f"{RUNS} runs at once, each of {TASKS} tasks that work 1 s and write 8 MB to one disk that congests",
    _prepare_runs,
    (
        _ratio("window", "shared", "own ledgers", 0.70),
        _ratio("window", "shared", "one run", 1.10),
        _ratio("window", "shared", "divided by hand", 1.05),
        _ratio("window", "shared", "no storageBW"),
        _ratio("window", "shared", "plain"),
    ),
)

SHARED_BURSTS = Workload(
    "shared-bursts",
    "two runs with small bursts beside two with large ones, on one disk that congests, and on one that does not",
    _prepare_bursts,
    (
        _ratio("slowest", "due", "own", 0.80),
        _ratio("slowest", "due", "turns", 0.97),
        _ratio("mean", "due", "own", 0.75),
        _ratio("window", "due", "own", 0.80),
        _ratio("slowest", "due", "divided"),
        _ratio("window", "due", "divided"),
        _ratio("slowest", "due", "own", 1.05, _FLAT),
        _ratio("window", "due", "own", 1.05, _FLAT),
        *(
            Comparison(name=f"{prefix}dilation of the slowest: {way}", measure="slowest", variant=f"{prefix}{way}")
            for prefix in _DISKS
            for way in _WAYS
        ),
    ),
)
