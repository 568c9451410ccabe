"""`streamflow-io schedule simulate`: the outcome of transfer policies, and of the slots of a schedule."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

from msgspec import Struct
from rich.console import Console

from streamflow_io.commands.console import say, table
from streamflow_io.features.schedules.check import check
from streamflow_io.features.schedules.files import SET_ALLOWED, paper_number, read_schedule, read_set
from streamflow_io.features.schedules.fluid import simulate
from streamflow_io.features.schedules.model import ApplicationSet, Pattern
from streamflow_io.features.schedules.policies import (
    POLICY_ALLOWED,
    PlayedOutcome,
    lognormal,
    policy,
    seconds_of,
    staggered,
)
from streamflow_io.hints.errors import HintErrors

_POLICIES = ("fairshare", "fcfs", "fcfs:whole", "roundrobin", "mindilation", "maxsyseff", "minmax:0.5")
_HEADER = ("policy", "efficiency", "dilation", "of the best")
_INSTANCES = 12_000


class Played(Struct, frozen=True):
    """:ivar outcomes: one for each seed; one, if there is no noise"""

    policy: str
    outcomes: Sequence[PlayedOutcome]

    @property
    def efficiency(self) -> float:
        return fmean(one.efficiency for one in self.outcomes)

    @property
    def dilation(self) -> float:
        return fmean(one.dilation for one in self.outcomes)

    def to_json(self) -> dict[str, Any]:
        return {
            "policy": self.policy,
            "efficiency": self.efficiency,
            "dilation": _finite(self.dilation),
            "runs": [
                {
                    "efficiency": one.efficiency,
                    "dilation": _finite(one.dilation),
                    "dilations": [_finite(each) for each in one.dilations],
                    "instances": list(one.ended),
                }
                for one in self.outcomes
            ],
        }


class SimulationResult(Struct, frozen=True):
    set: ApplicationSet
    seconds: float
    noise: float
    seeds: int
    played: Sequence[Played]
    ok = True

    def to_json(self) -> dict[str, Any]:
        bounds = self.set.bounds
        return {
            "applications": [one.name for one in self.set.applications],
            "seconds": self.seconds,
            "noise": self.noise,
            "seeds": list(range(1, self.seeds + 1)) if self.noise else [],
            "bounds": {"efficiency": bounds.efficiency, "dilation": bounds.dilation},
            "policies": [one.to_json() for one in self.played],
        }

    def show(self, console: Console) -> None:
        say(console, self._caption())
        console.print(table(None, _HEADER, self._rows(), numbers=_HEADER[1:], unfolded=_HEADER))
        bounds = self.set.bounds
        say(
            console,
            f"Nothing has an efficiency above {bounds.efficiency:.5f}, or a dilation below {bounds.dilation:.4f}",
        )

    def _caption(self) -> str:
        instances = max(sum(one.ended) for played in self.played for one in played.outcomes)
        caption = f"{self.seconds:,.0f} s, {instances:,} instances at most; the first fifth is not measured"
        if not self.noise:
            return f"{caption}. No noise"
        seeds = "seed 1" if self.seeds == 1 else f"means of seeds 1 to {self.seeds}"
        return f"{caption}. Works vary by {self.noise:.0%}; {seeds}"

    def _rows(self) -> Iterator[list[str]]:
        best = self.set.bounds.efficiency
        for one in self.played:
            share = f"{one.efficiency / best:.1%}" if best > 0 else ""
            yield [one.policy, f"{one.efficiency:.4f}", f"{one.dilation:.3f}", share]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "set", metavar="SET|FILE", help=f"{SET_ALLOWED}; or a schedule file, which also allows the policy `slots`"
    )
    parser.add_argument(
        "--policy",
        action="append",
        metavar="NAME",
        help=f"play only this policy; the option may be given several times: {POLICY_ALLOWED}",
    )
    parser.add_argument(
        "--noise",
        type=_noise,
        default=0.0,
        metavar="CV",
        help="the standard deviation of works, divided by their mean; works are lognormal (default: 0)",
    )
    parser.add_argument(
        "--seeds", type=_count, default=3, metavar="N", help="with noise: the means of seeds 1 to N (default: 3)"
    )
    parser.add_argument(
        "--instances",
        type=_count,
        default=_INSTANCES,
        metavar="N",
        help=f"the approximate number of computes of all applications together, at least 20 of each "
        f"(default: {_INSTANCES})",
    )


def run(arguments: argparse.Namespace) -> SimulationResult:
    """:raises HintErrors: if the file has mistakes, cannot be kept, or there is no such policy"""
    of, pattern = _read(arguments.set)
    names: list[str] = arguments.policy or [*(["slots"] if pattern is not None else []), *_POLICIES]
    seconds = seconds_of(of, arguments.instances)
    seeds = range(1, arguments.seeds + 1) if arguments.noise else (0,)
    played = [
        Played(name, [_play(of, pattern, name, seconds, arguments.noise, seed) for seed in seeds]) for name in names
    ]
    return SimulationResult(of, seconds, arguments.noise, arguments.seeds, played)


def _play(
    of: ApplicationSet, pattern: Pattern | None, name: str, seconds: float, variation: float, seed: int
) -> PlayedOutcome:
    try:
        chosen = policy(name, pattern)
    except ValueError:
        only = " of a schedule file, and this is a set" if name == "slots" else ""
        raise HintErrors.one(name, "--policy", f"there is no such policy{only}", POLICY_ALLOWED) from None
    normals = [partial(Random(f"{seed} {index}").gauss, 0, 1) for index in range(len(of.applications))]
    noise = lognormal(variation, normals) if variation else None
    return simulate(of, chosen, seconds, noise=noise, begins=staggered(of))


def _read(name: str) -> tuple[ApplicationSet, Pattern | None]:
    """A set, or what a schedule file says of one."""
    if paper_number(name) is not None or not _is_schedule(Path(name)):
        return read_set(name), None
    schedule = read_schedule(name)
    if problems := check(schedule):
        first = problems[0]
        message = f"this schedule cannot be kept: {first.message}"
        raise HintErrors.one(name, first.field, message, "one that `streamflow-io schedule check` finds valid")
    return schedule.set, schedule.pattern


def _is_schedule(path: Path) -> bool:
    """Whether a file is a schedule, which has its set below `set`. The reader of sets reports unreadable files."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(found, dict) and "set" in found


def _noise(text: str) -> float:
    value = _float(text)
    if not 0 <= value <= 10:
        raise argparse.ArgumentTypeError(f"{text!r} is not allowed; allowed: a number from 0 to 10")
    return value


def _count(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or not 1 <= int(text) <= 10_000_000:
        raise argparse.ArgumentTypeError(f"{text!r} is not allowed; allowed: a whole number from 1 to 10,000,000")
    return int(text)


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _finite(value: float) -> float | None:
    """JSON has no infinity: an application that stood still."""
    return value if math.isfinite(value) else None
