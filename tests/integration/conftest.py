from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from cwl_utils.parser import cwl_v1_2
from cwltool import process
from ruamel.yaml import YAML
from schema_salad.schema import load_schema

from lab import forked, json_documents
from lab.node import Node, node, wait_for
from lab.node_remote import RemoteNode, remote_node
from lab.runs import Bench


@pytest.fixture(scope="session", autouse=True)
def _prepared(common: Path) -> None:
    forked.prepare(common)


@pytest.fixture(scope="session", autouse=True)
def _schemas() -> Iterator[None]:
    """cwltool keeps one schema of each version of CWL, and reads it again when it has used another one.

    Documents are read as in processes that are forked.
    """
    loaded: dict[str, Any] = {}

    def load_once(name: str, cache: Mapping[str, Any]) -> Any:
        key = f"{name} {sorted(cache.items())}"
        if key not in loaded:
            loaded[key] = load_schema(name, cache=cache)
        return loaded[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process, "load_schema", load_once)
        patch.setattr(YAML, "load", json_documents.load)
        patch.setattr(cwl_v1_2.LoadingOptions, "__deepcopy__", json_documents.same, raising=False)
        yield


@pytest.fixture
def public() -> Iterator[Path]:
    """A directory that other users reach. Each start of pytest takes this right from all that is above `tmp_path`."""
    with TemporaryDirectory(prefix="sfio-test-", ignore_cleanup_errors=True) as directory:
        Path(directory).chmod(0o755)
        yield Path(directory)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.fixture
def own_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Have this process read what the runs of `bench` have learned."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[Node]:
    """A running `sfio-node serve`, with the directories `out` and `in` beside its own."""
    for name in ("out", "in"):
        (tmp_path / name).mkdir()
    with node(tmp_path) as running:
        yield running


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[RemoteNode]:
    """A `serve --shared`, with the directories `out` and `in`."""
    for name in ("out", "in"):
        (tmp_path / name).mkdir()
    with remote_node(tmp_path) as running:
        yield running


@pytest.fixture
def small() -> Iterator[Path]:
    """A cgroup of 40 MiB; what writes a process into it."""
    root = Path("/sys/fs/cgroup")
    first = (root / "memory").is_dir()
    group = (root / "memory" if first else root) / f"sfio-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup: {error}")
    try:
        (group / ("memory.limit_in_bytes" if first else "memory.max")).write_text(str(40 << 20))
        yield group / "cgroup.procs"
    except OSError as error:
        pytest.skip(f"no limit of memory: {error}")
    finally:
        wait_for(lambda: not (group / "cgroup.procs").read_text(), "the end of the cgroup's processes")
        group.rmdir()
