"""Pods that are processes of this machine.

A pod is a network with an address of its own; a container in it has mounts and processes of its own. A runtime of
Kubernetes makes them in the same way. An image is what is installed here, or of :mod:`lab.machines.images`; limits and
capabilities are not looked at, and root is root.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
NETWORK = "10.77.3"
BUSYBOX = "busybox"
PREPARATION = f"""\
ip link set lo up
ip link add pods type bridge forward_delay 0
ip addr add {NETWORK}.1/24 dev pods
ip link set pods up
"""
# `sleep` ends when it is killed, and waits for no child, like each program that is not made to be process 1.
IDLE = ("sleep", "100000000")
_DIES = ("setpriv", "--pdeathsig", "KILL")
_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_NAMESPACES = ("unshare", "--mount", "--pid", "--fork", "--kill-child")


class PodError(Exception):
    """A pod cannot be started; says why."""


@dataclass
class Container:
    """A container that runs.

    :ivar keeper: ends with it
    :ivar pid: of its process 1, as seen from here
    """

    keeper: Process
    pid: int
    user: int
    group: int

    @property
    def entrance(self) -> tuple[str, ...]:
        """The words before a command that run it inside."""
        namespaces = ("--mount", "--pid", "--net", "--ipc", "--uts", "--root", "--wd")
        user = (f"--setuid={self.user}", f"--setgid={self.group}")
        return ("nsenter", "--target", str(self.pid), *namespaces, *user, "env", "-i", _PATH, "HOME=/tmp")


@dataclass
class Pod:
    """A pod.

    :ivar spec: as of Kubernetes
    :ivar volumes: the directory or file of each, by name
    :ivar shared: what each container has at its own path
    """

    name: str
    spec: Mapping[str, Any]
    volumes: Mapping[str, Path]
    shared: Path
    images: Path
    directory: Path
    number: int
    containers: dict[str, Container] = field(default_factory=dict)
    sandbox: Process | None = None

    @property
    def address(self) -> str:
        return f"{NETWORK}.{self.number}"

    async def start(self) -> None:
        """:raises PodError: if it cannot be started; then nothing of it is left"""
        self.directory.mkdir(parents=True)
        try:
            await self._start_network()
            for container in self.spec["containers"]:
                self.containers[container["name"]] = await self._start(container)
        except BaseException:
            await self.kill()
            raise

    async def kill(self) -> None:
        """All its processes, at once; what its volumes have of it alone is left."""
        for container in self.containers.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(container.pid, signal.SIGKILL)
        await asyncio.gather(*(container.keeper.wait() for container in self.containers.values()))
        if self.sandbox is not None:
            with contextlib.suppress(ProcessLookupError):
                self.sandbox.kill()
            await self.sandbox.wait()
        shutil.rmtree(self.directory, ignore_errors=True)

    async def isolate(self) -> None:
        """Let nothing in or out by its network, as by a NetworkPolicy."""
        assert self.sandbox is not None
        await call(*self._inside, "ip", "link", "set", "eth0", "down")

    @property
    def _inside(self) -> tuple[str, ...]:
        assert self.sandbox is not None
        return ("nsenter", f"--net=/proc/{self.sandbox.pid}/ns/net", "--")

    async def _start_network(self) -> None:
        script = 'hostname "$1" && echo ready && exec sleep 100000000'
        self.sandbox = await asyncio.create_subprocess_exec(
            *_DIES, "unshare", "--net", "--uts", "--ipc", "sh", "-c", script, "sh", self.name,
            stdin=DEVNULL, stdout=PIPE, stderr=STDOUT,
        )  # fmt: skip
        await _ready(self.sandbox)
        link = f"pod{self.number}"
        await call("ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", str(self.sandbox.pid))
        await call("ip", "link", "set", link, "master", "pods", "up")
        batch = f"addr add {self.address}/24 dev eth0\nlink set lo up\nlink set eth0 up\n"
        await call(*self._inside, "ip", "-batch", "-", text=batch)

    async def _start(self, container: Mapping[str, Any]) -> Container:
        (root := self.directory / container["name"]).mkdir()
        security = {**self.spec.get("securityContext", {}), **container.get("securityContext", {})}
        image = str(self.images / f"{BUSYBOX}.tar") if BUSYBOX in container["image"] else ""
        words = [str(root), image, "ro" if security.get("readOnlyRootFilesystem") else "rw"]
        words += [str(self.shared), str(self.shared), "rw"]
        for mount in container["volumeMounts"]:
            source = self.volumes[mount["name"]] / mount.get("subPath", "")
            if not source.exists():
                source.mkdir(parents=True)
            words += [str(source), mount["mountPath"], "ro" if mount.get("readOnly") else "rw"]
        command = [*container.get("command", IDLE), *container.get("args", ())]
        sandbox = str(self.sandbox.pid) if self.sandbox is not None else ""
        keeper = await asyncio.create_subprocess_exec(
            *_DIES, "nsenter", "--target", sandbox, "--net", "--uts", "--ipc", *_NAMESPACES,
            "sh", "-eu", str(HERE / "pod.sh"), *words, "--", *command,
            stdin=DEVNULL, stdout=PIPE, stderr=STDOUT,
        )  # fmt: skip
        await _ready(keeper)
        return Container(keeper, _child(keeper.pid), security.get("runAsUser", 0), security.get("runAsGroup", 0))


def _child(pid: int) -> int:
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


async def call(*words: str, text: str = "") -> None:
    """:raises PodError: if a command fails, with what it said"""
    process = await asyncio.create_subprocess_exec(*words, stdin=PIPE, stdout=PIPE, stderr=STDOUT)
    said, _ = await process.communicate(text.encode())
    if process.returncode != 0:
        raise PodError(f"{' '.join(words)}: {said.decode(errors='replace').strip()}")


async def _ready(process: Process) -> None:
    assert process.stdout is not None
    said = b""
    while (line := await process.stdout.readline()) != b"ready\n":
        if not line:
            raise PodError(said.decode(errors="replace").strip() or "it says nothing")
        said += line
