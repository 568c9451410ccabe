"""Locations for tests of node runtimes elsewhere: StreamFlow's connectors, with what they would start played here."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, MutableMapping, MutableSequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamflow.core.deployment import ExecutionLocation
from streamflow.core.scheduling import AvailableLocation
from streamflow.deployment.connector.base import BaseConnector
from streamflow.deployment.connector.kubernetes import KubernetesConnector

from streamflow_io.runtime.access import Access
from streamflow_io.runtime.binary import PROTOCOL, Binary
from streamflow_io.runtime.conversing import Certificate, Links
from streamflow_io.runtime.deployments import Manner
from streamflow_io.runtime.locations import Place
from streamflow_io.runtime.remote import RemoteRuntime

HERE = Manner()
CERTIFICATE = Certificate.make()
# `serve` does what it is asked for, unless RUN/mute is there, prints what is put into RUN/say, and fails with RUN/die.
SERVE = """
import json, os, shutil, sys, threading, time
run, address = sys.argv[3], json.loads(sys.argv.pop())
if os.path.exists(sys.argv[0] + ".broken"):
    sys.exit("it is broken")
at = lambda *names: os.path.join(run, *names)
os.makedirs(at("jobs"), 0o700)
open(at("words"), "w").write(" ".join(sys.argv[1:]) + "\\n")
if os.path.exists(sys.argv[0] + ".killed"):
    os.abort()
tell = lambda **told: print(json.dumps(told), flush=True)
tell(event="ready", pid=os.getpid(), **address)
def look():
    while True:
        if os.path.exists(at("die")):
            os._exit(1)
        if os.path.exists(at("say")):
            print(open(at("say")).read(), end="", flush=True)
            os.remove(at("say"))
        time.sleep(0.01)
threading.Thread(target=look, daemon=True).start()
def write(text, *names):
    open(at(*names) + ".new", "w").write(text)
    os.rename(at(*names) + ".new", at(*names))
for line in map(json.loads, sys.stdin):
    if os.path.exists(at("mute")):
        continue
    if "job" in line:
        os.mkdir(at("jobs", line["job"]))
        write(json.dumps(line["spec"]), "jobs", line["job"], "job.json")
        tell(job=line["job"], event="ready")
    elif "limit" in line:
        write(json.dumps(line["spec"]), "jobs", line["limit"], "limit")
    elif "cancel" in line:
        write("", "jobs", line["cancel"], "cancel")
