"""Much data, many files, readers of another speed: sfio-node stays small, and is right."""

from __future__ import annotations

import signal

import pytest

from lab.node import Node, wait_for
from tests.campaign.endurance import Memory, files, stream
from tests.integration.test_node_streams import assert_same, read, write


def test_memory_does_not_grow_with_a_stream(runtime: Node) -> None:
    stream(runtime, 2**28).check()


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "rule"),
    [
        pytest.param("files", {"committed": "on_close"}, marks=pytest.mark.long),
        pytest.param("files", {"committed": "on_termination"}, marks=pytest.mark.long),
        ("directory", {"committed": "on_n_files", "n_files": 10_000}),
    ],
)
def test_memory_of_many_files(runtime: Node, kind: str, rule: dict[str, object]) -> None:
    files(runtime, 10_000, kind, **rule).check()


@pytest.mark.long
def test_memory_of_a_serve_that_lags_behind_and_of_a_consumer_that_comes_late(runtime: Node) -> None:
    """Neither a busy machine nor a driver that does not listen makes it read all that has happened at once.

    The consumer finds the events of ten thousand files before those of its own.
    """
    runtime.server.send_signal(signal.SIGSTOP)
    memory = files(runtime, 10_000, committed="on_close")
    with memory.watching(serve=runtime.server.pid):
        runtime.server.send_signal(signal.SIGCONT)
        wait_for(lambda: runtime.printed[-1]["event"] == "exit", "all events", 60)
    memory.check()

    target = runtime.base / "in" / "last"
    stream = runtime.stream("p", runtime.base / "out" / "tree" / "file009999", target)
    consumer = runtime.shell("c", f"cat {target}; sleep 0.5", inputs=[stream])
    memory = Memory()
    with memory.watching(consumer=consumer.process.pid):
        assert consumer.wait() == 0
    memory.check()


def test_a_reader_a_hundred_times_as_fast(runtime: Node) -> None:
    producer = write(runtime, pieces=200, size=4096, pause=0.01)
    consumer = read(runtime, "c")
    memory = Memory()
    with memory.watching(producer=producer.process.pid, consumer=consumer.process.pid):
        assert (producer.wait(), consumer.wait()) == (0, 0)
    assert_same(runtime, "c")
    memory.check()


def test_a_reader_a_hundred_times_as_slow(runtime: Node) -> None:
    """The reader stalls no job: its unread bytes are on disk."""
    producer = write(runtime, pieces=200, size=16_384, pause=0)
    consumer = read(runtime, "c", size=16_384, pause=0.01)
    memory = Memory()
    with memory.watching(producer=producer.process.pid, consumer=consumer.process.pid):
        assert producer.wait() == 0
        assert consumer.process.poll() is None
        assert consumer.wait() == 0
    assert_same(runtime, "c")
    memory.check()
