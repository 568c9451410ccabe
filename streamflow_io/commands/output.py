"""The files that commands write."""

from __future__ import annotations

from pathlib import Path

from streamflow_io.files import write_atomically
from streamflow_io.hints.errors import HintError, HintErrors


def write_output(path: Path, text: str) -> None:
    """Write all of a file or nothing.

    :raises HintErrors: if it cannot be written
    """
    try:
        write_atomically(path, text)
    except OSError as error:
        raise output_error(path, f"cannot be written: {error.strerror}", "a file that can be written") from None


def output_error(path: Path, message: str, allowed: str) -> HintErrors:
    """A mistake in `--output`."""
    return HintErrors([HintError(str(path), None, "--output", message, allowed)])
