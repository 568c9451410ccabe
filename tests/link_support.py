"""Two nodes with a link, a proxy that cuts connections, and a peer that says what it likes."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from streamflow_io.runtime.certificate import Certificate
from tests.node_support import TIMEOUT, Event, Job, Node, built, node, output, wait_for
from tests.stream_programs import READER, WRITER

KEY = "00112233445566778899aabbccddeeff" * 2
MAGIC = b"sfiolnk\x04"
HELLO, CHALLENGE, PROOF, WELCOME, REFUSED, REQUEST, DATA, COMMITTED, FAILED, KEEPALIVE = range(1, 11)
CREDIT = 13
#: Bytes of the first words of a reader.
HELLO_SIZE = 77
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
        """Starts a consumer on the other node that writes the digest of what it has read."""
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

    def hold_the_sender(self) -> None:
        """Lets a consumer have a limit, that ends: until then no more is sent than it allows."""
        assert self.write(20, 1_000_000, 0.0).wait() == 0
        proxy, go = Proxy(self.one.address), self.two.base / "go"
        stream = {**self.link("p", None, proxy.address), "limit": {"rate": 1_000_000}}
        script = f"while [ ! -e {go} ]; do sleep 0.01; done; exec cat > {self.two.base}/read"
        consumer = self.two.shell("c", script, inputs=[stream])
        wait_for(lambda: proxy.told and len(proxy.told[0]) > 300_000, "data")
        time.sleep(1)
        # Half a second ahead of what two pipes hold.
        assert len(proxy.told[0]) < 4_000_000
        consumer.limit(inputs={"in": None})
        go.touch()
        assert consumer.wait() == 0
        assert len(proxy.told[0]) > 20_000_000
        assert (self.two.base / "read").read_bytes() == self.path().read_bytes()
        proxy.close()

    def link(self, producer: str, target: Path | None, address: str | None = None) -> Event:
        """Returns the input of a job on the second node."""
        stream = self.two.link(producer, self.path(producer), target, address or self.one.address)
        if self.tls:
            stream["link"]["tls"] = True  # type: ignore[index]
        return stream

    def has_read_all(self, name: str = "c", producer: str = "p") -> bool:
        """Returns whether a consumer has read exactly what the producer has written."""
        data = self.path(producer).read_bytes()
        return (self.two.base / f"{name}.digest").read_text() == f"{len(data)} {hashlib.sha256(data).hexdigest()}"

    def has_seen_an_end(self, name: str = "c") -> bool:
        """Returns whether a consumer has seen an end of file."""
        return (self.two.base / f"{name}.digest").exists()


@contextmanager
def pair(base: Path, certificate: Certificate | None = None) -> Iterator[Pair]:
    """Runs two nodes that know the same key, and stream inside TLS or plain; in the end everything has to be gone."""
    option = [] if certificate is None else ["--tls"]
    for name in ("one/out", "two/in"):
        (base / name).mkdir(parents=True)
    with node(base / "one", "--listen", "127.0.0.1", *option) as one, node(base / "two") as two:
        for running in (one, two):
            if certificate is not None:
                set_certificate(running.run, certificate)
            running.set_key(KEY)
        yield Pair(one, two, certificate is not None)


def set_certificate(run: Path, certificate: Certificate) -> None:
    """Writes the certificate of the run beside its key."""
    (run / "certificate.pem").write_bytes(certificate.certificate)
    (run / "certificate.key").write_bytes(certificate.key)


def assert_failed(job: Job, reason: str, word: str) -> None:
    """The job was ended because of its input, and says why."""
    assert job.wait() == 75
    found = job.exit()
    assert (found["success"], found["reason"], found["input"]) == (False, reason, "in")
    assert re.search(word, str(found["message"])), found["message"]


def reach(address: str, key: Path, tls: bool = False) -> subprocess.CompletedProcess[str]:
    """Runs ``sfio-node reach``."""
    command = [str(built()), "reach", address, "--key", str(key), *(["--tls"] if tls else [])]
    return subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)


def parsed(address: str) -> tuple[str, int]:
    """Returns IP and port."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def frame(kind: int, payload: bytes = b"", length: int | None = None) -> bytes:
    """Returns a record, which may lie about its length."""
    return struct.pack(">BI", kind, len(payload) if length is None else length) + payload


def proof(key: str, purpose: bytes, nonces: bytes) -> bytes:
    """Returns what shows that a side knows the key."""
    return hmac.new(bytes.fromhex(key), b"sfio link: " + purpose + nonces, "sha256").digest()


def hello(key: str = KEY, nonce: bytes | None = None) -> bytes:
    """Returns the first words of a reader."""
    nonce = nonce or os.urandom(32)
    return frame(HELLO, MAGIC + nonce + proof(key, b"hello", nonce))


class Peer:
    """A reader of a link that was written by somebody else."""

    def __init__(self, address: str, key: str = KEY, timeout: float = TIMEOUT) -> None:
        self.socket = socket.create_connection(parsed(address), timeout)
        self.key = key

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

    def knock(self) -> bytes:
        """Says the first words of a reader, and returns the nonces of both."""
        ours = os.urandom(32)
        self.send(hello(self.key, ours))
        kind, theirs = self.receive()
        assert kind == CHALLENGE
        assert len(theirs) == 32
        return ours + theirs

    def greet(self) -> None:
        """Shows that it knows the key, and has the other side show it."""
        nonces = self.knock()
        self.send(frame(PROOF, proof(self.key, b"reader", nonces)))
        assert self.receive() == (WELCOME, proof(self.key, b"sender", nonces))

    def ask(self, path: Path, job: str = "p", port: str = "out", offset: int = 0, stream: str = "5f") -> None:
        """Asks for a stream, and all of it."""
        wanted = {"stream": stream, "job": job, "port": port, "path": str(path), "offset": offset, "verify": "full"}
        self.send(frame(REQUEST, json.dumps(wanted).encode()) + frame(CREDIT, struct.pack(">QQ", 2**64 - 1, 0)))

    def collect(self) -> tuple[bytes, int, bytes]:
        """Returns all data, and the last record."""
        data = b""
        while True:
            kind, payload = self.receive()
            if kind not in (DATA, KEEPALIVE):
                return data, kind, payload
            data += payload


class Proxy:
    """Passes connections on to ``address``, and cuts the first ones after so many bytes from there as ``cuts`` says."""

    def __init__(self, address: str, cuts: Sequence[int] = (), port: int = 0) -> None:
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
            target.sendall(data)
        _end(source, target)

    def _pass(self, source: socket.socket, target: socket.socket, number: int, cut: int | None) -> None:
        while data := _some(source):
            self.told[number] += data
            if cut is not None:
                data = data[:cut]
                cut -= len(data)
            try:
                target.sendall(data)
            except OSError:
                break
            if cut == 0:
                break
        _end(source, target)

    def close(self) -> None:
        """Lets nobody in any more."""
        self._listener.close()


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