# The thread may remove a file meanwhile.
shutil.rmtree(run, ignore_errors=True)
"""
STAND_IN = """#!/bin/sh
case $1 in
--version) echo "sfio-node 0.0.0 protocol __PROTOCOL__" ;;
reach) echo "$@" >> "$0.reached"; case $2 in *:1) echo "refused" >&2; exit 1 ;; esac ;;
exec | run) until [ "$1" = -- ]; do shift; done; shift; exec "$@" ;;
serve) exec __PYTHON__ -ISc 'import sys; sys.argv.pop(0); exec(sys.argv.pop())' "$0" "$@" '__ADDRESS__' '__SERVE__' ;;
esac
"""


def stand_in(address: str | None = None) -> Binary:
    """A program that does what `sfio-node` does, as far as these tests go."""
    words = {"ADDRESS": json.dumps({} if address is None else {"address": address}), "PROTOCOL": str(PROTOCOL)}
    program = STAND_IN
    for name, text in {**words, "PYTHON": sys.executable, "SERVE": SERVE}.items():
        program = program.replace(f"__{name}__", text)
    return Binary(program.encode(), None)


class Recording:
    """Keeps all commands that a connector is given."""

    commands: list[str]

    async def run(self, location: ExecutionLocation, command: MutableSequence[str], **arguments: Any) -> Any:
        self.commands.append(" ".join(command))
        return await super().run(location, command, **arguments)  # type: ignore[misc]

    async def get_shell(self, command: MutableSequence[str], location: ExecutionLocation) -> Any:
        self.commands.append(" ".join(command))
        return await super().get_shell(command, location)  # type: ignore[misc]

    async def get_stream_reader(self, command: MutableSequence[str], location: ExecutionLocation) -> Any:
        self.commands.append(" ".join(command))
        return await super().get_stream_reader(command, location)  # type: ignore[misc]

    async def get_stream_writer(self, command: MutableSequence[str], location: ExecutionLocation) -> Any:
        self.commands.append(" ".join(command))
        return await super().get_stream_writer(command, location)  # type: ignore[misc]


class Host(Recording, BaseConnector):  # type: ignore[misc]
    """A host that is this machine."""

    def __init__(self, deployment_name: str = "host", config_dir: str = "/") -> None:
        super().__init__(deployment_name, config_dir, 2**16)
        self.commands = []

    @classmethod
    def get_schema(cls) -> str:
        raise NotImplementedError

    async def deploy(self, external: bool) -> None:
        pass

    async def get_available_locations(self, service: str | None = None) -> MutableMapping[str, AvailableLocation]:
        raise NotImplementedError


class Pod(Recording, KubernetesConnector):  # type: ignore[misc]
    """A pod that is this machine."""

    def __init__(self) -> None:
        super().__init__("pods", "/", files=[])
        self.commands = []
        self.client_ws = self.api_client = self

    async def close(self) -> None:
        pass

    async def connect_get_namespaced_pod_exec(self, command: list[str], stdin: bool, **_: Any) -> _Response:
        pipe, null = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
        return _Response(
            await asyncio.create_subprocess_exec(*command, stdin=pipe if stdin else null, stdout=pipe, stderr=null)
        )


@dataclass
class _Message:
    type: Any
    data: bytes = b""


class _Response:
    """A connection to a process, as Kubernetes has it: the first byte of a message names the stream."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._told = False
        self.closed = False

    async def __aenter__(self) -> _Response:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    def __aiter__(self) -> _Response:
        return self

    async def __anext__(self) -> _Message:
        message = await self.receive()
        if self.closed:
            raise StopAsyncIteration
        return message

    async def receive(self) -> _Message:
        from aiohttp import WSMsgType

        assert self._process.stdout is not None
        if data := await self._process.stdout.read(2**16):
            return _Message(WSMsgType.BINARY, b"\x01" + data)
        await self._process.wait()
        if not self._told:
            self._told = True
            return _Message(WSMsgType.BINARY, b"\x03" + json.dumps({"status": "Success"}).encode())
        self.closed = True
        return _Message(WSMsgType.CLOSED)

    async def send_bytes(self, data: bytes) -> None:
        assert self._process.stdin is not None
        if data[:1] == b"\xff":
            self._process.stdin.close()
        else:
            self._process.stdin.write(data[1:])
            await self._process.stdin.drain()

    async def close(self) -> None:
        self.closed = True
        if self._process.stdin is not None:
            self._process.stdin.close()
            await self._process.wait()


@asynccontextmanager
async def hosted(host: Host) -> AsyncIterator[Access]:
    """The way to a host, for as long as a test takes."""
    try:
        yield Access(host, ExecutionLocation("host", host.deployment_name))
    finally:
        await host.undeploy(True)


@asynccontextmanager
async def serving(
    access: Access,
    workdir: Path,
    binary: Binary | None = None,
    manner: Manner = HERE,
    tls: bool = False,
    place: Place | None = None,
) -> AsyncIterator[RemoteRuntime]:
    """A runtime; nothing of it is left at the end."""
    links = Links(CERTIFICATE, manner.address, tls) if manner.listen else None
    how = manner.shared, links, place, manner.starts_commands
    runtime = await RemoteRuntime.start(access, str(workdir), binary or stand_in(), *how)
    try:
        yield runtime
    finally:
        await runtime.close()
    assert not Path(runtime.directory).exists()


def say(runtime: RemoteRuntime, *lines: str) -> None:
    """Let `serve` print something."""
    part = Path(runtime.directory, "said")
    part.write_text("".join(f"{line}\n" for line in lines))
    part.rename(Path(runtime.directory, "say"))


def event(job: str, name: str, **fields: object) -> str:
    """A line that `serve` prints of a job."""
    return json.dumps({"job": job, "event": name, "time": 1.0, **fields})


def exited(job: str) -> str:
    return event(job, "exit", ended=0.0, success=True, reason="exited", code=0)
