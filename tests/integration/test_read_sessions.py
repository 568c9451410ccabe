"""Read sessions in real runs: each byte is read once at most, and nothing depends on it.

StreamFlow reads each file for its checksum before a job gets it. A step takes it out of the page cache again, as a file
is that has no room there.
"""

from __future__ import annotations

import hashlib
import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lab.cwl import Document, found, streamable, tool, workflow
from lab.fuse import may_mount, served
from lab.node import wait_for
from lab.processes import of_processes
from lab.runs import Bench, Run
from tests.integration.test_node_read import cached, forget

MIB = 1 << 20
SIZE = 24 * MIB

# An input whose checksum is not needed comes before it is read.
NEEDS_CHECKSUM = ["$(inputs.of.checksum)"]

# Waits for the command that follows to be told, so that the cache is looked at when it is cold.
FORGET = """\
import os, sys

descriptor = os.open(sys.argv[1], os.O_RDONLY)
os.fsync(descriptor)
os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
"""

# Says N parts of equal bytes, and does not read the file.
SPLIT = """\
import json, os, sys

path, count = sys.argv[1], int(sys.argv[2])
size, say = os.path.getsize(path), os.environ.get("SFIO_PARTS")
for number in range(count):
    start, end = size * number // count, size * (number + 1) // count
    name = f"chunk-{number:02d}.bin"
    if say is None:
        with open(path, "rb") as file, open(name, "wb") as part:
            file.seek(start)
            part.write(file.read(end - start))
    else:
        with open(say, "a") as parts:
            parts.write(json.dumps({"path": name, "extents": [[start, end - start]]}) + "\\n")
"""

