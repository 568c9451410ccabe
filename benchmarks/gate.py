"""The cost of the gate for a command: time per `open` and `stat`, and per program that is run, above the same without
it.

The command runs natively, and then under the node runtime. Gates are played by events of producers that do not run: one
that has committed nothing yet, so that all calls that take a path are held and looked at; one that has committed a file
of a directory that is not complete; one that has ended.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from streamflow_io.runtime.embedded import EmbeddedRuntime
from streamflow_io.runtime.protocol import GatedInput, JobSpec

from .model import Comparison, Sample
from .node import first_warning, with_runtime
from .processes import CommandError, run
from .workflows import TOOL
from .workload import Outcome, Variant, Workload

CALLS = 20_000
PROGRAMS = 200
CALL_GOAL = 12.0
NOISE = 0.5

NO_GATE, ALL_OPEN, OUTSIDE, INSIDE = "no gate", "all gates open", "outside the gate", "inside the gate"
_FILE = "data"
_PORT = "output"

MakeJob = Callable[[Path], tuple[JobSpec, Path]]
"""Gives, in an empty directory, a job, and the file that its command opens."""


def _prepare(_: Path) -> Sequence[Variant]:
    return [Variant(name, partial(_measure, make_job)) for name, make_job in JOBS.items()]


def no_gate(directory: Path) -> tuple[JobSpec, Path]:
    """A job under the node runtime that waits for nothing."""
    return JobSpec(name=NO_GATE), _write(directory / _FILE)


def all_open(directory: Path) -> tuple[JobSpec, Path]:
    """A job that waited for a file: it is committed."""
    source = _write(directory / "source")
    gate = _gate(directory, source, [*_committed(source), {"event": "complete", "port": _PORT}, _exit()])
    return JobSpec(name=ALL_OPEN, gates=(gate,)), _write(directory / _FILE)


def outside(directory: Path) -> tuple[JobSpec, Path]:
    """A job that waits for a file, but opens another one."""
    gate = _gate(directory, directory / "source", [])
    return JobSpec(name=OUTSIDE, gates=(gate,)), _write(directory / _FILE)


def inside(directory: Path) -> tuple[JobSpec, Path]:
    """A job that opens a committed file of a directory that is not complete."""
    (source := directory / "source").mkdir()
    entry = _write(source / _FILE)
    size = entry.stat().st_size
    gate = _gate(directory, source, [{"event": "entry", "port": _PORT, "path": str(entry), "size": size}])
    directory_gate = replace(gate, kind="directory")
    return JobSpec(name=INSIDE, gates=(directory_gate,)), Path(gate.target) / _FILE


def _write(path: Path) -> Path:
    path.write_bytes(b"data")
    return path


def _gate(directory: Path, source: Path, events: Sequence[dict[str, object]]) -> GatedInput:
    file, now = directory / "events.jsonl", time.time()
    lines: list[dict[str, object]] = [{"event": "started", "pid": 1, "command_pid": 1}, *events]
    file.write_text("".join(json.dumps(line | {"time": now}) + "\n" for line in lines), encoding="utf-8")
    target = str(directory / "target")
    return GatedInput(name="input", port=_PORT, path=str(source), events=str(file), target=target, kind="file")


def _committed(path: Path) -> list[dict[str, object]]:
    return [
        {"event": "opened", "port": _PORT, "path": str(path)},
        {"event": "committed", "port": _PORT, "path": str(path), "size": path.stat().st_size},
    ]


def _exit() -> dict[str, object]:
    now = time.time()
    return {"event": "exit", "code": 0, "success": True, "reason": "exited", "started": now, "ended": now, "usage": {}}


def _measure(make_job: MakeJob, directory: Path) -> Outcome:
    """Measure natively, and as a job.

    :return: microseconds per call, natively and above that, as further measures
    :raises CommandError: if the command fails, or the gate cannot work here
    """
    spec, path = make_job(directory)
    (native_directory := directory / "native").mkdir()
    native, _ = _times([], _write(native_directory / _FILE), native_directory)

    async def action(runtime: EmbeddedRuntime) -> tuple[dict[str, float], float]:
        job = await runtime.create_job(spec.name)
        running = asyncio.create_task(asyncio.to_thread(_times, await job.wrap(spec), path, directory))
        warned = asyncio.create_task(first_warning(job))
        await asyncio.wait({running, warned}, return_when=asyncio.FIRST_COMPLETED)
        if warned.done() and (warning := warned.result()) is not None:
            await job.cancel()  # without the gate it would wait for what never comes
            await asyncio.wait({running})
            raise CommandError(f"the node runtime warns: {warning}")
        return await running

    wrapped, seconds = with_runtime(directory, action)
    further = {
        **{f"native_{name}": value for name, value in native.items()},
        **{f"{name}_above_native": wrapped[name] - value for name, value in native.items()},
    }
    return Outcome(Sample(wall=seconds, window=seconds, further=further))


def _times(wrapper: Sequence[str], path: Path, directory: Path) -> tuple[dict[str, float], float]:
    """Microseconds of the calls by their name, and seconds of the whole command."""
    finished = run([[*wrapper, *TOOL, "time-calls", str(CALLS), str(PROGRAMS), str(path)]], directory)
    lines = (line.split() for line in (directory / "output.0").read_text(encoding="ascii").splitlines())
    return {name: float(value) for name, value in lines}, finished.seconds


JOBS: dict[str, MakeJob] = {NO_GATE: no_gate, ALL_OPEN: all_open, OUTSIDE: outside, INSIDE: inside}


def _comparison(name: str, variant: str, measure: str, at_most: float | None = None) -> Comparison:
    return Comparison(name=f"{name}, {variant}", measure=f"{measure}_above_native", variant=variant, at_most=at_most)


GATE = Workload(
    "gate",
    f"what the gate costs per open and stat ({CALLS:,} of them) and per program that is run",
    _prepare,
    (
        *(
            _comparison("us above native per open and stat", variant, "open_stat_us", at_most)
            for variant, at_most in ((NO_GATE, NOISE), (ALL_OPEN, None), (OUTSIDE, CALL_GOAL), (INSIDE, CALL_GOAL))
        ),
        *(_comparison("us above native per program", variant, "exec_us") for variant in JOBS),
        Comparison(name="us per open and stat, native", measure="native_open_stat_us", variant=NO_GATE),
        Comparison(name="us per program, native", measure="native_exec_us", variant=NO_GATE),
    ),
)
