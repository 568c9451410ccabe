"""The files that commands write."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from streamflow_io.files import write_atomically
from streamflow_io.hints.errors import HintErrors


def add_output_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for the file that a command writes, and for the workflow."""
    parser.add_argument("--output", "-o", metavar="FILE", type=Path, help="write into this file (default: print)")
    parser.add_argument("--force", action="store_true", help="replace FILE if it exists")
    parser.add_argument("--workflow", metavar="NAME", help="a workflow, if the StreamFlow file has several")


def output_of(arguments: argparse.Namespace) -> Path | None:
    """Return the file to write. None: the result is printed.

    :raises HintErrors: if the file exists, and is not to be overwritten
    """
    output: Path | None = arguments.output
    if output is not None and not arguments.force and os.path.lexists(output):
        raise HintErrors.one(output, "--output", "exists", "another file, or --force to overwrite it")
    return output


def write_output(path: Path, text: str) -> None:
    """Write all of a file or nothing.

    :raises HintErrors: if the file cannot be written
    """
    try:
        write_atomically(path, text)
    except OSError as error:
        raise HintErrors.one(
            path, "--output", f"cannot be written: {error.strerror}", "a file that can be written"
        ) from None
