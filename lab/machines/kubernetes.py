"""Process 1 of a laboratory with a stand-in for Kubernetes; not Kubernetes.

    python -S -E -m lab.machines.kubernetes DIRECTORY

Of its API it knows what StreamFlow's connector calls: pods, PersistentVolumeClaims and NetworkPolicies are created,
read, listed and deleted, and a command is run in a container by a WebSocket (`v5.channel.k8s.io`). It serves HTTP at
127.0.0.1 of its network, where DIRECTORY/kubeconfig finds it, and at DIRECTORY/api.sock. Pods are those of
:mod:`lab.machines.pods`, with volumes as they are in Kubernetes: an emptyDir is of one pod, a claim of a namespace.
Besides, each container has DIRECTORY/shared, for what tests have to tell it and to hear.

GET /processes, which is of us, has the command lines of all that runs in containers, by `NAMESPACE/POD:CONTAINER`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import shutil
import subprocess
import sys
import tarfile
import uuid
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping
from pathlib import Path
from typing import Any

if sys.flags.no_site and __name__ == "__main__":  # This laboratory needs installed packages, unlike others.
    os.execv(sys.executable, [sys.executable, "-m", "lab.machines.kubernetes", *sys.argv[1:]])

from aiohttp import WSCloseCode, WSMsgType, web

from lab.machines.images import write_busybox
from lab.machines.pods import BUSYBOX, IDLE, PREPARATION, Pod, PodError

PORT = 8001
NODE = "node-1"
PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
STDIN, STDOUT, STDERR, ERROR, CLOSE = 0, 1, 2, 3, 255
KINDS = {
    "pods": ("v1", "Pod"),
    "persistentvolumeclaims": ("v1", "PersistentVolumeClaim"),
    "networkpolicies": ("networking.k8s.io/v1", "NetworkPolicy"),
}
# What each pod has in Kubernetes, and StreamFlow relies on: a container without a volume is nothing that it expects.
TOKEN = {"name": "kube-api-access", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": True}
TRUE = ("1", "true", "True")
MESSAGE_LIMIT = 2**25
Document = dict[str, Any]


class Cluster:
    """The objects of all namespaces, and the pods that run."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._objects: dict[tuple[str, str, str], Document] = {}
        self._pods: dict[tuple[str, str], Pod] = {}
        self._numbers = itertools.count(11)

    def application(self) -> web.Application:
        application = web.Application(client_max_size=MESSAGE_LIMIT)
        for root in ("/api/v1", "/apis/networking.k8s.io/v1"):
            collection = f"{root}/namespaces/{{namespace}}/{{kind}}"
            application.router.add_post(collection, self.create)
            application.router.add_get(collection, self.list)
            application.router.add_get(f"{collection}/{{name}}", self.read)
            application.router.add_delete(f"{collection}/{{name}}", self.delete)
        application.router.add_get("/api/v1/namespaces/{namespace}/pods/{name}/exec", self.execute)
        application.router.add_get("/processes", self.processes)
        return application

    async def create(self, request: web.Request) -> web.StreamResponse:
        """A pod runs when this has been answered: Kubernetes is not so quick."""
        namespace, kind = request.match_info["namespace"], request.match_info["kind"]
        if kind not in KINDS:
            return refused(404, f"the stand-in has no {kind}")
        made: Document = await request.json()
        made["apiVersion"], made["kind"] = KINDS[kind]
        made["metadata"] |= {"namespace": namespace, "uid": str(uuid.uuid4())}
        made["status"] = {"phase": "Pending"}
        key = kind, namespace, made["metadata"]["name"]
        if key in self._objects:
            return refused(409, f"{key[2]} is there already")
        self._objects[key] = made
        try:
            if kind == "pods":
                await self._start_pod(made)
            elif kind == "persistentvolumeclaims":
                made["status"] = {"phase": "Bound"}
            await self._isolate(namespace)
        except (PodError, KeyError) as error:
            del self._objects[key]
            return refused(422, f"{type(error).__name__}: {error}")
        return web.json_response(made, status=201)

    async def list(self, request: web.Request) -> web.StreamResponse:
        namespace, kind = request.match_info["namespace"], request.match_info["kind"]
        wanted = dict(part.split("=") for part in request.query.get("labelSelector", "").split(",") if part)
        _, _, phase = request.query.get("fieldSelector", "").partition("status.phase=")
        found = [
            item
            for (of, where, _), item in self._objects.items()
            if (of, where) == (kind, namespace)
            and wanted.items() <= item["metadata"].get("labels", {}).items()
            and phase in ("", item["status"]["phase"])
        ]
        version, name = KINDS[kind]
        return web.json_response({"apiVersion": version, "kind": f"{name}List", "metadata": {}, "items": found})

    async def read(self, request: web.Request) -> web.StreamResponse:
        found = self._objects.get(_key(request))
        return refused(404, f"no {request.path}") if found is None else web.json_response(found)

    async def delete(self, request: web.Request) -> web.StreamResponse:
        """Kills at once, as with a grace period of 0."""
        kind, namespace, name = key = _key(request)
        if (found := self._objects.pop(key, None)) is None:
            return refused(404, f"no {request.path}")
        if kind == "pods":
            await self._pods.pop((namespace, name)).kill()
            shutil.rmtree(self._directory / "volumes" / found["metadata"]["uid"], ignore_errors=True)
        elif kind == "persistentvolumeclaims":
            shutil.rmtree(self._claim(namespace, name), ignore_errors=True)
        return web.json_response(found)

    async def processes(self, _: web.Request) -> web.StreamResponse:
        found = {}
        for (namespace, pod), running in self._pods.items():
            for name, container in running.containers.items():
                found[f"{namespace}/{pod}:{name}"] = commands(container.pid)
        return web.json_response(found)

    async def execute(self, request: web.Request) -> web.StreamResponse:
        """Run a command in a container. It sees the end of its input when the other side is gone, and is not killed.

        The connection lasts until the other side closes it, or is gone. A writer without a listener may lose what was
        said before.
        """
        pod = self._pods.get((request.match_info["namespace"], request.match_info["name"]))
        container = None if pod is None else pod.containers.get(request.query.get("container", ""))
        if container is None:
            return refused(404, f"no container {request.query.get('container')} at {request.path}")
        pipes = [PIPE if request.query.get(name) in TRUE else DEVNULL for name in ("stdin", "stdout", "stderr")]
        process = await asyncio.create_subprocess_exec(
            *container.entrance,
            *request.query.getall("command"),
            stdin=pipes[0],
            stdout=pipes[1],
            stderr=pipes[2],
        )
        socket = web.WebSocketResponse(protocols=PROTOCOLS, max_msg_size=MESSAGE_LIMIT)
        await socket.prepare(request)
        channels = {STDOUT: process.stdout, STDERR: process.stderr}
        await _send(socket, next((channel for channel, pipe in channels.items() if pipe), ERROR), b"")
        feeding = asyncio.create_task(_feed(socket, process))
        await asyncio.gather(*(_pump(socket, channel, pipe) for channel, pipe in channels.items() if pipe))
        await _send(socket, ERROR, json.dumps(_status(await process.wait())).encode())
        if process.stdin is not None and not process.stdin.is_closing():
            process.stdin.transport.abort()  # No process reads what is still in there.
        with contextlib.suppress(ConnectionError):  # The other side is gone.
            await socket.send_frame(WSCloseCode.OK.to_bytes(2, "big"), WSMsgType.CLOSE)
        await feeding
        return socket

    async def _start_pod(self, made: Document) -> None:
        spec, metadata = made["spec"], made["metadata"]
        for container in spec["containers"]:
            container.setdefault("volumeMounts", []).append(TOKEN)
        spec.setdefault("volumes", []).append({"name": TOKEN["name"], "projected": {"sources": []}})
        spec.setdefault("nodeName", NODE)
        own = self._directory / "volumes" / metadata["uid"]
        volumes = {volume["name"]: self._volume(volume, own, metadata) for volume in spec["volumes"]}
        place = self._directory / "pods" / metadata["uid"]
        shared = self._directory / "shared"
        pod = Pod(metadata["name"], spec, volumes, shared, self._directory, place, next(self._numbers))
        await pod.start()
        self._pods[metadata["namespace"], metadata["name"]] = pod
        ready = [{"type": name, "status": "True"} for name in ("Initialized", "Ready", "ContainersReady")]
        made["status"] = {"phase": "Running", "podIP": pod.address, "conditions": ready}

    def _volume(self, volume: Document, own: Path, metadata: Document) -> Path:
        """:raises KeyError: if it has a claim that is not there"""
        if "hostPath" in volume:
            return Path(volume["hostPath"]["path"])
        if "persistentVolumeClaim" in volume:
            claim = volume["persistentVolumeClaim"]["claimName"]
            self._objects["persistentvolumeclaims", metadata["namespace"], claim]
            place = self._claim(metadata["namespace"], claim)
        else:
            place = own / volume["name"]
        if not place.exists():
            place.mkdir(parents=True)
            place.chmod(0o777)
        return place

    def _claim(self, namespace: str, name: str) -> Path:
        return self._directory / "claims" / namespace / name

    async def _isolate(self, namespace: str) -> None:
        """Do what NetworkPolicies say; they are known as StreamFlow writes them, which allow nothing."""
        items = [item for (_, where, _), item in self._objects.items() if where == namespace]
        policies = [item["spec"]["podSelector"]["matchLabels"] for item in items if item["kind"] == "NetworkPolicy"]
        for item in (item for item in items if item["kind"] == "Pod"):
            pod, labels = self._pods.get((namespace, item["metadata"]["name"])), item["metadata"].get("labels", {})
            if pod is not None and any(wanted.items() <= labels.items() for wanted in policies):
                await pod.isolate()


