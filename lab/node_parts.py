"""Parts of files in tests of sfio-node alone."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from lab.node import Event, Job, Node

MEMORY = Path("/dev/shm")
CONTENT = b"".join(map(b"line %08d\n".__mod__, range(300_000)))


def identity(path: Path) -> Event:
    found = path.stat()
    return {"device": found.st_dev, "inode": found.st_ino, "size": found.st_size, "mtime": found.st_mtime_ns}


def part(path: Path, pieces: list[object], target: Event, **more: object) -> Event:
    """Returns an entry of ``inputs``."""
    described = {"file": str(path), "identity": identity(path), "pieces": pieces}
    return {"name": "in", "port": "chunks", "part": described, "target": target, **more}


def text(content: bytes) -> str:
    return base64.b64encode(content).decode()


def placed(runtime: Node, name: str = "c.fq") -> Path:
    return runtime.base / "in" / name


TARGETS = pytest.mark.parametrize("kind", ["file", "disk", "fifo", "stdin"])


def read(runtime: Node, of: Path, pieces: list[object], kind: str, name: str = "c", script: str = "") -> Job:
    """Starts a job that copies its part to ``name.out``, or runs ``script`` with the part as ``$1``."""
    path = placed(runtime, f"{name}.fq")
    target: Event = {"stdin": True} if kind == "stdin" else {"fifo" if kind == "fifo" else "file": str(path)}
    more = {"memory": False} if kind == "disk" else {}
    command = script or 'cat "$1" > ' + str(runtime.base / f"{name}.out")
    argument = "/dev/stdin" if kind == "stdin" else str(path)
    stream = part(of, pieces, target, **more)
    return runtime.start(name, ["sh", "-c", command, "sh", argument], inputs=[stream])
