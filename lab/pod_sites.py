"""Workflows whose steps run in pods of the stand-in for Kubernetes."""

from __future__ import annotations

import http.client
import json
import socket
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab.container_sites import UPTIME, run_directories
from lab.cwl import Document
from lab.machines.deployments import kubernetes_config
from lab.machines.laboratory import Laboratory
from lab.runs import Bench

BUSYBOX = "sfio-busybox"
WORKDIR = "/data"


def container(name: str, volume: str | None = "data", image: str = "debian", **fields: Any) -> Document:
    """A container of a pod, with its working directory on a volume of the pod, or on its own file system."""
    mounts = [] if volume is None else [{"name": volume, "mountPath": WORKDIR}]
    return {"name": name, "image": image, "stdin": True, "volumeMounts": mounts, **fields}


def pod(name: str, *containers: Document, volume: Document | None = None, **spec: Any) -> Document:
    """A pod; its volume `data` is its own, if none is given."""
    volumes = [{"name": "data", **(volume or {"emptyDir": {}})}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"name": name}},
        "spec": {"containers": list(containers), "volumes": volumes, **spec},
    }


def claim(name: str) -> Document:
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": {}}


def claimed(name: str) -> Document:
    """A volume that is a claim."""
    return {"persistentVolumeClaim": {"claimName": name}}


@dataclass
class Pods(Bench):
    """A bench whose workflows have steps in pods, also those of tools with a DockerRequirement.

    What tools `note` is where all containers see it.

    :ivar laboratory: with the stand-in
    :ivar manifests: of each deployment: what is in its file; each run has a namespace of its own
    :ivar bound: the deployment and the container of steps, by their paths
    """

    laboratory: Laboratory = field(kw_only=True)
    manifests: Mapping[str, list[Document]] = field(default_factory=dict, kw_only=True)
    bound: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    pod_namespaces: list[str] = field(default_factory=list, init=False)

    def write(
        self,
        document: Document,
        job: Mapping[str, Any],
        io: bool,
        config: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> Path:
        self.pod_namespaces.append(f"run-{uuid.uuid4().hex}")
        (trace := self.laboratory.directory / "shared" / self.pod_namespaces[-1]).touch()
        trace.chmod(0o666)
        path = super().write(document, {"trace": str(trace), **job}, io, config, **settings)
        place = path.parent
        (place / "trace").symlink_to(trace)
        cwl = place / "main.cwl"
        cwl.write_text(cwl.read_text().replace("$(date +%s.%N)", UPTIME))
        cluster = kubernetes_config(self.laboratory, self.pod_namespaces[-1])
        streamflow = json.loads(path.read_text())
        deployments = streamflow.setdefault("deployments", {})
        for name, manifest in self.manifests.items():
            (file := place / f"{name}.yml").write_text("\n---\n".join(map(json.dumps, manifest)))
            deployments[name] = {
                "type": "kubernetes",
                "config": {"files": [file.name], **cluster},
                "workdir": WORKDIR,
            }
        workflow = streamflow["workflows"]["main"]
        workflow["config"]["docker"] = [{"step": "/", "deployment": {"type": "kubernetes", "config": cluster}}]
        workflow["bindings"] = [
            {"step": step, "target": dict(zip(("deployment", "service"), name.split("/"), strict=True))}
            for step, name in self.bound.items()
        ]
        path.write_text(json.dumps(streamflow))
        return path

    def ask(self, method: str, path: str) -> Any:
        """Return what the stand-in answers."""
        connection = http.client.HTTPConnection("localhost", timeout=20)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(str(self.laboratory.directory / "api.sock"))
        try:
            connection.request(method, path)
            return json.load(connection.getresponse())
        finally:
            connection.close()

    def pods(self) -> list[tuple[str, str]]:
        """List the pods of our runs: namespace and name."""
        found = []
        for namespace in self.pod_namespaces:
            items = self.ask("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]
            found += [(namespace, item["metadata"]["name"]) for item in items]
        return found

    def kill(self, *names: str) -> None:
        """Pods: all of their processes, at once."""
        for namespace, name in self.pods():
            if name in names:
                self.ask("DELETE", f"/api/v1/namespaces/{namespace}/pods/{name}")

    def remove_pods(self) -> None:
        """Remove the pods that StreamFlow has left."""
        self.kill(*(name for _, name in self.pods()))

    def processes(self) -> dict[str, list[str]]:
        """List the processes in containers, by pod and container, without idle ones."""
        running: dict[str, list[str]] = self.ask("GET", "/processes")
        found = {}
        for place, commands in running.items():
            namespace, _, name = place.partition("/")
            # The shells of StreamFlow end with its connection.
            if namespace in self.pod_namespaces and (left := [command for command in commands if command != "sh"]):
                found[name] = left
        return found

    def run_directories(self) -> list[Path]:
        """Find the directories of node runtimes in claims; the own files of a pod end with the pod."""
        claims = [self.laboratory.directory / "claims" / namespace for namespace in self.pod_namespaces]
        return [path for place in claims for path in run_directories(place)]

    def left_by_us(self) -> list[str]:
        """List what is left, without pods in which nothing runs."""
        running = [f"{name}: {command}" for name, commands in self.processes().items() for command in commands]
        return [*running, *super().leftovers(), *map(str, self.run_directories())]

    def leftovers(self) -> list[str]:
        return [*(f"pod {name}" for _, name in self.pods()), *self.left_by_us()]


def pods_bench(laboratory: Laboratory, directory: Path, **options: Any) -> Pods:
    """Workflows of a driver that reaches the cluster, and its pods."""
    return Pods(directory, laboratory=laboratory, namespaces=(laboratory.network,), **options)


def soon_nothing(what: Callable[[], list[str]], seconds: float = 8) -> None:
    """Wait until nothing of something is left."""
    end = time.monotonic() + seconds
    while (left := what()) and time.monotonic() < end:
        time.sleep(0.1)
    assert not left, left
