"""Adapter: the storages that the steps of a translated workflow will use, looked at before anything runs."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterator, Mapping, Sequence

from streamflow.core.deployment import Target
from streamflow.core.workflow import Workflow
from streamflow.workflow.step import ScheduleStep

from streamflow_io.admission.storages import StepStorage, StepStorages
from streamflow_io.hints.config import StorageConfig
from streamflow_io.hints.errors import HintError
from streamflow_io.hints.inheritance import StepAnnotations
from streamflow_io.hints.rules import above_storage
from streamflow_io.run.deployment_sites import Sites, deployment_name
from streamflow_io.run.storages import Storages


def find_storages(
    workflow: Workflow, annotations: Mapping[str, StepAnnotations], storages: Sequence[StorageConfig], sites: Sites
) -> StepStorages:
    """Compare the storage hints of steps with the storages where they will run."""
    places = Storages(storages, sites)
    steps: list[StepStorage] = []
    errors: list[HintError] = []
    warnings: list[str] = []
    deployments: set[str] = set()
    hosts: set[str] = set()
    local: set[str] = set()
    for step, target, directory in _targets(workflow):
        deployment = deployment_name(target.deployment)
        deployments.add(deployment)
        hosts |= places.host_names(target)
        if target.deployment.type == "local":
            local.add(deployment)
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
                warnings.append(f"The storageBW of {step} is not applied: the StreamFlow file has no {what} on {where}")
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
    for storage in storages:
        held = {storage.deployment} if storage.deployment is not None else deployments
        if held and held <= local and not os.path.exists(storage.path):
            warnings.append(f"Storage {storage.name!r}: {storage.path} does not exist on the driver's node")
        if storage.deployment is not None and storage.deployment not in deployments | hosts:
            where = f"deployment {storage.deployment!r}, where no step runs"
            warnings.append(f"Storage {storage.name!r} is on {where} (steps run on {', '.join(sorted(deployments))})")
    return StepStorages(tuple(steps), tuple(dict.fromkeys(errors)), tuple(dict.fromkeys(warnings)))


def _targets(workflow: Workflow) -> Iterator[tuple[str, Target, str]]:
    """Where each step may run, with the directory in which it writes there."""
    for step in workflow.steps.values():
        if isinstance(step, ScheduleStep):
            for target in step.binding_config.targets:
                yield posixpath.dirname(step.name), target, str(step.output_directory or target.workdir)
