"""Finds the allocation that a deployment is to use."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from msgspec import Struct
from streamflow.core.exception import WorkflowExecutionException

from .allocation import Allocation
from .launched_allocation import LaunchedAllocation, current_manager
from .managers import MANAGERS, SSH, Wanted
from .several_allocations import AskingLimits, Owner, SeveralAllocations
from .slurm_allocation import SlurmAllocation

_SLURM = "SLURM_JOB_ID"


class AllocationChoice(Struct, frozen=True):
    """The fields of a deployment that say which allocation it has.

    :ivar wanted: the allocation to ask for; None: the one that this process runs in is used
    :ivar launcher: None: the one of the queue manager
    :ivar nodes: those of no known queue manager; None: the queue manager tells
    """

    wanted: Wanted | None = None
    launcher: str | None = None
    nodes: Sequence[str] | None = None
    limits: AskingLimits = AskingLimits(1)

    @classmethod
    def of(
        cls, submit: Mapping[str, Any] | None, launcher: str | None, nodes: Sequence[str] | None
    ) -> AllocationChoice:
        """Return the choice of a deployment whose fields the schema allows."""
        if submit is None:
            return cls(launcher=launcher, nodes=nodes)
        names = {"time": "limit"}
        fields = {names.get(name, name): value for name, value in submit.items() if name not in ("max", "idle")}
        wanted = Wanted(**{**fields, "options": tuple(submit.get("options", ()))})
        return cls(wanted, launcher, nodes, AskingLimits(submit.get("max", 1), submit.get("idle")))


def is_in_allocation() -> bool:
    """Whether this process runs in a job of a known queue manager."""
    return _SLURM in os.environ or current_manager(MANAGERS) is not None


async def find_allocation(owner: Owner, choice: AllocationChoice) -> Allocation:
    """Return an allocation that runs.

    :raises WorkflowExecutionException: if there is none, with the reason
    """
    if choice.wanted is None:
        return await current_allocation(owner.deployment_name, choice)
    ask = partial(_asked, owner.deployment_name, choice, choice.wanted)
    if choice.limits.most == 1:
        return await ask()
    several = SeveralAllocations(choice.limits, owner, ask)
    await several.begin()
    return several


async def current_allocation(deployment: str, choice: AllocationChoice) -> Allocation:
    """Return the allocation that this process runs in, or that the `nodes` of a deployment make.

    :param deployment: its name in messages
    :raises WorkflowExecutionException: if there is none, with the reason
    """
    if choice.nodes is not None:
        return await LaunchedAllocation.of_nodes(choice.nodes, choice.launcher or SSH)
    if (job := os.environ.get(_SLURM)) is not None:
        if choice.launcher is not None:
            raise WorkflowExecutionException(
                f"{deployment} has a `launcher`, and StreamFlow runs in an allocation of Slurm, where srun is the "
                "launcher: remove `launcher`, or list the `nodes` beside it"
            )
        return await SlurmAllocation.find(deployment, None, job)
    if (manager := current_manager(MANAGERS)) is not None:
        return await LaunchedAllocation.of_manager(manager, os.environ[manager.variable], choice.launcher)
    known = ", ".join([_SLURM, *(manager.variable for manager in MANAGERS)])
    raise WorkflowExecutionException(
        f"{deployment} has the type sfio.allocation, and StreamFlow runs in no allocation: none of {known} is set. "
        "Start `streamflow run` in a batch job, as with `sbatch`, or write `submit` or `nodes` in the `config` of the "
        "deployment"
    )


async def _asked(deployment: str, choice: AllocationChoice, wanted: Wanted) -> Allocation:
    if choice.nodes is not None:
        raise WorkflowExecutionException(
            f"{deployment} has `submit` beside `nodes`: an allocation that is asked for has its own nodes"
        )
    manager = next((manager for manager in MANAGERS if manager.name.lower() == wanted.manager), None)
    if manager is not None:
        return await LaunchedAllocation.asked(deployment, manager, wanted, choice.launcher)
    if choice.launcher is not None:
        raise WorkflowExecutionException(
            f"{deployment} has a `launcher` beside `submit`, and Slurm has its own, srun: remove `launcher`"
        )
    return await SlurmAllocation.find(deployment, wanted, None)
