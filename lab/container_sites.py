"""Workflows whose steps run in the containers of a laboratory."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab.cwl import NO_CONTAINERS, Document, streamflow_file
from lab.machines.containers import ADDRESSES, LOGIN, LOGIN_ID
from lab.machines.deployments import docker_environment, ssh_deployment
from lab.machines.laboratory import Laboratory
from lab.runs import Bench

#: Everything that StreamFlow needs, and Python; and a static busybox, without a C library.
DEBIAN, BUSYBOX = "sfio-test:latest", "sfio-busybox:latest"
#: For what a tool notes: busybox has no other clock that is fine enough. All on a machine have the same.
UPTIME = "$(cut -d ' ' -f 1 /proc/uptime)"
#: In which an engine has removed containers that it has said are stopped.
REMOVED_SECONDS = 30.0
#: The first of the images, with a user that is not root: see :func:`make_user_image`.
USER = "sfio-user:latest"
#: The processes of an idle container: process 1 of the engine, and the shell that StreamFlow has started it with.
IDLE = ("/sbin/docker-init -- /bin/sh", "/dev/init -- /bin/sh", "/run/podman-init -- /bin/sh", "/bin/sh")


def contained(document: Document, **images: str | None) -> Document:
    """A workflow whose tools have a DockerRequirement.

    :param images: by step; none: it runs on the driver's node. Others have :data:`DEBIAN`
    """
    document = copy.deepcopy(document)
    for name, step in document["steps"].items():
        tool = step["run"]
        if (image := images.get(name, DEBIAN)) is not None:
            tool["requirements"].append({"class": "DockerRequirement", "dockerPull": image})
        if BUSYBOX in images.values():
            tool["baseCommand"][2] = tool["baseCommand"][2].replace("$(date +%s.%N)", UPTIME)
    return document


@dataclass
class Containers(Bench):
    """A bench whose workflows have steps in containers.

    What they `note` is in the working directory, which all of them share. No other path of a run is in a container.

    :ivar laboratory: whose engines they have
    :ivar engine: StreamFlow's name of that for a DockerRequirement
    :ivar options: its options for it
    :ivar workdir: below it are the working directories of the driver's node; none: they are in TMPDIR, as by default
    :ivar is_for_others: whether other users than the driver's may use them, too
    :ivar owner: whose they are
    :ivar deployments: further ones of a run, of its working directory
    :ivar bound: the deployments of steps, by their paths; of one with services `DEPLOYMENT/SERVICE`
    """

    laboratory: Laboratory = field(kw_only=True)
    engine: str = field(default="docker", kw_only=True)
    options: Mapping[str, Any] = field(default_factory=dict, kw_only=True)
    workdir: Path | None = field(default=None, kw_only=True)
    is_for_others: bool = field(default=False, kw_only=True)
    owner: int = field(default=0, kw_only=True)
    deployments: Callable[[Path], Document] = field(default=lambda _: {}, kw_only=True)
    bound: Mapping[str, str] = field(default_factory=dict, kw_only=True)

    def write(
        self,
        document: Document,
        job: Mapping[str, Any],
        io: bool,
        config: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> Path:
        path = super().write(document, {"trace": "../trace", **job}, io, config, **settings)
        place = path.parent
        work = place / "tmp" / "streamflow" if self.workdir is None else self.workdir / place.name
        work.mkdir(parents=True)
        (work / "trace").touch()
        for path_of_owner in (work, work / "trace"):
            os.chown(path_of_owner, self.owner, self.owner)
        if self.is_for_others:
            work.chmod(0o1777)
            (work / "trace").chmod(0o666)
        (place / "trace").symlink_to(work / "trace")
        streamflow = json.loads(path.read_text())
        deployment = {"type": self.engine, "config": dict(self.options)}
        local = {"deployment": "here", "workdir": str(work)}
        workflow = streamflow["workflows"]["main"]
        if self.options or self.engine != "docker":
            workflow["config"]["docker"] = [{"step": "/", "deployment": deployment}]
        targets: dict[str, Document] = {"/": local} if self.workdir is not None else {}
        for step, name in self.bound.items():
            targets[step] = dict(zip(("deployment", "service"), name.split("/"), strict=False))
        workflow["bindings"] = [{"step": step, "target": target} for step, target in targets.items()]
        streamflow["deployments"] = {"here": {"type": "local", "config": {}}, **self.deployments(work)}
        path.write_text(json.dumps(streamflow))
        return path

    def write_plain(self, document: Document, job: Mapping[str, Any]) -> Path:
        """On the driver's node, for a container takes longer to start than the rest of a run.

        What plain StreamFlow does in containers is compared by random workflows and by the template.
        """
        workflows = streamflow_file("main.cwl", "job.json", workflow=NO_CONTAINERS)["workflows"]
        given = {name: value for name, value in job.items() if name != "trace"}
        return Bench(self.directory / "plain").write(document, given, io=False, workflows=workflows)

    def docker(self, *words: str) -> str:
        """Return what `docker` prints.

        :raises subprocess.CalledProcessError: if it fails
        """
        return self._docker(*words, check=True)

    def containers(self) -> dict[str, str]:
        """List the containers of our runs: image by id."""
        ids = self.docker("ps", "-a", "-q", "--no-trunc").split()
        shown = "{{.Id}} {{.Config.Image}} {{range .Mounts}}{{.Source}} {{end}}"
        # Containers of other tests come and go.
        lines = self._docker("inspect", "-f", shown, *ids, check=False).splitlines() if ids else []
        ours = (line.split() for line in lines if any(f"{place}/" in line for place in self._places()))
        return {identifier: image for identifier, image, *_ in ours}

    def container(self, image: str) -> str:
        """The id of that of an image."""
        (found,) = [identifier for identifier, name in self.containers().items() if name == image]
        return found

    def processes(self, container: str) -> list[str]:
        """List the command lines in a container, without the processes of an idle container."""
        try:
            _, *lines = self.docker("top", container, "-o", "pid,args").splitlines()
        except subprocess.CalledProcessError:
            assert container not in self.containers()  # The container has ended meanwhile.
            return []
        commands = [line.split(maxsplit=1)[1].strip() for line in lines]
        return [command for command in commands if command not in IDLE]

    def remove_containers(self) -> None:
        """Remove the containers that StreamFlow has left."""
        self._docker("rm", "-f", *self.containers(), check=False)

    def leftovers(self) -> list[str]:
        # A client of `exec` ends when its engine has answered, a moment after the driver.
        end = time.monotonic() + REMOVED_SECONDS
        while (self.containers() or self.left_by_us()) and time.monotonic() < end:
            time.sleep(0.1)
        return [*(f"container of {image}" for image in self.containers().values()), *self.left_by_us()]

    def left_by_us(self) -> list[str]:
        """List what is left, without containers in which nothing runs."""
        running = [f"{image}: {line}" for name, image in self.containers().items() for line in self.processes(name)]
        return list(dict.fromkeys([*running, *super().leftovers(), *map(str, self.run_directories())]))

    def run_directories(self) -> list[Path]:
        """Find the directories of node runtimes."""
        return [path for place in self._places() for path in run_directories(place)]

    def _places(self) -> list[Path]:
        return [*super()._places(), *([] if self.workdir is None else [self.workdir])]

    def _docker(self, *words: str, check: bool) -> str:
        environment = os.environ | dict(self.environment)
        return subprocess.run(
            [*self.prefix, "docker", *words],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=None if check else subprocess.DEVNULL,
            timeout=20,
            check=check,
            text=True,
        ).stdout


def run_directories(place: Path) -> Iterator[Path]:
    """Find the directories of node runtimes below a directory; a directory that is being removed is no error."""
    for directory, names, _ in os.walk(place):
        if Path(directory).name.startswith(".streamflow-io-"):
            yield from (Path(directory, name) for name in names if name.startswith("streamflow-io-"))


def docker_bench(laboratory: Laboratory, directory: Path, **options: Any) -> Containers:
    """Workflows in containers of the real dockerd."""
    return Containers(directory, environment=docker_environment(laboratory), laboratory=laboratory, **options)


def ssh_bench(laboratory: Laboratory, directory: Path) -> Containers:
    """Workflows in containers on a host where one logs in by SSH, as another user than theirs; it has two names."""
    return _ssh_bench(Containers, laboratory, directory, LOGIN, is_for_others=True, owner=LOGIN_ID)


def _ssh_bench(
    bench: type[Containers], laboratory: Laboratory, directory: Path, login: str, **options: Any
) -> Containers:
    (parent := laboratory.directory / "ssh").mkdir(exist_ok=True)
    # The directories of tests in several processes may have one name.
    workdir = Path(tempfile.mkdtemp(prefix=f"{directory.name}-", dir=parent))
    workdir.chmod(0o755)

    def hosts(work: Path) -> Document:
        return {
            name: {**ssh_deployment(laboratory, address, user=login), "workdir": str(work)}
            for name, address in zip(("here", "other"), ADDRESSES, strict=True)
        }

    return bench(
        directory,
        environment=docker_environment(laboratory),
        laboratory=laboratory,
        namespaces=(laboratory.network,),
        workdir=workdir,
        deployments=hosts,
        **options,
    )


def make_user_image(docker: Containers) -> str:
    container = docker.docker("create", DEBIAN).strip()
    docker.docker("commit", "--change", "USER 1234", container, USER)
    docker.docker("rm", container)
    return USER
