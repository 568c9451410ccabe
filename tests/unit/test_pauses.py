"""The time in which a process is stopped is no time that a test measures."""

from __future__ import annotations

import subprocess
import sys
import time

from lab.pauses import Pauses

STOPPED = """
import os, signal, subprocess, time
from lab.pauses import Pauses
with Pauses() as pauses:
    begin = time.time()
    subprocess.Popen(["sh", "-c", f"sleep 2; kill -CONT {os.getpid()}"])
    os.kill(os.getpid(), signal.SIGSTOP)
    end = time.time()
    print(end - begin, pauses.seconds(begin, end), pauses.seconds(begin - 7, begin - 6))
"""


def test_a_pause_does_not_count() -> None:
    said = subprocess.run([sys.executable, "-c", STOPPED], capture_output=True, text=True, check=True).stdout
    whole, rest, before = map(float, said.split())
    assert whole - rest > 1.0
    assert 0 <= rest < whole / 2
    assert before == 1.0


def test_what_is_no_pause_counts() -> None:
    with Pauses() as pauses:
        now = time.time()
        assert pauses.seconds(now - 5, now - 2) == 3.0
