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

    :ivar certificate: the certificate of the run, which both sides of a link show, and take
    :ivar address: where it listens; empty: where SSH has reached the host
    :ivar tls: what streams is encrypted
    """

    certificate: Certificate
    address: str = ""
    tls: bool = False

    @property
    def serve_options(self) -> list[str]:
        return ["--listen", *([self.address] if self.address else []), *(["--tls"] if self.tls else [])]


class LinkedRuntime(NodeRuntime):
    """One at a location that the driver has access to, which may have links to others.

    :ivar unreachable: why it has no address; None where it has one, or none was asked for
    """

    def __init__(self, access: Access, binary: str, directory: PurePath, links: Links | None) -> None:
        super().__init__(access.name, binary, directory)
        self.tls = links is not None and links.tls
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
        """Let connections in: none is before there is a certificate.

        :raises NodeRuntimeError: if it cannot be written
        """
        if self._links is not None and self._admitting is None:
            self._admitting = asyncio.create_task(self._write_certificate(self._links.certificate))
        if self._admitting is not None:
            await asyncio.shield(self._admitting)

    async def _write_certificate(self, certificate: Certificate) -> None:
        # The private key first: `serve` admits connections when there is a certificate.
        await self._access.write(self.certificate_path.with_suffix(".key"), certificate.key)
        await self._access.write(self.certificate_path, certificate.certificate)

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
        words = [self.binary, "reach", str(other.address), "--certificate", str(self.certificate_path)]
        why = await self._reaches(words, "sfio-node reach")
        return None if why is None else f"{self.location} cannot reach {other.location} at {other.address}: {why}"
