"""The cost of the plugin for each of many jobs that do nothing: time, CPU time of the driver, and its memory.

All variants run the same two scatters, `echo` and then `awk` on each element. Each run comes after one with a
quarter of the jobs: the difference is what a job costs, without what a run needs once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from .model import Comparison, Sample
from .overhead import byte_stream_hints, commit_hints, tiny_jobs
from .workflows import StreamFlowRun
from .workload import Outcome, Variant, Workload

JOBS = 4_000
# With fewer jobs, the peak of memory is that of the start.
_FEW = 4
_SECONDS_PER_JOB = 0.5
_PLAIN = "plain"
_GOALS = {"no hints": 1.03, "auto, first run": 1.05, "auto, later run": 1.03, "commits": 1.10, "byte streams": 1.15}
_MOST_KB = 5.0


def many_jobs(jobs: int = JOBS) -> Workload:
    """The workload for a number of jobs, half of them in each scatter."""
    return Workload(
        "many-jobs",
        f"{jobs:,} trivial jobs in two scatters: what each of them costs",
        partial(_prepare, jobs),
        _comparisons(),
    )


@dataclass
class _Pairs:
    """Runs of few jobs and of many.

    :ivar numbers: how many jobs
    :ivar workflows: one for each number
    :ivar plain_kb: what a job of the last run of plain StreamFlow has taken
    """

    numbers: tuple[int, int]
    workflows: tuple[Path, Path]
    plain_kb: float = 0.0

    def run(self, config: dict[str, str] | None, forgets: Path | None, directory: Path) -> Outcome:
        """:param forgets: what is removed before each run"""
        samples = []
        for number, workflow in zip(self.numbers, self.workflows, strict=True):
            if forgets is not None:
                forgets.unlink(missing_ok=True)
            (into := directory / str(number)).mkdir()
            way = StreamFlowRun(workflow, config, time_limit=max(600.0, number * _SECONDS_PER_JOB))
            outcome = way.run(into)
            samples.append(outcome.sample)
        few, many = samples
        more = self.numbers[1] - self.numbers[0]
        kilobytes = (many.measure("peak_kb") - few.measure("peak_kb")) / more
        if config is None:
            self.plain_kb = kilobytes
        further = {
            **many.further,
            "driver_ms_per_job": 1e3 * (many.measure("driver_cpu_s") - few.measure("driver_cpu_s")) / more,
            "kb_per_job": kilobytes,
            "kb_per_job_above_plain": kilobytes - self.plain_kb,
        }
        return Outcome(Sample(wall=many.wall, window=many.window, further=further), outcome.outputs)


def _prepare(jobs: int, directory: Path) -> Sequence[Variant]:
    numbers = max(2, jobs // _FEW), jobs
    few, many = (tiny_jobs(directory / f"{number}.cwl", number // 2, ["awk", "{print $1 * 2}"]) for number in numbers)
    pairs, store = _Pairs(numbers, (few, many)), directory / "learned.db"
    auto = {"streaming": "auto", "learned": str(store)}
    configs: dict[str, dict[str, str] | None] = {
        _PLAIN: None,
        "no hints": {},
        "auto, first run": auto,
        "auto, later run": auto,
        "commits": {"annotations": str(commit_hints(directory / "commit.yml"))},
        "byte streams": {"annotations": str(byte_stream_hints(directory / "stream.yml"))},
    }
    forgets = {"auto, first run": store}
    return [Variant(name, partial(pairs.run, config, forgets.get(name))) for name, config in configs.items()]


def _comparisons() -> list[Comparison]:
    return [
        *(
            Comparison(name=f"{name} / {_PLAIN}", variant=name, baseline=_PLAIN, at_most=goal)
            for name, goal in _GOALS.items()
        ),
        *(
            Comparison(
                name=f"CPU time of the driver, {name} / {_PLAIN}",
                measure="driver_cpu_s",
                variant=name,
                baseline=_PLAIN,
            )
            for name in _GOALS
        ),
        *(
            Comparison(name=f"{name}, ms of CPU of the driver per job", measure="driver_ms_per_job", variant=name)
            for name in (_PLAIN, *_GOALS)
        ),
        Comparison(name=f"{_PLAIN}, kB of memory per job", measure="kb_per_job", variant=_PLAIN),
        *(
            Comparison(
                name=f"{name}, kB of memory per job above {_PLAIN}",
                measure="kb_per_job_above_plain",
                variant=name,
                at_most=_MOST_KB,
            )
            for name in _GOALS
        ),
    ]


MANY_JOBS = many_jobs()
