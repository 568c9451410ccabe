"""Two nodes with a link, a proxy that cuts connections, and a peer that says what it likes."""

from __future__ import annotations

import hashlib
import json
import re
import socket
import ssl
import struct
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from lab.node import TIMEOUT, Event, Job, Node, built, node, output
from lab.stream_programs import READER, WRITER
from streamflow_io.runtime.conversing import Certificate

CERTIFICATE = Certificate.make()
REQUEST, DATA, COMMITTED, FAILED, KEEPALIVE = range(1, 6)
#: Records of TLS: an alert, fatal, that there is no server of this name; and the type of those of the handshake.
UNRECOGNIZED_NAME = b"\x15\x03\x03\0\x02\x02\x70"
HANDSHAKE = 22
#: How long nothing has to come until it is believed that nothing will.
SILENCE = 0.3


class Pair:
    """A node with producers, which listens, and one with consumers; ``tls``: of those, whether they speak it."""

    def __init__(self, one: Node, two: Node, tls: bool = False) -> None:
        self.one = one
        self.two = two
        self.tls = tls

    def path(self, name: str = "p") -> Path:
        """Returns the file that the producer of that name writes."""
        return self.one.base / "out" / name

    def produce(self, script: str, name: str = "p", **rule: object) -> Job:
        """Starts a producer that runs ``script`` in sh."""
        return self.one.shell(name, script, outputs=[output(self.one.base / "out", name, **rule)])  # type: ignore[arg-type]

    def write(
        self, pieces: int = 20, size: int = 10_000, pause: float = 0.005, code: int = 0, name: str = "p", **rule: object
    ) -> Job:
        """Starts a producer that writes pieces of random bytes."""
        arguments = [str(value) for value in (self.path(name), pieces, size, pause, code)]
        outputs = [output(self.one.base / "out", name, **rule)]  # type: ignore[arg-type]
        return self.one.python(name, WRITER, *arguments, outputs=outputs)

    def read(
        self,
        name: str = "c",
        producer: str = "p",
        size: int = 65536,
        pause: float = 0.0,
        fifo: bool = True,
        address: str | None = None,
    ) -> Job:
        """Starts a consumer on the other node that writes the digest of the bytes that it has read."""
        target = self.two.base / "in" / f"{name}-{producer}" if fifo else None
        stream = self.link(producer, target, address)
        arguments = [str(target or "-"), str(size), str(pause), str(self.two.base / f"{name}.digest")]
        return self.two.python(name, READER, *arguments, inputs=[stream])

    def move(self, pieces: int, size: int, pause: float, reader_size: int, reader_pause: float) -> list[Job]:
        """Lets a FIFO and a standard input read what a producer writes; returns the consumers, which have read it."""
        producer = self.write(pieces, size, pause)
        consumers = [self.read(f"c{fifo}", size=reader_size, pause=reader_pause, fifo=fifo) for fifo in (True, False)]
        assert [job.wait() for job in (producer, *consumers)] == [0, 0, 0]
        for job in consumers:
            assert self.has_read_all(job.name)
            assert job.named("stream")[0]["bytes"] == pieces * size
        return consumers

    def read_while_written(self) -> None:
        """Lets a consumer read a first line, before which the producer does not write the last one."""
        seen, fifo = self.one.base / "seen", self.two.base / "in" / "f"
        path = self.path()
        self.produce(f"echo first > {path}; while [ ! -e {seen} ]; do sleep 0.01; done; echo last >> {path}")
        script = f"exec < {fifo}; read line && echo $line > {seen}; cat > {self.two.base}/rest"
        assert self.two.shell("c", script, inputs=[self.link("p", fifo)]).wait() == 0
        assert seen.read_text() == "first\n"
        assert (self.two.base / "rest").read_text() == "last\n"

    def link(self, producer: str, target: Path | None, address: str | None = None) -> Event:
        """Returns the input of a job on the second node."""
        stream = self.two.link(producer, self.path(producer), target, address or self.one.address)
        if self.tls:
            stream["link"]["tls"] = True  # type: ignore[index]
        return stream

    def has_read_all(self, name: str = "c") -> bool:
        """Returns whether a consumer has read exactly what the producer has written."""
        data = self.path().read_bytes()
        return (self.two.base / f"{name}.digest").read_text() == f"{len(data)} {hashlib.sha256(data).hexdigest()}"

    def has_seen_an_end(self) -> bool:
        """Returns whether the consumer has seen an end of file."""
        return (self.two.base / "c.digest").exists()


