"""`streamflow-io schedule`: schedules of applications that compute and transfer by turns.

An action is a module with `add_arguments` and `run`, and one line in `_ACTIONS`.
"""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import cast

from streamflow_io.commands.console import Command, CommandResult

# What each does; its module has the same name, and is imported when needed.
_ACTIONS = {
    "compute": "make a schedule for a set of applications",
    "check": "check that a schedule can be kept, and that its figures are true",
    "show": "draw a schedule",
    "simulate": "simulate policies and the slots of a schedule, and compare the results",
    "profile": "find the periodic bursts of runs: a set file with an application for each",
    "forecast": "forecast how much runs on one storage slow each other down",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    # Without a default, so that it does not undo a `--json` before the action.
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print JSON for programs")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, text in _ACTIONS.items():
        _module(name).add_arguments(actions.add_parser(name, parents=[common], help=text, description=text))


def run(arguments: argparse.Namespace) -> CommandResult:
    """:raises HintErrors: if a file cannot be read, has mistakes, or cannot be written"""
    return _module(arguments.action).run(arguments)


def _module(action: str) -> Command:
    return cast(Command, import_module(f"{__package__}.{action}"))
