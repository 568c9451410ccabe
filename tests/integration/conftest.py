from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cwl import Bench
from tests.node_support import Node, node


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
