"""The fault campaign: real runs of small workflows. In each, something dies, stands still or is missing.

After each, one of two is true: the results are identical to plain StreamFlow's, or the run has failed with a clear
error. No consumer has succeeded on partial data, and nothing is left behind. Prints a table; exits with 1, and keeps
the evidence, if that is not so.
"""

from __future__ import annotations

import argparse
import contextlib
import secrets
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path

from rich.console import Console
from rich.table import Table

from lab.disks import can_loop, can_mount
from lab.machines.laboratory import LaboratoryError
from lab.runs import Run

from .allocations import Allocation, Cluster, cluster
from .cases import (
    ALLOCATION_FAULTS,
    CONTAINER_FAULTS,
    CONTAINER_SPAN,
    FAULTS,
    HOST_FAULTS,
    LOCAL_FAULTS,
    SPAN,
    Case,
    Fault,
    choose,
)
from .containers import Engine, engine
from .hosts import Hosts, hosts
from .standstill import can_freeze
from .trial import RUN_SECONDS, Trial, run_case, run_plain
from .workloads import WORKLOADS, random_names

OUTCOMES = ("identical", "failed", "ended", "untouched", "hung")


def main() -> int:
    options = _options()
    directory: Path = options.directory or Path(tempfile.mkdtemp(prefix="sfio-campaign-"))
    directory.mkdir(parents=True, exist_ok=True)
    faults = possible_faults(directory, chosen_faults(options), options.victims)
    print(f"seed {options.seed}, in {directory}", flush=True)
    numbers = options.only or range(options.first, options.first + options.count)
    try:
        trials = run(numbers, faults, directory, options)
    except LaboratoryError as error:
        what = "containers" if options.containers else "hosts" if options.hosts else "allocation"
        sys.exit(f"There can be no {what} here: {error}")
    Console(width=120).print(summary(trials))
    broken = [trial for trial in trials if trial.verdict.violations]
    if broken:
        print(
            f"{len(broken)} of {len(trials)} trials break a guarantee; repeat with --seed {options.seed} --only NUMBER"
        )
    elif not options.keep:
        shutil.rmtree(directory)
    return 1 if broken else 0


def chosen_faults(options: argparse.Namespace) -> Sequence[Fault]:
    """The faults that make sense where the jobs run."""
    if options.hosts:
        return HOST_FAULTS
    if options.allocation:
        return ALLOCATION_FAULTS
    if options.containers:
        # Without dockerd, there are no containers of other trials either.
        return [fault for fault in CONTAINER_FAULTS if fault.victim != "dockerd" or options.jobs == 1]
    return LOCAL_FAULTS


def possible_faults(directory: Path, faults: Sequence[Fault], victims: Collection[str] | None) -> list[Fault]:
    """The faults that can be brought about on this machine; prints those that cannot."""
    cannot: list[Fault] = []
    kinds = {fault.kind for fault in faults}
    if "full" in kinds and not can_mount(directory):
        cannot.append(Fault("disk", "full"))
    if "stuck" in kinds and not can_loop(directory):
        cannot.append(Fault("disk", "stuck"))
    if "frozen" in kinds and not can_freeze():
        cannot += [fault for fault in faults if fault.kind == "frozen"]
    left_out = [fault.name for fault in faults if fault in cannot]
    if left_out:
        print(f"Not possible here, and left out: {', '.join(left_out)}")
    return [fault for fault in faults if fault not in cannot and fault.victim in (victims or [fault.victim])]


def run(numbers: Sequence[int], faults: Sequence[Fault], directory: Path, options: argparse.Namespace) -> list[Trial]:
    """Run all trials, and report each."""
    span = CONTAINER_SPAN if options.containers else SPAN
    trials = []
    with place(options) as where:
        plain = run_workloads(directory, options, where)
        cases = [choose(options.seed, number, list(plain), faults, span) for number in numbers]

        def try_case(case: Case) -> Trial:
            with for_one(where) as here:
                return run_case(directory / f"trial-{case.number}", case, plain[case.workload], here)

        # There are two hosts, and one trial at a time that has them.
        with ThreadPoolExecutor(1 if options.hosts else options.jobs) as pool:
            for trial in pool.map(try_case, cases):
                trials.append(trial)
                report(trial)
                if not (trial.verdict.violations or options.keep):
                    shutil.rmtree(trial.evidence)
    return trials


