"""`streamflow-io completion`: code with which a shell completes commands, options, runs and codes."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from argcomplete import autocomplete
from argcomplete.shell_integration import shellcode
from msgspec import Struct
from rich.console import Console

from streamflow_io.messages import Code
from streamflow_io.records.runs import LAST, run_names

_SHELLS = {
    "bash": "source <(streamflow-io completion bash), in ~/.bashrc",
    "zsh": "after compinit: source <(streamflow-io completion zsh), in ~/.zshrc",
    "fish": "streamflow-io completion fish | source, in ~/.config/fish/config.fish",
}


class Completion(Struct, frozen=True):
    """The result of the command.

    :ivar code: code for the shell
    """

    shell: str
    code: str
    ok = True

    def to_json(self) -> dict[str, Any]:
        return {"shell": self.shell, "code": self.code}

    def show(self, console: Console) -> None:
        # Printed as it is, because a shell reads the code.
        print(self.code)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    said = "; ".join(f"{shell}: {how}" for shell, how in _SHELLS.items())
    parser.add_argument("shell", choices=_SHELLS, help=said)


def complete(parser: argparse.ArgumentParser) -> None:
    """Print completions of a command line for the shell, and end the program."""
    for action in _actions(parser):
        if isinstance(action.metavar, str) and action.metavar in _KNOWN:
            # argcomplete looks for this attribute.
            action.completer = _KNOWN[action.metavar]  # type: ignore[attr-defined]
    autocomplete(parser)


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Yield the arguments of a parser and of the commands in it."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield from _actions(inner)


def _runs(**_: object) -> list[str]:
    return [LAST, *run_names()]


def _codes(**_: object) -> list[str]:
    return [code.value for code in Code]


# Completions by the name of an argument in `--help`. Other arguments have choices that argparse knows, or are files.
_KNOWN = {"RUN": _runs, "CODE": _codes}


def run(arguments: argparse.Namespace) -> Completion:
    return Completion(arguments.shell, shellcode(["streamflow-io"], shell=arguments.shell))
