"""`streamflow-io storage share`: makes a directory by which the runs of several users share a storage."""

from __future__ import annotations

import argparse
import grp
import math
import os
from collections.abc import Mapping
from pathlib import Path

from streamflow_io.hints.bandwidth import HIGHEST
from streamflow_io.hints.errors import HintErrors
from streamflow_io.hints.models import WAYS
from streamflow_io.installed_features import missing, subclass_of
from streamflow_io.storage.admission.demand import bytes_per_second
from streamflow_io.storage.sharing.directory import make_shared
from streamflow_io.storage.sharing.entries import MOST_OF_PATH, LedgerFile
from streamflow_io.storage.sharing.other_entries import SharingError
from streamflow_io.storage.sharing.status import megabytes, printable
from streamflow_io.wording import counted

from .console import PlainResult

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