def commands(pid: int) -> list[str]:
    """The command lines of all that runs in the namespace of process 1 of a container, but for that one."""
    found = []
    with contextlib.suppress(OSError):
        space = os.readlink(f"/proc/{pid}/ns/pid")
        for other in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                if int(other) != pid and os.readlink(f"/proc/{other}/ns/pid") == space:
                    found.append(Path("/proc", other, "cmdline").read_text().replace("\0", " ").strip())
    return [command for command in found if command and command != " ".join(IDLE)]


def refused(code: int, message: str) -> web.Response:
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code}
    return web.json_response(status, status=code)


def _key(request: web.Request) -> tuple[str, str, str]:
    return request.match_info["kind"], request.match_info["namespace"], request.match_info["name"]


async def _send(socket: web.WebSocketResponse, channel: int, data: bytes) -> None:
    with contextlib.suppress(ConnectionError, RuntimeError):  # The other side is gone.
        await socket.send_bytes(bytes((channel,)) + data)


async def _pump(socket: web.WebSocketResponse, channel: int, pipe: asyncio.StreamReader) -> None:
    while data := await pipe.read(2**15):
        await _send(socket, channel, data)


async def _feed(socket: web.WebSocketResponse, process: Process) -> None:
    """Give the process its input, as long as the other side has not ended it, and is there."""
    try:
        async for message in socket:
            if message.type is not WSMsgType.BINARY or process.stdin is None:
                continue
            channel, data = message.data[0], message.data[1:]
            if channel == CLOSE:
                process.stdin.close()
            elif channel == STDIN and not process.stdin.is_closing():
                process.stdin.write(data)
                with contextlib.suppress(ConnectionError):
                    await process.stdin.drain()
    finally:
        if process.stdin is not None:
            process.stdin.close()


def _status(code: int) -> Mapping[str, Any]:
    """The status with which Kubernetes describes the end of a command."""
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    code = code if code > 0 else 128 - code
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: exit status {code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }


def configuration(server: str) -> Document:
    """A kubeconfig."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "laboratory", "cluster": {"server": server}}],
        "users": [{"name": "nobody", "user": {}}],
        "contexts": [{"name": "laboratory", "context": {"cluster": "laboratory", "user": "nobody"}}],
        "current-context": "laboratory",
    }


async def serve(directory: Path) -> None:
    runner = web.AppRunner(Cluster(directory).application())
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", PORT).start()
    await web.UnixSite(runner, str(directory / "api.sock")).start()
    (directory / "kubeconfig").write_text(json.dumps(configuration(f"http://127.0.0.1:{PORT}")))
    print("ready", flush=True)
    await asyncio.Event().wait()


def main(directory: Path) -> None:
    for command in PREPARATION.splitlines():
        subprocess.run(command.split(), check=True)
    (directory / "shared").mkdir()
    with tarfile.open(directory / f"{BUSYBOX}.tar", "w") as archive:
        write_busybox(archive)
    asyncio.run(serve(directory))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
