"""Trials on the nodes of an allocation of Slurm, in which a node and an `srun` die, too."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from lab.machines.allocation import held_allocation
from lab.machines.deployments import allocation_deployment
from lab.machines.laboratory import Laboratory, LaboratoryError, obstacle, slurm_obstacle, start_slurm
from lab.sites import Site

from .cases import Case

_NODES = 2
_MINUTES = "30"


@dataclass(frozen=True)
class Allocation:
    """An allocation that one trial has for itself.

    :ivar environment: in which commands of Slurm find the allocation
    :ivar lost: the nodes that were taken from it
    """

    laboratory: Laboratory
    environment: dict[str, str]
    lost: list[str] = field(default_factory=list)

    def site(self, directory: Path) -> Site:
        (work := directory / "work").mkdir(parents=True)
        return Site(
            directory,
            environment=self.environment,
            namespaces=(self.laboratory.network,),
            laboratory=self.laboratory,
            name="nodes",
            deployment=allocation_deployment(work),
            shared=directory,
        )

    def strike(self, case: Case) -> str:
        """Take a node from the allocation, as Slurm does when a node dies."""
        nodes = self._control("squeue", "-h", "-j", self.environment["SLURM_JOB_ID"], "-o", "%N").strip()
        names = self._control("scontrol", "show", "hostnames", nodes).split()
        node = names[int(case.pick * len(names))]
        self.lost.append(node)
        self._control("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=campaign")
        return f"{node} is down"

    def repair(self) -> None:
        """Let Slurm use the lost nodes again, unless it does so by itself."""
        for node in self.lost:
            with contextlib.suppress(subprocess.CalledProcessError):
                self._control("scontrol", "update", f"NodeName={node}", "State=RESUME")

    def _control(self, *words: str) -> str:
        return self.laboratory.run(*words, **self.environment)


@dataclass(frozen=True)
class Cluster:
    """A Slurm that gives allocations."""

    laboratory: Laboratory

    @contextlib.contextmanager
    def allocation(self) -> Iterator[Allocation]:
        """Hold an allocation.

        :raises LaboratoryError: if Slurm does not give it
        """
        with held_allocation(self.laboratory, _NODES, _MINUTES) as environment:
            held = Allocation(self.laboratory, environment)
            try:
                yield held
            finally:
                held.repair()


@contextlib.contextmanager
def cluster() -> Iterator[Cluster]:
    """Start a Slurm.

    :raises LaboratoryError: if there can be none here
    """
    if (reason := obstacle() or slurm_obstacle()) is not None:
        raise LaboratoryError(reason)
    with start_slurm() as laboratory:
        yield Cluster(laboratory)
