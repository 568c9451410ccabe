"""Links: streams by TCP, from the `serve` of a node runtime to the jobs of another that shares no directory with it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import PurePath

from .access import Access
from .binary import Neighbours, check_workdir
from .certificate import Certificate
from .node_runtime import NodeJob, NodeRuntime, NodeRuntimeError
from .protocol import ReadyEvent


@dataclass(frozen=True)
class Links:
    """What node runtimes of a run need for links between them.

    :ivar key: of the run
    :ivar address: where it listens; empty: where SSH has reached the host
    :ivar certificate: of the run, for links inside TLS only; None: they are plain
    """

    key: str
    address: str = ""
    certificate: Certificate | None = None

    @property
    def tls_option(self) -> list[str]:
        return [] if self.certificate is None else ["--tls"]

    @property
    def serve_options(self) -> list[str]:
        return ["--listen", *([self.address] if self.address else []), *self.tls_option]


class LinkedRuntime(NodeRuntime):
    """One at a location that the driver has access to, which may have links to others.

    :ivar unreachable: why it has no address; None where it has one, or none was asked for
    """

    def __init__(self, access: Access, binary: str, directory: PurePath, links: Links | None) -> None:
        super().__init__(access.name, binary, directory)
        self.tls = links is not None and links.certificate is not None
        self.unreachable: str | None = None
        self._access = access
        self._links = links
        self._admitting: asyncio.Task[None] | None = None
        self._clearing: asyncio.Task[None] | None = None
        self._ends = False
        #: The work directory that the binary was brought to, and who sees it there: nobody else can change it.
        self._workdir: tuple[str | None, Neighbours | None] = None, None

    async def has_events(self, job: NodeJob) -> bool:
        self.check()
        return await self._access.has_file(job.events_path, self.directory, self.ended)

    async def check_workdir(self, workdir: str) -> None:
        known, neighbours = self._workdir
        if workdir != known:
            await check_workdir(self._access, workdir, neighbours)

    async def run(self, words: list[str], seconds: float) -> tuple[str, int]:
        return await self._access.call(words, seconds)

    def lose(self, reason: str) -> None:
        super().lose(reason)
        if not self._ends and self._clearing is None:
            self._clearing = asyncio.create_task(self._clear())

    def _listens(self, ready: ReadyEvent) -> None:
        """Take what `serve` has said of where it listens."""
        self.address = ready.address
        if self._links is not None and self.address is None:
            self.unreachable = ready.message or "it does not say why"

    async def _admit(self) -> None:
        """Let connections in: nobody is before there is a key.

        :raises NodeRuntimeError: if it cannot be written
        """
        if self._links is not None and self._admitting is None:
            self._admitting = asyncio.create_task(self._write_key(self._links))
        if self._admitting is not None:
            await asyncio.shield(self._admitting)

    async def _write_key(self, links: Links) -> None:
        if (certificate := links.certificate) is not None:
            await self._access.write(self.key_path.with_name("certificate.pem"), certificate.certificate)
            await self._access.write(self.key_path.with_name("certificate.key"), certificate.key)
        await self._access.write(self.key_path, links.key.encode())

    async def _obstacle_of_link(self, other: NodeRuntime, why: str | None) -> str | None:
        if self._links is None or not isinstance(other, LinkedRuntime) or other._links is None:
            return await super()._obstacle_of_link(other, why)
        if other.address is None:
            return f"{other.location} cannot be reached from elsewhere: {other.unreachable}"
        try:
            await asyncio.gather(self._admit(), other._admit())
        except NodeRuntimeError as error:
            return str(error)
        return await self._once(other, self._try_link)

    async def _try_link(self, other: NodeRuntime) -> str | None:
        assert self._links is not None
        words = [self.binary, "reach", str(other.address), "--key", str(self.key_path), *self._links.tls_option]
        why = await self._reaches(words, "sfio-node reach")
        return None if why is None else f"{self.location} cannot reach {other.location} at {other.address}: {why}"
