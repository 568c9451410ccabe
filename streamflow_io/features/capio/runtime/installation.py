"""Where CAPIO is installed, and the guard in front of its library (`guard.c`), which is compiled where it is used."""

from __future__ import annotations

import ctypes
import os
import secrets
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from msgspec import Struct

from streamflow_io.runtime.node_commands import NodeRuntimeError

from .reports import Content

SERVER = "capio_server"
LIBRARY = "libcapio_posix.so"
_NEEDED = "libsyscall_intercept.so"


class CapioError(NodeRuntimeError):
    """CAPIO cannot be used; says why."""


class UnfitPathError(CapioError):
    """CAPIO cannot take a path; says why."""


class Installation(Struct, frozen=True):
    """Where CAPIO is."""

    server: Path
    library: Path

    @property
    def preloaded(self) -> tuple[Path, ...]:
        """The libraries that are loaded into programs: CAPIO's, and the one that CAPIO's needs and would not find."""
        needed = sorted(self.library.parent.glob(f"{_NEEDED}.[0-9]*"), key=lambda path: len(path.name))
        return (self.library, *needed[:1])


def find_capio(environment: Mapping[str, str] | None = None) -> Installation:
    """Find CAPIO in `CAPIO_HOME`.

    :raises CapioError: if a part of it is missing; says where it was looked for
    """
    environment = os.environ if environment is None else environment
    if not (home := environment.get("CAPIO_HOME")):
        raise CapioError("CAPIO_HOME is not set: where CAPIO is installed")
    server = Path(home, "bin", SERVER).absolute()
    if not os.access(server, os.X_OK):
        raise CapioError(f"{SERVER} is not in {server.parent}")
    directories = [server.parent.parent / name for name in ("lib", "lib64", "lib/x86_64-linux-gnu")]
    for directory in directories:
        if (directory / LIBRARY).is_file():
            return Installation(server, directory / LIBRARY)
    raise CapioError(f"{LIBRARY} is in none of {', '.join(map(str, directories))}")


_SOURCE = Path(__file__).with_name("guard.c")
_COMPILERS = ("cc", "gcc", "clang")
_COMPILE_SECONDS = 60.0
_OPTIONS = ("-O2", "-shared", "-fPIC", "-fvisibility=hidden")


class Guarded(Struct, frozen=True):
    """The rights of programs on CAPIO's files.

    :ivar reports: the file in which programs report what they did
    :ivar own: the directory in which programs may write
    :ivar beside: the directory of the file system for which `own` stands
    :ivar inputs: the files that programs may read
    """

    reports: Path
    own: Path | None = None
    beside: Path | None = None
    inputs: tuple[PurePosixPath, ...] = ()


class Guard:
    """The compiled guard.

    :ivar library: to be loaded before CAPIO's
    """

    def __init__(self, library: Path) -> None:
        self.library = library
        self._key = secrets.randbelow((1 << 61) - 3) + 2
        self._digest = ctypes.CDLL(str(library)).sfio_digest
        self._digest.restype = ctypes.c_int
        self._digest.argtypes = (ctypes.c_char_p, ctypes.c_uint64, ctypes.c_uint64, ctypes.POINTER(ctypes.c_uint64))

    @classmethod
    def build(cls, directory: Path) -> Guard:
        """Compile it. Blocks, for less than a second.

        :raises CapioError: if that is not possible here
        """
        compiler = next((found for name in _COMPILERS if (found := shutil.which(name)) is not None), None)
        if compiler is None:
            raise CapioError(
                f"no C compiler ({', '.join(_COMPILERS)}) is on the PATH: the guard in front of CAPIO cannot be built"
            )
        library = directory / "libsfio_capio_guard.so"
        command = [compiler, *_OPTIONS, "-o", str(library), str(_SOURCE), "-ldl"]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=_COMPILE_SECONDS)
            return cls(library)
        except (OSError, subprocess.SubprocessError) as error:
            said = str(getattr(error, "stderr", "") or error).strip()
            raise CapioError(f"the guard in front of CAPIO cannot be built: {said[-500:]}") from None

    def environment(self, guarded: Guarded) -> dict[str, str]:
        """The variables by which the guard knows the rights of programs."""
        return {
            "SFIO_CAPIO_REPORTS": str(guarded.reports),
            "SFIO_CAPIO_KEY": f"{self._key:x}",
            "SFIO_CAPIO_OWN": "" if guarded.own is None else str(guarded.own),
            "SFIO_CAPIO_BESIDE": "" if guarded.beside is None else str(guarded.beside),
            "SFIO_CAPIO_INPUTS": "\n".join(map(str, guarded.inputs)),
        }

    def content(self, path: Path, count: int | None = None) -> Content:
        """The first bytes of a file, or all. Blocks as long as it takes to read them.

        :raises OSError: if the file cannot be read, or has not as many
        """
        count = os.stat(path).st_size if count is None else count
        digest = ctypes.c_uint64()
        if code := self._digest(os.fsencode(path), self._key, count, ctypes.byref(digest)):
            raise OSError(code, os.strerror(code), str(path))
        return Content(count, digest.value)
