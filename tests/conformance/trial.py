"""One test of the suite, run by plain StreamFlow and by ours."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from lab.cwl import NO_CONTAINERS, Document, streamflow_file
from lab.runs import Bench, Run
from streamflow_io.hints.cwl import load, read_steps
from streamflow_io.hints.inheritance import HintedStep
from tests.random_workflows.trial import Trial, judge, leftovers

from .annotations import LEARNING, Kind, annotations_file, config
from .suite import Case

SECONDS = 90.0
#: The number of runs of a workflow that learns.
RUNS = 3
# A stack trace: its last place, and the error; that of a class which is not built in has a module before its name.
_TRACE = re.compile(
    r'^ +File "([^"]*)", line \d+, in .*\n(?:    .*\n)*(\w+(?:Error|Exception)?)(?:: .*)?$', re.MULTILINE
)
# Names that StreamFlow makes up: the directory of a job, which a glob of `.` makes an output, and a standard stream.
_MADE_UP = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?<![0-9a-f$])[0-9a-f]{40}(?![0-9a-f])")


def run_case(directory: Path, case: Case, kinds: Sequence[Kind], learned: Path) -> Iterator[tuple[str, Trial]]:
    """Run a test with plain StreamFlow, and with ours for each kind of hints that it can have.

    What cannot be loaded, or can have no hints of these kinds, is run without: kind `none`.

    :param directory: a directory of its own; what shows nothing is removed from it
    :param learned: where runs that learn keep it
    """
    shutil.rmtree(directory, ignore_errors=True)
    plain = _run(directory / "plain", case)
    # What StreamFlow starts and forgets, as after a ToolTimeLimit, it starts in our runs, too.
    leaves = bool(leftovers(Bench(directory / "plain")))
    steps = _steps(case)
    hinted = ((kind, annotations_file(steps, kind)) for kind in kinds)
    runs: list[tuple[str, Document, Document]] = [
        (kind, hints, config(kind)) for kind, hints in hinted if hints or kind in LEARNING
    ]
    for name, hints, more in runs or [("none", {}, {})]:
        place = directory / name
        is_learning = name in LEARNING
        options = {**more, "learned": str(learned)} if is_learning else more
        # A tool alone has nothing to learn.
        for _ in range(RUNS if is_learning and any(step.path != "/" for step in steps) else 1):
            ours = _run(place, case, hints, options)
            left = [] if leaves else leftovers(Bench(place))
            trial = judge(plain, ours, left, lambda: _run(directory / "again", case))
            trial = _with_own_mistakes(trial, ours)
            if trial.outcome != "same":
                break
        if trial.is_harmless:
            shutil.rmtree(place)
            shutil.rmtree(directory / "again", ignore_errors=True)
        yield name, trial
    shutil.rmtree(directory / "plain", ignore_errors=True)
    with contextlib.suppress(OSError):
        directory.rmdir()


def own_mistakes(log: str) -> list[str]:
    """The errors of a log that come from mistakes in our own code."""
    return [error for file, error in _TRACE.findall(log) if "/streamflow_io/" in file]


def _with_own_mistakes(trial: Trial, ours: Run | None) -> Trial:
    found = own_mistakes(ours.log) if ours is not None else []
    return replace(trial, outcome="fails", detail=f"in our code: {', '.join(found)}") if found else trial


def _steps(case: Case) -> Sequence[HintedStep]:
    try:
        return read_steps(load(case.tool)).steps
    except Exception:  # Whatever is raised for what should not be loaded: the run tells.
        return ()


def _run(place: Path, case: Case, hints: Document | None = None, more: Document | None = None) -> Run | None:
    """
    :param hints: for the scheduler `sfio.io-aware`; None: plain StreamFlow
    :return: None if it hangs
    """
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    options: Document = dict(more or {})
    if hints:
        file = place / "annotations.json"
        file.write_text(json.dumps(hints))
        options["annotations"] = str(file)
    # Images would have to be fetched; the commands of the suite are there without images.
    workflows = streamflow_file(case.tool, case.job, workflow=NO_CONTAINERS)["workflows"]
    try:
        run = Bench(place).run({}, io=hints is not None, config=options, seconds=SECONDS, workflows=workflows)
    except AssertionError:
        return None
    return _without_made_up_names(run)


def _without_made_up_names(run: Run) -> Run:
    files = {_MADE_UP.sub("made-up", name): content for name, content in run.files.items()}
    return replace(run, outputs=json.loads(_MADE_UP.sub("made-up", json.dumps(run.outputs))), files=files)
