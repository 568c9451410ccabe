"""Tells scripts, configurations and programs from data, by their names and their first bytes."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from typing import Any

from .directory_digest import SMALL_FILE

# Tables and texts are not among them: a proof is to hold for other data.
_SCRIPT = re.compile(
    r".*\.(?:"
    r"awk|bash|bat|bc|cfg|cjs|conf|config|cwl|do|gnuplot|gp|groovy|ini|ipynb|jl|jq|js|json|ksh|lua|m|mak"
    r"|mjs|mk|nf|php|pl|plt|pm|properties|py|pyc|pyz|r|rb|rmd|sed|sh|smk|sql|tcl|toml|ts|wdl|xml|xsl|yaml"
    r"|yml|zsh"
    r")",
    re.IGNORECASE | re.DOTALL,
)
# A script that names its interpreter, and a program of Linux.
_BEGINNINGS = (b"#!", b"\x7fELF")


def has_script_name(name: str) -> bool:
    """Whether a file with this name is a script or a configuration."""
    return _SCRIPT.fullmatch(name) is not None


def is_script(file: Mapping[str, Any], *, is_seen: bool) -> bool:
    """Whether a complete File of CWL is a script, a configuration or a program.

    :param is_seen: whether its path is one on the driver's node
    """
    is_small = file.get("size", 0) <= SMALL_FILE
    return (is_small and has_script_name(str(file.get("basename", "")))) or (
        is_seen and _begins_as_script(file.get("path"))
    )


def script_stamp(path: str) -> tuple[int, int] | None:
    """Return the size and the time of modification of a script on this node; None: the path is none of a script."""
    if not os.path.isabs(path) or (found := _file(path)) is None:
        return None
    return (found.st_size, found.st_mtime_ns) if has_script_name(path) or _begins_as_script(path) else None


def _begins_as_script(path: str | None) -> bool:
    # A FIFO is not opened.
    if path is None or _file(path) is None:
        return False
    try:
        with open(path, "rb") as file:
            return file.read(4).startswith(_BEGINNINGS)
    except OSError:
        return False


def _file(path: str) -> os.stat_result | None:
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return found if stat.S_ISREG(found.st_mode) else None
