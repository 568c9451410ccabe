"""The `streamflow-io` command.

A subcommand is a module with `add_arguments` and `run`, and one line in `COMMANDS`.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any, cast

from rich.console import Console

from streamflow_io.commands.console import Command, Result, show_errors
from streamflow_io.hints.errors import HintError, HintErrors

# What each does; its module in `commands` has its name, and is imported when needed: no command waits for another's.
COMMANDS = {
    "validate": "check a CWL workflow and its hints, without running it",
    "plan": "show what will stream in a StreamFlow file, and why something will not",
    "coordination": "write what a StreamFlow file coordinates, in CAPIO-CL",
    "annotate": "write an annotations file from a CAPIO-CL file",
    "partition": "show where declared splits cut, and compare it with what they write",
    "storage": "measure a storage; see and set up which runs share it",
    "watch": "show a run while it goes on",
    "runs": "list the runs that have telemetry",
    "report": "draw what runs measured: times, throughput, learning, constraints",
    "bandwidth": "show how fast the data of a run had to move, and how fast it did",
    "trace": "write what the I/O tasks of a run moved as a trace, for FTIO",
    "schedule": "schedules of applications that compute and transfer by turns: compute, check, show",
    "suggest": "propose hints from an observed run; nothing is applied",
    "doctor": "show what works on this machine, what does not, and why",
    "learned": "what earlier runs have learned, of limits and of declared splits: list, show, forget",
}


class _Version(argparse.Action):
    """Looks the version up when it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        print(f"streamflow-io {version('streamflow-io')}")
        parser.exit()


class Mistakes:
    """The result of a subcommand that was stopped by mistakes in hints."""

    ok = False

    def __init__(self, errors: Sequence[HintError]) -> None:
        self.errors = errors

    def to_json(self) -> dict[str, Any]:
        return {"errors": [vars(error) for error in self.errors]}

    def show(self, console: Console) -> None:
        show_errors(console, self.errors)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    :return: 0 only if all is well, 1 if not, 2 if the command line is wrong
    :raises SystemExit: with the same codes; with 1 if the output was closed before all was written (`| head -1`)
    """
    for stream in (sys.stdout, sys.stderr):
        # Names of files are bytes: those that are no UTF-8 are shown as they are.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="surrogateescape")
    argv = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(prog="streamflow-io", description="I/O-aware CWL workflows for StreamFlow")
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    modules: dict[str, Command] = {}
    for name, text in COMMANDS.items():
        subparser = commands.add_parser(name, help=text, description=text)
        subparser.add_argument("--json", action="store_true", help="print JSON for programs")
        if name in argv[:1]:
            modules[name] = cast(Command, import_module(f"streamflow_io.commands.{name}"))
            modules[name].add_arguments(subparser)
    with _quiet_when_closed():
        namespace = parser.parse_args(argv)
    try:
        result: Result = modules[namespace.command].run(namespace)
    except HintErrors as mistakes:
        result = Mistakes(mistakes.errors)
    with _quiet_when_closed():
        if namespace.json:
            print(json.dumps({"ok": result.ok, **result.to_json()}, indent=2))
        else:
            result.show(Console())
    return 0 if result.ok else 1


@contextlib.contextmanager
def _quiet_when_closed() -> Iterator[None]:
    """Print, and end the program without a word if nobody reads on."""
    try:
        try:
            yield
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except BrokenPipeError:
        # What is left in the buffer is written again when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


if __name__ == "__main__":
    sys.exit(main())
