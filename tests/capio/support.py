"""Installs the stand-in for CAPIO where a test wants it, and looks for what is left of it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SHARED = Path("/dev/shm")
# What a server has is named after its run; what a program has that is about to become another one, after its thread.
_NAME = re.compile(r"sfio-(\d+)-[0-9a-f]{8}|^capio_snapshot_(?:path_)?(\d+)")


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


@cache
def _library(compiler: str) -> bytes:
    with tempfile.TemporaryDirectory() as place:
        library = Path(place, "libcapio_posix.so")
        subprocess.run(
            [compiler, "-O1", "-shared", "-fPIC", "-o", library, HERE / "library.c", "-ldl"], check=True, timeout=60
        )
        return library.read_bytes()


def shared_memory_of(pid: int) -> list[str]:
    """What the run of a driver has there."""
    return [entry.name for entry in SHARED.iterdir() if f"sfio-{pid}-" in entry.name]


def left_in_shared_memory(seconds: float = 10.0) -> list[str]:
    """What runs have left there that are over. Other tests run at the same time, and clean up after theirs soon."""
    deadline = time.monotonic() + seconds
    while (left := [name for name in _entries() if _is_over(name)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def _entries() -> list[str]:
    return [entry.name for entry in SHARED.iterdir() if _NAME.search(entry.name)]


def _is_over(name: str) -> bool:
    match = _NAME.search(name)
    assert match is not None
    pid = int(match[1] or match[2])
    return pid == os.getpid() or not Path("/proc", str(pid)).exists()
