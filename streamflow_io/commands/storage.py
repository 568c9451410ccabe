"""`streamflow-io storage`: `probe` measures a storage, and prints its entry for the StreamFlow file."""

from __future__ import annotations

import argparse
import math
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

from msgspec import Struct
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from streamflow_io.hints.annotations_text import scalar
from streamflow_io.hints.config import StorageConfig
from streamflow_io.hints.fields import ALLOWED_LIMIT, parse_limit
from streamflow_io.storage.probe.evaluation import (
    Measurement,
    ProbeTransfer,
    Sample,
    entry_fields,
    meaning,
    storage_entry,
    warnings,
)
from streamflow_io.storage.probe.measuring import LEAST_BYTES, LEVELS, Task, measure

from .console import CommandResult, SafeConsole, say, table
from .storage_sharing import add_share, share

_ACCESS = {
    "direct": "direct I/O, without the page cache",
    "buffered": "buffered writes, synced; page cache dropped before reads",
}


class Probe(Struct, frozen=True):
    """A storage that was measured."""

    measurement: Measurement

    ok = True

    def to_json(self) -> dict[str, Any]:
        measurement = self.measurement
        return {
            "path": measurement.path,
            "mountPoint": measurement.mount.point,
            "fileSystem": measurement.mount.file_system,
            "access": measurement.access,
            "bytes": measurement.bytes,
            "seconds": measurement.seconds,
            "levels": [
                {"writers": level.writers, "write": _sample_to_json(level.write), "read": _sample_to_json(level.read)}
                for level in measurement.levels
            ],
            "entry": entry_fields(storage_entry(measurement)),
            "warnings": list(warnings(measurement)),
        }

    def show(self, console: Console) -> None:
        measurement = self.measurement
        entry = storage_entry(measurement)
        mount = f"{measurement.mount.file_system} mounted on {measurement.mount.point}"
        say(console, f"{measurement.path}: {mount}; {_ACCESS[measurement.access]}")
        console.print(_table(measurement))
        for warning in warnings(measurement):
            say(console, f"Warning: {warning}", "yellow")
        say(console, "For `config` of the scheduler `sfio.io-aware` in the StreamFlow file:")
        say(console, f"\n{entry_yaml(entry)}")
        say(console, meaning(entry))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `storage`."""
    text = f"measure the bandwidth of a directory with {', '.join(map(str, LEVELS))} writers; nothing is left in it"
    commands = parser.add_subparsers(dest="storage_command", required=True, metavar="COMMAND")
    probe = commands.add_parser("probe", help=text, description=text)
    probe.add_argument("path", metavar="PATH", help="a directory on the storage")
    probe.add_argument(
        "--bytes",
        type=_bytes,
        default="256MB",
        metavar="SIZE",
        help="the most bytes to write for each number of writers, as 1GB or 512MB (default: 256MB)",
    )
    probe.add_argument(
        "--seconds",
        type=_seconds,
        default="5",
        metavar="SECONDS",
        help="the longest time to write, and to read, for each number of writers (default: 5)",
    )
    add_share(commands)
    # Suppressed, so that it does not undo `storage --json probe`.
    probe.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print JSON for programs")


def run(arguments: argparse.Namespace) -> CommandResult:
    """Measure a storage, or share it.

    :raises HintErrors: if the storage cannot be measured, or shared
    :raises SystemExit: 128 + the number of a signal that ended the command
    """
    return _probe(arguments) if arguments.storage_command == "probe" else share(arguments)


def _probe(arguments: argparse.Namespace) -> Probe:
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    console = SafeConsole(stderr=True)
    with (
        _ended_by_signals(),
        Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress,
    ):
        bar = progress.add_task("starting", total=2 * len(LEVELS) + 1)

        def announce(writers: int, task: Task) -> None:
            verb = "writing" if task == "write" else "reading"
            progress.update(bar, advance=1, description=f"{verb} with {writers} of {LEVELS[-1]} writers")

        return Probe(measure(arguments.path, arguments.bytes, arguments.seconds, announce))


def entry_yaml(entry: StorageConfig) -> str:
    """Return an entry as it is written in a StreamFlow file, in one line below `storages`."""
    fields = ", ".join(f"{key}: {scalar(value)}" for key, value in entry_fields(entry).items())
    return f"storages:\n  - {{{fields}}}\n"


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Turn the signals that end a program into an exception, so that it cleans up."""

    def end(number: int, frame: FrameType | None) -> NoReturn:
        for each in handlers:  # a second Ctrl-C does not interrupt the cleaning
            signal.signal(each, signal.SIG_IGN)
        raise SystemExit(128 + number)

    chosen = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    handlers = {each: signal.getsignal(each) for each in chosen if signal.getsignal(each) is not signal.SIG_IGN}
    for each in handlers:
        signal.signal(each, end)
    try:
        yield
    finally:
        for each, handler in handlers.items():
            signal.signal(each, handler)


def _bytes(text: str) -> int:
    try:
        size = parse_limit(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error}; allowed: {ALLOWED_LIMIT}") from None
    if size < LEAST_BYTES:
        raise argparse.ArgumentTypeError(f"{text} is too little; allowed: {LEAST_BYTES // 10**6}MB or more")
    return size


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0.1 <= seconds <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is not allowed; allowed: a number from 0.1 to 3600")
    return seconds


def _sample_to_json(sample: Sample) -> dict[str, Any]:
    return {**_moved(sample), "perWriter": list(map(_moved, sample.transfers))}


def _moved(what: Sample | ProbeTransfer) -> dict[str, Any]:
    return {"bytes": what.bytes, "seconds": what.seconds, "bandwidth": what.bandwidth}


def _table(measurement: Measurement) -> Table:
    rows = []
    for level in measurement.levels:
        cells = [Text(str(level.writers))]
        for sample, best in ((level.write, measurement.best_write), (level.read, measurement.best_read)):
            total = _number(sample.bandwidth)
            cells += [Text(total, "bold" if sample is best else ""), Text(_number(sample.bandwidth / level.writers))]
        rows.append(cells)
    columns = ("writers", "write", "per writer", "read", "per reader")
    return table("MB/s, 1 MB = 10^6 bytes; the best in bold", columns, rows, numbers=columns)


def _number(bandwidth: float) -> str:
    return f"{bandwidth:.0f}" if bandwidth >= 100 else f"{bandwidth:.1f}" if bandwidth >= 1 else f"{bandwidth:.2g}"
