"""Checks the storages that the steps of a translated workflow will use, before anything runs."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

from streamflow.core.deployment import Target
from streamflow.core.workflow import Workflow
from streamflow.workflow.step import ScheduleStep

from streamflow_io.adapters.deployment_sites import Sites, deployment_kind, deployment_name
from streamflow_io.graph.sites import LOCAL, SiteKind
from streamflow_io.hints.config import StorageConfig
from streamflow_io.hints.errors import HintError
from streamflow_io.hints.inheritance import StepAnnotations
from streamflow_io.hints.rules import above_storage
from streamflow_io.messages import Code, coded
from streamflow_io.storage.admission.storages import StepStorage, StepStorages
from streamflow_io.storage.storages import Storages


def find_storages(
    workflow: Workflow, annotations: Mapping[str, StepAnnotations], storages: Sequence[StorageConfig], sites: Sites
) -> StepStorages:
    """Compare the storage hints of steps with the storages where they will run."""
    places = Storages(storages, sites)
    steps: list[StepStorage] = []
    errors: list[HintError] = []
    warnings: list[str] = []
    reached = _Reached()
    for step, target, directory in _targets(workflow):
        deployment = deployment_name(target.deployment)
        reached.add(target, places.host_names(target), is_here=places.is_here(target, directory))
        hints = annotations.get(step)
        if hints is None or not hints.concern_storage:
            continue
        bandwidth = hints.storage_bandwidth
        storage = None
        if bandwidth is not None:
            wanted = bandwidth.value.storage
            storage = places.of(wanted, target, directory)
            if storage is not None:
                errors += above_storage(bandwidth, storage)
            else:
                where, what = places.missing(wanted, target, directory)
                not_done = "shared with others" if hints.required is not None else "applied"
                told = f"The storageBW of {step} is not {not_done} on {where}: {what}"
                warnings.append(coded(told, Code.NO_STORAGE))
        steps.append(
            StepStorage(
                step=step,
                io_task=hints.io_task is not None,
                storage_bw=None if bandwidth is None else str(hints.storage_bw),
                direction=None if bandwidth is None else hints.direction,
                deployment=deployment,
                storage=None if storage is None else storage.name,
            )
        )
    warnings += reached.missed(storages)
    return StepStorages(tuple(steps), tuple(dict.fromkeys(errors)), tuple(dict.fromkeys(warnings)))


class _Reached:
    """The deployments where steps run, and the deployments below these."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._shown: set[str] = set()
        self._here: set[str] = set()
        self._are_all_here = True

    def add(self, target: Target, host_names: Set[str], *, is_here: bool) -> None:
        """Note that steps run on a target.

        :param is_here: whether they write on the driver's node
        """
        deployment = target.deployment
        is_local = deployment_kind(str(deployment.type)) is SiteKind.LOCAL
        self._shown.add(str(LOCAL) if is_local else deployment_name(deployment))
        self._names |= {str(deployment.name), *host_names}
        if is_here:  # the name of a deployment of containers stands for a path in them
            self._here |= {str(deployment.name), *host_names} if is_local else host_names
        self._are_all_here &= is_here

    def missed(self, storages: Iterable[StorageConfig]) -> Iterator[str]:
        """Yield the warnings about storages that are not where the StreamFlow file says."""
        for storage in storages:
            is_here = self._are_all_here if storage.deployment is None else storage.deployment in self._here
            if self._names and is_here and not os.path.exists(storage.path):
                yield f"Storage {storage.name!r}: {storage.path} does not exist on the driver's node"
            if storage.deployment is not None and storage.deployment not in self._names:
                where = f"deployment {storage.deployment!r}, where no step runs"
                yield f"Storage {storage.name!r} is on {where} (steps run on {', '.join(sorted(self._shown))})"


def _targets(workflow: Workflow) -> Iterator[tuple[str, Target, str]]:
    """Yield the targets of each step, with the directory in which the step writes there."""
    for step in workflow.steps.values():
        if isinstance(step, ScheduleStep):
            for target in step.binding_config.targets:
                yield posixpath.dirname(step.name), target, str(step.output_directory or target.workdir)
