"""Parts of files in tests of sfio-node alone."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest

from lab.node import Event, Job, Node

MEMORY = Path("/dev/shm")
CONTENT = b"".join(map(b"line %08d\n".__mod__, range(300_000)))


def identity(path: Path) -> Event:
    found = path.stat()
    return {"device": found.st_dev, "inode": found.st_ino, "size": found.st_size, "mtime": found.st_mtime_ns}


def part(path: Path, pieces: list[object], target: Event) -> Event:
    """Returns an entry of ``inputs``."""
    described = {"file": str(path), "identity": identity(path), "pieces": pieces}
    return {"name": "in", "port": "chunks", "part": described, "target": target}


def lack_memory(runtime: Node) -> None:
    """Has the run no directory in memory, so that parts are files on disk; there must be none yet."""
    if not (place := runtime.run / "memory").is_symlink():
        place.symlink_to("/none/memory")
    assert os.readlink(place) == "/none/memory"


def text(content: bytes) -> str:
    return base64.b64encode(content).decode()


def placed(runtime: Node, name: str = "c.fq") -> Path:
    return runtime.base / "in" / name


#: Shell: whether a part that is a file is where its kind says.
THERE = {"file": 'test -L "$1" && ', "disk": '! test -L "$1" && ', "fifo": "", "stdin": ""}
TARGETS = pytest.mark.parametrize("kind", ["file", "disk", "fifo", "stdin"])


def read(runtime: Node, of: Path, pieces: list[object], kind: str, name: str = "c", script: str = "") -> Job:
    """Starts a job that copies its part to ``name.out``, or runs ``script`` with the part as ``$1``."""
    path = placed(runtime, f"{name}.fq")
    target: Event = {"stdin": True} if kind == "stdin" else {"fifo" if kind == "fifo" else "file": str(path)}
    if kind == "disk":
        lack_memory(runtime)
    command = script or f'{THERE[kind]}cat "$1" > ' + str(runtime.base / f"{name}.out")
    argument = "/dev/stdin" if kind == "stdin" else str(path)
    stream = part(of, pieces, target)
    return runtime.start(name, ["sh", "-c", command, "sh", argument], inputs=[stream])
