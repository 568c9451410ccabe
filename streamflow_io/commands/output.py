"""The files that commands write."""

from __future__ import annotations

from pathlib import Path

from streamflow_io.files import write_atomically
from streamflow_io.hints.errors import HintErrors


def write_output(path: Path, text: str) -> None:
    """Write all of a file or nothing.

    :raises HintErrors: if it cannot be written
    """
    try:
        write_atomically(path, text)
    except OSError as error:
        raise HintErrors.one(
            path, "--output", f"cannot be written: {error.strerror}", "a file that can be written"
        ) from None
