"""A job that serves a FUSE mount to itself, as an image of Apptainer does, can be observed, and gated."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from lab.node import Node, output

#: Serves one file, `f`, with the content of a file that it opens and reads for each request, to four readers at once.
SERVER = """
import ctypes, os, struct, subprocess, sys
backing, place = sys.argv[1:]
libc = ctypes.CDLL(None, use_errno=True)
device = os.open("/dev/fuse", os.O_RDWR)
options = f"fd={device},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()}"
assert libc.mount(b"test", place.encode(), b"fuse", 0, options.encode()) == 0, os.strerror(ctypes.get_errno())
readers = subprocess.Popen(["sh", "-c", f"for i in 1 2 3 4; do cat {place}/f & done; wait; umount -l {place}"])
LOOKUP, FORGET, GETATTR, OPEN, READ, INIT = 1, 2, 3, 14, 15, 26
def attributes(node):
    mode, size = (0o40755, 0) if node == 1 else (0o100644, os.stat(backing).st_size)
    return struct.pack("<6Q10I", node, size, 0, 0, 0, 0, 0, 0, 0, mode, 1, os.getuid(), os.getgid(), 0, 4096, 0)
while True:
    try: request = os.read(device, 1 << 20)
    except OSError: break
    _, code, unique, node = struct.unpack_from("<IIQQ", request)
    with open(backing, "rb") as file: content = os.pread(file.fileno(), 1 << 16, 0)
    if code == FORGET: continue
    error, answer = 0, b""
    if code == INIT: answer = struct.pack("<4I2H2I2H8I", 7, 31, 1 << 16, 0, 1, 1, 1 << 16, 1, 0, 0, *[0] * 8)
    elif code == LOOKUP: answer = struct.pack("<4Q2I", 2, 0, 0, 0, 0, 0) + attributes(2)
    elif code == GETATTR: answer = struct.pack("<Q2I", 0, 0, 0) + attributes(node)
    elif code == OPEN: answer = struct.pack("<Q2I", 0, 0, 0)
    elif code == READ:
        offset, size = struct.unpack_from("<Q I", request, 48)
        answer = content[offset:offset + size]
    else: error = -38
    try: os.write(device, struct.pack("<IiQ", 16 + len(answer), error, unique) + answer)
    except OSError: pass
sys.exit(readers.wait())
"""


def may_mount() -> bool:
    """Whether this process may make a mount namespace, and serve FUSE in it."""
    words = ["unshare", "-m", sys.executable, "-c", "open('/dev/fuse', 'r+b', buffering=0)"]
    return os.getuid() == 0 and subprocess.run(words, capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not may_mount(), reason="no FUSE")
def test_a_job_that_serves_files_to_itself(runtime: Node) -> None:
    backing, place = runtime.base / "in" / "f", runtime.base / "in" / "mount"
    backing.write_text("content\n")
    place.mkdir()
    words = ["unshare", "-m", sys.executable, "-ISc", SERVER, backing, place]
    job = runtime.start(
        "j", words, observation={"reads": [{"name": "f", "path": str(backing)}]}, stdout=subprocess.PIPE
    )
    assert job.process.communicate(timeout=40)[0] == b"content\n" * 4
    assert job.wait() == 0
    [used] = job.named("used")
    assert "read at a position" in str(used["reasons"])


@pytest.mark.skipif(not may_mount(), reason="no FUSE")
def test_a_job_that_serves_files_to_itself_at_a_gate(runtime: Node) -> None:
    backing, place, target = (runtime.base / "in" / name for name in ("f", "mount", "gated"))
    backing.write_text("content\n")
    place.mkdir()
    done = runtime.base / "done"
    producer = runtime.shell(
        "p",
        f"until [ -e {done} ]; do sleep 0.02; done; echo > {runtime.base}/out/x",
        outputs=[output(runtime.base / "out", "x")],
    )
    gate = {
        "name": "x", "port": "out", "path": str(runtime.base / "out" / "x"), "target": str(target), "kind": "file",
        "events": str(runtime.run / "jobs" / "p" / "events.jsonl"),
    }  # fmt: skip
    words = ["unshare", "-m", sys.executable, "-ISc", SERVER, backing, place]
    job = runtime.start("j", words, gates=[gate], stdout=subprocess.PIPE)
    assert job.process.stdout is not None
    assert [job.process.stdout.readline() for _ in range(4)] == [b"content\n"] * 4
    done.touch()
    assert job.process.communicate(timeout=40)[0] == b""
    assert [job.wait(), producer.wait()] == [0, 0]
