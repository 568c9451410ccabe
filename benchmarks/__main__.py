"""`python -m benchmarks list`, `run NAME` and `demo`."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from .allocation import ALLOCATION
from .auto import AUTO
from .auto_at_scale import AUTO_AT_SCALE
from .chain import CHAIN
from .checkpoints import CHECKPOINTS
from .containers import CONTAINERS
from .deadlines import DEADLINES
from .demo import run_demo
from .disk_limit import DISK_LIMIT
from .disk_space import DISK_SPACE
from .fanout import FANOUT
from .harness import run_workload
from .intermediates import INTERMEDIATES, SIZE, intermediates
from .io_tasks import IO_TASKS
from .many_jobs import JOBS, MANY_JOBS, many_jobs
from .ordinary import BUSY_CORES, ORDINARY
from .overhead import OVERHEAD
from .processes import CommandError
from .read_sessions import READ_SESSIONS, read_sessions
from .read_sessions_alone import COUNTS
from .shared_runs import SHARED_BURSTS, SHARED_RUNS
from .slow_disk import SLOW_DISK
from .table import render
from .templates import EXAMPLE, THOUSAND_GENOMES, THOUSAND_GENOMES_DIRECTORIES, VARIANT_CALLING
from .workload import Workload

WORKLOADS = {
    workload.name: workload
    for workload in (
        CHAIN,
        AUTO,
        AUTO_AT_SCALE,
        FANOUT,
        OVERHEAD,
        MANY_JOBS,
        IO_TASKS,
        INTERMEDIATES,
        DISK_LIMIT,
        DISK_SPACE,
        SLOW_DISK,
        CHECKPOINTS,
        DEADLINES,
        SHARED_RUNS,
        SHARED_BURSTS,
        THOUSAND_GENOMES,
        THOUSAND_GENOMES_DIRECTORIES,
        VARIANT_CALLING,
        ORDINARY,
        BUSY_CORES,
        ALLOCATION,
        CONTAINERS,
        READ_SESSIONS,
    )
}

#: The last result of each workload, by its name.
RESULTS = Path(__file__).with_name("results")

_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line.

    :return: 0 if every goal is reached and all outputs are identical, else 1; 130 if interrupted; 2 is wrong usage
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.command == "list":
        Console().print(_list())
        return 0
    if options.command == "demo":
        return run_demo((EXAMPLE, THOUSAND_GENOMES, VARIANT_CALLING))
    workload = WORKLOADS[options.name]
    if options.consumers is not None:
        if workload is not READ_SESSIONS:
            parser.error(f"--consumers is for {READ_SESSIONS.name} only")
        workload = read_sessions(sorted({*options.consumers, 1, 16}))
    if options.jobs is not None:
        if workload is not MANY_JOBS:
            parser.error(f"--jobs is for {MANY_JOBS.name} only")
        workload = many_jobs(options.jobs)
    if options.size is not None:
        if workload is not INTERMEDIATES:
            parser.error(f"--size is for {INTERMEDIATES.name} only")
        workload = intermediates(options.size)
    if options.save and workload is not WORKLOADS[options.name]:
        parser.error("--save keeps the result of a workload as it is, without --consumers, --jobs and --size")
    files = [options.json] if options.json is not None else []
    return _run(workload, options.reps, [*files, RESULTS / f"{options.name}.json"] if options.save else files)


def _run(workload: Workload, repetitions: int, files: Sequence[Path]) -> int:
    progress = Console(stderr=True)
    try:
        with progress.status(workload.name) as status:
            report = run_workload(workload, repetitions, lambda text: status.update(f"{workload.name}, {text}"))
    except CommandError as error:
        progress.print(f"{workload.name}: {error}", style="red", markup=False, highlight=False)
        return 1
    except KeyboardInterrupt:
        progress.print(f"{workload.name}: interrupted")
        return _INTERRUPTED
    for file in files:
        report.write(file)
    Console().print(render(report))
    return 0 if report.met else 1


def _list() -> Table:
    table = Table("name", "what it does", "goals")
    for workload in WORKLOADS.values():
        goals = sum(comparison.is_goal for comparison in workload.comparisons)
        table.add_row(workload.name, workload.summary, str(goals))
    return table


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Compare with plain StreamFlow")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="the workloads")
    commands.add_parser(
        "demo", help="run the example of the README and templates once, plain and streaming, and compare"
    )
    run = commands.add_parser("run", help="run a workload; exits 0 if all goals are reached and outputs identical")
    run.add_argument("name", metavar="NAME", choices=WORKLOADS, help=", ".join(WORKLOADS))
    run.add_argument("--reps", type=_positive, default=5, help="repetitions (default: 5)")
    run.add_argument("--json", type=Path, metavar="FILE", help="write the report here, too")
    run.add_argument(
        "--save", action="store_true", help="keep the report in benchmarks/results, for docs/benchmarks.md"
    )
    usual = " ".join(map(str, COUNTS))
    run.add_argument(
        "--consumers",
        type=_positive,
        nargs="+",
        metavar="N",
        help=f"of {READ_SESSIONS.name}: how many, beside 1 and 16 ({usual}; 8192 take half a minute more)",
    )
    run.add_argument("--jobs", type=_positive, metavar="N", help=f"of {MANY_JOBS.name}: how many ({JOBS})")
    run.add_argument("--size", type=_positive, metavar="MIB", help=f"of {INTERMEDIATES.name}: what A writes ({SIZE})")
    return parser


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1")
    return int(text)


if __name__ == "__main__":
    # As Ctrl-C does: what runs is ended, and what was written is removed.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
