"""Parts of a file on another node: all of their bytes, from the job that has said them, or a reason."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.node import Event, Job
from lab.node_links import Pair, Proxy, assert_failed, pair
from lab.node_parts import CONTENT, THERE, identity, lack_memory, text

TEXT = b"a text that is nowhere\n"
PIECES: list[object] = [[0, 14], text(TEXT), [1_000_000, 2_500_000], [5, 0]]
BYTES = CONTENT[:14] + TEXT + CONTENT[1_000_000:3_500_000]
TARGETS = pytest.mark.parametrize("kind", ["file", "disk", "fifo", "stdin"])


@pytest.fixture(params=[False, pytest.param(True, marks=pytest.mark.long)], ids=["plain", "tls"])
def nodes(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Pair]:
    with pair(tmp_path, request.param) as running:
        yield running


def of(nodes: Pair) -> Path:
    return nodes.one.base / "all"


def say(nodes: Pair) -> Job:
    """Lets a job of the first node say two parts; other jobs read the second one."""
    of(nodes).write_bytes(CONTENT)
    lines = [{"path": "a", "extents": [[0, 3]]}, {"path": "b", "extents": PIECES}]
    said = "".join(json.dumps(line) + "\n" for line in lines)
    file = nodes.one.run / "jobs" / "s" / "parts.jsonl"
    script = f"cat >> $SFIO_PARTS <<'END'\n{said}END"
    job = nodes.one.shell("s", script, split={"port": "chunks", "of": str(of(nodes)), "file": str(file)})
    assert job.wait() == 0
    return job


def read(
    nodes: Pair,
    kind: str,
    name: str = "c",
    address: str | None = None,
    script: str = "",
    within: Path = Path(),
    **other: object,
) -> Job:
    """Starts a job of the second node that copies the part to ``name.out``.

    :param within: its first directory
    :param other: what it asks for instead
    """
    path = nodes.two.base / "in" / f"{name}.part"
    target: Event = {"stdin": True} if kind == "stdin" else {"fifo" if kind == "fifo" else "file": str(path)}
    stream = nodes.two.link("s", of(nodes), None, address or nodes.one.address, port="chunks")
    link = {**stream.pop("link"), **({"tls": True} if nodes.tls else {})}  # type: ignore[dict-item]
    del stream["path"]
    # What is seen of the file here does not matter.
    part = {"file": str(of(nodes)), "identity": {**identity(of(nodes)), "inode": 1}, "pieces": PIECES}
    link["job"] = other.pop("job", "s")
    stream |= {"link": link, "part": part, "number": 2, "target": target, **other}
    if kind == "disk":
        lack_memory(nodes.two)
    argument = "/dev/stdin" if kind == "stdin" else str(path)
    command = script or f'{THERE[kind]}cat "$1" > {nodes.two.base / name}.out'
    return nodes.two.start(
        name, ["sh", "-c", command, "sh", argument], inputs=[stream], wrapper=["env", "-C", str(within)]
    )


@TARGETS
def test_all_bytes_come(nodes: Pair, kind: str) -> None:
    assert say(nodes).exit()["success"]
    reader = read(nodes, kind)
    assert reader.wait() == 0, reader.exit()
    assert (nodes.two.base / "c.out").read_bytes() == BYTES
    usage = reader.exit()["usage"]
    assert (usage["parts"], usage["streamed"]) == (len(BYTES), 0)  # type: ignore[index]


@TARGETS
def test_a_connection_that_breaks_is_taken_up_again(nodes: Pair, kind: str) -> None:
    say(nodes)
    # In a record's header, in the first extent, in the text, and in the last extent; inside TLS, in the handshake, too.
    cuts = [3, 10, 22, 35, 1_000_000, 1_200_000]
    proxy = Proxy(nodes.one.address, cuts, plain=not nodes.tls)
    reader = read(nodes, kind, address=proxy.address)
    assert reader.wait() == 0, reader.exit()
    assert (nodes.two.base / "c.out").read_bytes() == BYTES
    assert len(proxy.told) > len(cuts)
    proxy.close()


@pytest.mark.parametrize(
    ("asked", "word"),
    [
        ({"number": 3}, "part 3 of chunks is missing, or shorter than the reader has it"),
        ({"number": 0}, "part 0 of chunks is missing, or shorter than the reader has it"),
        ({"port": "others"}, "part 2 of others is missing, or shorter than the reader has it"),
        ({"job": "t"}, "part 2 of chunks is missing, or shorter than the reader has it"),
    ],
)
@pytest.mark.parametrize("kind", ["file", "fifo"])
def test_only_what_was_said_is_sent(nodes: Pair, kind: str, asked: Event, word: str) -> None:
    say(nodes)
    assert nodes.one.shell("t", "true").wait() == 0
    reader = read(nodes, kind, **asked)
    assert_failed(reader, "producer", word)
    assert not (nodes.two.base / "c.out").exists() or kind == "fifo"
    assert not (nodes.two.base / "in" / "c.part").exists()


@pytest.mark.parametrize("kind", ["file", "fifo"])
def test_a_file_that_has_changed(nodes: Pair, kind: str) -> None:
    say(nodes)
    of(nodes).write_bytes(CONTENT + b"more")
    assert_failed(read(nodes, kind), "rewritten", "all has another size than when it was cut")


def test_who_stops_early_and_who_asks_for_more_than_bytes(nodes: Pair) -> None:
    say(nodes)
    few = read(nodes, "fifo", "few", script=f'head -c 5 "$1" > {nodes.two.base}/few.out')
    size = read(nodes, "fifo", "size", script=f'stat -c %s "$1" > {nodes.two.base}/size.out')
    assert [few.wait(), size.wait()] == [0, 0]
    assert (nodes.two.base / "few.out").read_bytes() == BYTES[:5]
    assert int((nodes.two.base / "size.out").read_text()) == len(BYTES)


@pytest.mark.parametrize("kind", ["file", "fifo"])
def test_an_output_that_is_a_link_to_it(nodes: Pair, kind: str) -> None:
    say(nodes)
    directory = nodes.two.base / "work"
    directory.mkdir()
    reader = read(nodes, kind, script='cat "$1" > /dev/null; ln -s "$1" link', within=directory)
    assert reader.wait() == 0
    place = nodes.two.base / "in" / "c.part"
    assert place.is_file()
    assert not place.is_symlink()
    assert (directory / "link").read_bytes() == BYTES


@pytest.mark.parametrize("words", [{"number": None}, {"link": None}, {"number": -1}])
def test_what_does_not_go_together(nodes: Pair, words: Event) -> None:
    say(nodes)
    reader = read(nodes, "file", **words)
    assert reader.wait() == 125
    assert "parts[0]" in str(reader.exit()["message"])
