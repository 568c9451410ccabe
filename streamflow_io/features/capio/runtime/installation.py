"""Where CAPIO is installed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from streamflow_io.runtime.node_commands import NodeRuntimeError

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
