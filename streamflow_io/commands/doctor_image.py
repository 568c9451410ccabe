"""`streamflow-io doctor --image`: features that work in containers of an image, tried in two of them.

StreamFlow deploys such containers for tools with a DockerRequirement. Their deployment has no name, so `--location`
cannot name it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from streamflow.config.config import WorkflowConfig
from streamflow.core.context import StreamFlowContext
from streamflow.core.deployment import ExecutionLocation, LocalTarget, Target
from streamflow.cwl.requirement.docker import cwl_docker_translator_classes
from streamflow.cwl.requirement.docker.translator import CWLDockerTranslatorConfig
from streamflow.deployment.utils import get_binding_config

from streamflow_io._streamflow import cwl_files
from streamflow_io.adapters.deployment_sites import Sites
from streamflow_io.errors import said
from streamflow_io.graph.sites import Site, SiteKind
from streamflow_io.hints.errors import HintErrors
from streamflow_io.runtime.node_commands import NodeRuntimeError
from streamflow_io.runtime.node_runtime import NodeRuntime
from streamflow_io.runtime.node_runtimes import NodeRuntimes
from streamflow_io.runtime.self_test import LocationFinding, contained_test, pair_test, self_test

from .doctor_location import tried
from .streamflow_file import forgetful_context, quiet_streamflow, read_streamflow_file

_SECONDS = 60.0
_PLAIN = "everything is as with plain StreamFlow in these containers"


def try_image(path: Path | None, image: str) -> tuple[str, list[LocationFinding]]:
    """Deploy two containers, try what works in them and between them, and undeploy them.

    :param path: the StreamFlow file that says how; its first CWL workflow counts. None: deploy by StreamFlow's default
    :return: a description of the containers, and the findings
    :raises HintErrors: if the StreamFlow file is not one
    """
    with quiet_streamflow():
        config = {"version": "v1.0", "workflows": {}} if path is None else read_streamflow_file(path)
        return asyncio.run(_look(config, path or Path("streamflow.yml"), image))


async def _look(config: dict[str, Any], path: Path, image: str) -> tuple[str, list[LocationFinding]]:
    context = forgetful_context(config, path)
    try:
        workflows = [WorkflowConfig(name, config) for name in config["workflows"]]
        workflow = next((workflow for workflow in workflows if workflow.type == "cwl"), None)
        targets = [_target(workflow, context, image) for _ in range(2)]
        site = Sites(config.get("deployments", {})).deployment(targets[0])
        if not site.is_contained:
            detail = f"by the StreamFlow file, tools with a DockerRequirement run {Site((site,)).where}"
            return image, [LocationFinding("containers", None, detail, "no other containers are looked at")]
        where = f"{site.type}, on {site.host}" if site.host is not None else site.type
        return f"containers of {image} ({where})", await _try_image(context, targets, site.kind is SiteKind.PODS)
    finally:
        await context.close()


def _target(workflow: WorkflowConfig | None, context: StreamFlowContext, image: str) -> Target:
    """Return the target that StreamFlow makes of a DockerRequirement.

    The target is the one of the first step with a `docker` entry in the StreamFlow file.
    """
    target, chosen = LocalTarget(), CWLDockerTranslatorConfig("default", "default", {})
    if workflow is not None:
        entries = workflow.config.get("docker", [])
        step = entries[0]["step"] if entries else "/"
        cwl_files(workflow, context)
        chosen = workflow.propagate(PurePosixPath(step), "docker", chosen)
        target = get_binding_config(step, "step", workflow).targets[0]
    path = Path(context.config["path"])
    try:
        translator = cwl_docker_translator_classes[chosen.type](
            config_dir=str(path.parent),
            wrapper=chosen.wrapper and target.deployment.type != "local",
            **chosen.config,
        )
    except (KeyError, TypeError, OSError) as error:  # the schema has options that the translator does not take
        raise HintErrors.one(path, "docker", said(error), "what StreamFlow can deploy") from None
    return translator.get_target(image=image, output_directory=None, network_access=False, target=target)


async def _try_image(context: StreamFlowContext, targets: Sequence[Target], in_pods: bool) -> list[LocationFinding]:
    begin = time.monotonic()
    try:
        locations = [await _deploy(context, target) for target in targets]
    except Exception as error:  # each connector has exceptions of its own
        return [LocationFinding("containers", False, said(error), "steps with this image cannot run at all")]
    seconds = (time.monotonic() - begin) / len(targets)
    runtimes = NodeRuntimes(context)
    try:
        found = await _try_both(context, runtimes, locations, targets[0].workdir, in_pods)
    finally:
        await runtimes.close()
    return [LocationFinding("containers", True, f"two; each was there after {seconds:.1f} s"), *found]


async def _deploy(context: StreamFlowContext, target: Target) -> ExecutionLocation:
    await context.deployment_manager.deploy(target.deployment)
    connector = context.deployment_manager.get_connector(target.deployment.name)
    (location,) = (await connector.get_available_locations(service=target.service)).values()
    return location.location


async def _try_both(
    context: StreamFlowContext,
    runtimes: NodeRuntimes,
    locations: Sequence[ExecutionLocation],
    workdir: str,
    in_pods: bool,
) -> list[LocationFinding]:
    begin = time.monotonic()
    try:
        started = [await runtimes.at(location, workdir) for location in locations]
    except NodeRuntimeError as error:
        return [LocationFinding("node runtime", False, str(error), _PLAIN)]
    seconds = (time.monotonic() - begin) / len(started)
    writer, reader = (tried(context, *each, workdir, _SECONDS) for each in zip(started, locations, strict=True))
    async with writer as one, reader as other:
        user, _ = await one.access.run("id -u")
        delivery = LocationFinding(
            "node runtime", True, f"{one.runtime.binary}, as user {user.strip()}, after {seconds:.2f} s"
        )
        between = [await _try_link(*started)] if in_pods else await pair_test(one, other)
        return [delivery, *await self_test(one), *await contained_test(one), *between]


async def _try_link(one: NodeRuntime, other: NodeRuntime) -> LocationFinding:
    """Try the link between two pods. Pods that StreamFlow makes have no volume in common."""
    why = await one.obstacle(other)
    otherwise = "" if why is None else "tools with NetworkAccess have a network; others get files at their commit"
    return LocationFinding("byte streams between two", why is None or None, why or f"by {other.address}", otherwise)
