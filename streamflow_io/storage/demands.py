"""The storage demands of jobs of annotated steps, and the locations where StreamFlow may place these jobs."""

from __future__ import annotations

import posixpath
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from streamflow.core.context import StreamFlowContext
from streamflow.core.deployment import Target
from streamflow.core.scheduling import AvailableLocation
from streamflow.log_handler import logger
from streamflow.workflow.token import FileToken

from streamflow_io.adapters.jobs import JobState
from streamflow_io.hints.bandwidth import AutoConstraint, RequiredConstraint, StaticConstraint
from streamflow_io.hints.config import StorageConfig
from streamflow_io.hints.inheritance import StepAnnotations
from streamflow_io.messages import Code, coded
from streamflow_io.runtime.locations import innermost, node_name

from .admission.admission import Admission
from .admission.demand import Demand, Placement
from .storages import Storages

#: Returns the bandwidth need of a job with `storageBW: required`, for a bandwidth and a number of I/O executors.
Spacing = Callable[[JobState, float, int], StaticConstraint | None]


class Demands:
    """The demands of jobs, by the targets of their steps.

    :param storages: the storages of the config
    :param admission: receives the locations
    :param spacing: what the jobs take that take no bandwidth otherwise
    """

    def __init__(
        self,
        context: StreamFlowContext,
        storages: Storages,
        admission: Admission[Any],
        spacing: Spacing,
    ) -> None:
        self._context = context
        self._storages = storages
        self._admission = admission
        self._spacing = spacing
        # By step, pool and working directory: targets on the same locations may differ in their storage.
        self._placements: dict[tuple[str, str, str], Placement] = {}
        self._names: dict[str, tuple[str, ...]] = {}
        # The number of nodes of each pool in which several locations are on one node.
        self._most_nodes: dict[str, int] = {}
        # By pool: a target with these locations.
        self._targets: dict[str, Target] = {}
        #: The pools that have no locations any more, and will have none.
        self.ended: set[str] = set()

    def of(self, job: JobState, hints: StepAnnotations, targets: Sequence[Target]) -> Demand:
        """Return the demand of a job. Its targets must have been located."""
        for target in targets:
            if (key := _placement_key(job.step, target)) not in self._placements:
                self._placements[key] = Placement(pool_of(target), self._storage(job, hints, target))
        placements = tuple(dict.fromkeys(self.placement(job.step, target) for target in targets))
        return Demand(
            step=job.step,
            io_task=job.is_io_task,
            constraint=self._constraint(job, hints, placements),
            direction=hints.direction,
            placements=placements,
            locations=min(targets[0].locations, self._most_nodes[pool_of(targets[0])]),
        )

    def _constraint(
        self, job: JobState, hints: StepAnnotations, placements: Sequence[Placement]
    ) -> StaticConstraint | AutoConstraint | None:
        """Return the constraint of a job for admission.

        A job with `storageBW: required` takes no bandwidth, unless `required` gives it a spacing.
        """
        if not isinstance(hints.storage_bw, RequiredConstraint):
            return hints.storage_bw
        spaced = [
            self._spacing(job, self._admission.bandwidth(one.storage, hints.direction), self._admission.executors(one))
            for one in placements
            if one.storage is not None
        ]
        return min((one for one in spaced if one is not None), key=lambda one: one.value, default=None)

    def placement(self, step: str, target: Target) -> Placement:
        """Return the placement of the jobs of a step by a target."""
        return self._placements[_placement_key(step, target)]

    def _storage(self, job: JobState, hints: StepAnnotations, target: Target) -> StorageConfig | None:
        bandwidth = hints.storage_bandwidth
        if bandwidth is None:
            return None
        name, path = bandwidth.value.storage, job.job.output_directory or target.workdir
        storage = self._storages.of(name, target, path)
        if storage is None:
            where, what = self._storages.missing(name, target, path)
            not_done = "shared with others" if hints.required is not None else "applied"
            logger.warning(coded(f"The storageBW of {job.step} is not {not_done} on {where}: {what}", Code.NO_STORAGE))
        return storage

    async def locate(self, target: Target) -> None:
        """Tell admission the locations of a target."""
        connector = self._context.deployment_manager.get_connector(target.deployment.name)
        available: Mapping[str, AvailableLocation] = await connector.get_available_locations(service=target.service)
        pool = pool_of(target)
        self._targets[pool] = target
        # Called for each job: with thousands of locations only the names are compared, unless they have changed.
        if self._names.get(pool) == (names := tuple(available)):
            return
        self._names[pool] = names
        # For admission, the containers of a node are one location with the cores and storages of the node.
        nodes = {node_name(location): innermost(location) for location in available.values()}
        cores = {name: _cores(node) for name, node in nodes.items()}
        slots = {name: node.slots or 1 for name, node in nodes.items() if node.hardware is None}
        self._admission.set_locations(pool, cores, slots)
        self._most_nodes[pool] = len(nodes) if len(nodes) < len(available) else sys.maxsize

    def targets(self, deployment: str) -> list[Target]:
        """The targets of a deployment that were located, one for each pool."""
        return [target for target in self._targets.values() if target.deployment.name == deployment]

    def end(self, target: Target) -> None:
        """Tell admission that a target has no locations any more, and will have none."""
        self.ended.add(pool := pool_of(target))
        if self._names.get(pool):
            self._names[pool] = ()
            self._admission.set_locations(pool, {})

    def has_choice(self, targets: Sequence[Target]) -> bool:
        return sum(len(self._names[pool]) for pool in set(map(pool_of, targets))) > 1

    async def preferred(self, job: JobState) -> tuple[str, ...]:
        """Return the locations of the jobs that this job streams with, then the locations with most of its input."""
        partners = [
            node_name(location) for source in job.sources for location in self._context.scheduler.get_locations(source)
        ]
        held: dict[str, int] = {}
        for token in job.job.inputs.values():
            if isinstance(token, FileToken):
                weight = await token.get_weight(self._context)
                for path in await token.get_paths(self._context):
                    for location in self._context.data_manager.get_data_locations(path):
                        key = node_name(location.location)
                        held[key] = held.get(key, 0) + weight
        return (*partners, *sorted(held, key=lambda key: -held[key]))


def pool_of(target: Target) -> str:
    return posixpath.join(str(target.deployment.name), str(target.service or ""))


def _placement_key(step: str, target: Target) -> tuple[str, str, str]:
    return step, pool_of(target), str(target.workdir)


def _cores(location: AvailableLocation) -> float:
    if location.hardware is not None:
        return float(location.hardware.cores)
    return float(location.slots or 1)
