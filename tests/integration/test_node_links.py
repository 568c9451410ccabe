"""Byte streams between nodes: every byte once, the end only with the commit, whatever the network does."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import socket
import struct
import subprocess
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from lab.node import TIMEOUT, built, node, wait_for
from lab.node_links import (
    CERTIFICATE,
    COMMITTED,
    DATA,
    FAILED,
    HANDSHAKE,
    REQUEST,
    UNRECOGNIZED_NAME,
    Handshake,
    Pair,
    Peer,
    Proxy,
    assert_failed,
    frame,
    hello,
    name_of_run,
    pair,
    parsed,
    reach,
)
from lab.stream_programs import SPEEDS
from streamflow_io.runtime.conversing import Certificate

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to see the files of the node runtime")

OTHER = Certificate.make()


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Pair]:
    with pair(tmp_path) as running:
        yield running


@SPEEDS
def test_speeds(nodes: Pair, pieces: int, size: int, pause: float, reader_size: int, reader_pause: float) -> None:
    for job in nodes.move(pieces, size, pause, reader_size, reader_pause):
        assert job.exit()["usage"]["streamed"] == pieces * size  # type: ignore[index]


def test_a_large_file(nodes: Pair) -> None:
    assert nodes.write(50, 1_000_000, 0.0).wait() == 0
    consumer = nodes.read(size=1 << 20)
    assert consumer.wait() == 0
    assert nodes.has_read_all()
    # What the link has moved is not among what the command has read and written.
    usage = consumer.exit()["usage"]
    assert isinstance(usage, dict)
    assert usage["streamed"] == 50_000_000
    assert 50_000_000 <= usage["rchar"] < 50_500_000
    assert usage["wchar"] < 1_000_000


def test_bytes_arrive_while_the_producer_runs(nodes: Pair) -> None:
    nodes.read_while_written()


def test_two_inputs_one_from_here(nodes: Pair) -> None:
    nodes.write(20, 100_000, 0.005)
    here = nodes.two.base / "here"
    local = nodes.two.shell(
        "l",
        f"seq 100000 > {here}",
        outputs=[{"port": "out", "root": str(nodes.two.base), "kind": "file", "globs": ["here"], "rules": []}],
    )
    first, second = (nodes.two.base / "in" / name for name in "ab")
    inputs = [{**nodes.link("p", first), "name": "a"}, {**nodes.two.stream(local, here, second), "name": "b"}]
    job = nodes.two.shell("c", f"cat {first} {second} > {nodes.two.base}/both", inputs=inputs)
    assert job.wait() == 0
    assert (nodes.two.base / "both").read_bytes() == nodes.path().read_bytes() + here.read_bytes()
    assert len(job.named("stream")) == 2


@pytest.mark.parametrize("refers", ["ln -s {0} link", 'echo \'{{"path": "{0}"}}\' > cwl.output.json', "true"])
@pytest.mark.parametrize("read", ["cat {0} > all", "head -c 5 {0} > some", "true"])
def test_an_output_that_refers_to_a_stream(nodes: Pair, refers: str, read: str) -> None:
    """The whole file comes when it is committed, and takes the place of the stream."""
    (work := nodes.two.base / "work").mkdir()
    place, go = nodes.two.base / "in" / "f", nodes.one.base / "go"
    wait = f"while [ ! -e {go} ]; do sleep 0.01; done"
    producer = nodes.produce(f"seq 1000000 > {nodes.path()}; {wait}; echo end >> {nodes.path()}")
    if "cat" in read:
        go.touch()
    script = f"{read.format(place)}; {refers.format(place)}"
    job = nodes.two.shell("c", script, inputs=[nodes.link("p", place)], wrapper=["env", "-C", str(work)])
    if "cat" not in read:
        command = job.command_pid()
        wait_for(lambda: not Path(f"/proc/{command}").exists(), "the end of the command")
        go.touch()
    assert [producer.wait(), job.wait()] == [0, 0], job.exit()
    if refers == "true":
        assert not os.path.lexists(place)
    else:
        assert not place.is_symlink()
        assert place.read_bytes() == nodes.path().read_bytes()


@pytest.mark.parametrize("end", ["exit 3", "kill -9 $$"])
def test_a_failed_producer_is_no_end(nodes: Pair, end: str) -> None:
    consumer = nodes.read()
    nodes.produce(f"head -c 100000 /dev/zero > {nodes.path()}; sleep 0.2; {end}")
    assert_failed(consumer, "producer", "failed before committing")
    assert not nodes.has_seen_an_end()


def test_a_lost_producer_is_no_end(nodes: Pair) -> None:
    producer = nodes.produce(f"echo 1 > {nodes.path()}; sleep 600")
    consumer = nodes.read()
    producer.wait_for("opened")
    time.sleep(0.1)
    producer.process.send_signal(signal.SIGKILL)
    assert_failed(consumer, "producer", "failed before committing")
    assert not nodes.has_seen_an_end()


def test_a_command_that_does_not_read_learns_of_a_failure(nodes: Pair) -> None:
    go = nodes.two.base / "go"
    waiting = f"while [ ! -e {go} ]; do sleep 0.01; done"
    producer = nodes.produce(f"head -c 30000000 /dev/zero > {nodes.path()}; {waiting}; exit 1")
    script = f"head -c 1; sleep 0.2; touch {go}; exec sleep 600"
    consumer = nodes.two.shell("c", script, inputs=[nodes.link("p", None)], stdout=subprocess.DEVNULL)
    assert producer.wait() == 1
    assert_failed(consumer, "producer", "failed before committing")


def test_a_file_that_is_written_again(nodes: Pair) -> None:
    seen = nodes.two.base / "seen"
    script = f"head -c 200000 /dev/zero > {nodes.path()}; while [ ! -e {seen} ]; do sleep 0.01; done; "
    nodes.produce(script + f"printf header | dd of={nodes.path()} conv=notrunc status=none")
    command = f"head -c 200000 > /dev/null; echo > {seen}; cat > {nodes.two.base}/end"
    consumer = nodes.two.shell("c", command + f" && echo > {nodes.two.base}/c.digest", inputs=[nodes.link("p", None)])
    assert_failed(consumer, "rewritten", "written again")
    assert not nodes.has_seen_an_end()


def test_a_connection_that_is_cut_is_resumed(nodes: Pair) -> None:
    # In a header, in small and in large records.
    cuts = [1, 3, 6, 80, 1000, 70_000, 1_500_000, 4_000_001]
    proxy = Proxy(nodes.one.address, cuts, plain=True)
    producer = nodes.write(30, 500_000, 0.002)
    consumer = nodes.read(address=proxy.address)
    assert (producer.wait(), consumer.wait()) == (0, 0)
    assert nodes.has_read_all()
    assert len(proxy.said) == len(cuts) + 1
    proxy.close()


@pytest.mark.parametrize("told", [0, 4, 12])
def test_an_end_that_was_sent_but_not_seen_is_told_again(nodes: Pair, told: int) -> None:
    assert nodes.write(1, 10_000, 0.0).wait() == 0
    # The data, and some bytes of the end.
    proxy = Proxy(nodes.one.address, [5 + 10_000 + told] * 2, plain=True)
    assert nodes.read(address=proxy.address).wait() == 0
    assert nodes.has_read_all()
    assert len(proxy.said) == 2
    proxy.close()


def test_a_rewrite_is_seen_across_connections(nodes: Pair) -> None:
    proxy = Proxy(nodes.one.address, [150_000])
    seen = nodes.one.base / "seen"
    script = f"head -c 200000 /dev/zero > {nodes.path()}; while [ ! -e {seen} ]; do sleep 0.01; done; "
    producer = nodes.produce(script + f"printf header | dd of={nodes.path()} conv=notrunc status=none")
    consumer = nodes.read(address=proxy.address)
    wait_for(lambda: len(proxy.said) == 2, "a second connection")
    seen.touch()
    assert producer.wait() == 0
    assert_failed(consumer, "rewritten", "written again")
    assert not nodes.has_seen_an_end()
    proxy.close()


def test_a_producer_that_listens_later(nodes: Pair) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    consumer = nodes.read(address=f"127.0.0.1:{port}")
    assert nodes.write().wait() == 0
    assert consumer.process.poll() is None
    proxy = Proxy(nodes.one.address, port=port)
    assert consumer.wait() == 0
    assert nodes.has_read_all()
    proxy.close()


def test_nobody_is_admitted_before_there_is_a_certificate(nodes: Pair) -> None:
    assert nodes.write().wait() == 0
    nodes.one.certificate.unlink()
    with Peer(nodes.one.address) as peer:
        peer.send(hello())
        assert peer.is_closed()
    consumer = nodes.read()
    time.sleep(0.1)
    assert consumer.process.poll() is None
    nodes.one.set_certificate(CERTIFICATE)
    assert consumer.wait() == 0
    assert nodes.has_read_all()


def test_the_protocol(nodes: Pair) -> None:
    assert nodes.write(3, 1_000_000, 0.0).wait() == 0
    data = nodes.path().read_bytes()
    with Peer(nodes.one.address) as peer:
        peer.greet()
        peer.ask(nodes.path())
        assert peer.collect() == (data, COMMITTED, struct.pack(">Q", len(data)))
    # The file was sent as a whole, and may be sent again from any place.
    with Peer(nodes.one.address) as peer:
        peer.greet()
        peer.ask(nodes.path(), stream="2")
        assert peer.receive()[0] == DATA
    with Peer(nodes.one.address) as peer:
        peer.greet()
        peer.ask(nodes.path(), stream="2", offset=12_345)
        assert peer.collect() == (data[12_345:], COMMITTED, struct.pack(">Q", len(data)))


def test_bytes_that_were_never_sent_are_not_skipped(nodes: Pair) -> None:
    assert nodes.write().wait() == 0
    with Peer(nodes.one.address) as peer:
        peer.greet()
        peer.ask(nodes.path(), offset=1)
        data, kind, payload = peer.collect()
        assert (data, kind, json.loads(payload)["reason"]) == (b"", FAILED, "producer")


def test_a_new_connection_replaces_the_former_one(nodes: Pair) -> None:
    producer = nodes.produce(f"echo 1 > {nodes.path()}; while [ ! -e {nodes.one.base}/go ]; do sleep 0.01; done")
    with Peer(nodes.one.address) as former, Peer(nodes.one.address) as peer:
        former.greet()
        former.ask(nodes.path())
        assert former.receive() == (DATA, b"1\n")
        peer.greet()
        peer.ask(nodes.path(), offset=1)
        assert peer.receive() == (DATA, b"\n")
        assert former.is_closed()
        (nodes.one.base / "go").touch()
        assert producer.wait() == 0
        assert peer.receive() == (COMMITTED, struct.pack(">Q", 2))


def test_as_many_readers_as_files_can_be_open(nodes: Pair) -> None:
    """A reader that is refused for a minute fails. Therefore only the limit of open files limits the readers."""
    count = 1050
    before, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most < 12 * count:
        pytest.skip("few files can be open here")
    assert nodes.write(1, 1, 0.0).wait() == 0
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    try:
        with ExitStack() as stack:
            for number in range(count):
                peer = stack.enter_context(Peer(nodes.one.address))
                peer.greet()
                peer.ask(nodes.path(), stream=str(number))
                assert peer.receive()[0] == DATA, number
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before, most))


def test_only_what_the_producer_has_named_is_sent(nodes: Pair) -> None:
    secret = nodes.one.base / "out" / "secret"
    secret.write_text("secret")
    (nodes.one.base / "elsewhere").mkdir()
    (nodes.one.base / "elsewhere" / "p").write_text("secret")
    assert nodes.write().wait() == 0
    refused = [
        (secret, "p", "out"),
        (nodes.one.base / "elsewhere" / "p", "p", "out"),
        (nodes.path(), "p", "other"),
        (nodes.one.run / "certificate.key", "p", "out"),
    ]
    for path, job, port in refused:
        with Peer(nodes.one.address) as peer:
            peer.greet()
            peer.ask(path, job, port)
            data, kind, payload = peer.collect()
            assert (data, kind) == (b"", FAILED)
            assert "ended without committing" in json.loads(payload)["message"]
    with Peer(nodes.one.address) as peer:
        peer.greet()
        peer.ask(nodes.path(), "nobody")
        assert peer.is_silent()
    for job in ("..", "../jobs/p", "/", "p/../p"):
        with Peer(nodes.one.address) as peer:
            peer.greet()
            peer.ask(nodes.path(), job)
            assert peer.is_closed()


def test_what_does_not_speak_the_protocol_hears_nothing(nodes: Pair) -> None:
    for words in [
        b"GET / HTTP/1.1\r\nHost: here\r\n\r\n",
        os.urandom(5).replace(b"\x16", b"?"),
        b"\x16\x03\x01\x20\x00\x01\x00\x01\xfc\x03\x03",
        b"\x16\x03\x01\x00\x00",
        b"\x16\x03\x01\x00\x05\x02",
        b"\x16\x03\x01\x00\x05\x01\x00\x00\x00\x00",
        hello()[:100] + b"\xff" * (len(hello()) - 100),
        Handshake(None, CERTIFICATE).take()[0],
        Handshake("here.example", CERTIFICATE).take()[0],
        frame(DATA, b"x"),
        frame(REQUEST, b"{}"),
    ]:
        with Peer(nodes.one.address) as peer:
            peer.send(words)
            assert peer.is_closed(), words
    for words in [frame(REQUEST, b"{}"), frame(REQUEST, length=0xFFFFFFFF), hello()]:
        with Peer(nodes.one.address) as peer:
            peer.knock()
            peer.send(words)
            # The rest of the handshake, an alert perhaps, and the end.
            assert len(peer.rest()) < 2_000, words
    for words in [frame(REQUEST, length=1 << 24), frame(REQUEST, b"{]"), frame(REQUEST, b"\xff" * 60_000), hello()]:
        with Peer(nodes.one.address) as peer:
            peer.greet()
            peer.send(words)
            assert peer.is_closed(), words
    assert nodes.write().wait() == 0
    assert nodes.read().wait() == 0
    assert nodes.has_read_all()


def test_another_run_is_told_of_and_nothing_else(nodes: Pair) -> None:
    with Peer(nodes.one.address) as peer:
        peer.send(hello(OTHER))
        assert peer.rest() == UNRECOGNIZED_NAME


def test_the_name_of_the_run_is_not_enough(nodes: Pair) -> None:
    assert nodes.write().wait() == 0
    for shown in (None, OTHER, Certificate(OTHER.certificate, OTHER.key)):
        with Peer(nodes.one.address) as peer:
            peer.handshake = Handshake(name_of_run(CERTIFICATE), shown)
            peer.greet()
            with suppress(OSError):
                peer.ask(nodes.path())
            assert len(peer.rest()) < 100


def test_a_replay_is_refused(nodes: Pair) -> None:
    assert nodes.write().wait() == 0
    proxy = Proxy(nodes.one.address)
    assert nodes.read(address=proxy.address).wait() == 0
    said = proxy.said[0]
    assert b'"path"' in said
    with Peer(nodes.one.address) as peer:
        peer.send(said)
        # The first part of a handshake, and the end.
        assert len(peer.rest()) < 2_000
    proxy.close()


def test_strangers_are_few_and_displace_no_reader(nodes: Pair) -> None:
    with ExitStack() as stack:

        def arrive(words: bytes) -> Peer:
            peer = stack.enter_context(Peer(nodes.one.address))
            peer.send(words)
            return peer

        known = [arrive(hello()) for _ in range(70)]
        assert all(peer.receive_tls()[0] == HANDSHAKE for peer in known)
        slow = hello()
        # The kernel has those to itself that say nothing.
        crowd = [arrive(slow[:1]) for _ in range(257)]
        assert crowd[0].is_closed(2)
        assert crowd[-1].is_silent()
        crowd[-1].send(slow[1:])
        assert crowd[-1].receive_tls()[0] == HANDSHAKE
        assert reach(nodes.one.address, nodes.two.certificate).returncode == 0


def test_a_reader_is_heard_however_many_strangers_came_before(nodes: Pair) -> None:
    for _ in range(300):
        with Peer(nodes.one.address) as peer:
            peer.send(b"?")
    with Peer(nodes.one.address) as peer:
        peer.greet()


class Flood:
    """Connections that say ``words``, a hundred at once; the oldest leaves, and comes again, as fast as can be."""

    def __init__(self, address: str, words: bytes, origin: str) -> None:
        self.count = 0
        self._address = parsed(address)
        self._words = words
        self._origin = origin
        self._ends = threading.Event()
        self._peers = deque(self._connect() for _ in range(100))
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _connect(self) -> socket.socket:
        peer = socket.create_connection(self._address, TIMEOUT, (self._origin, 0))
        # The peer leaves without a word: no port is kept from others.
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        with suppress(OSError):
            peer.sendall(self._words)
        self.count += 1
        return peer

    def _run(self) -> None:
        while not self._ends.is_set():
            self._peers.popleft().close()
            self._peers.append(self._connect())

    def __enter__(self) -> Flood:
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()
        for peer in self._peers:
            peer.close()


HEARD = hello()


@pytest.mark.parametrize(
    ("words", "origin"),
    [
        (b"", "127.0.0.1"),
        (hello(OTHER), "127.0.0.1"),
        (HEARD, "127.0.0.1"),
        (HEARD[:1], "127.0.0.2"),
    ],
    ids=["silent", "another run", "heard", "slow, another address"],
)
def test_a_flood_keeps_no_reader_out(nodes: Pair, words: bytes, origin: str) -> None:
    """A reader without success at the first attempt gets the bytes with one of the next; here nearly all succeed."""
    producer = nodes.write(20, 1000, 0.02)
    proxy = Proxy(nodes.one.address)
    with Flood(nodes.one.address, words, origin) as flood:
        readers = [nodes.read(f"c{number}", address=proxy.address) for number in range(3)]
        assert [job.wait() for job in readers] == [0, 0, 0]
        assert flood.count > 200
    assert producer.wait() == 0
    assert all(nodes.has_read_all(job.name) for job in readers)
    assert len(proxy.said) <= 2 * len(readers)
    proxy.close()


def test_the_certificate_is_nowhere_to_be_seen(nodes: Pair) -> None:
    nodes.write(20, 1000, 0.02)
    jobs = [nodes.read("c1"), nodes.read("c2")]
    jobs[0].wait_for("started")
    seen = b""
    for process in Path("/proc").iterdir():
        for name in ("cmdline", "environ"):
            try:
                seen += (process / name).read_bytes()
            except OSError:
                continue
    assert b"--listen" in seen
    assert [job.wait() for job in jobs] == [0, 0]
    nodes.two.set_certificate(OTHER)
    assert nodes.read("c3").wait() == 75
    told = [str(event) for running in (nodes.one, nodes.two) for event in running.printed]
    told += [(job.directory / "events.jsonl").read_text() for job in nodes.one.jobs + nodes.two.jobs]
    for certificate in (CERTIFICATE, OTHER):
        for line in certificate.key.splitlines()[1:-1] + certificate.certificate.splitlines()[1:-1]:
            assert line not in seen
            assert not [one for one in told if line.decode() in one]


def test_reach(nodes: Pair) -> None:
    assert reach(nodes.one.address, nodes.two.certificate).returncode == 0
    nodes.two.set_certificate(OTHER)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        nobody = f"127.0.0.1:{taken.getsockname()[1]}"
    for address, certificate, word in [
        (nodes.one.address, nodes.two.certificate, "has another certificate than that of the run"),
        (nodes.one.address, nodes.two.run / "none.pem", "/none.pem: .*No such file"),
        (nobody, nodes.one.certificate, "Connection refused"),
        ("host:1", nodes.one.certificate, "has to be IP:PORT"),
    ]:
        result = reach(address, certificate)
        assert (result.returncode, result.stdout) == (1, "")
        assert re.fullmatch(f"sfio-node: {re.escape(address)}: .*{word}.*\n", result.stderr), result.stderr


@pytest.mark.parametrize(
    ("arguments", "connection", "field", "value"),
    [
        (["127.0.0.1"], None, "address", r"127\.0\.0\.1:\d+"),
        ([], "127.0.0.2 5000 127.0.0.3 22", "address", r"127\.0\.0\.3:\d+"),
        (["::1"], None, "address", r"\[::1\]:\d+"),
        ([], None, "message", "SSH_CONNECTION names no address"),
        (["host"], None, "message", "host is no IP address"),
        (["192.0.2.1"], None, "message", "cannot listen at 192.0.2.1: .*([Aa]ssign|available)"),
    ],
    ids=["given", "of SSH", "IPv6", "none", "a name", "not ours"],
)
def test_where_it_listens(tmp_path: Path, arguments: list[str], connection: str | None, field: str, value: str) -> None:
    if arguments == ["::1"] and not Path("/proc/net/if_inet6").exists():
        pytest.skip("no IPv6 here")
    environment = {key: text for key, text in os.environ.items() if key != "SSH_CONNECTION"}
    result = subprocess.run(
        [built(), "serve", "--directory", tmp_path / "run", "--listen", *arguments],
        env=environment | ({"SSH_CONNECTION": connection} if connection else {}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=20,
        check=True,
    )
    ready = json.loads(result.stdout)
    assert ready.pop("event") == "ready"
    assert set(ready) == {field, "uid", "pid"}
    assert re.search(value, ready[field])


@needs_root
def test_without_the_option_nobody_listens(tmp_path: Path) -> None:
    with node(tmp_path) as running:
        assert running.address == ""
        sockets = [os.readlink(entry) for entry in Path(f"/proc/{running.server.pid}/fd").iterdir()]
        inodes = {name[8:-1] for name in sockets if name.startswith("socket:")}
        tables = [Path(f"/proc/net/{name}") for name in ("tcp", "tcp6")]
        listening = [
            line.split()[9] for table in tables if table.exists() for line in table.read_text().splitlines()[1:]
        ]
        assert not inodes & set(listening)
