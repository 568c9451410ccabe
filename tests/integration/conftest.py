from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.register_assert_rewrite("tests.cwl", "tests.node_support")

from tests.cwl import Bench  # noqa: E402
from tests.node_support import Node, node  # noqa: E402

# Started by `nohup`, or in the background of a script, tests would hand on that these are ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
for number in (signal.SIGHUP, signal.SIGQUIT):
    signal.signal(number, signal.SIG_DFL)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[Node]:
    """A running `sfio-node serve`, with the directories `out` and `in` beside its own."""
    for name in ("out", "in"):
        (tmp_path / name).mkdir()
    with node(tmp_path) as running:
        yield running
