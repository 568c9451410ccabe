"""The clusters of the workload `cluster`: laboratories, each started for one run and removed after it."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from lab.machines.allocation import held_allocation
from lab.machines.deployments import allocation_deployment, slurm_deployment, slurm_environment, ssh_deployment
from lab.machines.hosts import ADDRESSES
from lab.machines.laboratory import Laboratory, LaboratoryError, start_hosts, start_slurm

from .processes import CommandError, run
from .workflows import Site

LINK_MEGABITS = 1000
ONE, OTHER = ADDRESSES
SCRATCH = "/scratch"  # of a host: its own file system
_HERE = Path(__file__).parent
_TOOLS = ("tools.py", "cluster_tools.py")


def program_on_host(name: str) -> tuple[str, ...]:
    """The words that run one of the programs on a host, to which :func:`hosts` copies them."""
    return ("python3", "-S", "-E", f"{SCRATCH}/{name}")


@contextmanager
def hosts() -> Iterator[Laboratory]:
    """Two SSH hosts that have our programs.

    :raises CommandError: if they cannot be started
    """
    with _started(start_hosts(LINK_MEGABITS)) as laboratory:
        for name in _TOOLS:
            deliver(laboratory, _HERE / name, name)
        yield laboratory


@contextmanager
def hosts_site(_: Path) -> Iterator[Site]:
    """The steps of a chain on hosts: each on another one than the step before.

    :raises CommandError: if the hosts cannot be started
    """
    with hosts() as laboratory:
        one, other = ({**ssh_deployment(laboratory, address), "workdir": SCRATCH} for address in (ONE, OTHER))
        yield Site({"one": one, "other": other}, {"/a": "one", "/b": "other", "/c": "one"}, laboratory.prefix)


@contextmanager
def slurm() -> Iterator[Laboratory]:
    """A Slurm.

    :raises CommandError: if it cannot be started
    """
    with _started(start_slurm()) as laboratory:
        yield laboratory


@contextmanager
def slurm_site(directory: Path) -> Iterator[Site]:
    """All steps on Slurm, whose nodes share the directory with the driver.

    :raises CommandError: if it cannot be started
    """
    with slurm() as laboratory:
        (workdir := directory / "work").mkdir()
        deployment = slurm_deployment(workdir)
        yield Site({"slurm": deployment}, {"/": "slurm"}, laboratory.prefix, slurm_environment(laboratory))


@contextmanager
def allocation_site(directory: Path) -> Iterator[Site]:
    """All steps on two nodes of an allocation of a Slurm. The nodes share the directory with the driver.

    :raises CommandError: if it cannot be started
    """
    (workdir := directory / "work").mkdir()
    with slurm() as laboratory, held_allocation(laboratory, 2, "60") as environment:
        yield Site({"nodes": allocation_deployment(workdir)}, {"/": "nodes"}, laboratory.prefix, environment)


def deliver(laboratory: Laboratory, file: Path, name: str) -> None:
    """Copy a file to /scratch of each host, under a name."""
    shared = laboratory.directory / "shared" / name
    shutil.copy(file, shared)
    for address in ADDRESSES:
        laboratory.run(*laboratory.login(address, shlex.join(["cp", str(shared), SCRATCH])))


def on_host(laboratory: Laboratory, address: str, command: Sequence[str]) -> list[str]:
    """The words that run a command on a host."""
    return [*laboratory.prefix, *laboratory.login(address, shlex.join(command))]


def measured(directory: Path, *commands: Sequence[str]) -> float:
    """Run commands at the same time; the last one prints what it has measured.

    :raises CommandError: if one fails, or the last one prints no number
    """
    run(commands, directory)
    text = (directory / f"output.{len(commands) - 1}").read_text(encoding="utf-8").strip()
    try:
        return float(text)
    except ValueError:
        raise CommandError(f"{shlex.join(commands[-1])} has measured nothing: {text!r}") from None


@contextmanager
def _started(start: AbstractContextManager[Laboratory]) -> Iterator[Laboratory]:
    try:
        with start as laboratory:
            yield laboratory
    except (LaboratoryError, subprocess.SubprocessError) as error:
        raise CommandError(str(error)) from None
