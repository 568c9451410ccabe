"""A node runtime whose `serve` takes requests in lines on its standard input, and answers on its standard output."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shlex
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import PurePath
from typing import Any, TypeVar

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from msgspec import Struct

from .access import Access
from .binary import Neighbours, check_workdir
from .conversation import LINE_LIMIT, MARK, Conversation, follow, ready
from .node_commands import NodeRuntimeError
from .node_runtime import NodeJob, NodeRuntime
from .protocol import MadeEvent, PrintedEvent, ReadyEvent, RefusedEvent, Request, ReturnedEvent
from .wire import parse_said, text_of

T = TypeVar("T")

_START_SECONDS = 30.0
_ALIVE_SECONDS = 15.0
#: `serve` says every 15 s that it is alive.
SILENCE_SECONDS = 60.0
#: `serve` ends when the driver has said nothing for this time: the connection may be gone without a word.
_PATIENCE_SECONDS = 60
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


class _StartedCommand:
    """A command that `serve` has started.

    :ivar printed: what it has printed so far
    """

    def __init__(self) -> None:
        self.printed = bytearray()
        self.code: asyncio.Future[int] = asyncio.get_running_loop().create_future()


class ConversingRuntime(NodeRuntime):
    """`sfio-node serve` of a location to which the driver has a connection; it may have links to others.

    `serve` ends when its input does, or brings nothing for a minute: the driver is gone, or the connection is.

    :ivar unreachable: why it has no address; None: an address exists, or none was asked for
    """

    def __init__(
        self, access: Access, binary: str, directory: PurePath, links: Links | None, conversation: Conversation
    ) -> None:
        super().__init__(access.name, binary, directory)
        self.tls = links is not None and links.tls
        self.unreachable: str | None = None
        self._access = access
        self._links = links
        self._admitting: asyncio.Task[None] | None = None
        self._clearing: asyncio.Task[None] | None = None
        #: The work directory that has the binary, and other users that see it: only this user can change it.
        self._workdir: tuple[str | None, Neighbours | None] = None, None
        self._conversation = conversation
        self._asked: dict[str, asyncio.Future[None]] = {}
        self._commands: dict[str, _StartedCommand] = {}
        self._sending = asyncio.Lock()
        self._closing: asyncio.Task[None] | None = None
        self._following = asyncio.create_task(follow(conversation, self, self.program, self.ended, SILENCE_SECONDS))
        self._reassuring = asyncio.create_task(self._reassure())

    async def has_events(self, job: NodeJob) -> bool:
        self.check()
        return await self._access.has_file(job.events_path, self.directory, self.ended)

    async def check_workdir(self, workdir: str) -> None:
        known, neighbours = self._workdir
        if workdir != known:
            await check_workdir(self._access, workdir, neighbours)

    async def run(self, words: list[str], seconds: float) -> tuple[str, int]:
        return await self._access.call(words, seconds)

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
        self._begin_to_admit()
        if self._admitting is not None:
            await asyncio.shield(self._admitting)

    def _begin_to_admit(self) -> None:
        """Let connections in soon. A link waits in :meth:`_admit`, which raises the errors."""
        if self._links is not None and self._admitting is None:
            self._admitting = asyncio.create_task(self._write_certificate(self._links.certificate))
            self._admitting.add_done_callback(lambda admitting: admitting.cancelled() or admitting.exception())

    async def _write_certificate(self, certificate: Certificate) -> None:
        # `serve` admits connections as soon as there is a certificate. A launcher starts a program for each write.
        key = self.certificate_path.with_suffix(".key"), certificate.key
        await self._access.write(self.certificate_path, certificate.certificate, before=key)

    async def _obstacle_of_link(self, other: NodeRuntime, why: str | None) -> str | None:
        if self._links is None or not isinstance(other, ConversingRuntime) or other._links is None:
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

    async def write_spec(self, job: NodeJob, text: str) -> None:
        self.check()
        if job.identifier in self._asked:  # StreamFlow executes a job twice at the same time, now and then.
            raise NodeRuntimeError(f"{self.location}: {job.identifier} has been asked for")
        answer = self._asked[job.identifier] = asyncio.get_running_loop().create_future()
        try:
            await self._send(Request(job=job.identifier, spec=json.loads(text)))
            await answer
        finally:
            del self._asked[job.identifier]

    async def run_command(self, job: NodeJob, script: str) -> tuple[str, int]:
        self.check()
        command = self._commands[job.identifier] = _StartedCommand()
        try:
            await self._send(Request(run=job.identifier, command=script))
            code = await command.code
        finally:
            del self._commands[job.identifier]
        return command.printed.decode(errors="replace").strip(), code

    async def request_cancel(self, job: NodeJob) -> None:
        await self._send(Request(cancel=job.identifier))

    async def write_limits(self, job: NodeJob, text: str) -> None:
        await self._send(Request(limit=job.identifier, spec=json.loads(text)))

    @property
    def is_ending(self) -> bool:
        return self._closing is not None or super().is_ending

    async def close(self) -> None:
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        await asyncio.shield(self._closing)

    def receive(self, line: bytes) -> None:
        said = parse_said(line)
        if isinstance(said, MadeEvent | RefusedEvent):
            self._answer(said)
            return
        self._heard()
        if said is None:
            super().receive(line)
        elif (command := self._commands.get(said.job)) is not None:
            _hear(command, said)

    def _heard(self) -> None:
        """Note that `serve` has said something that no request has asked for."""

    def lose(self, reason: str) -> None:
        super().lose(reason)
        if self._closing is None and self._clearing is None:
            self._access.leave(reason)
            self._clearing = asyncio.create_task(self.clear())
        waiting: list[asyncio.Future[Any]] = [*self._asked.values()]
        waiting += (command.code for command in self._commands.values())
        for answer in waiting:
            if not answer.done():
                answer.set_exception(NodeRuntimeError(reason))
                answer.exception()  # perhaps its request could not be sent, and nothing awaits it

    @abstractmethod
    async def _remove(self, ended: bool) -> None:
        """Remove what `serve` has left.

        :param ended: `serve` has ended after its input had, and removes all itself
        """

    async def _close(self) -> None:
        for trying in self._tried.values():
            trying.cancel()
        if self._admitting is not None:
            self._admitting.cancel()
            await asyncio.wait({self._admitting})
        self._reassuring.cancel()
        if self._clearing is not None:
            await self._clearing
        lost = self._following.done()
        await self._conversation.close(self.stop_seconds)
        await asyncio.wait({self._following}, timeout=self.stop_seconds)
        ended = self._following.done() and not lost
        self._following.cancel()
        self.lose(self.ended)
        await self._remove(ended)

    def _answer(self, said: MadeEvent | RefusedEvent) -> None:
        if (answer := self._asked.get(said.job)) is None or answer.done():
            return
        if isinstance(said, MadeEvent):
            answer.set_result(None)
        else:
            answer.set_exception(NodeRuntimeError(f"{self.location}: {said.message}"))

    async def _send(self, request: Request) -> None:
        line = text_of(request)
        if len(line) >= LINE_LIMIT:
            raise NodeRuntimeError(
                f"{self.location} cannot get the description of a job with too many inputs: {len(line):,} bytes"
            )
        try:
            # Python 3.10 lets only one wait at a time for a pipe that is full.
            async with self._sending:
                await self._conversation.send(line)
        except Exception as error:  # Each connector has its own.
            # The end of its output says why, and lets the location be lost before the job that asks.
            await asyncio.wait({self._following}, timeout=self.stop_seconds)
            raise NodeRuntimeError(self._lost or f"{self.ended}: {str(error) or type(error).__name__}") from error

    async def _reassure(self) -> None:
        """Say that the driver is there, because a connection may lose one end without a word."""
        with contextlib.suppress(NodeRuntimeError):
            while True:
                await asyncio.sleep(_ALIVE_SECONDS)
                await self._say_alive()

    async def _say_alive(self) -> None:
        await self._send(Request(alive=1))


def serve(binary: object, directory: object, options: Sequence[str]) -> str:
    """The script that starts `serve` in place of its shell."""
    words = [str(binary), "serve", "--directory", str(directory), "--patience", str(_PATIENCE_SECONDS), *options]
    return f"echo {MARK.decode()}; exec {shlex.join(words)} 2>&1"


async def begin(
    access: Access, delivering: Awaitable[T], script_of: Callable[[T], str], seconds: float
) -> tuple[T, Conversation, ReadyEvent]:
    """Deliver `sfio-node` and start `serve`.

    :param script_of: the script that starts what was delivered
    :param seconds: how long a `serve` that does not start is waited for
    :raises NodeRuntimeError: if it cannot be started, with one reason; nothing is left but the binary
    """
    # An engine takes long to start anything: what is needed is brought there meanwhile.
    opening = asyncio.create_task(access.converse())
    try:
        delivered = await delivering
        conversation = await opening
        with contextlib.suppress(Exception):  # What it has said tells more.
            await conversation.send(script_of(delivered))
        return delivered, conversation, await ready(conversation, f"{access.name}: sfio-node serve", _START_SECONDS)
    except BaseException:
        await asyncio.shield(_abandon(opening, seconds))
        raise


def _hear(command: _StartedCommand, said: PrintedEvent | ReturnedEvent) -> None:
    if isinstance(said, PrintedEvent):
        command.printed += said.text.encode(errors="surrogateescape")
    elif not command.code.done():
        command.code.set_result(said.code)


async def _abandon(opening: asyncio.Task[Conversation], seconds: float) -> None:
    """End a conversation that has brought nothing, even if it is still being opened."""
    await asyncio.wait({opening}, timeout=seconds)
    if opening.cancel() or opening.cancelled() or opening.exception() is not None:
        return
    conversation = opening.result()
    reading = asyncio.create_task(_read_all(conversation))
    await conversation.close(seconds)
    reading.cancel()


async def _read_all(conversation: Conversation) -> None:
    """Read to the end, without which a conversation does not see its end."""
    with contextlib.suppress(Exception):
        while await conversation.line() is not None:
            pass