# Reads its part of a file: KofN.
SELECT = """\
import hashlib, os, sys

number, count = map(int, sys.argv[2].split("of"))
size = os.path.getsize(sys.argv[1])
with open(sys.argv[1], "rb") as file:
    file.seek(size * (number - 1) // count)
    print(hashlib.sha1(file.read(size * number // count - size * (number - 1) // count)).hexdigest())
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "all.bin"
    path.write_bytes(b"".join(bytes([number]) * MIB for number in range(SIZE // MIB)))
    forget(path)
    if cached(path) != 0:
        pytest.skip("the page cache cannot be looked at, or keeps all")
    return path


def cold(directory: Path) -> Document:
    program = directory / "forget.py"
    program.write_text(FORGET)
    run = tool(f'python3 -S -E {program} "$of"; echo 1', {"of": "File"}, {"done": "stdout"}, stdout="done.txt")
    return run | {"arguments": NEEDS_CHECKSUM}


def split_run(directory: Path, reader: Document) -> Document:
    program = directory / "split.py"
    program.write_text(SPLIT)
    run = tool(
        f'python3 -S -E {program} "$of" "$count"',
        {"of": "File", "count": "int", "done": "File"},
        {"chunks": found("chunk-*.bin", "File[]")},
        hints=[{"class": "sfio:ReadSession", "rules": [{"port": "chunks", "of": "of"}]}],
    )
    return workflow(
        {"of": "File", "count": "int"},
        {
            "cold": {"run": cold(directory), "in": {"of": "of"}},
            "split": {"run": run, "in": {"of": "of", "count": "count", "done": "cold/done"}},
            "sum": {"run": reader, "in": {"chunk": "split/chunks"}, "scatter": "chunk"},
        },
        {"summed": "sum/summed"},
    )


def summing() -> Document:
    return tool('sha1sum < "$chunk"', {"chunk": "File"}, {"summed": "stdout"}, stdout="summed.txt")


def selecting(directory: Path, before: str = "", **rule: Any) -> Document:
    """Jobs that select their own part."""
    program = directory / "select.py"
    program.write_text(SELECT)
    rule = rule or {"part": "range", "records": "bytes"}
    run = tool(
        f'{before} python3 -S -E {program} "$of" "$range"',
        {"of": "File", "range": "string", "done": "File"},
        {"summed": "stdout"},
        stdout="summed.txt",
        hints=[{"class": "sfio:ReadSession", "rules": [{"of": "of", **rule}]}],
    )
    return workflow(
        {"of": "File", "ranges": "string[]"},
        {
            "cold": {"run": cold(directory), "in": {"of": "of"}},
            "sum": {"run": run, "in": {"of": "of", "range": "ranges", "done": "cold/done"}, "scatter": "range"},
        },
        {"summed": "sum/summed"},
    )


def compare(
    bench: Bench, document: Document, job: Document, after: Callable[[], object] | None = None, **config: Any
) -> Run:
    """Runs both, one after the other: each would bring the file into the cache for the other."""
    plain = bench.run(document, job, io=False)
    path = bench.write(document, job, io=True, config=config or None)
    process = bench.start(path)
    if after is not None:
        after()
    ours = bench.finish(process, path, 60)
    assert plain.ok, plain.errors
    assert ours.ok, ours.errors
    assert ours.results == plain.results
    assert bench.leftovers() == []
    return ours


def told(bench: Bench, event: str, first: bool = False) -> list[Document]:
    """Records of sessions that serve jobs, or that read before the first job."""
    records = bench.telemetry()
    forms = {record["session"]: record["form"] for record in records if record["event"] == "session"}
    return [each for each in records if each["event"] == event and (forms[each["session"]] == "whole") is first]


def read_once(bench: Bench) -> Document:
    """The one session of a run has read each byte once at most; returns its end."""
    assert len(told(bench, "session")) == 1
    (end,) = told(bench, "sessionEnd")
    assert bytes_read(bench) <= SIZE
    return end


def bytes_read(bench: Bench) -> int:
    return sum(record["bytes"] for record in told(bench, "chunk"))


def of(file: Path, count: int) -> Document:
    return {"of": {"class": "File", "path": str(file)}, "count": count}


def ranges(file: Path, count: int) -> Document:
    return {"of": {"class": "File", "path": str(file)}, "ranges": [f"{k}of{count}" for k in range(1, count + 1)]}


@pytest.mark.parametrize(
    "kind",
    ["File", *(pytest.param(kind, marks=pytest.mark.long) for kind in ("stdin", streamable()))],
    ids=["file", "stdin", "fifo"],
)
def test_parts_of_a_virtual_split(bench: Bench, tmp_path: Path, file: Path, kind: Any) -> None:
    reader = summing() if kind == "File" else tool("cat", {"chunk": kind}, {"summed": "stdout"}, stdout="summed.txt")
    if isinstance(kind, dict):
        reader = tool('cat "$chunk"', {"chunk": kind}, {"summed": "stdout"}, stdout="summed.txt")
    ours = compare(bench, split_run(tmp_path, reader), of(file, 8))
    end = read_once(bench)
    assert end["reason"] == "done"
    assert bytes_read(bench) == SIZE
    assert sorted(record["part"] for record in told(bench, "consumed")) == list(range(8))
    assert "WARNING" not in ours.log


def test_jobs_that_select_their_own_part(bench: Bench, tmp_path: Path, file: Path) -> None:
    ours = compare(bench, selecting(tmp_path), ranges(file, 4))
    end = read_once(bench)
    assert end["reason"] == "done"
    assert bytes_read(bench) == SIZE
    assert sorted(record["part"] for record in told(bench, "consumed")) == list(range(4))
    assert "WARNING" not in ours.log


def test_a_window_that_is_smaller_than_the_file(bench: Bench, tmp_path: Path, file: Path) -> None:
    storages = [{"name": "disk", "path": str(tmp_path), "read": 1, "readers": 1}]
    compare(bench, selecting(tmp_path), ranges(file, 4), sessionWindow=10, storages=storages)
    read_once(bench)
    assert max(chunk["held"] + chunk["bytes"] for chunk in told(bench, "chunk")) <= 10_000_000 + 8 * MIB


def _when_it_reads(bench: Bench, act: Callable[[int], object]) -> None:
    """Does something to the reader of the session that is about to begin; to none of others."""
    place = str(bench.directory).encode()
    end = time.monotonic() + 30
    while time.monotonic() < end:
        for pid, (words,) in of_processes("cmdline"):
            if b"\0read\0--job\0" + place in words:
                act(pid)
                return
        time.sleep(0.002)
    raise AssertionError("there was no reader")


def test_a_reader_that_is_killed(bench: Bench, tmp_path: Path, file: Path) -> None:
    kill = lambda: _when_it_reads(bench, lambda pid: os.kill(pid, signal.SIGKILL))  # noqa: E731
    # With this window it lives until the last part is consumed.
    ours = compare(bench, split_run(tmp_path, summing()), of(file, 8), kill, sessionWindow=1)
    # A reader that is killed before its first message is missed after 10 s.
    assert {end["reason"] for end in told(bench, "sessionEnd")} <= {"lost", "stalled"}
    assert ours.log.count("is not read ahead any more") == 1


def test_a_file_that_changes(bench: Bench, tmp_path: Path, file: Path) -> None:
    """The session ends; what becomes of the jobs is as without it: these only read it."""
    document = selecting(tmp_path, before=f"touch {file};")
    ours = compare(bench, document, ranges(file, 4), sessionWindow=1)
    assert [end["reason"] for end in told(bench, "sessionEnd")] == ["lost"]
    assert ours.log.count("is not read ahead any more") == 1


@pytest.mark.skipif(not may_mount(), reason="no FUSE")
@pytest.mark.parametrize(
    ("mode", "reason", "warning"),
    [
        pytest.param("direct", "not kept", None, marks=pytest.mark.long),
        ("fails", "lost", "cannot read .*: Input/output error .*"),
        pytest.param("hangs", "lost", None, marks=pytest.mark.long),
    ],
)
def test_file_systems_that_are_no_help(
    bench: Bench, tmp_path: Path, file: Path, mode: str, reason: str, warning: str | None
) -> None:
    """One that keeps no pages; one whose second half cannot be read any more, or never comes: no job needs it."""
    (place := tmp_path / "mount").mkdir()
    flag = tmp_path / "flag"
    document = selecting(tmp_path)
    document["steps"]["sum"]["run"]["hints"][0]["rules"] = [{"of": "of"}]
    forgets = document["steps"]["cold"]["run"]["baseCommand"]
    forgets[2] = forgets[2].replace("echo 1", f"touch {flag}; echo 1")
    with served(file, place, mode, SIZE // 2, flag) as odd:
        ours = bench.run(document, ranges(odd, 24) | {"ranges": ["1of24", "2of24"]}, seconds=90)
        assert ours.ok, ours.errors
        sums = [hashlib.sha1(bytes([number]) * MIB).hexdigest() + "\n" for number in range(2)]
        assert sorted(content.decode() for content in ours.files.values()) == sorted(sums)
        assert [end["reason"] for end in told(bench, "sessionEnd")] == [reason]
        warnings = re.findall(
            r"is not read ahead any more, its readers read the file themselves: (.*) \[SFIO-P004\]", ours.log
        )
        assert len(warnings) == (warning is not None)
        assert warning is None or re.fullmatch(warning, warnings[0]), warnings
    # A reader that waits for its storage ends when that answers, and the run does not wait for it.
    wait_for(lambda: bench.leftovers() == [], "the end of what was left")
