"""Installs the stand-in for CAPIO where a test wants the stand-in, and a C compiler that compiles the guard once."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def install(home: Path) -> Path:
    """Install the stand-in below a directory, to be named in `CAPIO_HOME`; skips the test where no C compiler is."""
    if (compiler := shutil.which("cc")) is None:
        pytest.skip("no C compiler (cc): the stand-in for libcapio_posix.so cannot be built")
    for name in ("bin", "lib"):
        (home / name).mkdir(parents=True)
    (home / "lib" / "libcapio_posix.so").write_bytes(_library(compiler))
    server = home / "bin" / "capio_server"
    server.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "{HERE / "server.py"}" "$@"\n')
    server.chmod(0o755)
    return home


_COMPILER = """#!/bin/sh
[ "$5 ${{7##*/}}" = "-o guard.c" ] || exec "{compiler}" "$@"
[ -e "{kept}" ] && exec cp "{kept}" "$6"
"{compiler}" "$@" && cp "$6" "{kept}.$$" && mv "{kept}.$$" "{kept}"
"""


def write_compiler(directory: Path, kept: Path) -> Path:
    """Write a `cc` that compiles the guard when the file `kept` does not hold it yet, and else copies the file."""
    if (compiler := shutil.which("cc")) is not None:
        (program := directory / "cc").write_text(_COMPILER.format(compiler=compiler, kept=kept))
        program.chmod(0o755)
    return directory


@cache
def _library(compiler: str) -> bytes:
    with tempfile.TemporaryDirectory() as place:
        library = Path(place, "libcapio_posix.so")
        subprocess.run(
            [compiler, "-O1", "-shared", "-fPIC", "-o", library, HERE / "library.c", "-ldl"], check=True, timeout=60
        )
        return library.read_bytes()
