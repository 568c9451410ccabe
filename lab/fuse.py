"""A file system with one file that behaves as a test wants: it keeps no pages, cannot be read, or does not answer.

Or the quota of its user is used up.

It needs no library: it speaks the protocol of `/dev/fuse` itself, with several readers at once.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lab.node import wait_for

_SERVER = """
import ctypes, os, signal, struct, sys, time
backing, place, flag, mode, since = *sys.argv[1:5], int(sys.argv[5])
libc = ctypes.CDLL(None, use_errno=True)
device = os.open("/dev/fuse", os.O_RDWR)
options = f"fd={device},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()},allow_other"
assert libc.mount(b"test", place.encode(), b"fuse", 0, options.encode()) == 0, os.strerror(ctypes.get_errno())
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
status, file = os.stat(backing), os.open(backing, os.O_RDONLY)
LOOKUP, FORGET, GETATTR, OPEN, READ, STATFS, RELEASE, FLUSH, INIT = 1, 2, 3, 14, 15, 17, 18, 25, 26
OPENDIR, READDIR, RELEASEDIR, ACCESS, CREATE, INTERRUPT, BATCH_FORGET = 27, 28, 29, 34, 35, 36, 42
HOUR = 3600
waiting = set()
def give_up(*_):
    global mode
    mode = "fails"
    for unique in waiting:
        try: os.write(device, struct.pack("<IiQ", 16, -5, unique))
        except OSError: pass
signal.signal(signal.SIGTERM, give_up)
def attributes(node):
    kind, size = (0o40755, 0) if node == 1 else (0o100644, status.st_size)
    time = int(status.st_mtime)
    numbers = node, size, 0, time, time, time, 0, 0, 0, kind, 1, os.getuid(), os.getgid(), 0, 4096, 0
    return struct.pack("<6Q10I", *numbers)
while True:
    try: request = os.read(device, 1 << 21)
    except OSError: break
    _, code, unique, node = struct.unpack_from("<IIQQ", request)
    if code in (FORGET, INTERRUPT, BATCH_FORGET): continue
    error, answer, child = 0, b"", False
    if code == INIT: answer = struct.pack("<4I2H2I2H8I", 7, 31, 1 << 17, 0, 1000, 1000, 1 << 16, 1, 32, 0, *[0] * 8)
    elif code in (RELEASE, FLUSH, RELEASEDIR, ACCESS): pass
    elif code == CREATE and mode == "quota": error = -122
    elif code == LOOKUP and request[40:] != b"f\\0": error = -2
    elif code == OPENDIR: answer = struct.pack("<Q2I", 0, 0, 0)
    elif code == STATFS: answer = struct.pack("<5Q10I", 1 << 20, 1 << 20, 1 << 20, 1, 1, 4096, 255, 4096, *[0] * 7)
    elif code == READDIR:
        offset, = struct.unpack_from("<Q", request, 48)
        answer = b"" if offset else struct.pack("<2Q2I8s", 2, 1, 1, 8, b"f")
    elif code == LOOKUP: answer = struct.pack("<4Q2I", 2, 0, HOUR, HOUR, 0, 0) + attributes(2)
    elif code == GETATTR: answer = struct.pack("<Q2I", HOUR, 0, 0) + attributes(node)
    elif code == OPEN: answer = struct.pack("<Q2I", 0, 1 if mode == "direct" else 2, 0)
    elif code == READ:
        offset, size = struct.unpack_from("<Q I", request, 48)
        answer = os.pread(file, size, offset)
        if offset + size > since and os.path.exists(flag):
            if mode in ("hangs", "waits"): waiting.add(unique)
            if mode == "hangs" or (mode == "waits" and os.fork() != 0): continue
            while mode == "waits" and os.path.exists(flag): time.sleep(0.02)
            child = mode == "waits"
            error, answer = (-5, b"") if mode == "fails" else (0, answer)
    else: error = -38
    try: os.write(device, struct.pack("<IiQ", 16 + len(answer), error, unique) + answer)
    except OSError: pass
    if child: os._exit(0)
"""
# The input of the keeper ends with the process of the tests, however that ends. A mount that is left would disturb
# other runs: StreamFlow looks at all mounts of the machine. The server ends when nothing uses the file system any more:
# an earlier end would fail the look of another run.
_KEEPER = '"$@" < /dev/null & cat; umount --lazy "$0"; kill -TERM $!; wait $!'


def may_mount() -> bool:
    """Whether this process may serve a file system."""
    words = [sys.executable, "-ISc", "open('/dev/fuse', 'r+b', buffering=0)"]
    return os.getuid() == 0 and subprocess.run(words, capture_output=True, check=False).returncode == 0


@contextmanager
def served(backing: Path, place: Path, mode: str, since: int, flag: Path) -> Iterator[Path]:
    """Serve a file for as long as the context lasts; a reader that still waits at the end gets an error.

    :param place: where it is mounted, an empty directory
    :param mode: `direct`: no page is kept; `fails`, `hangs`, `waits` until it is gone: what reading does as soon as
        there is `flag`; `quota`: no file can be added
    :param since: bytes, behind which it does so
    """
    words = [sys.executable, "-ISc", _SERVER, str(backing), str(place), str(flag), mode, str(since)]
    server = subprocess.Popen(["sh", "-c", _KEEPER, str(place), *words], stdin=subprocess.PIPE)
    assert server.stdin is not None
    try:
        wait_for(lambda: os.path.ismount(place), "the file system")
        yield place / "f"
    finally:
        server.stdin.close()
        server.wait()
