"""Builds what the matrix needs, once for all processes of a test run: compiled programs and data."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.matrix.data import DATA, TOOLS, Built

SOURCES = Path(__file__).parent / "sources"
BUILD_TIMEOUT = 300.0


class MissingError(Exception):
    """A program is not on this machine; the message names it."""


class Workshop:
    """A directory with the compiled programs (``tools``) and the data (``data``) of the matrix.

    :param scale: how much larger data are than they need be
    """

    def __init__(self, directory: Path, scale: int = 1) -> None:
        self.scale = scale
        self.tools = directory / "tools"
        self.data = directory / "data"
        for made in (self.tools, self.data):
            made.mkdir(parents=True, exist_ok=True)
        self._lock = directory / "lock"
        python = self.tools / "python3"
        with self._locked():
            if not python.exists():  # the interpreter itself: a shim before it would take longer than the case
                python.symlink_to(os.path.realpath(sys.executable))

    def environment(self) -> dict[str, str]:
        """Returns the environment in which programs run: the same natively and under a rule."""
        path = f"{self.tools}:{os.environ['PATH']}"
        fixed = {"LC_ALL": "C", "TZ": "UTC", "PYTHONUTF8": "1"}
        return {**os.environ, "PATH": path, "DATA": str(self.data), "SCALE": str(self.scale), **fixed}

    def tool(self, name: str) -> None:
        """Makes sure that a program can be run.

        :raises MissingError: when it, or what compiles it, is not there.
        :raises AssertionError: when it cannot be compiled.
        """
        if name in TOOLS:
            self._build(TOOLS[name], self.tools)
        elif shutil.which(name, path=self.environment()["PATH"]) is None:
            raise MissingError(name)

    def input(self, name: str) -> Path:
        """Returns a file of ``data``, built if it is not there.

        :raises MissingError: when a program that builds it is not there.
        :raises AssertionError: when it cannot be built.
        """
        built = DATA[name]
        for before in built.after:
            self.input(before)
        self._build(built, self.data)
        return self.data / built.file

    def _locked(self) -> _Locked:
        return _Locked(self._lock)

    def _build(self, built: Built, directory: Path) -> None:
        for need in built.needs:
            self.tool(need)
        with self._locked():
            mark = directory / f".{built.file}.built"
            if mark.exists():
                return
            command = ["sh", "-ec", built.script.replace("{sources}", str(SOURCES))]
            done = subprocess.run(
                command, cwd=directory, env=self.environment(), capture_output=True, text=True, timeout=BUILD_TIMEOUT
            )
            assert done.returncode == 0, f"{built.file} cannot be built: {done.stderr}"
            assert (directory / built.file).exists(), f"{built.file} was not made"
            mark.touch()


class _Locked:
    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        self._file = self._path.open("w")
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        self._file.close()
