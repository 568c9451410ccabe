"""Where the user's data is kept."""

from __future__ import annotations

import os
from pathlib import Path


def data_directory() -> Path:
    """`$XDG_DATA_HOME/streamflow-io`, by default `~/.local/share/streamflow-io`; it may not exist.

    A relative `XDG_DATA_HOME` is ignored, as its specification asks.
    """
    base = os.environ.get("XDG_DATA_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path("~/.local/share").expanduser()) / "streamflow-io"
