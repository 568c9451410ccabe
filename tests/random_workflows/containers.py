"""Where the steps of random workflows run, if not all of them on the driver's node, and what runs them there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, Final

from lab.container_sites import BUSYBOX, DEBIAN, USER, Containers, docker_bench
from lab.cwl import Document
from lab.machines.laboratory import Laboratory

from .blueprint import SHARED, Blueprint, Container, Step
from .trial import Trial, run_trial

#: A run of some ten seconds that takes longer hangs.
SECONDS: Final = 120.0
_BOX: Final = "box"
_OWN: Final = "/tmp/own"
# Names that plain StreamFlow cannot copy into a container or to a host, and others instead.
_NAMES: Final = {"a$b": "it's", "-dash": "dash"}
_ENGINE: Final[Sequence[tuple[tuple[str, Any], ...]]] = (
    *[()] * 6,
    (("readOnly", True), ("capDrop", ["ALL"])),
    (("ipc", "host"), ("init", False)),
)


def contain(blueprint: Blueprint, seed: int, number: int) -> Blueprint:
    """Let steps run in containers, which ones and how follows from the seed and the number."""
    random = Random(f"{seed}:{number}:containers")
    box = random.choice(("", "", SHARED, _OWN))
    inherited = None
    if not box and random.random() < 0.4 and not any(map(is_local, blueprint.steps)):
        inherited = _container(random, (DEBIAN,))
    share = random.choice((0.3, 0.7, 1.0))
    steps = [_place(random, step, share, box, inherited) for step in blueprint.steps]
    given = {name: replace(value, value=renamed(value.value)) for name, value in blueprint.given.items()}
    return replace(
        blueprint, given=given, steps=tuple(steps), container=inherited, box=box, engine=random.choice(_ENGINE)
    )


def renamed(value: Any) -> Any:
    """A given value, without names of files that plain StreamFlow cannot copy to another place."""
    if isinstance(value, list):
        return [renamed(element) for element in value]
    if not isinstance(value, dict):
        return value
    name = value["name"]
    for other, instead in _NAMES.items():
        name = name.replace(other, instead)
    return {**value, "name": name, **({"files": renamed(value["files"])} if "files" in value else {})}


def _place(random: Random, step: Step, share: float, box: str, inherited: Container | None) -> Step:
    if box and random.random() < 0.5 and not is_local(step):
        return replace(step, boxed=True)
    if step.wrap == "expression" or random.random() > share:
        return step
    if is_local(step):
        return step
    # What is inherited as a requirement goes before a hint; and then the shell is that of the other image.
    images = [DEBIAN, DEBIAN, *([] if inherited else [BUSYBOX])]
    # Nor can it copy files for another user than the driver's.
    own = _container(random, images if _reads_files(step) else [DEBIAN, USER])
    # Jobs at the same time would have one directory.
    if not step.scatter and step.wrap == "" and random.random() < 0.05:
        own = replace(own, output=f"/tmp/of-{step.name}" if random.random() < 0.5 else f"/tmp/streamflow/{step.name}")
    return replace(step, container=own)


def is_local(step: Step) -> bool:
    """Whether plain StreamFlow cannot do it elsewhere than on the driver's node: its links lead elsewhere there."""
    return "stages" in step.extras or any(output.writer == "linked" for output in step.outputs)


def _reads_files(step: Step) -> bool:
    return step.type.kind in ("File", "Directory") or bool({"staged", "k"} & {*step.extras})


def _container(random: Random, images: Sequence[str]) -> Container:
    listed = random.choice(("requirements", "hints"))
    return Container(random.choice(images), listed, network=random.random() < 0.1)  # type: ignore[arg-type]


def bench(
    laboratory: Laboratory, directory: Path, blueprint: Blueprint, program: str = Containers.program
) -> Containers:
    """Where a blueprint is run.

    :param program: what runs it, by its name in `lab/forked.py`
    """

    def deployments(work: Path) -> Document:
        config = {"image": DEBIAN, "volume": [f"{work}:{SHARED}"]}
        return {_BOX: {"type": "docker", "config": config, "workdir": blueprint.box}} if blueprint.box else {}

    boxed = [step for step in blueprint.steps if step.boxed]
    return docker_bench(
        laboratory,
        directory,
        options=dict(blueprint.engine),
        deployments=deployments,
        bound={f"/{step.name}": _BOX for step in boxed},
        is_for_others=any(step.container is not None and step.container.image == USER for step in blueprint.steps),
        program=program,
    )


def run_contained(
    laboratory: Laboratory,
    directory: Path,
    blueprint: Blueprint,
    seconds: float = SECONDS,
    program: str = Containers.program,
) -> Trial:
    """Run a blueprint both ways in containers; those that are left at the end are removed.

    :param program: see :func:`bench`
    """
    try:
        return run_trial(directory, blueprint, seconds, lambda place: bench(laboratory, place, blueprint, program))
    finally:
        docker_bench(laboratory, directory).remove_containers()
