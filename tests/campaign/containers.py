"""Trials whose steps run in containers of one laboratory, in which containers and their daemon die, too."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from lab.container_sites import DEBIAN, Containers, contained, docker_bench
from lab.cwl import Document
from lab.forked import Driver
from lab.machines.laboratory import Laboratory, LaboratoryError, containers_obstacle, start_containers

from .cases import Case

#: In which dockerd is started again.
_START_SECONDS = 60.0


@dataclass(frozen=True)
class Engine:
    """A dockerd that all trials share."""

    laboratory: Laboratory

    def site(self, directory: Path) -> Containers:
        return docker_bench(self.laboratory, directory)

    def contain(self, document: Document, local: Collection[str]) -> Document:
        """Let each step, but for those that are local, run in a container of an image that has its name."""
        images = {name: None if name in local else f"sfio/{name}:1.0" for name in document["steps"]}
        for image in filter(None, images.values()):
            self.site(self.laboratory.directory).docker("tag", DEBIAN, image)
        return contained(document, **images)


@contextlib.contextmanager
def engine() -> Iterator[Engine]:
    """Start dockerd.

    :raises LaboratoryError: if there can be none here
    """
    if (reason := containers_obstacle()) is not None:
        raise LaboratoryError(reason)
    with start_containers() as laboratory:
        yield Engine(laboratory)


def strike(case: Case, driver: Driver, bench: Containers) -> str | None:
    """Do the damage of a case to a container of a run, or to dockerd, and repair what can be repaired.

    :return: what was done, for people; None: the run had ended before
    """
    if case.fault.victim == "dockerd":
        return _kill_daemon(bench)
    while driver.poll() is None:
        containers = sorted(bench.containers().items(), key=lambda container: container[1])
        if not containers:
            time.sleep(0.03)
            continue
        identifier, image = containers[int(case.pick * len(containers))]
        # The process may end meanwhile.
        with contextlib.suppress(subprocess.CalledProcessError):
            if case.fault.kind == "KILL":
                bench.docker("kill", identifier)
                return f"docker kill of {image}"
            with _paused(bench, identifier), contextlib.suppress(subprocess.TimeoutExpired):
                driver.wait(case.relief)
            return f"docker pause of {image} for {case.relief or 0:.2f} s"
    return None


@contextlib.contextmanager
def _paused(bench: Containers, identifier: str) -> Iterator[None]:
    bench.docker("pause", identifier)
    try:
        yield
    finally:
        # StreamFlow may have stopped it meanwhile.
        with contextlib.suppress(subprocess.CalledProcessError):
            bench.docker("unpause", identifier)


def _kill_daemon(bench: Containers) -> str:
    """Kill dockerd, and wait until the laboratory has started it again, without the containers."""
    socket = f"--host={bench.environment['DOCKER_HOST']}"
    (pid,) = [pid for pid, words in _commands() if os.path.basename(words[0]) == "dockerd" and socket in words]
    os.kill(pid, signal.SIGKILL)
    end = time.monotonic() + _START_SECONDS
    while True:
        try:
            bench.docker("version")
            return "SIGKILL to dockerd"
        except subprocess.CalledProcessError:
            if time.monotonic() > end:
                raise LaboratoryError("dockerd does not start again") from None
            time.sleep(0.1)


def _commands() -> Iterator[tuple[int, list[str]]]:
    for entry in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if entry.isdigit():
                yield int(entry), Path("/proc", entry, "cmdline").read_text(errors="replace").split("\0")
