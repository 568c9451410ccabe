"""Programs of tests of byte streams: one that writes, one that reads; and how fast they are."""

from __future__ import annotations

import pytest

#: Writes argv[2] pieces of argv[3] bytes to argv[1], with pauses of argv[4] seconds, and exits with argv[5].
WRITER = """
import sys, time, random
path, pieces, size, pause, code = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5])
with open(path, "wb", buffering=0) as f:
    for i in range(pieces):
        f.write(random.Random(i).randbytes(size))
        time.sleep(pause)
sys.exit(code)
"""
#: Writes to argv[4] the digest of the file argv[1] (-: its input), read in pieces of argv[2] bytes, pausing argv[3] s.
READER = """
import sys, time, hashlib
h, n = hashlib.sha256(), 0
f = sys.stdin.buffer.raw if sys.argv[1] == "-" else open(sys.argv[1], "rb", buffering=0)
while data := f.read(int(sys.argv[2])):
    h.update(data); n += len(data); time.sleep(float(sys.argv[3]))
open(sys.argv[4], "w").write(f"{n} {h.hexdigest()}")
"""

SPEEDS = pytest.mark.parametrize(
    ("pieces", "size", "pause", "reader_size", "reader_pause"),
    [
        (40, 10_000, 0.005, 65536, 0.0),
        (30, 1_000_000, 0.0, 1 << 20, 0.01),
        (300, 100, 0.0, 7, 0.0),
        (1, 1, 0.0, 10, 0.0),
        (0, 0, 0.0, 10, 0.0),
    ],
    ids=["slow producer", "slow consumer", "tiny", "one byte", "empty"],
)
