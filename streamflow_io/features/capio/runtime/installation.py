"""Where CAPIO is installed."""

from __future__ import annotations

import os
import shutil
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
    """Find CAPIO: in `CAPIO_HOME`, or on the PATH with the library beside it or where the linker looks for it.

    :raises CapioError: if a part of it is missing; says where it was looked for
    """
    environment = os.environ if environment is None else environment
    if home := environment.get("CAPIO_HOME"):
        servers = [Path(home) / "bin" / SERVER]
    else:
        found = shutil.which(SERVER, path=environment.get("PATH"))
        servers = [Path(found)] if found else []
    server = next((path for path in servers if os.access(path, os.X_OK)), None)
    if server is None:
        where = f"CAPIO_HOME/bin, {servers[0].parent}" if servers else "the PATH (and CAPIO_HOME is not set)"
        raise CapioError(f"{SERVER} is not in {where}")
    roots = [Path(home)] if home else [server.parent.parent, server.resolve().parent.parent]
    directories = [root / library for root in roots for library in ("lib", "lib64", "lib/x86_64-linux-gnu")]
    if not home:
        directories += [Path(path) for path in environment.get("LD_LIBRARY_PATH", "").split(":") if path]
        directories += [Path("/usr/local/lib"), Path("/usr/lib"), Path("/usr/lib64")]
    for directory in directories:
        if (directory / LIBRARY).is_file():
            return Installation(server.absolute(), (directory / LIBRARY).absolute())
    raise CapioError(f"{LIBRARY} is in none of {', '.join(map(str, dict.fromkeys(directories)))}")
