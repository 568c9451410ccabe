"""Trials on the nodes of an allocation of Slurm, in which a node, its link and an `srun` die, too."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from lab.machines.allocation import held_allocation
from lab.machines.deployments import allocation_deployment, slurm_environment
from lab.machines.laboratory import Laboratory, LaboratoryError, obstacle, slurm_obstacle, start_slurm
from lab.sites import Site

from .cases import Case

_NODES = 2
_MINUTES = "30"
_SETTLING = 300.0


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
        """Do the damage of a case to a node: Slurm takes the node from the allocation, or its link is down."""
        nodes = self._control("squeue", "-h", "-j", self.environment["SLURM_JOB_ID"], "-o", "%N").strip()
        names = self._control("scontrol", "show", "hostnames", nodes).split()
        node = names[int(case.pick * len(names))]
        if case.fault.kind == "network":
            with self.laboratory.without_network(node):
                time.sleep(case.relief or 0)
            return f"no network at {node} for {case.relief or 0:.0f} s"
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
        try:
            with held_allocation(self.laboratory, _NODES, _MINUTES) as environment:
                held = Allocation(self.laboratory, environment)
                try:
                    yield held
                finally:
                    held.repair()
        finally:
            self._settle()

    def _settle(self) -> None:
        """Wait until Slurm can use all nodes again: a node without a network is missed for a while."""
        end = time.monotonic() + _SETTLING
        while not self._can_use_all() and time.monotonic() < end:
            time.sleep(0.5)

    def _can_use_all(self) -> bool:
        states = self.laboratory.run("sinfo", "-h", "-N", "-o", "%T", **slurm_environment(self.laboratory))
        # Other trials may hold nodes.
        return {*states.split()} <= {"idle", "allocated", "mixed", "completing"}


@contextlib.contextmanager
def cluster() -> Iterator[Cluster]:
    """Start a Slurm.

    :raises LaboratoryError: if there can be none here
    """
    if (reason := obstacle() or slurm_obstacle()) is not None:
        raise LaboratoryError(reason)
    with start_slurm() as laboratory:
        yield Cluster(laboratory)
