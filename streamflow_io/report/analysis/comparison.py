"""Runs side by side: the difference of their times in a sentence, and a table of their steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .results import RunResult

# A smaller difference, in seconds and as a share of the longer run, does not count: no two runs take the same time.
_LEAST, _LEAST_SHARE = 0.1, 0.03

COMPARED_HEADER = ("step", "run", "began (s)", "jobs", "failed", "mean time (s)", "mean wait (s)")


def compared(base: RunResult, other: RunResult) -> str:
    """Return the difference of the times of two runs."""
    changed = other.seconds - base.seconds
    took = f"{other.run} took {other.seconds:,.1f} s, {base.run} {base.seconds:,.1f} s"
    for run in (base, other):
        if run.status in ("failed", "cancelled") or not run.ended:
            return f"{took}; {run.run} has not succeeded, so that their times say little."
    if abs(changed) < max(_LEAST, _LEAST_SHARE * max(base.seconds, other.seconds)):
        return f"{took}: as good as the same."
    share = f" ({abs(changed) / base.seconds:.0%})" if base.seconds > 0 else ""
    return f"{took}: {abs(changed):,.1f} s{share} {'less' if changed < 0 else 'more'}."


def compared_rows(runs: Sequence[RunResult]) -> Iterator[tuple[str, ...]]:
    """Yield the rows of the table of steps: for each step, a row for each run with jobs of it."""
    begins = [_begins(run) for run in runs]
    for name in dict.fromkeys(step.step for run in runs for step in run.steps):
        shown = name
        for run, began in zip(runs, begins, strict=True):
            for step in run.steps:
                if step.step == name:
                    times = (began.get(name), step.mean_seconds, step.mean_wait)
                    first, mean, wait = ("" if time is None else f"{time:,.1f}" for time in times)
                    yield shown, run.run, first, f"{step.jobs:,}", f"{step.failed:,}" if step.failed else "", mean, wait
                    shown = ""


def _begins(run: RunResult) -> dict[str, float]:
    """Return when the first job of each step ran."""
    began: dict[str, float] = {}
    for job in run.timeline:
        if job.running is not None:
            began[job.step] = min(began.get(job.step, job.running[0]), job.running[0])
    return began