def place(options: argparse.Namespace) -> AbstractContextManager[Hosts | Engine | Cluster | None]:
    """Where the jobs run; None: here."""
    if options.allocation:
        return cluster()
    return hosts() if options.hosts else engine() if options.containers else contextlib.nullcontext()


@contextlib.contextmanager
def for_one(where: Hosts | Engine | Cluster | None) -> Iterator[Hosts | Engine | Allocation | None]:
    """Where the jobs of one trial run: in an allocation that no other trial has."""
    if isinstance(where, Cluster):
        with where.allocation() as allocation:
            yield allocation
    else:
        yield where


def run_workloads(
    directory: Path, options: argparse.Namespace, where: Hosts | Engine | Cluster | None
) -> dict[str, Run]:
    """Run each workload with plain StreamFlow. Random ones are left out that it cannot run, or not soon."""
    if isinstance(where, Engine):
        return {name: run_plain(directory / f"plain-{name}", name, where) for name in options.workloads}
    with for_one(where if isinstance(where, Cluster) else None) as here:
        allocation = here if isinstance(here, Allocation) else None
        plain = {name: run_plain(directory / f"plain-{name}", name, allocation) for name in options.workloads}
        for name in random_names(options.seed, options.random):
            with contextlib.suppress(RuntimeError):
                plain[name] = run_plain(directory / f"plain-{name}", name, allocation, RUN_SECONDS / 3)
    return plain


def report(trial: Trial) -> None:
    """Print one trial, and what it violates."""
    print(f"{trial.case} | {trial.verdict.outcome:9} {trial.seconds:5.1f} s | {trial.struck} | {trial.verdict.message}")
    for violation in trial.verdict.violations:
        print(f"    VIOLATION {violation}")
    if trial.verdict.violations:
        print(f"    evidence: {trial.evidence}")
    sys.stdout.flush()


def summary(trials: Sequence[Trial]) -> Table:
    """Fault by outcome."""
    table = Table(title=f"{len(trials)} trials")
    for name in ("fault", *OUTCOMES, "violations"):
        table.add_column(name, justify="left" if name == "fault" else "right")

    def row(name: str, some: Sequence[Trial]) -> None:
        counts = Counter(trial.verdict.outcome for trial in some)
        broken = sum(1 for trial in some if trial.verdict.violations)
        table.add_row(name, *(str(counts[outcome] or "") for outcome in OUTCOMES), str(broken))

    for fault in FAULTS:
        if some := [trial for trial in trials if trial.case.fault == fault]:
            row(fault.name, some)
    row("all", trials)
    return table


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.campaign", description=__doc__)
    parser.add_argument("--count", type=int, default=200, help="how many trials (default: %(default)s)")
    parser.add_argument("--first", type=int, default=0, help="number of the first one (default: %(default)s)")
    parser.add_argument("--only", type=int, nargs="+", metavar="NUMBER", help="these trials instead")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**31), help="(default: another each time)")
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS), metavar="NAME",
                        help=f"of {', '.join(WORKLOADS)} (default: all)")  # fmt: skip
    parser.add_argument("--victims", nargs="+", choices=dict.fromkeys(fault.victim for fault in FAULTS), metavar="WHO",
                        help="of producer, consumer, exec, serve, driver, disk, clock... (default: all)")  # fmt: skip
    parser.add_argument(
        "--random", type=int, default=12, help="how many random workflows besides (default: %(default)s)"
    )
    elsewhere = parser.add_mutually_exclusive_group()
    elsewhere.add_argument(
        "--hosts", action="store_true", help="on two SSH hosts of a laboratory: their network, their disk"
    )
    elsewhere.add_argument(
        "--containers", action="store_true", help="in containers of a laboratory; dockerd dies only with --jobs 1"
    )
    elsewhere.add_argument(
        "--allocation",
        action="store_true",
        help="on two nodes of a Slurm of a laboratory, an allocation for each trial",
    )
    parser.add_argument("--jobs", type=int, default=1, help="trials at the same time (default: %(default)s)")
    parser.add_argument("--directory", type=Path, help="where all of it happens (default: a temporary one)")
    parser.add_argument("--keep", action="store_true", help="keep every trial, not only those with violations")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
