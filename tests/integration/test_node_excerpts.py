"""The first bytes of a file, for a command that is to do with them what it would do with the file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lab.node import Job, Node

WHOLE = b"".join(b"%07d a line\n" % number for number in range(40_000))
FIRST = 100_000
#: The end of the last line of these.
CUT = FIRST - FIRST % 15


def start(runtime: Node, script: str, stdin: bool = False) -> Job:
    """A program that finds the first bytes of `out/f` at `in/f`."""
    out, place = runtime.base / "out", runtime.base / "in"
    (out / "f").write_bytes(WHOLE)
    os.utime(out / "f", (10**9, 10**9))
    made = subprocess.run(
        [runtime.binary, "excerpt", "--of", out / "f", "--to", out / "first", "--bytes", str(FIRST)],
        check=True,
        capture_output=True,
    )
    assert json.loads(made.stdout) == {"bytes": CUT}
    (place / "f").symlink_to(out / "first")
    spec = {
        "name": "c",
        "command": {"stdout": str(runtime.base / "printed"), **({"stdin": str(place / "f")} if stdin else {})},
        "rehearsal": {"excerpts": [{"name": "e", "path": str(place / "f"), "of": str(out / "f")}]},
    }
    words = ["env", f"--chdir={place}", "sh", "-c", script]
    return runtime.start("c", words, job=json.dumps(spec))


def python(script: str) -> str:
    return f"{sys.executable} -ISc 'import os, sys, mmap; {script}'"


def ends(runtime: Node, job: Job, code: int = 0) -> tuple[str, list[str]]:
    """Return its output, and the calls by which it has told the first bytes from the file."""
    assert job.wait() == code
    return (runtime.base / "printed").read_text(), [str(event["call"]) for event in job.named("asked")]


@pytest.mark.parametrize("script", ["cat f", "wc -l < f", "tr a b < f", "awk '{ n += $1 } END { print n }' f"])
def test_who_reads_reads_the_first_bytes(runtime: Node, script: str, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(WHOLE[:CUT])
    native = subprocess.run(["sh", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert ends(runtime, start(runtime, script)) == (native, [])


@pytest.mark.parametrize("stdin", [True, False])
def test_what_is_open_is_as_the_file(runtime: Node, stdin: bool) -> None:
    opened = "0" if stdin else 'os.open("f", 0)'
    job = start(runtime, python(f"s = os.fstat({opened}); print(s.st_size, int(s.st_mtime))"), stdin)
    assert ends(runtime, job) == (f"{len(WHOLE)} {10**9}\n", [])


def test_wc_makes_its_columns_as_wide_as_for_the_file(runtime: Node) -> None:
    printed, asked = ends(runtime, start(runtime, "wc < f"))
    native = subprocess.run(["wc"], stdin=(runtime.base / "out" / "f").open(), capture_output=True).stdout
    assert (len(printed), asked) == (len(native), [])


@pytest.mark.parametrize(
    ("script", "call"),
    [
        (python('print(os.lseek(os.open("f", 0), -99, 2))'), "lseek"),
        (python('print(os.path.getsize("f"))'), "stat"),
        (python('print(os.lstat("f").st_size)'), "stat"),
        (python('print(os.pread(os.open("f", 0), 9, 200_000))'), "pread64"),
        (python('f = os.open("f", 0); os.lseek(f, os.fstat(f).st_size - 9, 0); print(os.read(f, 9))'), "lseek"),
        (python('f = open("f"); mmap.mmap(f.fileno(), 0, prot=1)'), "mmap"),
        ("grep -c line f", "lseek"),
        ("tail -c 100 f", "lseek"),
        ("ls -L f", "stat"),
        ("readlink f", "readlink"),
        (python('print(os.listxattr(os.open("f", 0)))'), "flistxattr"),
    ],
)
def test_what_else_tells_them_apart_is_told(runtime: Node, script: str, call: str) -> None:
    _, (asked,) = ends(runtime, start(runtime, script))
    assert call in asked or (call == "stat" and asked == "statx")


def test_who_maps_as_much_as_the_file_has_fails(runtime: Node) -> None:
    job = start(runtime, python('f = open("f"); print(mmap.mmap(f.fileno(), 0, prot=1)[-500:])'))
    assert job.wait() != 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"path": "f"}, "has to be an absolute path"),
        ({"path": "/nowhere/f"}, "excerpt e: /nowhere/f: No such file"),
        ({"more": 1}, "unknown field `more`"),
    ],
)
def test_what_is_wrong_is_said(runtime: Node, change: dict[str, object], message: str) -> None:
    excerpt = {"name": "e", "path": "/etc/passwd", "of": "/etc/passwd", **change}
    job = runtime.start(
        "c", ["true"], job=json.dumps({"name": "c", "rehearsal": {"excerpts": [excerpt]}}), stderr=subprocess.PIPE
    )
    assert job.wait() == 125
    assert message in str(job.exit()["message"])
