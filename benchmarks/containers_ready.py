"""How soon something can be run in a container: a command, and the node runtime, without a run around them."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import statistics
import time
from pathlib import Path
from unittest.mock import patch

from lab.machines.deployments import docker_environment
from lab.machines.laboratory import Laboratory
from streamflow_io.commands.doctor_location import deployed
from streamflow_io.runtime.node_runtime import NodeRuntimeError
from streamflow_io.runtime.node_runtimes import NodeRuntimes

from .containers_site import BOX, deployment, docker, engine
from .model import Sample
from .processes import CommandError
from .workload import Outcome

MEASURE = "ready_ms"
TIMES = 10


def ready(directory: Path) -> Outcome:
    """Start the node runtime in a container, again and again; `sfio-node` is on the volume.

    :return: :data:`MEASURE`: milliseconds until it is ready, beyond those of `docker exec -i CONTAINER true`
    :raises CommandError: if it cannot be started
    """
    start = time.monotonic()
    logging.disable(logging.INFO)
    try:
        with engine() as laboratory, patch.dict(os.environ, docker_environment(laboratory)):
            added = asyncio.run(_measure(laboratory, directory))
    except NodeRuntimeError as error:
        raise CommandError(str(error)) from None
    finally:
        logging.disable(logging.NOTSET)
    wall = time.monotonic() - start
    return Outcome(Sample(wall=wall, window=wall, further={MEASURE: added}))


async def _measure(laboratory: Laboratory, directory: Path) -> float:
    config = {"version": "v1.0", "deployments": {BOX: deployment(directory)}}
    (file := directory / "streamflow.yml").write_text(json.dumps(config))
    async with deployed(file, config, BOX) as (context, (location,)):
        seconds: list[float] = []
        for _ in range(TIMES + 1):
            begin = time.monotonic()
            docker(laboratory, "exec", "-i", location.name, "true")
            alone = time.monotonic() - begin
            runtimes = NodeRuntimes(context)
            begin = time.monotonic()
            try:
                await runtimes.at(location)
                seconds.append(time.monotonic() - begin - alone)
            finally:
                await runtimes.close()
        return 1000 * statistics.median(seconds[1:])  # The first one delivers `sfio-node`.
