"""The fault campaign: real runs of small workflows, in each of which something is killed, or the disk fills up.

After each, one of two is true: the results are identical to plain StreamFlow's, or the run has failed with a clear
error. No consumer has succeeded on partial data, and nothing is left behind. Prints a table; exits with 1, and keeps
the evidence, if that is not so.
"""

from __future__ import annotations

import argparse
import secrets
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rich.console import Console
from rich.table import Table

from .cases import FAULTS, Case, choose
from .disk import can_mount
from .trial import Trial, run_case, run_plain
from .workloads import WORKLOADS

OUTCOMES = ("identical", "failed", "ended", "untouched", "hung")


def main() -> int:
    options = _options()
    directory: Path = options.directory or Path(tempfile.mkdtemp(prefix="sfio-campaign-"))
    directory.mkdir(parents=True, exist_ok=True)
    mountable = can_mount(directory)
    faults = [
        fault
        for fault in FAULTS
        if fault.victim in (options.victims or [fault.victim]) and (fault.victim != "disk" or mountable)
    ]
    if not mountable:
        print("No file system can be mounted here: the disk is not filled, only the size of files is limited")
    numbers = options.only or range(options.first, options.first + options.count)
    trials = run([choose(options.seed, number, options.workloads, faults) for number in numbers], directory, options)
    Console(width=120).print(summary(trials))
    broken = [trial for trial in trials if trial.verdict.violations]
    if broken:
        print(
            f"{len(broken)} of {len(trials)} trials break a guarantee; repeat with --seed {options.seed} --only NUMBER"
        )
    elif not options.keep:
        shutil.rmtree(directory)
    return 1 if broken else 0


def run(cases: Sequence[Case], directory: Path, options: argparse.Namespace) -> list[Trial]:
    """Run all cases, and report each."""
    print(f"seed {options.seed}, {len(cases)} trials, in {directory}", flush=True)
    needed = {case.workload for case in cases}
    plain = {name: run_plain(directory / f"plain-{name}", name) for name in WORKLOADS if name in needed}
    trials = []

    def try_case(case: Case) -> Trial:
        return run_case(directory / f"trial-{case.number}", case, plain[case.workload])

    with ThreadPoolExecutor(options.jobs) as pool:
        for trial in pool.map(try_case, cases):
            trials.append(trial)
            report(trial)
            if not (trial.verdict.violations or options.keep):
                shutil.rmtree(trial.evidence)
    return trials


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
                        help="of producer, consumer, exec, serve, driver, disk (default: all)")  # fmt: skip
    parser.add_argument("--jobs", type=int, default=1, help="trials at the same time (default: %(default)s)")
    parser.add_argument("--directory", type=Path, help="where all of it happens (default: a temporary one)")
    parser.add_argument("--keep", action="store_true", help="keep every trial, not only those with violations")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
