"""How soon a consumer ends whose producer's container is killed."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from lab.machines.deployments import docker_environment
from lab.machines.laboratory import Laboratory

from .chain import Chain
from .containers_site import OTHER_IMAGE, docker, engine, in_containers
from .model import Sample
from .processes import CommandError
from .workflows import Site, StreamFlowRun
from .workload import Outcome

MEASURE = "killed_s"
_LIMIT = 60.0
_READING_SECONDS = 1.0


def killed(chain: Chain, directory: Path) -> Outcome:
    """Kill the container of the first step while the second reads from it.

    :return: :data:`MEASURE`: seconds from the end of `docker kill` to that of the program that reads
    :raises CommandError: if it does not end, or the run succeeds
    """
    workflow = in_containers(chain.write(directory / "chain.cwl"), a=OTHER_IMAGE)
    (place := directory / "place").mkdir()
    start = time.monotonic()
    with engine() as laboratory, ThreadPoolExecutor(1) as executor:
        streamflow = StreamFlowRun(workflow, {}, site=Site({}, {}, environment=docker_environment(laboratory)))
        run = executor.submit(streamflow.run, place)
        _wait(lambda: _reads(laboratory))
        time.sleep(_READING_SECONDS)
        # A filter for images does not tell names of the same one.
        shown = docker(laboratory, "ps", "--format", "{{.Image}} {{.ID}}")
        docker(laboratory, "kill", dict(line.split() for line in shown.splitlines())[OTHER_IMAGE])
        begin = time.monotonic()
        _wait(lambda: not _reads(laboratory))
        seconds = time.monotonic() - begin
        if not isinstance(run.exception(), CommandError):
            raise CommandError("the run has succeeded although a container was killed")
    wall = time.monotonic() - start
    return Outcome(Sample(wall=wall, window=wall, further={MEASURE: seconds}))


def _reads(laboratory: Laboratory) -> bool:
    """Whether the second step runs in a container."""
    try:
        for container in docker(laboratory, "ps", "-q").split():
            if "chain-transform" in docker(laboratory, "top", container, "-o", "pid,args"):
                return True
    except subprocess.CalledProcessError:  # It has ended meanwhile.
        return False
    return False


def _wait(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + _LIMIT
    while not condition():
        if time.monotonic() > end:
            raise CommandError(f"it has not happened in {_LIMIT:g} s")
