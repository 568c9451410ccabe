"""The workloads and the programs that they run."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.tools import MEBIBYTE
from benchmarks.workflows import tree_digest
from lab import memory_limit
from streamflow_io.runtime.embedded import find_sfio_node


def test_memory_is_limited_while_it_lasts() -> None:
    if (obstacle := memory_limit.obstacle()) is not None:
        pytest.skip(obstacle)
    mine = Path("/proc/self/cgroup")
    before = mine.read_text()
    with memory_limit.limited_memory(64 * MEBIBYTE) as limited:
        allocate = [*limited.prefix, sys.executable, "-S", "-E", "-c", f"print(len(b'x' * {128 * MEBIBYTE}))"]
        assert subprocess.run(allocate, capture_output=True, check=False).returncode == -signal.SIGKILL
    with memory_limit.limited_memory(1024 * MEBIBYTE) as limited, limited.joined():
        assert before != mine.read_text()
        said = json.loads(subprocess.run([find_sfio_node(), "memory"], capture_output=True, check=True).stdout)
        assert said["limit"] == 1024 * MEBIBYTE
    assert before == mine.read_text()


def test_tree_digest_sees_names_and_contents(tmp_path: Path) -> None:
    digests = set()
    for name, content in (("a", "x"), ("b", "x"), ("a", "y")):
        (directory := tmp_path / f"{name}{content}").mkdir()
        (directory / name).write_text(content)
        digests.add(tree_digest(directory))
    assert len(digests) == 3
