"""Uses the node runtimes of a deployment, in the network of a laboratory, and prints what happened as JSON.

Its arguments are `FILE DEPLOYMENT [killed]`: FILE has the deployments, as a StreamFlow file; with `killed` it kills
itself while jobs run.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
from pathlib import Path
from typing import Any

from streamflow.core.context import StreamFlowContext
from streamflow.core.deployment import Connector, ExecutionLocation

from streamflow_io.commands.doctor_location import deployed
from streamflow_io.runtime.deployments import Deployments
from streamflow_io.runtime.node_runtime import NodeJob, NodeRuntime
from streamflow_io.runtime.node_runtimes import NodeRuntimes
from streamflow_io.runtime.protocol import (
    CommandSpec,
    JobSpec,
    MovedEvent,
    OutputRule,
    RateLimit,
    StartedEvent,
    WatchedOutput,
)


async def main(file: str, deployment: str, killed: bool) -> list[dict[str, Any]]:
    config = json.loads(Path(file).read_text())
    async with deployed(Path(file), config, deployment) as (context, locations):
        runtimes = NodeRuntimes(context)
        try:
            return [await use(context, runtimes, location, killed) for location in locations]
        finally:
            await runtimes.close()


async def use(
    context: StreamFlowContext, runtimes: NodeRuntimes, location: ExecutionLocation, killed: bool
) -> dict[str, Any]:
    """A job that writes a file, and one that is cancelled."""
    connector = context.deployment_manager.get_connector(location.deployment)
    runtime = await runtimes.at(location)
    directory = f"{Deployments(context).workdir(location)}/jobs"
    await connector.run(location, ["mkdir", "-p", directory], capture_output=True)
    events, result = await small(connector, location, runtime, directory)
    limited = {} if killed else await change_limits(connector, location, runtime, directory)
    slow, running = await start_slow(connector, location, runtime, directory)
    if killed:
        print(json.dumps([{"directory": str(runtime.directory), "binary": runtime.binary}]), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    await slow.cancel()
    return {
        "location": location.name,
        "directory": str(runtime.directory),
        "binary": runtime.binary,
        "events": events,
        "result": result,
        **limited,
        "cancelled": slow.exit.result().reason,
        "result of the cancelled": await running,
        "succeeded though scancelled": runtime.wrapper == "run"
        and await succeeds_though_scancelled(connector, location, runtime, directory),
    }


async def start_slow(
    connector: Connector, location: ExecutionLocation, runtime: NodeRuntime, directory: str
) -> tuple[NodeJob, asyncio.Task[tuple[str, int] | None]]:
    """A job that runs, and does not end by itself."""
    slow = await runtime.create_job("slow")
    running = asyncio.create_task(run(connector, location, slow, JobSpec(name="slow"), "sleep 300", directory))
    async for event in slow.events():
        if isinstance(event, StartedEvent):
            break
    return slow, running


async def change_limits(
    connector: Connector, location: ExecutionLocation, runtime: NodeRuntime, directory: str
) -> dict[str, float]:
    """How a job was paused that has a limit until it is told how much it has moved."""
    job = await runtime.create_job("limited")
    spec = JobSpec(name="limited", limit=RateLimit(rate=1_000_000, direction="write", path=directory))
    file = f"{job.identifier}.out"
    running = asyncio.create_task(
        run(connector, location, job, spec, f"head -c 40000000 /dev/zero > {file}; rm {file}", directory)
    )
    moved = 0
    async for event in job.events():
        if isinstance(event, MovedEvent):
            moved = event.bytes
            job.limit(None)
    await running
    ended = await job.exit
    seconds = (ended.ended or 0) - (ended.started or 0)
    return {"paused": ended.usage.paused or 0, "moved": moved, "seconds of the limited": seconds}


async def succeeds_though_scancelled(
    connector: Connector, location: ExecutionLocation, runtime: NodeRuntime, directory: str
) -> bool:
    """Whether a job that Slurm has ended is told to have succeeded."""
    slow, running = await start_slow(connector, location, runtime, directory)
    await connector.run(location, ["scancel", "--user=root"], capture_output=True)
    await running
    await asyncio.wait({slow.exit}, timeout=5)
    return slow.exit.done() and slow.exit.result().success


async def small(
    connector: Connector, location: ExecutionLocation, runtime: NodeRuntime, directory: str
) -> tuple[list[str], tuple[str, int] | None]:
    job = await runtime.create_job("small")
    rule = OutputRule(globs=(), committed="on_close")
    output = WatchedOutput(port="out", root=directory, globs=(f"{job.identifier}.out",), kind="file", rules=(rule,))
    script = f"echo text > {job.identifier}.out; sleep 0.3; rm {job.identifier}.out; echo said; exit 3"
    spec = JobSpec(name="small", command=CommandSpec(success_codes=(3,)), outputs=(output,))
    result = await run(connector, location, job, spec, script, directory)
    assert await job.has_started()
    return [str(event.__struct_config__.tag) async for event in job.events()], result


async def run(
    connector: Connector, location: ExecutionLocation, job: NodeJob, spec: JobSpec, script: str, directory: str
) -> tuple[str, int] | None:
    """Run a command as StreamFlow runs the command of a job."""
    command = ["exec", *await job.wrap(spec), "sh", "-c", shlex.quote(script)]
    result: tuple[str, int] | None = await connector.run(
        location, command, workdir=directory, capture_output=True, job_name=job.identifier
    )
    return result


def command(arguments: list[str]) -> None:
    """Print what :func:`main` has seen."""
    print(json.dumps(asyncio.run(main(arguments[0], arguments[1], "killed" in arguments[2:]))))
