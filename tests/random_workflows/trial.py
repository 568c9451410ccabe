"""One blueprint, run by plain StreamFlow and by ours."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

from lab.forked import Driver
from lab.runs import RETRY, Bench, Run
from tests.campaign.verdict import clear_error

from .blueprint import Blueprint, Link, without_unused
from .document import document, job
from .programs import READERS
from .unhinted import another_sample, larger_sample
from .windows import SMALL_BLOCKS

Outcome = Literal["same", "both fail", "unstable", "differs", "fails", "succeeds", "hangs", "leaves"]
#: Files that are larger by these factors follow a proof with small ones: across the buffers of pipes, and of programs.
LARGER: Final = (8, 40)
#: Outcomes that are no fault of the plugin. `unstable`: plain StreamFlow itself gives different results.
HARMLESS: Final = ("same", "both fail", "unstable")
#: A run of a few seconds that takes longer hangs.
SECONDS: Final = 60.0


@dataclass(frozen=True)
class Trial:
    """How it went.

    :ivar outcome: `differs`: another result; `fails`, `hangs`: plain StreamFlow does not; `succeeds`: plain fails
    :ivar detail: for people
    :ivar log: of our run
    """

    outcome: Outcome
    detail: str = ""
    log: str = ""

    @property
    def is_harmless(self) -> bool:
        return self.outcome in HARMLESS


def run_trial(
    directory: Path,
    blueprint: Blueprint,
    seconds: float = SECONDS,
    make: Callable[[Path], Bench] = Bench,
    larger: Sequence[int] = LARGER,
) -> Trial:
    """Run a blueprint both ways, in a directory of its own; what is learned meanwhile, also with another sample.

    :param make: makes where it runs, from a directory
    :param larger: how many times as large the files of further samples are
    """
    shutil.rmtree(directory, ignore_errors=True)
    bench = make(directory / "ours")
    trial = _try_sample(directory, bench, blueprint, blueprint.runs, seconds, make)
    if trial.outcome == "same" and any(step.streamable and READERS[step.reader].wrong for step in blueprint.steps):
        # What was found of a declaration holds for the next run.
        trial = _try_sample(directory / "next", bench, larger_sample(blueprint, larger[0]), 1, seconds, make)
    if trial.outcome == "same" and blueprint.is_unhinted:
        trial = _try_sample(directory / "another", bench, another_sample(blueprint), 1, seconds, make)
        for times in larger:
            if trial.outcome == "same":
                # What the first run proves of the larger files, the second one streams.
                sample = larger_sample(blueprint, times)
                trial = _try_sample(directory / f"times{times}", bench, sample, 2, seconds, make)
    log = directory / "ours" / f"run{bench.count}" / "stderr"
    return replace(trial, log=log.read_text()) if log.exists() else trial


def _try_sample(
    directory: Path, bench: Bench, blueprint: Blueprint, runs: int, seconds: float, make: Callable[[Path], Bench]
) -> Trial:
    """
    :param bench: where ours runs
    :param runs: how often
    """
    # Plain StreamFlow fails when a step that no result needs ends last.
    live = without_unused(blueprint)
    both = [_start_plain(make(directory / "plain"), live), _start(bench, blueprint, io=True)]
    other = _start(bench, blueprint, io=True, files_in="others") if blueprint.beside else None
    plain, ours = (started.finish(seconds) for started in both)
    if other is not None:
        ours = _worse(plain, ours, other.finish(seconds))
    left = leftovers(bench) if ours is not None else []

    def again() -> Run | None:
        return _start_plain(make(directory / "again"), live).finish(seconds)

    def with_all(name: str = "all-again") -> Run | None:
        return _start_plain(make(directory / name), _with_all_results(blueprint)).finish(seconds)

    trial = judge(plain, ours, left, again)
    if live != blueprint and trial.outcome in ("fails", "hangs"):
        # What the other steps do is known only where they have results.
        trial = judge(with_all("all"), ours, left, with_all)
    for _ in range(runs - 1):
        if trial.outcome == "same":
            ours = _start(bench, blueprint, io=True).finish(seconds)
            trial = judge(plain, ours, leftovers(bench) if ours is not None else [], again)
    return trial


def _with_all_results(blueprint: Blueprint) -> Blueprint:
    """The same workflow, where what nothing reads is a result."""
    used = set(blueprint.used())
    more = (Link((source,)) for source in blueprint.types if "/" in source and source not in used)
    return replace(blueprint, results=(*blueprint.results, *more))


def _worse(plain: Run | None, one: Run | None, other: Run | None) -> Run | None:
    """Return the one of two of our runs that is less like that of plain StreamFlow."""
    if plain is None or one is None or other is None:
        return None
    return other if one.ok == plain.ok and one.results == plain.results else one


def judge(plain: Run | None, ours: Run | None, left: Sequence[str], again: Callable[[], Run | None]) -> Trial:
    """Compare two runs, each of them None if it hangs.

    :param left: what was found of ours when it had ended
    :param again: runs with plain StreamFlow once more
    """
    if plain is None:
        return Trial("both fail", "plain StreamFlow hangs")
    if ours is None:
        return Trial("hangs") if plain.ok else Trial("both fail", _error(plain))
    if left:
        return Trial("leaves", "; ".join(left))
    if not plain.ok and not ours.ok:
        return Trial("both fail", _error(plain))
    if not plain.ok:
        second = again()
        return Trial("unstable" if second is None or second.ok else "succeeds", _error(plain))
    if ours.ok and ours.results == plain.results:
        return Trial("same")
    second = again()
    if second is None or not second.ok or second.results != plain.results:
        return Trial("unstable")
    return Trial("differs", _difference(plain, ours)) if ours.ok else Trial("fails", _error(ours))


@dataclass(frozen=True)
class _Started:
    bench: Bench
    driver: Driver
    path: Path

    def finish(self, seconds: float) -> Run | None:
        """Wait for the end; None is returned if the run hangs."""
        try:
            return self.bench.finish(self.driver, self.path, seconds)
        except AssertionError:
            return None


def _start_plain(bench: Bench, blueprint: Blueprint) -> _Started:
    # StreamFlow 0.2.0rc3 gathers all outputs but the last one of a nested_crossproduct wrongly.
    bench.program = "streamflow gathering"
    return _start(bench, blueprint, io=False)


def _start(bench: Bench, blueprint: Blueprint, *, io: bool, files_in: str = "files") -> _Started:
    files = bench.directory / files_in
    files.mkdir(parents=True, exist_ok=True)
    settings = dict(RETRY) if blueprint.retries else {}
    config = dict(blueprint.config) if io else {}
    # What proofs hold for is the same in each run.
    given = {**job(blueprint, files), "trace": "/dev/null"}
    path = bench.write(document(blueprint), given, io, config, **settings)
    has_windows = config.get("intermediates") == "window"
    return _Started(bench, bench.start(path, **(SMALL_BLOCKS if has_windows else {})), path)


def leftovers(bench: Bench) -> list[str]:
    """Return what is still there a moment after the end."""
    for _ in range(20):
        if not (left := bench.leftovers()):
            break
        time.sleep(0.1)
    return left


def _error(run: Run) -> str:
    return clear_error(run.log) or run.errors


def _difference(plain: Run, ours: Run) -> str:
    names = [name for name in plain.files.keys() | ours.files.keys() if plain.files.get(name) != ours.files.get(name)]
    found = [f"file {name}" for name in sorted(names)]
    for key in plain.outputs.keys() | ours.outputs.keys():
        if plain.outputs.get(key, "(missing)") != ours.outputs.get(key, "(missing)"):
            found.append(
                f"output {key}: {ours.outputs.get(key, '(missing)')} instead of {plain.outputs.get(key, '(missing)')}"
            )
    return "; ".join(found)
