"""Links: streams by TCP, from the `serve` of a node runtime to jobs of another that shares no directory with it."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta, timezone
from pathlib import PurePath

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from msgspec import Struct

from .access import Access
from .binary import Neighbours, check_workdir
from .node_commands import NodeRuntimeError
from .node_runtime import NodeJob, NodeRuntime
from .protocol import ReadyEvent

_DAY = timedelta(days=1)
_VALID_DAYS = 3650  # a certificate that is compared byte for byte is not checked for its dates


class Certificate(Struct, frozen=True):
    """A certificate that signs itself, and its private key, both in PEM. Both sides of a link show and expect it."""

    certificate: bytes
    key: bytes

    @classmethod
    def make(cls) -> Certificate:
        """Return a new certificate with a random key (ECDSA, P-256)."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "streamflow-io")])
        now = datetime.now(timezone.utc)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _DAY)  # clocks differ
            .not_valid_after(now + _VALID_DAYS * _DAY)
            .sign(key, SHA256())
        )
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return cls(certificate.public_bytes(Encoding.PEM), private)


class Links(Struct, frozen=True):
    """The settings of a run for links between its node runtimes.

    :ivar certificate: the certificate of the run, which both sides of a link show, and accept
    :ivar address: the address to listen at; empty: the one by which SSH has reached the host
    :ivar tls: whether streams are encrypted
    :ivar hand_out: directories whose files go to other node runtimes as a whole, too
    """

    certificate: Certificate
    address: str = ""
    tls: bool = False
    hand_out: tuple[str, ...] = ()

    @property
    def serve_options(self) -> list[str]:
        listen = ["--listen", *([self.address] if self.address else []), *(["--tls"] if self.tls else [])]
        return [*listen, *(word for directory in self.hand_out for word in ("--hand-out", directory))]


class LinkedRuntime(NodeRuntime):
    """A node runtime at a location to which the driver has access; it may have links to others.

    :ivar unreachable: why it has no address; None: an address exists, or none was asked for
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
        #: The work directory that has the binary, and other users that see it: only this user can change it.
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
            self._clearing = asyncio.create_task(self.clear())

    def note_silence(self) -> None:
        # Commands of StreamFlow, which have no time limit, would wait as long as the location is silent.
        self._access.drop()

    def _listens(self, ready: ReadyEvent) -> None:
        """Take in the address at which `serve` listens."""
        self.address = ready.address
        if self._links is not None and self.address is None:
            self.unreachable = ready.message or "it does not say why"

    async def _admit(self) -> None:
        """Let connections in. Without a certificate, `serve` accepts none.

        :raises NodeRuntimeError: if the certificate cannot be written
        """
        if self._links is not None and self._admitting is None:
            self._admitting = asyncio.create_task(self._write_certificate(self._links.certificate))
        if self._admitting is not None:
            await asyncio.shield(self._admitting)

    async def _write_certificate(self, certificate: Certificate) -> None:
        # The private key comes first: `serve` admits connections as soon as there is a certificate.
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
        why = await self.reaches(words, "sfio-node reach")
        return None if why is None else f"{self.location} cannot reach {other.location} at {other.address}: {why}"
