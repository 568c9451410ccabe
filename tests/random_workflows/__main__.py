"""Random workflows, each run by plain StreamFlow and by ours; the results must be the same, byte for byte.

What plain StreamFlow cannot do is counted, and shows nothing. Else each workflow with a difference, failure, hang or
leftover is kept; then the exit code is 1.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import secrets
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

from lab.container_sites import docker_bench, make_user_image
from lab.machines.laboratory import Laboratory, start_containers, start_hosts
from lab.runs import Bench

from .allocations import Allocation, run_in_allocation, start_allocation
from .blueprint import Blueprint
from .containers import contain, run_contained
from .generate import generate
from .hosts import run_on_hosts, spread
from .trial import Trial, run_trial
from .unhinted import believed, unhinted
from .windows import windowed

_PROGRAMS = {
    "excerpting": "streamflow excerpting",
    "believing": "streamflow believing",
    "later": "streamflow believing later",
}


def main() -> int:
    options = _options()
    start: Callable[[], AbstractContextManager[Laboratory | Allocation | None]] = contextlib.nullcontext
    if options.containers:
        start = start_containers
    elif options.hosts:
        start = start_hosts
    elif options.allocation:
        start = start_allocation
    with start() as laboratory:
        return run_all(options, laboratory)


def run_all(options: argparse.Namespace, laboratory: Laboratory | Allocation | None) -> int:
    """:param laboratory: where steps run in containers, its hosts, or the nodes of an allocation; none: all run on the
    driver's node
    """
    directory: Path = options.directory or Path(tempfile.mkdtemp(prefix="sfio-random-"))
    numbers = options.only or range(options.first, options.first + options.count)
    print(f"seed {options.seed}, {len(numbers)} workflows, in {directory}", flush=True)

    program = _PROGRAMS.get(options.unhinted, Bench.program)
    run: Callable[[Path, Blueprint], Trial] = functools.partial(
        run_trial, make=functools.partial(Bench, program=program)
    )
    if isinstance(laboratory, Laboratory) and options.containers:
        make_user_image(docker_bench(laboratory, directory))
        run = functools.partial(run_contained, laboratory, program=program)

    def try_number(number: int) -> tuple[int, Trial]:
        place = directory / f"{number}"
        blueprint = generate(options.seed, number, options.steps)
        if options.remove:
            blueprint = replace(blueprint, config=tuple({**dict(blueprint.config), "intermediates": "remove"}.items()))
        if options.window:
            blueprint = windowed(blueprint, options.seed, number)
        if options.memory:
            asked = dict(blueprint.config)
            config = {**asked, "memory": "4GB", "observe": False, "rehearse": "never"}
            config["intermediates"] = (
                "remove" if asked.get("intermediates", "keep") == "keep" else asked["intermediates"]
            )
            blueprint = replace(blueprint, config=tuple(config.items()))
        if options.unhinted:
            is_believed = "believing" in program
            blueprint = unhinted(blueprint, rehearse="never" if is_believed else "wait")
            blueprint = believed(blueprint) if is_believed else blueprint
        run_one = run
        if options.containers:
            blueprint = contain(blueprint, options.seed, number)
        elif isinstance(laboratory, Allocation):
            blueprint = spread(blueprint)
            run_one = functools.partial(run_in_allocation, laboratory, options.seed, number, program=program)
        elif laboratory is not None:
            blueprint = spread(blueprint)
            run_one = functools.partial(run_on_hosts, laboratory, options.seed, number, program=program)
        trial = run_one(place, blueprint)
        if trial.is_harmless and not options.keep:
            # A node runtime whose run has failed may be removing its own at the same time.
            while place.exists():
                shutil.rmtree(place, ignore_errors=True)
        return number, trial

    counted: Counter[str] = Counter()
    with ThreadPoolExecutor(options.jobs) as pool:
        for number, trial in pool.map(try_number, numbers):
            counted[trial.outcome] += 1
            if trial.outcome != "same":
                print(f"{number:4} {trial.outcome}: {trial.detail[-600:]}", flush=True)
    print(", ".join(f"{count} {outcome}" for outcome, count in counted.most_common()))
    harmless = all(Trial(outcome).is_harmless for outcome in counted)  # type: ignore[arg-type]
    if harmless and not options.keep:
        shutil.rmtree(directory)
    return 0 if harmless else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.random_workflows", description=__doc__)
    parser.add_argument("--count", type=int, default=100, help="how many workflows (default: %(default)s)")
    parser.add_argument("--first", type=int, default=0, help="number of the first one (default: %(default)s)")
    parser.add_argument("--only", type=int, nargs="+", metavar="NUMBER", help="these instead")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**31), help="(default: another each time)")
    parser.add_argument("--steps", type=int, default=12, help="at most so many steps (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=2, help="workflows at the same time (default: %(default)s)")
    place = parser.add_mutually_exclusive_group()
    place.add_argument("--containers", action="store_true", help="in containers of a laboratory (root), all mixtures")
    place.add_argument("--hosts", action="store_true", help="on two SSH hosts of a laboratory (root), and the driver's")
    place.add_argument("--allocation", action="store_true", help="on two nodes of a Slurm (root), and the driver's")
    parser.add_argument(
        "--unhinted",
        choices=("learning", "excerpting", "believing", "later"),
        help="without hints, with `streaming: auto`: three runs that learn; that try the first bytes of files before, "
        "however small they are; or that take all for proven, from the beginning or later in the run",
    )
    parser.add_argument(
        "--remove", action="store_true", help="remove intermediate files in all runs, not in half of them"
    )
    parser.add_argument(
        "--window", action="store_true", help="windows in all runs, in blocks of 4 KiB, and steps that have them"
    )
    parser.add_argument(
        "--memory", action="store_true", help="intermediate files in memory, in a second run that knows their sizes"
    )
    parser.add_argument("--directory", type=Path, help="where all of it happens (default: a temporary one)")
    parser.add_argument("--keep", action="store_true", help="keep what was the same, too")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
