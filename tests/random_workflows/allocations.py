"""Random workflows whose steps run on the nodes of an allocation of Slurm.

Plain StreamFlow has the same steps there, because what it reads of a file of another node ends without a newline. In
a work directory of each node, its files go through the driver, and ours by links.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

from lab.machines.allocation import held_allocation
from lab.machines.deployments import allocation_deployment
from lab.machines.laboratory import Laboratory, start_slurm
from lab.sites import Site

from .blueprint import Blueprint, Step
from .containers import is_local
from .hosts import SECONDS
from .trial import Trial, run_trial

_NODES: Final = 2
_MINUTES: Final = "1000"
_NAME: Final = "nodes"


@dataclass(frozen=True)
class Allocation:
    """An allocation that is held.

    :ivar environment: in which commands of Slurm find the allocation
    """

    laboratory: Laboratory
    environment: Mapping[str, str]

    def call(self, script: str) -> str:
        """Run a shell script on each node, and return what both print."""
        step = ("--overlap", f"--nodes={_NODES}", f"--ntasks={_NODES}", "--ntasks-per-node=1", "--mem=0", "--chdir=/")
        job = f"--jobid={self.environment['SLURM_JOB_ID']}"
        return self.laboratory.run("srun", job, *step, "--quiet", "sh", "-c", script, **self.environment)


@contextlib.contextmanager
def start_allocation() -> Iterator[Allocation]:
    """A Slurm with an allocation."""
    with start_slurm() as laboratory, held_allocation(laboratory, _NODES, _MINUTES) as environment:
        yield Allocation(laboratory, environment)


@dataclass
class Nodes(Site):
    """A bench whose steps run on the nodes.

    :ivar allocation: of the nodes
    :ivar own: the work directory, if each node has one of its own
    """

    allocation: Allocation = field(kw_only=True)
    own: Path | None = field(default=None, kw_only=True)

    def leftovers(self) -> list[str]:
        if self.own is None:
            return super().leftovers()
        look = f"find {self.own} \\( -name 'streamflow-io-*' -o -type p -o -type s \\) 2>/dev/null; true"
        return [*super().leftovers(), *self.allocation.call(look).splitlines()]


def places(blueprint: Blueprint, seed: int, number: int) -> dict[str, str]:
    """The deployment of each step that does not run on the driver's node; follows from the seed, number, and name."""
    share = Random(f"{seed}:{number}:nodes").choice((0.5, 0.8, 1.0))

    def is_there(step: Step) -> bool:
        random = Random(f"{seed}:{number}:{step.name}:nodes")
        return step.wrap != "expression" and not is_local(step) and random.random() <= share

    return {f"/{step.name}": _NAME for step in blueprint.steps if is_there(step)}


def run_in_allocation(
    allocation: Allocation, seed: int, number: int, directory: Path, blueprint: Blueprint, program: str = Nodes.program
) -> Trial:
    """Run a blueprint both ways. Half of the workflows have a work directory of each node.

    :param program: what runs it, by its name in `lab/forked.py`
    """
    laboratory = allocation.laboratory
    is_own = Random(f"{seed}:{number}:own").random() < 0.5
    parent = laboratory.directory / "local" / f"{directory.parent.name}-{directory.name}"

    def make(place: Path) -> Nodes:
        (workdir := place / "work").mkdir(parents=True, exist_ok=True)
        own = parent / place.name if is_own else None
        return Nodes(
            place,
            program=program,
            environment=dict(allocation.environment),
            namespaces=(laboratory.network,),
            laboratory=laboratory,
            name=_NAME,
            deployment=allocation_deployment(own or workdir),
            shared=place,
            steps=(),
            elsewhere=places(blueprint, seed, number),
            allocation=allocation,
            own=own,
        )

    try:
        return run_trial(directory, blueprint, SECONDS, make)
    finally:
        if is_own:
            allocation.call(f"rm -rf {parent}")
