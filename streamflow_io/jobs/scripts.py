"""Tells scripts, configurations and programs from data, by their names and their first bytes."""

from __future__ import annotations

import os
import posixpath
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
# The extensions of programs, which may be large.
_PROGRAMS = ("", ".bin", ".exe", ".out")
# A script that names its interpreter, and a program of Linux. Some data begin with `#!` and a word.
_BEGINNING = re.compile(rb"#![ \t]*/|\x7fELF")


def is_script(file: Mapping[str, Any], *, is_seen: bool) -> bool:
    """Whether a complete File of CWL is a script, a configuration or a program.

    :param is_seen: whether its path is one on the driver's node
    """
    name, is_large = str(file.get("basename", "")), (file.get("size") or 0) > SMALL_FILE
    if not is_large and _SCRIPT.fullmatch(name):
        return True
    if is_large and posixpath.splitext(name)[1] not in _PROGRAMS:
        return False
    return is_seen and _begins_as_script(file.get("path"))


def script_stamp(path: str) -> tuple[int, int] | None:
    """Return the size and the time of modification of a script on this node; None: the path has no script."""
    if not os.path.isabs(path) or (found := _file(path)) is None:
        return None
    file = {"basename": posixpath.basename(path), "path": path, "size": found.st_size}
    return (found.st_size, found.st_mtime_ns) if is_script(file, is_seen=True) else None


def _begins_as_script(path: str | None) -> bool:
    # A FIFO is not opened.
    if path is None or _file(path) is None:
        return False
    try:
        with open(path, "rb") as file:
            return _BEGINNING.match(file.read(16)) is not None
    except OSError:
        return False


def _file(path: str) -> os.stat_result | None:
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return found if stat.S_ISREG(found.st_mode) else None
