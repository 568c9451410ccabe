"""The `streamflow-io` command.

A subcommand is a module with `add_arguments` and `run`, and an entry in `GROUPS` or in `Feature.commands`.
"""

from __future__ import annotations

import argparse
import codecs
import contextlib
import io
import json
import os
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any, cast

from msgspec.structs import asdict
from rich.console import Console

from streamflow_io.commands.console import Command, CommandResult, SafeConsole, show_errors
from streamflow_io.hints.errors import HintError, HintErrors
from streamflow_io.installed_features import Subcommand, features

# The subcommands, grouped by purpose.
GROUPS = {
    "before a run": {
        "validate": Subcommand("check a CWL workflow and its hints, without running it", ("workflow.cwl job.yml",)),
        "plan": Subcommand("show which data will stream, and why other data will not", ("streamflow.yml",)),
        "doctor": Subcommand(
            "show what works on this machine, what does not work, and why", ("", "--location hpc streamflow.yml")
        ),
        "storage": Subcommand(
            "measure a storage; let several users share it",
            ("probe /scratch", "share /scratch/runs"),
        ),
    },
    "a run and its results": {
        "watch": Subcommand("show the progress of a run", ("", "last")),
        "runs": Subcommand("list the runs with telemetry", ("",)),
        "logs": Subcommand(
            "show the output of jobs, and how they ended",
            ("last", "last /align", "last /align 0.1", "last /align --list"),
        ),
        "report": Subcommand(
            "show how runs have used their time", ("last", "plain auto -o compared.html", "last --format perfetto")
        ),
        "suggest": Subcommand("propose hints from an observed run", ("last", "last -o annotations.yml")),
        "bandwidth": Subcommand("show how fast data had to move in a run, and how fast it moved", ("last",)),
        "clean": Subcommand(
            "remove what runs have left in work directories",
            ("--dry-run", "last", "--older-than 7d"),
        ),
        "learned": Subcommand(
            "list, show, forget or export what earlier runs have learned", ("list", "forget --step /save")
        ),
        "explain": Subcommand("explain a message that ends in a code", ("SFIO-S001", "")),
    },
    "with other programs": {
        "coordination": Subcommand("write the coordination of a StreamFlow file in CAPIO-CL", ("streamflow.yml",)),
    },
}
for _feature in features():
    for _name, _entry in _feature.commands().items():
        GROUPS[_entry.group][_name] = _entry
COMMANDS = {name: entry for group in GROUPS.values() for name, entry in group.items()}
_EXAMPLES = "examples: streamflow-io plan streamflow.yml; streamflow-io report last\n"


class _Program(argparse.ArgumentParser):
    """A parser that shows its commands in groups."""

    def format_help(self) -> str:
        # Without empty lines, because a terminal has 24 lines.
        lines = [
            f"usage: {self.prog} [--version] COMMAND ...; COMMAND --help prints its options",
        ]
        for title, group in GROUPS.items():
            lines += [f"{title}:", *(f"  {name:<14}{entry.text}" for name, entry in group.items())]
        return "\n".join([*lines, _EXAMPLES])


class _Version(argparse.Action):
    """Looks the version up only when it is printed."""

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
        return {"errors": [asdict(error) for error in self.errors]}

    def show(self, console: Console) -> None:
        show_errors(console, self.errors)


def _printed(error: UnicodeError) -> tuple[str | bytes, int]:
    """Print names of files, which are bytes, unchanged, and escape what the encoding of a terminal lacks."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    letter = error.object[error.start]
    is_of_a_name = "\udc80" <= letter <= "\udcff" and error.encoding == "utf-8"
    return (os.fsencode(letter) if is_of_a_name else ascii(letter)[1:-1]), error.start + 1


_ALWAYS_PRINTED = "streamflow-io"
codecs.register_error(_ALWAYS_PRINTED, _printed)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, also until Ctrl-C; see :func:`_run`."""
    try:
        return _run(arguments)
    except KeyboardInterrupt:
        print("streamflow-io: interrupted", file=sys.stderr)
        return 130


def _run(arguments: Sequence[str] | None) -> int:
    """Run the command line.

    :return: 0 only if all is well, 1 if not, 2 if the command line is wrong, 130 after Ctrl-C
    :raises SystemExit: with the same codes; with 1 if the output was closed before all was written (`| head -1`)
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_ALWAYS_PRINTED)
    argv = list(sys.argv[1:] if arguments is None else arguments)
    parser, modules = parser_of(argv)
    with _quiet_when_closed():
        namespace = parser.parse_args(argv)
    try:
        result: CommandResult = modules[namespace.command].run(namespace)
    except HintErrors as mistakes:
        result = Mistakes(mistakes.errors)
    with _quiet_when_closed():
        if namespace.json:
            print(json.dumps({"ok": result.ok, **result.to_json()}, indent=2))
        else:
            # A mistake is no result, so a file that receives the output does not get it.
            result.show(SafeConsole(stderr=isinstance(result, Mistakes)))
    return 0 if result.ok else 1


def parser_of(argv: Sequence[str]) -> tuple[argparse.ArgumentParser, dict[str, Command]]:
    """Return the parser of a command line, and the module of its command by name. Empty: no known command."""
    parser = _Program(prog="streamflow-io")
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version")
    commands = parser.add_subparsers(
        dest="command", required=True, metavar="COMMAND", parser_class=argparse.ArgumentParser
    )
    modules: dict[str, Command] = {}
    for name, entry in COMMANDS.items():
        subparser = commands.add_parser(
            name,
            help=entry.text,
            description=entry.text,
            epilog=_examples(name, entry),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        subparser.add_argument("--json", action="store_true", help="print JSON for programs")
        if name in argv[:1]:
            modules[name] = cast(Command, import_module(f"{entry.package}.{name}"))
            modules[name].add_arguments(subparser)
    return parser, modules


def _examples(name: str, entry: Subcommand) -> str | None:
    lines = [f"  streamflow-io {name} {each}".rstrip() for each in entry.examples]
    return "\n".join(["examples:", *lines]) if lines else None


@contextlib.contextmanager
def _quiet_when_closed() -> Iterator[None]:
    """Print, and end the program silently if the output is closed."""
    try:
        try:
            yield
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except BrokenPipeError:
        # The interpreter writes the rest of the buffer again when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


if __name__ == "__main__":
    sys.exit(main())
