"""How the driver's decisions grow with the cluster and the run, simulated; what else it does for a job, measured."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import astuple, replace
from functools import partial
from pathlib import Path

from .driver_parts import events_per_second, storage_admission_ms, streamflow_scheduler_ms
from .footprint import footprints
from .model import Comparison, Sample
from .processes import run
from .simulated_work import Size
from .workflows import StreamFlowRun, tool, write_workflow
from .workload import Outcome, Variant, Workload

SIZES = (Size(100, 10_000), Size(1_000, 100_000), Size(10_000, 1_000_000))
GROWTH = 3.0
TIME_LIMIT = 1800.0
TRIVIAL_JOBS = (100, 400)
_REPOSITORY = Path(__file__).parents[1]
_LOCATIONS_TIMES_JOBS = 20_000
_MEMORY, _EVENTS, _TRIVIAL = "memory of decisions", "events of sfio-node", "StreamFlow, trivial jobs"


def scale(sizes: Sequence[Size] = SIZES) -> Workload:
    """The workload for some sizes, the smallest first."""
    return Workload(
        "scale",
        f"the driver's decisions for {sizes[0]} to {sizes[-1]}, simulated; events, memory, StreamFlow's own parts",
        partial(_prepare, sizes),
        _comparisons(sizes),
    )


def _prepare(sizes: Sequence[Size], directory: Path) -> Sequence[Variant]:
    trivial = {jobs: _trivial(directory / f"{jobs}.cwl", jobs) for jobs in TRIVIAL_JOBS}
    return [
        *(Variant(str(size), partial(_simulate, size)) for size in _all(sizes)),
        Variant(_MEMORY, lambda _: _measured(footprints())),
        Variant(_EVENTS, lambda _: _measured({"lines_per_s": events_per_second()})),
        *(Variant(_locations(nodes), partial(_schedule, nodes)) for nodes in _nodes(sizes)),
        Variant(_TRIVIAL, partial(_run_trivial, trivial)),
    ]


def _simulate(size: Size, directory: Path) -> Outcome:
    # A process of its own, so that the memory is its own.
    command = [sys.executable, "-m", "benchmarks.simulation", *map(str, astuple(size))]
    finished = run([command], directory, {"PYTHONPATH": str(_REPOSITORY)}, TIME_LIMIT)
    result = json.loads((directory / "output.0").read_text(encoding="utf-8"))
    figures: dict[str, float] = result["figures"]
    most = ", ".join(f"{name} {share:.0%}" for name, share in result["shares"].items())
    sample = Sample(wall=finished.seconds, window=figures["seconds"], further=figures)
    return Outcome(sample, {str(size): result["digest"]}, [f"{size}, where decisions spend their time: {most}"])


def _schedule(nodes: int, _: Path) -> Outcome:
    jobs = max(3, _LOCATIONS_TIMES_JOBS // nodes)
    jobs = min(jobs, 1000)
    return _measured(
        {
            "streamflow_scheduler_ms": streamflow_scheduler_ms(nodes, jobs),
            "storage_admission_ms": storage_admission_ms(nodes, jobs),
        }
    )


def _run_trivial(runs: Mapping[int, StreamFlowRun], directory: Path) -> Outcome:
    """The CPU time of a job is that of the larger run above the smaller one: what both need once does not count."""
    samples = {}
    for jobs, way in runs.items():
        (into := directory / str(jobs)).mkdir()
        samples[jobs] = way.run(into).sample
    few, many = TRIVIAL_JOBS
    more = many - few
    further = {
        "cpu_ms_per_job": 1e3 * (samples[many].measure("cpu_s") - samples[few].measure("cpu_s")) / more,
        "wall_ms_per_job": 1e3 * (samples[many].window - samples[few].window) / more,
    }
    wall = sum(sample.wall for sample in samples.values())
    return Outcome(Sample(wall=wall, window=sum(sample.window for sample in samples.values()), further=further))


def _trivial(path: Path, jobs: int) -> StreamFlowRun:
    return StreamFlowRun(
        write_workflow(
            path,
            inputs={"numbers": {"type": "int[]", "default": list(range(jobs))}},
            outputs={},
            steps={
                "one": {
                    "run": tool(["true"], {"number": {"type": "int", "inputBinding": {}}}, {}, cores=0),
                    "scatter": "number",
                    "in": {"number": "numbers"},
                    "out": [],
                }
            },
        )
    )


def _measured(figures: Mapping[str, float]) -> Outcome:
    return Outcome(Sample(wall=0, window=0, further=dict(figures)))


def _all(sizes: Sequence[Size]) -> list[Size]:
    """With the smallest once more, with ten times as many steps."""
    return [*sizes, replace(sizes[0], lanes=10 * sizes[0].lanes)]


def _nodes(sizes: Sequence[Size]) -> list[int]:
    return sorted({1, *(size.nodes for size in sizes)})


def _locations(nodes: int) -> str:
    return f"{nodes:,} locations, one job after the other"


def _comparisons(sizes: Sequence[Size]) -> list[Comparison]:
    names = [str(size) for size in _all(sizes)]
    figures = {
        "decisions per second": "decisions_per_s",
        "us per decision, 99 % at most": "us_at_most_99_percent",
        "ms, longest decision": "ms_longest_decision",
        "ms, longest collection of garbage": "ms_longest_collection",
        "ms of decisions per job": "ms_of_decisions_per_job",
        "events per second": "events_per_s",
        "most jobs at once": "most_running",
        "peak memory, MiB": "peak_mib",
    }
    growth = [
        Comparison(
            name=f"time per decision, {larger} / {names[0]}",
            measure="us_per_decision",
            variant=larger,
            baseline=names[0],
            at_most=GROWTH if larger == str(sizes[-1]) else None,
        )
        for larger in names[1:]
    ]
    return [
        *(_figure(f"{what}; {name}", measure, name) for what, measure in figures.items() for name in names),
        *growth,
        *(
            _figure(f"bytes per {state} job", f"bytes_per_{state.replace(' ', '_')}_job", _MEMORY)
            for state in ("waiting", "running", "ended", "streaming", "ended streaming")
        ),
        _figure("lines of sfio-node per second", "lines_per_s", _EVENTS),
        *(
            _figure(f"{whose}, ms per job; {nodes:,} locations", measure, _locations(nodes))
            for whose, measure in (
                ("StreamFlow's scheduler", "streamflow_scheduler_ms"),
                ("our storage admission", "storage_admission_ms"),
            )
            for nodes in _nodes(sizes)
        ),
        _figure("StreamFlow, ms of CPU per trivial job", "cpu_ms_per_job", _TRIVIAL),
        _figure("StreamFlow, ms per trivial job", "wall_ms_per_job", _TRIVIAL),
    ]


def _figure(name: str, measure: str, variant: str) -> Comparison:
    return Comparison(name=name, measure=measure, variant=variant)


SCALE = scale()
