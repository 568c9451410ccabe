"""`streamflow-io doctor --location`: features that work at the locations of a deployment, tried there."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from msgspec.structs import replace
from streamflow.core.context import StreamFlowContext
from streamflow.core.deployment import Connector, DeploymentConfig, ExecutionLocation
from streamflow.core.scheduling import AvailableLocation
from streamflow.deployment.connector.kubernetes import KubernetesBaseConnector
from streamflow.deployment.utils import get_wraps_config

from streamflow_io._streamflow import own_hosts, running_containers
from streamflow_io.adapters.deployment_sites import deployment_kind
from streamflow_io.engine.scheduler import IOAwareScheduler
from streamflow_io.graph.sites import SiteKind
from streamflow_io.graph.volumes import container_names
from streamflow_io.hints.errors import HintErrors
from streamflow_io.runtime.conversing import ConversingRuntime
from streamflow_io.runtime.deployments import Deployments, manifests
from streamflow_io.runtime.node_commands import NodeRuntimeError
from streamflow_io.runtime.node_runtime import NodeRuntime
from streamflow_io.runtime.node_runtimes import NodeRuntimes
from streamflow_io.runtime.self_test import BrokenError, DeployedLocation, LocationFinding, link_rate, self_test
from streamflow_io.wording import size_text

from .doctor_space import memory_of, try_space
from .streamflow_file import forgetful_context, quiet_streamflow, read_streamflow_file

_HOST_SECONDS = 60.0
_QUEUE_SECONDS = 300.0
# The locations that are tried at a time, the others from which each is reached, and the rates that are measured.
_AT_ONCE, _REACHED_FROM, _RATES = 8, 8, 4
_PLAIN = "everything is as with plain StreamFlow there"


class NotDeployedError(Exception):
    """A deployment cannot be deployed, or reached. The message says why."""


def try_deployment(path: Path, deployment: str) -> tuple[str, list[LocationFinding]]:
    """Deploy a deployment, try what works at each of its locations, and undeploy it.

    :return: a description of the deployment, and the findings
    :raises HintErrors: if there is no such StreamFlow file, or it has no such deployment
    """
    with quiet_streamflow():
        config = _read(path, deployment)
        kind = config["deployments"][deployment]["type"]
        return f"{deployment} ({kind})", asyncio.run(_look(path, config, deployment))


def _read(path: Path, deployment: str) -> dict[str, Any]:
    """Read a StreamFlow file that has the deployment.

    :raises HintErrors: if it has no such deployment, or the deployment is this machine
    """
    config = read_streamflow_file(path)
    entries = config.get("deployments", {})
    if deployment not in entries:
        allowed = ", ".join(sorted(entries)) or "nothing: there are no deployments"
        raise HintErrors.one(path, "deployments", f"there is no deployment {deployment}", allowed)
    if entries[deployment]["type"] == "local":
        raise HintErrors.one(
            path, f"deployments.{deployment}", "it is this machine", "no --location: `streamflow-io doctor`"
        )
    return config


async def _look(path: Path, config: dict[str, Any], deployment: str) -> list[LocationFinding]:
    try:
        async with deployed(path, config, deployment) as (context, locations):
            runtimes = NodeRuntimes(context, _wants_tls(context))
            try:
                hosts = own_hosts(context.deployment_manager.get_connector(deployment))
                kind = deployment_kind(config["deployments"][deployment]["type"])
                found = await _try_locations(context, runtimes, locations, kind is SiteKind.HOSTS)
                if hosts is not None and (losses := hosts.losses):
                    found.append(LocationFinding("lost nodes", False, "; ".join(losses), "no jobs start there"))
            finally:
                await runtimes.close()
    except NotDeployedError as error:
        return [LocationFinding("connection", False, str(error), "jobs cannot run there at all")]
    names = ", ".join(location.name for location in locations)
    return [LocationFinding("connection", True, names if hosts is None else hosts.found), *found]


@contextlib.asynccontextmanager
async def deployed(
    path: Path, config: dict[str, Any], *deployments: str
) -> AsyncIterator[tuple[StreamFlowContext, Sequence[ExecutionLocation]]]:
    """Deploy deployments of a StreamFlow file, and yield their locations.

    :param config: the content of the file
    :raises NotDeployedError: if one cannot be deployed, or reached
    """
    for name, entry in config["deployments"].items():
        # StreamFlow completes the entries in this way for a workflow.
        entry.update(name=name, scheduling_policy=None, config=entry.get("config", {}))
    context = forgetful_context(config, path)
    try:
        locations: list[ExecutionLocation] = []
        try:
            for deployment in deployments:
                wanted = _deployment_config(config["deployments"], deployment)
                await context.deployment_manager.deploy(wanted)
                available = await _locations(context.deployment_manager.get_connector(deployment), wanted, path)
                locations += (found.location for found in available.values())
        except Exception as error:  # each connector has exceptions of its own
            raise NotDeployedError(str(error) or type(error).__name__) from error
        yield context, locations
    finally:
        await context.close()


async def _locations(connector: Connector, deployment: DeploymentConfig, path: Path) -> Mapping[str, AvailableLocation]:
    """Return all locations of a deployment. For pods, these are the pods of its manifests, or of its release."""
    if not isinstance(connector, KubernetesBaseConnector):
        available: Mapping[str, AvailableLocation] = await connector.get_available_locations()
        return available
    names = container_names(manifests(deployment, path.parent)) or await running_containers(connector)
    found = [await connector.get_available_locations(service=name) for name in names]
    return {name: location for each in found for name, location in each.items()}


def _wants_tls(context: StreamFlowContext) -> bool:
    return isinstance(context.scheduler, IOAwareScheduler) and context.scheduler.config.tls


def _deployment_config(entries: Mapping[str, Mapping[str, Any]], name: str) -> DeploymentConfig:
    entry = entries[name]
    return DeploymentConfig(
        name=name,
        type=entry["type"],
        config=entry["config"],
        external=entry.get("external", False),
        lazy=entry.get("lazy", True),
        workdir=_workdir(entries, entry),
        wraps=get_wraps_config(entry.get("wraps")),
    )


def _workdir(entries: Mapping[str, Mapping[str, Any]], entry: Mapping[str, Any]) -> str | None:
    """Return the workdir of the nearest deployment that has one, as StreamFlow chooses it."""
    while "workdir" not in entry and (wraps := get_wraps_config(entry.get("wraps"))) is not None:
        entry = entries[wraps.deployment]
    return entry.get("workdir")


async def _try_locations(
    context: StreamFlowContext, runtimes: NodeRuntimes, locations: Sequence[ExecutionLocation], are_hosts: bool
) -> list[LocationFinding]:
    started: dict[str, NodeRuntime] = {}
    at_once = asyncio.Semaphore(_AT_ONCE)

    async def find(location: ExecutionLocation) -> list[LocationFinding]:
        async with at_once:
            return await _try_location(context, runtimes, location, len(locations) > 1, started)

    findings = [found for some in await asyncio.gather(*map(find, locations)) for found in some]
    started = {location.name: started[location.name] for location in locations if location.name in started}
    findings += await _try_links(started)
    if not are_hosts or not started:
        return findings
    deployments = Deployments(context)
    there = {
        location.name: DeployedLocation(
            started[location.name],
            PurePosixPath(str(started[location.name].directory), "doctor"),
            _HOST_SECONDS,
            context.deployment_manager.get_connector(location.deployment),
            location,
            deployments.access(location),
        )
        for location in locations
        if location.name in started
    }
    space = await try_space(deployments.workdir(locations[0]), {name: one.access for name, one in there.items()})
    return [*findings, *await _try_rates(there), *space, await memory_of(started)]


async def _try_location(
    context: StreamFlowContext,
    runtimes: NodeRuntimes,
    location: ExecutionLocation,
    is_named: bool,
    started: dict[str, NodeRuntime],
) -> list[LocationFinding]:
    """Start a node runtime, and try what works there.

    :param is_named: whether the findings name the location
    :param started: gets the node runtime
    """
    suffix = f", {location.name}" if is_named else ""
    try:
        runtime = started[location.name] = await runtimes.at(location)
    except NodeRuntimeError as error:
        return [LocationFinding(f"delivery{suffix}", False, str(error), _PLAIN)]
    seconds = _QUEUE_SECONDS if runtime.wrapper == "run" else _HOST_SECONDS
    async with tried(context, runtime, location, Deployments(context).workdir(location), seconds) as there:
        found = [replace(each, name=f"{each.name}{suffix}") for each in await self_test(there)]
    return [LocationFinding(f"delivery{suffix}", True, runtime.binary), *found]


@contextlib.asynccontextmanager
async def tried(
    context: StreamFlowContext, runtime: NodeRuntime, location: ExecutionLocation, workdir: str, seconds: float
) -> AsyncIterator[DeployedLocation]:
    """Yield a location where jobs are tried, in a directory of the work directory that is removed afterwards.

    :param seconds: how long a job may take to run
    """
    connector = context.deployment_manager.get_connector(location.deployment)
    access = Deployments(context).access(location)
    directory = PurePosixPath(workdir, f"streamflow-io-doctor-{os.urandom(4).hex()}")
    try:
        yield DeployedLocation(runtime, directory, seconds, connector, location, access)
    finally:
        with contextlib.suppress(NodeRuntimeError):
            await access.run(f"rm -rf {shlex.quote(str(directory))}")


async def _try_links(runtimes: Mapping[str, NodeRuntime]) -> list[LocationFinding]:
    """Try whether streams of each location can be read from elsewhere, and whether the next locations reach it."""
    findings: list[LocationFinding] = []
    for name, runtime in runtimes.items():
        label, otherwise = "link" if len(runtimes) == 1 else f"link, {name}", "consumers elsewhere start at commit"
        if runtime.address is not None:
            others = {other: runtimes[other] for other in _after(name, [*runtimes], _REACHED_FROM)}
            found = await asyncio.gather(*(other.obstacle(runtime) for other in others.values()))
            reasons = [reason for reason in found if reason is not None]
            address = f"{runtime.address}, inside TLS" if runtime.tls else runtime.address
            reached = f"{address}, reached from {', '.join(others)}" if others else address
            findings.append(LocationFinding(label, not reasons, "; ".join(reasons) or reached, otherwise))
        elif runtime.wrapper == "run":
            findings.append(LocationFinding(label, True, "jobs read each other's streams from the work directory"))
        else:
            reason = runtime.unreachable if isinstance(runtime, ConversingRuntime) else None
            detail = reason or "streams are read inside this location only"
            findings.append(LocationFinding(label, False if reason else None, detail, otherwise))
    return findings


async def _try_rates(locations: Mapping[str, DeployedLocation]) -> list[LocationFinding]:
    """Measure byte streams from some locations to the next one, one after the other."""
    rates: dict[str, float] = {}
    for name in [*locations][:_RATES]:
        for other in _after(name, [*locations], 1):
            sender, reader = locations[name], locations[other]
            if sender.runtime.address is None or await reader.runtime.no_link(sender.runtime) is not None:
                continue
            try:
                rates[f"{name} -> {other}"] = await link_rate(sender, reader)
            except BrokenError as error:
                return [LocationFinding("rate of links", False, f"{name} -> {other}: {error}")]
    told = ", ".join(f"{size_text(rate)}/s {way}" for way, rate in rates.items())
    return [LocationFinding("rate of links", True, told)] if told else []


def _after(name: str, names: Sequence[str], most: int) -> list[str]:
    """Return the names that come after a name, in a circle."""
    at = names.index(name)
    return [*names[at + 1 :], *names[:at]][:most]
