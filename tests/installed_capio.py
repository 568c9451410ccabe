"""CAPIO itself, where it is installed: in `CAPIO_HOME`, or on the PATH."""

from __future__ import annotations

import os
from pathlib import Path

from streamflow_io.runtime.capio_installation import find_capio

# Tests put a stand-in into these variables.
_ENVIRONMENT = dict(os.environ)


def installed_capio() -> Path:
    """The directory for `CAPIO_HOME`.

    :raises CapioError: if CAPIO is not installed; says what is missing
    """
    return find_capio(_ENVIRONMENT).server.parent.parent
