from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import forked
from tests.cwl import Bench
from tests.node_support import Node, node
from tests.remote_support import RemoteNode, remote_node


@pytest.fixture(scope="session", autouse=True)
def _prepared() -> None:
    forked.prepare()


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


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[RemoteNode]:
    """A `serve --remote --shared`, with the directories `out` and `in`."""
    for name in ("out", "in"):
        (tmp_path / name).mkdir()
    with remote_node(tmp_path) as running:
        yield running


@pytest.fixture
def host(tmp_path: Path) -> Iterator[RemoteNode]:
    """A `serve --remote`, with the directories `out` and `in`."""
    for name in ("out", "in"):
        (tmp_path / name).mkdir()
    with remote_node(tmp_path, shared=False) as running:
        yield running
