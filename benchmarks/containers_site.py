"""The engine of the workload `containers`: a laboratory, started for one run and removed after it."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lab.machines.deployments import docker_environment
from lab.machines.images import import_variant_calling
from lab.machines.laboratory import Laboratory, LaboratoryError, start_containers

from .processes import CommandError
from .workflows import JSON, Site

#: Has Python and our programs.
IMAGE = "quay.io/benchmark/tools:1.0"
PROGRAM = ("python3", "-S", "-E", "/tools.py")
BOX = "box"
_TOOLS = Path(__file__).with_name("tools.py")


@contextmanager
def engine() -> Iterator[Laboratory]:
    """A dockerd that has our image.

    :raises CommandError: if it cannot be started
    """
    try:
        with start_containers() as laboratory:
            make_images(laboratory)
            yield laboratory
    except (LaboratoryError, subprocess.SubprocessError) as error:
        raise CommandError(str(error)) from None


def make_images(laboratory: Laboratory) -> None:
    """Give a laboratory :data:`IMAGE`.

    :raises subprocess.SubprocessError: if its dockerd does not make it
    """
    container = docker(laboratory, "create", "sfio-test").strip()
    docker(laboratory, "cp", str(_TOOLS), f"{container}:{PROGRAM[-1]}")
    docker(laboratory, "commit", container, IMAGE)
    docker(laboratory, "rm", container)


@contextmanager
def site(_: Path) -> Iterator[Site]:
    """A container for each step that asks for one.

    :raises CommandError: if there can be no containers
    """
    with engine() as laboratory:
        yield Site({}, {}, environment=docker_environment(laboratory))


@contextmanager
def variant_calling_site(_: Path) -> Iterator[Site]:
    """Images of the names that the tools of the variant-calling template have, with what is installed here.

    :raises CommandError: if there can be no containers
    """
    with engine() as laboratory:
        environment = docker_environment(laboratory)
        import_variant_calling(environment)
        yield Site({}, {}, environment=environment)


@contextmanager
def one_container_site(directory: Path) -> Iterator[Site]:
    """One container for all steps.

    :raises CommandError: if there can be none
    """
    with engine() as laboratory:
        yield Site({BOX: deployment(directory)}, {"/": BOX}, environment=docker_environment(laboratory))


def deployment(directory: Path, shares: bool = True) -> JSON:
    """A container whose work directory is a volume, or in the container; it is on the bridge that docker makes."""
    if not shares:
        return {"type": "docker", "config": {"image": IMAGE}, "workdir": "/work"}
    (volume := directory / "volume").mkdir(exist_ok=True)
    return {"type": "docker", "config": {"image": IMAGE, "volume": [f"{volume}:/shared"]}, "workdir": "/shared"}


def in_containers(workflow: Path) -> Path:
    """Let each step of a workflow have a container of its own."""
    document = json.loads(workflow.read_text(encoding="utf-8"))
    for step in document["steps"].values():
        step["run"]["requirements"]["DockerRequirement"] = {"dockerPull": IMAGE}
    workflow.write_text(json.dumps(document, indent=2), encoding="utf-8")
    return workflow


def docker(laboratory: Laboratory, *words: str) -> str:
    """Return what `docker` prints.

    :raises subprocess.SubprocessError: if it fails
    """
    return subprocess.run(
        ["docker", *words],
        env=os.environ | docker_environment(laboratory),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=True,
        text=True,
    ).stdout
