"""`streamflow-io storage`: `probe` measures a storage, `share` makes a directory by which several users share one."""

from __future__ import annotations

import argparse
import grp
import math
import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from msgspec import Struct
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from streamflow_io.hints.annotations_text import scalar
from streamflow_io.hints.bandwidth import HIGHEST
from streamflow_io.hints.config import StorageConfig
from streamflow_io.hints.errors import HintErrors
from streamflow_io.hints.fields import ALLOWED_LIMIT, parse_limit
from streamflow_io.hints.models import WAYS
from streamflow_io.installed_features import missing, subclass_of
from streamflow_io.storage.admission.demand import bytes_per_second
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
from streamflow_io.storage.sharing.directory import make_shared
from streamflow_io.storage.sharing.entries import MOST_OF_PATH, LedgerFile
from streamflow_io.storage.sharing.other_entries import SharingError
from streamflow_io.storage.sharing.status import megabytes, printable
from streamflow_io.wording import counted

from .console import CommandResult, PlainResult, SafeConsole, say, table

_SHARE = "make a directory for runs of several users that share a storage"


class ShareOptions:
    """Options of `storage share` for the turns of bursts. A feature extends this class.

    :cvar directories: further directories in the shared one, for files of the runs
    """

    directories: tuple[str, ...] = ()

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the options to a parser. Without a feature `--holds` is known only for a message that says so."""
        parser.add_argument("--holds", help=argparse.SUPPRESS)

    def fields(self, path: Path, arguments: argparse.Namespace) -> Mapping[str, object]:
        """Return the fields of `ledger.json` that the options ask for.

        :param path: the path of the directory that is made
        :raises HintErrors: if an option is wrong
        """
        if arguments.holds is not None:
            raise HintErrors.one(path, "--holds", missing("schedules") or "it is not allowed", "no --holds")
        return {}


def add_share(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the arguments of `storage share`."""
    share = commands.add_parser("share", help=_SHARE, description=_SHARE)
    share.add_argument(
        "directory", metavar="DIR", type=Path, help="the new directory, on a file system that all runs see"
    )
    share.add_argument("--path", metavar="PATH", help="the path of the storage (default: the place of DIR)")
    share.add_argument("--write", type=_bandwidth, metavar="MB/S", help="the write bandwidth for all runs together")
    share.add_argument(
        "--read",
        type=_bandwidth,
        metavar="MB/S",
        help="the read bandwidth (one of both alone holds for both)",
    )
    share.add_argument("--group", metavar="GROUP", help="the users that share the storage (default: your group)")
    subclass_of(ShareOptions)().add_arguments(share)
    share.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print JSON for programs")


def share(arguments: argparse.Namespace) -> PlainResult:
    """Make a directory by which runs share a storage.

    :raises HintErrors: if the directory cannot be made
    """
    path = Path(os.path.abspath(arguments.directory))
    if not path.parent.is_dir():
        raise HintErrors.one(path, "DIR", f"{path.parent} is no directory", "a directory in one that is there")
    if arguments.path is not None and not 0 < len(arguments.path) <= MOST_OF_PATH:
        allowed = f"1 to {MOST_OF_PATH} characters: where the storage is, for people"
        raise HintErrors.one(path, "--path", f"it has {counted(len(arguments.path), 'character')}", allowed)
    if arguments.write is None and arguments.read is None:
        raise HintErrors.one(path, "--write, --read", "no bandwidth is given", "one of them or both, in MB/s")
    amounts = {
        way: None if getattr(arguments, way) is None else bytes_per_second(getattr(arguments, way)) for way in WAYS
    }
    options = subclass_of(ShareOptions)()
    fields = options.fields(path, arguments)
    ledger = LedgerFile.model_validate({"path": arguments.path or str(path.parent), **amounts, **fields})
    try:
        group = grp.getgrgid(os.getegid()) if arguments.group is None else grp.getgrnam(arguments.group)
    except KeyError:
        name = os.getegid() if arguments.group is None else repr(arguments.group)
        raise HintErrors.one(path, "--group", f"there is no group {name}", "a group that you are in") from None
    try:
        make_shared(path, ledger, group.gr_gid, options.directories)
    except SharingError as error:
        raise HintErrors.one(path, "DIR", str(error), "a directory that is not there yet") from None
    except OSError as error:
        message = f"{error.filename or path}: {error.strerror}"
        raise HintErrors.one(
            path, "DIR", message, "a directory that you can make, and a group that you are in"
        ) from None
    facts = {"directory": str(path), "group": group.gr_name, "bandwidth": megabytes(ledger.bandwidth or {})}
    shown = f"Members of {group.gr_name} share {printable(ledger.path)} by {path}."
    return PlainResult(facts, [shown, "In the entry of each one's StreamFlow file:", f"\n  share: {path}"])


def _bandwidth(text: str) -> float:
    try:
        bandwidth = float(text)
    except ValueError:
        bandwidth = math.nan
    if not 0 < bandwidth <= HIGHEST:
        raise argparse.ArgumentTypeError(f"{text!r} is not allowed; allowed: a number of MB/s above 0, up to 10^12")
    return bandwidth


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
    progress = Progress(*columns, console=console, transient=True)
    # Older versions of rich end also a disabled display with an empty line.
    with _ended_by_signals(), progress if console.is_terminal else nullcontext():
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
