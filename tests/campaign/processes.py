"""The processes of a run, from `/proc`: those whose environment names the run's directory for temporary files.

Those in containers are its own, too, where StreamFlow has mounted what it keeps in this directory.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Process:
    """A process of a run.

    :ivar roles: `producer` and `consumer`, if it belongs to the command of a job that is one, or both
    :ivar job: the job under `sfio-node exec` whose command it belongs to, as `000001-make-0`
    """

    pid: int
    command: tuple[str, ...]
    roles: tuple[str, ...] = ()
    job: str | None = None

    @property
    def is_serve(self) -> bool:
        return self.command[1:3] == ("serve", "--directory")

    @property
    def is_srun(self) -> bool:
        return os.path.basename(self.command[0]) == "srun"

    @property
    def is_exec(self) -> bool:
        """Whether it runs a job; the reader of a read session is one, too."""
        return self.command[1:3] in (("exec", "--job"), ("read", "--job"))


def of_run(directory: Path) -> list[Process]:
    """Every living process of the run whose directory for temporary files this is, in the order of their numbers."""
    return sorted(_of_run(directory), key=lambda process: process.pid)


def _of_run(directory: Path) -> Iterator[Process]:
    for entry in os.listdir("/proc"):
        place = Path("/proc", entry)
        # The process may end meanwhile.
        with contextlib.suppress(OSError):
            if not entry.isdigit():
                continue
            environment = (place / "environ").read_bytes()
            if os.fsencode(directory) in environment or _is_mounted(directory, place):
                yield _process(int(entry), environment, (place / "cmdline").read_bytes())


def _is_mounted(directory: Path, process: Path) -> bool:
    """Whether a process sees the directory of jobs where StreamFlow shows it to containers."""
    with contextlib.suppress(OSError):
        return os.path.samefile(directory / "streamflow", process / "root/tmp/streamflow")
    return False


def _process(pid: int, environment: bytes, command: bytes) -> Process:
    words = tuple(command.decode(errors="replace").split("\0"))
    jobs = [os.path.basename(name) for name in environment.split(b"\0") if name.startswith(b"SFIO_JOB=")]
    # The shell that a role's script is for has it on its command line only; so has whoever is to start it.
    in_job = b"\0TRACE=" in environment and "--job" not in words
    roles = [role for role in ("producer", "consumer") if f"CAMPAIGN_{role.upper()}=".encode() in environment + command]
    return Process(pid, words, tuple(roles) if in_job else (), jobs[0].decode() if jobs else None)
