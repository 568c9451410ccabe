"""Streams that are not read to their end: what was read is told, so that it can be compared with the final file."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.node import Event, Job, Node, built, output, wait_for
from lab.node_links import Pair, Proxy, assert_failed, pair


def compare(path: Path, part: Event) -> int:
    """Returns what ``sfio-node compare`` says: 0 the same, 1 another."""
    words = [built(), "compare", "--file", path, "--first", json.dumps(part["first"])]
    return subprocess.run(words, check=False).returncode


def part_of(job: Job) -> Event:
    """Returns the part that was told of the only stream of a job."""
    (event,) = job.named("stream")
    part = event["part"]
    assert isinstance(part, dict)
    return part


def lines(path: Path, base: Path) -> str:
    """A producer that writes many lines, waits, and writes the first byte again."""
    wait = f"touch {base}/written; while [ ! -e {base}/go ]; do sleep 0.01; done"
    return f"seq 1 300000 > {path}; {wait}; printf X | dd of={path} conv=notrunc status=none"


@pytest.mark.parametrize("fifo", [True, False], ids=["fifo", "stdin"])
def test_what_was_read_is_told(runtime: Node, fifo: bool) -> None:
    path, target = runtime.base / "out" / "p", runtime.base / "in" / "f"
    producer = runtime.shell("p", lines(path, runtime.base), outputs=[output(runtime.base / "out", "p")])
    wait_for((runtime.base / "written").exists, "the file")
    stream = runtime.stream("p", path, target if fifo else None)
    job = runtime.shell("c", f"head -n 1 {target if fifo else ''} > {runtime.base}/head", inputs=[stream])
    assert job.wait() == 0
    part = part_of(job)
    assert part["path"] == str(path)
    assert 2 <= part["first"]["bytes"] <= 2 << 20
    assert compare(path, part) == 0
    (runtime.base / "go").touch()
    assert producer.wait() == 0
    assert compare(path, part) == 1
    path.unlink()
    assert compare(path, part) == 1


@pytest.mark.parametrize("changed", [True, False])
def test_what_is_final_when_the_reader_ends_is_compared_at_once(runtime: Node, changed: bool) -> None:
    path, base = runtime.base / "out" / "p", runtime.base
    script = lines(path, base) if changed else lines(path, base).rpartition(";")[0]
    producer = runtime.shell("p", script, outputs=[output(base / "out", "p")])
    wait = f"touch {base}/go; while [ ! -e {base}/ended ]; do sleep 0.01; done"
    command = f"exec 3< {base}/in/f; head -c 2 <&3 > {base}/head; {wait}"
    job = runtime.shell("c", command, inputs=[runtime.stream("p", path, base / "in" / "f")])
    assert producer.wait() == 0
    (base / "ended").touch()
    if changed:
        assert_failed(job, "rewritten", "was written again between byte 0 and")
    else:
        assert job.wait() == 0
        assert "part" not in job.named("stream")[0]


@pytest.mark.parametrize("script", ["true", "exec 3< {}; exec 3<&-", "cat {} > /dev/null"])
def test_of_what_was_not_read_or_read_to_the_end_nothing_is_told(runtime: Node, script: str) -> None:
    path = runtime.base / "out" / "p"
    producer = runtime.shell("p", f"echo x > {path}; sleep 0.2", outputs=[output(runtime.base / "out", "p")])
    producer.wait_for("opened")
    fifo = runtime.base / "in" / "f"
    job = runtime.shell("c", script.format(fifo), inputs=[runtime.stream("p", path, fifo)])
    assert (job.wait(), producer.wait()) == (0, 0)
    assert all("part" not in event for event in job.named("stream"))


@pytest.fixture(params=["plain", "tls"])
def nodes(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pair]:
    with pair(tmp_path, request.param == "tls") as running:
        yield running


def read_head(nodes: Pair, address: str) -> Job:
    target = nodes.two.base / "in" / "f"
    return nodes.two.shell("c", f"head -n 1 {target} > /dev/null", inputs=[nodes.link("p", target, address)])


def test_what_was_read_of_another_machine_is_told(nodes: Pair) -> None:
    producer = nodes.produce(lines(nodes.path(), nodes.one.base))
    wait_for((nodes.one.base / "written").exists, "the file")
    job = read_head(nodes, nodes.one.address)
    assert job.wait(8) == 0
    part = part_of(job)
    assert compare(nodes.path(), part) == 0
    (nodes.one.base / "go").touch()
    assert producer.wait() == 0
    assert compare(nodes.path(), part) == 1


def test_what_was_read_of_another_machine_is_told_over_another_connection(tmp_path: Path) -> None:
    """The answer is cut off, within the greeting and within its record."""
    with pair(tmp_path) as nodes:
        proxy = Proxy(nodes.one.address, [10_000_000, 40, 80, 90])
        producer = nodes.produce(lines(nodes.path(), nodes.one.base))
        wait_for((nodes.one.base / "written").exists, "the file")
        job = read_head(nodes, proxy.address)
        assert job.wait() == 0
        assert compare(nodes.path(), part_of(job)) == 0
        assert len(proxy.said) >= 5
        (nodes.one.base / "go").touch()
        assert producer.wait() == 0
        proxy.close()