@contextmanager
def pair(base: Path, tls: bool = False, certificate: Certificate = CERTIFICATE) -> Iterator[Pair]:
    """Runs two nodes with the same certificate; ``tls``: they encrypt. In the end everything has to be gone."""
    option = ["--tls"] if tls else []
    for name in ("one/out", "two/in"):
        (base / name).mkdir(parents=True)
    with node(base / "one", "--listen", "127.0.0.1", *option) as one, node(base / "two") as two:
        for running in (one, two):
            running.set_certificate(certificate)
        yield Pair(one, two, tls)


def assert_failed(job: Job, reason: str, word: str) -> None:
    """The job was ended because of its input, and says why."""
    assert job.wait() == 75
    found = job.exit()
    assert (found["success"], found["reason"], found["input"]) == (False, reason, "in")
    assert re.search(word, str(found["message"])), found["message"]


def reach(address: str, certificate: Path) -> subprocess.CompletedProcess[str]:
    """Runs ``sfio-node reach``."""
    command = [str(built()), "reach", address, "--certificate", str(certificate)]
    return subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)


def parsed(address: str) -> tuple[str, int]:
    """Returns IP and port."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def frame(kind: int, payload: bytes = b"", length: int | None = None) -> bytes:
    """Returns a record, which may lie about its length."""
    return struct.pack(">BI", kind, len(payload) if length is None else length) + payload


def name_of_run(certificate: Certificate) -> str:
    """Returns what a reader calls the ``serve`` of the run of this certificate."""
    der = ssl.PEM_cert_to_DER_cert(certificate.certificate.decode())
    return "sfio-" + hashlib.sha256(b"sfio link 8" + der).digest()[:24].hex()


@cache
def context(shown: Certificate | None = None) -> ssl.SSLContext:
    """Returns the TLS context of readers that were written elsewhere, and that take any certificate."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.check_hostname = False
    made.verify_mode = ssl.CERT_NONE
    if shown is not None:
        with tempfile.NamedTemporaryFile() as file:
            file.write(shown.certificate + shown.key)
            file.flush()
            made.load_cert_chain(file.name)
    return made


class Handshake:
    """The reader's side of a handshake, by its records."""

    def __init__(self, name: str | None, shown: Certificate | None) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context(shown).wrap_bio(self._incoming, self._outgoing, server_hostname=name)

    def take(self, record: bytes = b"") -> tuple[bytes, bool]:
        """Takes a record of the sender; returns what is to be said now, and whether that is the end."""
        self._incoming.write(record)
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return self._outgoing.read(), False
        return self._outgoing.read(), True


def hello(certificate: Certificate = CERTIFICATE) -> bytes:
    """Returns the first words of a reader."""
    return Handshake(name_of_run(certificate), certificate).take()[0]


def request(path: Path, job: str = "p", port: str = "out", offset: int = 0, stream: str = "5f") -> bytes:
    """Returns what asks for a stream."""
    wanted = {"stream": stream, "job": job, "port": port, "path": str(path)}
    return frame(REQUEST, json.dumps({"wanted": wanted, "offset": offset}).encode())


