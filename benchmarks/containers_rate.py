"""How fast bytes go from one container to another, and what a job that does nothing costs in one."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from unittest.mock import patch

from msgspec.structs import asdict

from lab.machines.deployments import docker_environment
from lab.machines.laboratory import Laboratory
from streamflow_io.commands.doctor_location import NotDeployedError, deployed
from streamflow_io.runtime.deployments import Deployments
from streamflow_io.runtime.node_commands import NodeRuntimeError
from streamflow_io.runtime.node_runtimes import NodeRuntimes
from streamflow_io.runtime.protocol import InputStream, JobSpec, OutputRule, WatchedOutput
from streamflow_io.runtime.self_test import BrokenError, DeployedLocation

from .containers_site import BOX, deployment, docker, engine
from .model import Sample
from .processes import CommandError
from .tools import MEBIBYTE
from .workload import Outcome

RATE, CPU = "gib_per_s", "exec_cpu_ms"
BYTES = 2 << 30
JOBS = 50
OTHER = "other"
_SECONDS = 60.0
_MEMORY = Path("/dev/shm")
# From the first byte to the end: the other side may start later.
_READ = "{ head -c 1 > /dev/null; date +%s.%N; cat > /dev/null; date +%s.%N; } < fifo > times"


def _write(path: str) -> str:
    return f"dd if=/dev/zero of={path} bs={MEBIBYTE} count={BYTES // MEBIBYTE} status=none"


def fifo(directory: Path) -> Outcome:
    """Return the rate at which `cat` takes from a FIFO that `dd` fills, in one container.

    :return: :data:`RATE`
    :raises CommandError: if it fails
    """

    def measure(laboratory: Laboratory) -> dict[str, float]:
        script = f"cd /tmp; mkfifo fifo; {_write('fifo')} & {_READ}; cat times"
        return _rate(docker(laboratory, "run", "--rm", "sfio-test", "sh", "-c", script))

    return _measured(measure)


def volume(directory: Path) -> Outcome:
    """The same as a stream between two containers, on a volume that is in memory: disks are not measured here.

    :return: :data:`RATE`
    :raises CommandError: if it fails
    """
    return _streamed(directory, shares=True)


def link(directory: Path) -> Outcome:
    """The same between two containers that share nothing but the bridge of docker.

    :return: :data:`RATE`
    :raises CommandError: if it fails
    """
    return _streamed(directory, shares=False)


def tiny(directory: Path) -> Outcome:
    """Jobs that write one byte, whose commit is told.

    :return: :data:`CPU`: milliseconds that `sfio-node exec` has computed for each
    :raises CommandError: if one fails
    """

    async def measure(one: DeployedLocation, _: DeployedLocation) -> dict[str, float]:
        times = []
        for number in range(JOBS):
            place = await one.make(str(number))
            job = await one.runtime.create_job(str(number))
            await one.run(job, JobSpec(name="tiny", outputs=(_output(place),)), "echo > file", place)
            exit_event = (await one.read(job.events_path)).splitlines()[-1]
            times.append(1000 * json.loads(exit_event)["usage"]["wrapper_cpu"])
        return {CPU: statistics.median(times)}

    return _measured(lambda laboratory: _with_two(laboratory, directory, True, measure))


def _streamed(directory: Path, shares: bool) -> Outcome:
    async def measure(writer: DeployedLocation, reader: DeployedLocation) -> dict[str, float]:
        if (why := await reader.runtime.obstacle(writer.runtime)) is not None:
            raise CommandError(why)
        here, there = await writer.make("writer"), await reader.make("reader")
        producer, consumer = await writer.runtime.create_job("a"), await reader.runtime.create_job("b")
        shared = producer.shared_with(reader.runtime, here / "file")
        if (shared is not None) is not shares:
            raise CommandError("the stream does not go where it is to be measured")
        source = (
            {"path": str(here / "file"), "link": producer.link_to(reader.runtime)} if shared is None else asdict(shared)
        )
        stream = InputStream(**source, name="a", port="file", target={"fifo": str(there / "fifo")})
        await asyncio.gather(
            writer.run(producer, JobSpec(name="a", outputs=(_output(here),)), _write("file"), here),
            reader.run(consumer, JobSpec(name="b", streams=(stream,)), _READ, there),
        )
        return _rate(await reader.read(there / "times"))

    return _measured(lambda laboratory: _with_two(laboratory, directory, shares, measure))


def _output(directory: PurePosixPath) -> WatchedOutput:
    rule = OutputRule(globs=(), committed="on_close")
    return WatchedOutput(port="file", root=str(directory), globs=("file",), kind="file", rules=(rule,))


def _rate(times: str) -> dict[str, float]:
    begin, end = map(float, times.split())
    return {RATE: BYTES / (end - begin) / 2**30}


def _measured(measure: Callable[[Laboratory], dict[str, float]]) -> Outcome:
    start = time.monotonic()
    logging.disable(logging.INFO)
    try:
        with engine() as laboratory:
            further = measure(laboratory)
    except (NodeRuntimeError, NotDeployedError, BrokenError) as error:
        raise CommandError(str(error)) from None
    finally:
        logging.disable(logging.NOTSET)
    wall = time.monotonic() - start
    return Outcome(Sample(wall=wall, window=wall, further=further))


def _with_two(
    laboratory: Laboratory,
    directory: Path,
    shares: bool,
    action: Callable[[DeployedLocation, DeployedLocation], Awaitable[dict[str, float]]],
) -> dict[str, float]:
    """Do something with two containers that have node runtimes."""

    async def run(place: Path) -> dict[str, float]:
        boxes = {name: deployment(place, shares) for name in (BOX, OTHER)}
        config = {"version": "v1.0", "deployments": boxes}
        (file := directory / "streamflow.yml").write_text(json.dumps(config))
        async with deployed(file, config, *boxes) as (context, locations):
            runtimes, deployments = NodeRuntimes(context), Deployments(context)
            try:
                there = [
                    DeployedLocation(
                        await runtimes.at(location),
                        PurePosixPath(deployments.workdir(location), name),
                        _SECONDS,
                        context.deployment_manager.get_connector(location.deployment),
                        location,
                        deployments.access(location),
                    )
                    for name, location in zip(boxes, locations, strict=True)
                ]
                return await action(*there)
            finally:
                await runtimes.close()

    with patch.dict(os.environ, docker_environment(laboratory)), _in_memory(directory) as place:
        return asyncio.run(run(place))


@contextmanager
def _in_memory(directory: Path) -> Iterator[Path]:
    """Where a volume is in memory, if there is room for what is streamed; else in a directory."""
    found = os.statvfs(_MEMORY) if _MEMORY.is_dir() else None
    if found is None or found.f_bavail * found.f_frsize < 2 * BYTES:
        yield directory
        return
    with tempfile.TemporaryDirectory(prefix="benchmark-", dir=_MEMORY) as place:
        yield Path(place)
