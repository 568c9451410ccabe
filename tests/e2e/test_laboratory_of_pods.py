"""The stand-in for Kubernetes does what Kubernetes does, as far as it goes, and nothing of it is left."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import time
from pathlib import Path

import aiohttp
import pytest
from aiohttp import WSMsgType

from lab.cwl import Document
from lab.machines.kubernetes import CLOSE, ERROR, PROTOCOLS, STDERR, STDIN, STDOUT
from lab.machines.laboratory import Laboratory, keep_pods
from lab.node import wait_for
from lab.pod_sites import BUSYBOX, claim, claimed, container, pod, pods_bench, soon_nothing
from tests.e2e.conftest import require_pods
from tests.e2e.test_laboratory import check_gone, network_links


@pytest.fixture(autouse=True)
def _required() -> None:
    require_pods()


class Api:
    """A client that is not StreamFlow's."""

    def __init__(self, laboratory: Laboratory, namespace: str = "lab") -> None:
        self.core = f"/api/v1/namespaces/{namespace}/"
        connector = aiohttp.UnixConnector(str(laboratory.directory / "api.sock"))
        self.session = aiohttp.ClientSession("http://localhost", connector=connector)

    async def create(self, manifest: Document) -> Document:
        kind = {"Pod": "pods", "PersistentVolumeClaim": "persistentvolumeclaims"}[manifest["kind"]]
        async with self.session.post(self.core + kind, json=manifest) as response:
            made: Document = await response.json()
            return made

    def execute(self, name: str, *command: str) -> aiohttp.client._WSRequestContextManager:
        pod, container = name.split(":")
        options = {"container": container, "stdin": "True", "stdout": "True", "stderr": "True"}
        query = [*options.items(), *(("command", word) for word in command)]
        return self.session.ws_connect(f"{self.core}pods/{pod}/exec", params=query, protocols=PROTOCOLS[:1])

    async def said(
        self, name: str, *command: str, text: bytes = b"", busy: float = 0, pieces: int = 1
    ) -> tuple[int, str, str]:
        """The exit code of a command that gets an input, and what it prints.

        :param busy: for this number of seconds the client neither writes nor reads
        :param pieces: how often it writes the input
        """
        found = {STDOUT: b"", STDERR: b"", ERROR: b""}
        async with self.execute(name, *command) as socket:
            time.sleep(busy)  # noqa: ASYNC251
            with contextlib.suppress(ConnectionError):  # It has ended already.
                for _ in range(pieces):
                    await socket.send_bytes(bytes((STDIN,)) + text)
                await socket.send_bytes(bytes((CLOSE, STDIN)))
            async for message in socket:
                assert message.type is WSMsgType.BINARY
                found[message.data[0]] += message.data[1:]
        status = json.loads(found[ERROR])
        code = 0 if status["status"] == "Success" else int(status["details"]["causes"][0]["message"])
        return code, found[STDOUT].decode(), found[STDERR].decode()


async def test_what_a_pod_is(pods_laboratory: Laboratory, tmp_path: Path) -> None:
    api = Api(pods_laboratory)
    one = pod("one", container("a"), container("b", "data", BUSYBOX, securityContext={"runAsUser": 1234}))
    two = pod("two", container("a"), volume=claimed("work"))
    bench = pods_bench(pods_laboratory, tmp_path)
    bench.pod_namespaces.append("lab")
    try:
        assert (await api.create(two))["status"] == "Failure"  # There is no claim.
        await api.create(claim("work"))
        three = pod("three", container("a"), volume=claimed("work"))
        made = [await api.create(manifest) for manifest in (one, two, three)]
        addresses = [each["status"]["podIP"] for each in made]
        assert len({*addresses}) == 3
        script = "cat; id -u; hostname; exit 3"
        assert await api.said("one:b", "sh", "-c", script, text=b"in\n") == (3, "in\n1234\none\n", "")
        assert await api.said("one:a", "sh", "-c", "echo out; echo err >&2; echo x > /data/x") == (0, "out\n", "err\n")
        assert await api.said("one:b", "cat", "/data/x") == (0, "x\n", "")
        assert (await api.said("two:a", "ls", "/data"))[1] == ""
        await api.said("two:a", "touch", "/data/y")
        assert (await api.said("three:a", "ls", "/data"))[1] == "y\n"
        _, shown, _ = await api.said("three:a", "ip", "-br", "addr", "show", "dev", "eth0")
        assert addresses[2] in shown
        # Only its own processes; the first is no shell.
        assert (await api.said("one:a", "cat", "/proc/1/comm"))[1] == "sleep\n"
        # A command sees the end of its input when the other side is gone, and is not killed.
        async with api.execute("one:a", "sh", "-c", "cat; exec sleep 100"):
            pass
        await asyncio.to_thread(wait_for, lambda: bench.processes() == {"one:a": ["sleep 100"]}, "the end of its input")
        # What runs in a pod that is killed has failed.
        killed = asyncio.create_task(api.said("two:a", "sleep", "100"))
        await asyncio.sleep(0.2)
        bench.kill("two")
        assert (await killed)[0] == 137
    finally:
        await api.session.close()
        bench.remove_pods()
    soon_nothing(lambda: [*(name for _, name in bench.pods()), *bench.processes()])


async def test_a_client_that_still_writes_is_told_the_end_of_a_command(
    pods_laboratory: Laboratory, tmp_path: Path
) -> None:
    """The command reads nothing of its input, and the input is larger than a pipe."""
    api = Api(pods_laboratory, namespace := f"writing-{tmp_path.name}")
    bench = pods_bench(pods_laboratory, tmp_path)
    bench.pod_namespaces.append(namespace)
    try:
        await api.create(pod("one", container("a")))
        for busy, pieces in (*[(0.1, 4)] * 5, *[(0, 1)] * 20):
            said = await api.said(
                "one:a", "sh", "-c", "echo out; exit 3", text=bytes(100_000), busy=busy, pieces=pieces
            )
            assert said == (3, "out\n", "")
    finally:
        await api.session.close()
        bench.remove_pods()


def test_it_lasts_as_long_as_a_process(tmp_path: Path) -> None:
    links = network_links()
    process = subprocess.Popen(["sleep", "100"])
    try:
        running = keep_pods(process.pid)
        asyncio.run(_create(running))
    finally:
        process.kill()
        process.wait()
    check_gone(running.directory)
    assert network_links() == links


async def _create(running: Laboratory) -> None:
    api = Api(running)
    made = await api.create(pod("one", container("a")))
    await api.session.close()
    assert made["status"]["phase"] == "Running"