class Peer:
    """A reader of a link that was written elsewhere, and speaks plain after the handshake."""

    def __init__(self, address: str) -> None:
        self.socket = socket.create_connection(parsed(address), TIMEOUT)
        # Otherwise the kernel delays a record after another one by 40 ms.
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.handshake = Handshake(name_of_run(CERTIFICATE), CERTIFICATE)

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        """Sends bytes."""
        self.socket.sendall(data)

    def receive(self) -> tuple[int, bytes]:
        """Receives one record.

        :raises EOFError: when the connection is closed.
        """
        kind, length = struct.unpack(">BI", self._exactly(5))
        return kind, self._exactly(length)

    def _exactly(self, length: int) -> bytes:
        data = b""
        while len(data) < length:
            try:
                more = self.socket.recv(length - len(data))
            except ConnectionResetError:
                more = b""
            if not more:
                raise EOFError
            data += more
        return data

    def is_closed(self, timeout: float = TIMEOUT) -> bool:
        """Returns whether the other side closes the connection without a word."""
        self.socket.settimeout(timeout)
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True
        except TimeoutError:
            return False

    def is_silent(self) -> bool:
        """Returns whether the other side says nothing, and keeps the connection."""
        self.socket.settimeout(SILENCE)
        try:
            return not self.socket.recv(1)
        except TimeoutError:
            self.socket.settimeout(TIMEOUT)
            return True

    def receive_tls(self) -> bytes:
        """Receives one record of TLS.

        :raises EOFError: when the connection is closed.
        """
        header = self._exactly(5)
        return header + self._exactly(int.from_bytes(header[3:], "big"))

    def knock(self) -> None:
        """Says the first words of a reader, and is answered."""
        self.send(self.handshake.take()[0])
        record = self.receive_tls()
        assert record[0] == HANDSHAKE
        self._answer = record

    def greet(self) -> None:
        """Shows that it is of the run, and has the other side show it."""
        self.knock()
        words, done = self.handshake.take(self._answer)
        while not done:
            words, done = self.handshake.take(self.receive_tls())
        self.send(words)

    def rest(self) -> bytes:
        """Returns all that comes until the connection is closed."""
        data = b""
        try:
            while more := self.socket.recv(1 << 16):
                data += more
        except ConnectionResetError:
            pass
        return data

    def ask(self, path: Path, job: str = "p", port: str = "out", offset: int = 0, stream: str = "5f") -> None:
        """Asks for a stream."""
        self.send(request(path, job, port, offset, stream))

    def collect(self) -> tuple[bytes, int, bytes]:
        """Returns all data, and the last record."""
        data = b""
        while True:
            kind, payload = self.receive()
            if kind not in (DATA, KEEPALIVE):
                return data, kind, payload
            data += payload


class Proxy:
    """Passes connections on to ``address``, and cuts the first ones after as many bytes from there as ``cuts`` says.

    ``plain``: bytes of the handshake do not count.
    """

    def __init__(self, address: str, cuts: Sequence[int] = (), port: int = 0, plain: bool = False) -> None:
        self._plain = plain
        self._address = parsed(address)
        self._cuts = list(cuts)
        self._listener = socket.create_server(("127.0.0.1", port))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        #: What the reader has said, and what it was told, by connection.
        self.said: list[bytes] = []
        self.told: list[bytearray] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                inner, _ = self._listener.accept()
            except OSError:
                return
            cut = self._cuts.pop(0) if self._cuts else None
            outer = socket.create_connection(self._address)
            self.said.append(b"")
            self.told.append(bytearray())
            number = len(self.said) - 1
            for work in ((self._listen, inner, outer, number), (self._pass, outer, inner, number, cut)):
                threading.Thread(target=work[0], args=work[1:], daemon=True).start()

    def _listen(self, source: socket.socket, target: socket.socket, number: int) -> None:
        while data := _some(source):
            self.said[number] += data
            try:
                target.sendall(data)
            except OSError:
                break
        _end(source, target)

    def _pass(self, source: socket.socket, target: socket.socket, number: int, cut: int | None) -> None:
        passed = 0
        while data := _some(source):
            told = self.told[number]
            told += data
            end = None if cut is None else cut + (handshake_size(told) if self._plain else 0)
            data = data if end is None else data[: max(0, end - passed)]
            passed += len(data)
            try:
                target.sendall(data)
            except OSError:
                break
            if passed == end:
                break
        _end(source, target)

    def close(self) -> None:
        """Accepts no connection any more."""
        self._listener.close()


def handshake_size(told: bytes | bytearray) -> int:
    """Returns how many of the bytes of a plain sender are the handshake."""
    at = 0
    while at < len(told) and told[at] >= 20:
        at = at + 5 + int.from_bytes(told[at + 3 : at + 5], "big") if at + 5 <= len(told) else len(told)
    return at


def _some(source: socket.socket) -> bytes:
    try:
        return source.recv(1 << 16)
    except OSError:
        return b""


def _end(*sockets: socket.socket) -> None:
    for each in sockets:
        try:
            each.shutdown(socket.SHUT_RDWR)
        except OSError:
            continue
        each.close()
