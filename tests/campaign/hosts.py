"""Trials on two SSH hosts, with a network that is down for a while, or a disk that is full."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lab.forked import Driver
from lab.machines.hosts import ADDRESSES
from lab.machines.laboratory import Laboratory, LaboratoryError, obstacle, start_hosts
from lab.processes import of_processes
from lab.sites import Site, hosts_site

from .cases import Case

_HOSTS = ("host1", "host2")
# As much as jobs may ask for: by default 2 GB each.
_SIZE = "size=100g"


@dataclass(frozen=True)
class Hosts:
    """Two hosts of a laboratory that no other run uses."""

    laboratory: Laboratory

    def site(self, directory: Path) -> Site:
        return hosts_site(self.laboratory, directory)

    def jobs(self) -> list[Path]:
        """The directories of the jobs that run, as they are seen from here."""
        found = []
        for pid, (command,) in of_processes("cmdline"):
            words = command.decode(errors="replace").split("\0")
            root = Path("/proc", str(pid), "root")
            # The process may end meanwhile.
            with contextlib.suppress(OSError):
                if words[1:3] == ["exec", "--job"] and self._is_on_a_host(root):
                    found.append(root / words[3].lstrip("/"))
        return found

    def _is_on_a_host(self, root: Path) -> bool:
        """Whether a process has the file system of one: it sees what is shared, and nothing else of the laboratory."""
        shared, keys = self.laboratory.directory / "shared", self.laboratory.directory / "key"
        return os.path.samefile(root / shared.relative_to("/"), shared) and not (root / keys.relative_to("/")).exists()

    def strike(self, case: Case, driver: Driver) -> str:
        """Do the damage of a case to one of the hosts, and repair it."""
        index = int(case.pick * len(_HOSTS))
        if case.fault.kind == "network":
            with self.laboratory.without_network(_HOSTS[index]):
                time.sleep(case.relief or 0)
            return f"no network at {_HOSTS[index]} for {case.relief or 0:.0f} s"
        with self._full(ADDRESSES[index]), contextlib.suppress(subprocess.TimeoutExpired):
            driver.wait(case.relief)
        return f"no space at {_HOSTS[index]}" + ("" if case.relief is None else f" for {case.relief:.2f} s")

    @contextlib.contextmanager
    def _full(self, address: str) -> Iterator[None]:
        # The used space may grow before the file system is made small, which is refused then.
        shrink = "mount -o remount,size=$((1 + $(df --output=used -k /scratch | tail -n 1)))k /scratch"
        self.call(address, f"for i in $(seq 50); do {shrink} && exit; done; exit 1")
        try:
            yield
        finally:
            self.call(address, f"mount -o remount,{_SIZE} /scratch")

    def call(self, address: str, command: str) -> None:
        """Run a shell's command on a host."""
        self.laboratory.run(*self.laboratory.login(address, command))


@contextlib.contextmanager
def hosts() -> Iterator[Hosts]:
    """Start two hosts.

    :raises LaboratoryError: if there can be none here
    """
    if (reason := obstacle()) is not None:
        raise LaboratoryError(reason)
    with start_hosts() as laboratory:
        found = Hosts(laboratory)
        for address in ADDRESSES:
            # A disk that can be full, for the directories of jobs.
            found.call(address, f"mount -t tmpfs -o {_SIZE} none /scratch")
        yield found
