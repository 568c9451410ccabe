"""Byte streams between nodes inside TLS: as the plain ones, and no one on the way can read or change them."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from lab import node_links
from lab.node import wait_for
from lab.node_links import (
    CERTIFICATE,
    DATA,
    Pair,
    Peer,
    Proxy,
    assert_failed,
    context,
    name_of_run,
    pair,
    parsed,
    request,
)
from streamflow_io.runtime.conversing import Certificate


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Pair]:
    with pair(tmp_path, tls=True) as running:
        yield running


def reach(address: str, certificate: Path) -> tuple[int, str]:
    result = node_links.reach(address, certificate)
    return result.returncode, result.stderr


def test_a_connection_that_is_cut_is_taken_up_where_it_was(nodes: Pair) -> None:
    # In the handshake, in the greeting, in records.
    cuts = [100, 1_000, 3_000, 70_000, 70_001, 1_000_000, 5_000_000]
    proxy = Proxy(nodes.one.address, cuts)
    nodes.write(30, 1_000_000, 0.0)
    consumer = nodes.read(address=proxy.address)
    assert consumer.wait() == 0
    assert nodes.has_read_all()
    assert len(proxy.said) == len(cuts) + 1
    proxy.close()


def test_nothing_can_be_read_on_the_way(nodes: Pair) -> None:
    word = b"a text that everybody would know again"
    nodes.produce(f"for i in 1 2 3 4 5 6 7 8 9; do echo {word.decode()} >> {nodes.path()}; sleep 0.02; done")
    proxy = Proxy(nodes.one.address)
    fifo = nodes.two.base / "in" / "f"
    link = nodes.link("p", fifo, proxy.address)
    assert nodes.two.shell("c", f"cat {fifo} > {nodes.two.base}/read", inputs=[link]).wait() == 0
    assert (nodes.two.base / "read").read_bytes() == (word + b"\n") * 9
    (said,), (told,) = proxy.said, proxy.told
    assert len(told) > 9 * len(word)
    # By the name of the run readers are known.
    assert name_of_run(CERTIFICATE).encode() in said
    for seen in (word, word[:8], str(nodes.path()).encode(), b'"offset"', b"streamflow-io"):
        assert seen not in said
        assert seen not in told
    proxy.close()


def test_what_is_changed_on_the_way_is_noticed(nodes: Pair) -> None:
    """A byte that is changed breaks the connection; the next one brings what is right."""
    nodes.write(10, 100_000, 0.0)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(10)
        consumer = nodes.read(address=f"127.0.0.1:{listener.getsockname()[1]}")
        proxy = Proxy(nodes.one.address)
        inner, _ = listener.accept()
        with inner, socket.create_connection(parsed(proxy.address)) as outer:
            _relay(inner, outer, 200_000)
        inner, _ = listener.accept()
        with inner, socket.create_connection(parsed(proxy.address)) as outer:
            _relay(inner, outer, None)
        assert consumer.wait() == 0
    assert nodes.has_read_all()
    proxy.close()


def _relay(reader: socket.socket, sender: socket.socket, flip: int | None) -> None:
    """Passes on what both say until one is gone; changes the byte of the sender with this number."""
    passed = 0
    for each in (reader, sender):
        each.settimeout(0.01)
    while True:
        for source, target in ((reader, sender), (sender, reader)):
            try:
                data = bytearray(source.recv(1 << 16))
                if not data:
                    return
                if source is sender:
                    if flip is not None and passed <= flip < passed + len(data):
                        data[flip - passed] ^= 1
                    passed += len(data)
                target.settimeout(10)
                target.sendall(data)
                target.settimeout(0.01)
            except TimeoutError:
                continue
            except OSError:
                return


def test_another_certificate_is_refused(nodes: Pair) -> None:
    assert nodes.write().wait() == 0
    assert reach(nodes.one.address, nodes.two.certificate) == (0, "")
    nodes.two.set_certificate(Certificate.make())
    begun = time.monotonic()
    assert_failed(nodes.read(), "producer", "it has another certificate than that of the run")
    assert time.monotonic() - begun < 20
    assert not nodes.has_seen_an_end()
    code, message = reach(nodes.one.address, nodes.two.certificate)
    assert (code, "another certificate" in message) == (1, True)


def test_a_certificate_with_another_key_is_of_no_use(nodes: Pair) -> None:
    stolen = Certificate(CERTIFICATE.certificate, Certificate.make().key)
    nodes.two.set_certificate(stolen)
    assert reach(nodes.one.address, nodes.two.certificate)[0] == 1
    nodes.one.set_certificate(stolen)
    nodes.two.set_certificate(CERTIFICATE)
    assert reach(nodes.one.address, nodes.two.certificate)[0] == 1
    nodes.one.set_certificate(CERTIFICATE)
    assert reach(nodes.one.address, nodes.two.certificate) == (0, "")


@pytest.mark.parametrize(
    "certificate", [None, Certificate.make(), CERTIFICATE], ids=["none", "another", "that of the run"]
)
def test_the_sender_takes_one_certificate_too(nodes: Pair, certificate: Certificate | None) -> None:
    assert nodes.write().wait() == 0
    answer = b""
    secure = context(certificate)
    with suppress(OSError), socket.create_connection(parsed(nodes.one.address), 10) as plain:
        reader = secure.wrap_socket(plain, server_hostname=name_of_run(CERTIFICATE))
        assert reader.version() == "TLSv1.3"
        reader.sendall(request(nodes.path()))
        answer = reader.recv(1)
        reader.close()
    assert answer == (bytes([DATA]) if certificate is CERTIFICATE else b"")


def test_an_older_tls_is_refused(nodes: Pair) -> None:
    older = context()
    older.maximum_version = ssl.TLSVersion.TLSv1_2
    with (
        socket.create_connection(parsed(nodes.one.address), 10) as plain,
        pytest.raises((ssl.SSLError, ConnectionError)),
    ):
        older.wrap_socket(plain, server_hostname=name_of_run(CERTIFICATE))


def test_a_plain_reader_gets_nothing_of_a_sender_with_tls(nodes: Pair) -> None:
    assert nodes.write().wait() == 0
    with Peer(nodes.one.address) as reader:
        reader.greet()
        reader.ask(nodes.path())
        # An alert, if anything, and the end.
        assert reader.rest()[:3] in (b"", b"\x17\x03\x03", b"\x15\x03\x03")
    assert nodes.read().wait() == 0
    assert nodes.has_read_all()


def test_a_reader_with_tls_takes_nothing_of_a_plain_sender(tmp_path: Path) -> None:
    with pair(tmp_path) as nodes:
        assert nodes.write().wait() == 0
        proxy = Proxy(nodes.one.address)
        nodes.tls = True
        consumer = nodes.read(address=proxy.address)
        wait_for(lambda: len(proxy.said) > 3, "attempts")
        assert all(said[:2] in (b"\x16\x03", b"") for said in proxy.said)
        consumer.cancel()
        assert consumer.wait() != 0
        assert not nodes.has_seen_an_end()
        proxy.close()
