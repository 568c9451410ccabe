"""`streamflow-io trace`: the requests of a run as a trace of TMIO, for FTIO and other programs that read it."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Sequence
from pathlib import Path

from streamflow_io.bandwidth.phases import IORequest
from streamflow_io.bandwidth.tmio import trace
from streamflow_io.hints.errors import HintErrors
from streamflow_io.hints.inheritance import within
from streamflow_io.records.runs import find_run
from streamflow_io.report.analysis.requirements import requests_of

from .bandwidth import measured_history
from .console import PlainResult
from .output import write_output


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="the name of a run, `last`, or the path of telemetry")
    parser.add_argument(
        "-o", "--output", metavar="DIRECTORY", type=Path, required=True, help="write the trace into this new directory"
    )
    parser.add_argument("--step", metavar="PATH", help="only the I/O tasks of this step and of the steps in it")


def run(arguments: argparse.Namespace) -> PlainResult:
    """Write the requests of a run as a trace.

    :raises HintErrors: if there is no such run, nothing was measured in it, or the trace cannot be written
    """
    directory: Path = arguments.output
    _check_empty(directory)
    file = find_run(arguments.run)
    history = measured_history(file)
    requests = requests_of(history)
    if arguments.step is not None:
        requests = _of_step(requests, arguments.step)
    text, ranks = trace(requests, history.run.time)
    # FTIO takes the number of ranks from the name.
    path = directory / f"{ranks}.jsonl"
    is_new = not directory.exists()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        write_output(path, text)
    except OSError as error:
        raise HintErrors.one(
            directory, "--output", f"cannot be made: {error.strerror}", "a directory that can be made"
        ) from None
    except HintErrors:
        with contextlib.suppress(OSError):
            if is_new:
                directory.rmdir()
        raise
    facts = {"file": str(path), "requests": len(requests), "ranks": ranks}
    return PlainResult(facts, [f"{path}: {len(requests):,} requests of {ranks:,} channels"])


def _check_empty(directory: Path) -> None:
    allowed = "a directory that is empty, or not there"
    try:
        if any(directory.iterdir()):
            raise HintErrors.one(directory, "--output", "is not empty", allowed)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise HintErrors.one(directory, "--output", f"cannot be used: {error.strerror}", allowed) from None


def _of_step(requests: Sequence[IORequest], step: str) -> list[IORequest]:
    found = [one for one in requests if within(one.step, step)]
    if not found:
        steps = ", ".join(dict.fromkeys(one.step for one in requests))
        raise HintErrors.one(step, "--step", "no requests are of this step", steps)
    return found
