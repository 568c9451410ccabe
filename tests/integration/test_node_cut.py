"""`sfio-node cut`: where a declared rule cuts, against what real split programs write."""

from __future__ import annotations

import itertools
import json
import os
import random
import subprocess
from pathlib import Path

import pytest

from lab.node import Event, Node, built


def cut(of: Path, rule: Event, *options: object) -> subprocess.CompletedProcess[str]:
    words = [str(word) for word in (built(), "cut", "--of", of, "--rule", json.dumps(rule), *options)]
    environment = {name: value for name, value in os.environ.items() if name != "SFIO_PARTS"}
    return subprocess.run(words, env=environment, text=True, capture_output=True, check=False)


def parts(of: Path, rule: Event) -> dict[str, bytes]:
    """Returns the parts by their names, made from the entries of ``cut``."""
    said = cut(of, rule)
    assert (said.returncode, said.stderr) == (0, "")
    content = of.read_bytes()
    found = {}
    for line in said.stdout.splitlines():
        part = json.loads(line)
        found[part["path"]] = b"".join(content[offset : offset + length] for offset, length in part["extents"])
    return found


def written(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


CONTENTS = {
    "plain": b"a\nbb\nccc\ndddd\neeeee\n" * 100,
    "no last newline": b"a\nbb\nccc\ndddd\nee",
    "CRLF": b"a\r\nbb\r\n\r\nccc\r\n" * 50,
    "empty": b"",
    "one line": b"x",
    "newlines": b"\n" * 100,
    "a giant line": b"a\n" + b"x" * 3_000_000 + b"\nb\n",
    "any bytes": random.Random(1).randbytes(100_000),
}


@pytest.mark.parametrize("lines", [1, 7])
@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS.keys())
def test_every_so_many_lines_is_split_l(tmp_path: Path, content: bytes, lines: int) -> None:
    of, directory = tmp_path / "of", tmp_path / "parts"
    of.write_bytes(content)
    directory.mkdir()
    subprocess.run(["split", "-l", str(lines), "-a", "6", "--numeric-suffixes=1", of, directory / "part-"], check=True)
    rule: Event = {"records": "lines", "every": lines, "names": "part-%06d"}
    assert parts(of, rule) == written(directory)
    assert cut(of, rule, "--compare", directory).returncode == 0


@pytest.mark.parametrize("size", [0, 1, 99, 2_500_000])
def test_parts_of_bytes_are_split_n(tmp_path: Path, size: int) -> None:
    of, directory = tmp_path / "of", tmp_path / "parts"
    of.write_bytes(random.Random(2).randbytes(size))
    directory.mkdir()
    subprocess.run(["split", "-n", "7", "-a", "2", "--numeric-suffixes=1", of, directory / "x"], check=True)
    found = parts(of, {"records": "bytes", "parts": 7, "names": "x%02d"})
    assert list(found) == [f"x{number:02}" for number in range(1, 8)]
    assert b"".join(found.values()) == of.read_bytes()
    subprocess.run(["split", "-b", "1M", "-a", "2", "--numeric-suffixes=1", of, directory / "y"], check=True)
    if size:
        assert parts(of, {"records": "bytes", "chunk": 1, "names": "y%02d"}) == {
            name: content for name, content in written(directory).items() if name.startswith("y")
        }


def test_the_first_difference(tmp_path: Path) -> None:
    of, directory = tmp_path / "of", tmp_path / "parts"
    of.write_bytes(b"a\nb\nc\n")
    directory.mkdir()
    rule: Event = {"records": "lines", "every": 2, "names": "p%d"}

    def difference() -> tuple[int, str]:
        compared = cut(of, rule, "--compare", directory)
        return compared.returncode, compared.stdout.strip()

    assert difference() == (1, "p1: the split has not written it")
    (directory / "p1").write_bytes(b"a\nb\n")
    (directory / "p2").write_bytes(b"c\n.")
    assert difference() == (1, "p2: the split has written 3 bytes, the rule gives 2")
    (directory / "p2").write_bytes(b"d\n")
    assert difference() == (1, "p2: byte 0 is another one")
    (directory / "p2").write_bytes(b"c\n")
    (directory / "other").touch()
    assert difference() == (0, cut(of, rule).stdout.strip())
    (directory / "p3").touch()
    assert difference() == (1, "p3: the rule does not give it")


def test_mistakes(tmp_path: Path) -> None:
    of = tmp_path / "of"
    of.write_bytes(b"\x1f\x8b\x08\x00 and so on")
    rule: Event = {"records": "vcf", "every": 2, "names": "%d"}
    for path, change, message in [
        (of, {}, f"sfio-node: cut: {of}: is compressed, and cannot be cut into records: decompress it"),
        (tmp_path / "none", {}, f"sfio-node: cut: {tmp_path}/none: No such file or directory (os error 2)"),
        (tmp_path, {}, f"sfio-node: cut: {tmp_path}: is no regular file"),
        (of, {"parts": 2}, 'sfio-node: cut: --rule: exactly one of "parts", "every" and "chunk"'),
        (of, {"names": "x"}, "sfio-node: cut: --rule: names: has to have one %d, or one %0Nd with a width"),
    ]:
        said = cut(path, {**rule, **change})
        assert (said.returncode, said.stdout) == (2, "")
        assert said.stderr.startswith(message)


def test_it_is_a_split_that_says_its_parts(runtime: Node) -> None:
    of = runtime.base / "of"
    of.write_bytes(b"".join(b"line %08d\n" % number for number in range(500_000)))
    for name, rule, count in [
        ("every", {"records": "lines", "every": 1000, "names": "c%04d"}, 500),
        ("parts", {"records": "lines", "parts": 3, "names": "c%d"}, 3),
    ]:
        said = runtime.run / "jobs" / name / "parts.jsonl"
        partition = {"port": "chunks", "of": str(of), "file": str(said)}
        words = [built(), "cut", "--of", of, "--rule", json.dumps(rule)]
        job = runtime.start(name, [str(word) for word in words], split=partition)
        assert job.wait() == 0
        told = job.named("part")
        assert len(told) == count
        extents = [piece for event in told for piece in event["pieces"]]  # type: ignore[attr-defined]
        assert extents[0][0] == 0
        assert all(one[0] + one[1] == other[0] for one, other in itertools.pairwise(extents))
        assert sum(length for _, length in extents) == of.stat().st_size


@pytest.mark.parametrize(
    ("content", "rule", "count"),
    [
        (b"a\nb\nc", {"records": "lines", "every": 2}, 3),
        (b"h\na\nb\n", {"records": "csv", "chunk": 1}, 2),
        (b"", {"records": "fastq", "every": 2}, 0),
        (b">a\nb\n>c\n", {"records": "fasta", "parts": 2}, 2),
        (b"12345", {"records": {"record": {"bytes": 2}}, "every": 2}, 3),
        (b"a\n" * 3_000_000, {"records": "lines", "parts": 2}, 3_000_000),
    ],
)
def test_how_many_records_there_are(tmp_path: Path, content: bytes, rule: Event, count: int) -> None:
    of = tmp_path / "of"
    of.write_bytes(content)
    said = cut(of, {**rule, "names": "p%d", "count": True}).stdout.splitlines()
    assert said[-1] == f'{{"records":{count}}}'
    assert said[:-1] == cut(of, {**rule, "names": "p%d"}).stdout.splitlines()
