"""`memory`: files that are removed lie in /dev/shm, as far as they fit; the results are those of plain StreamFlow."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from lab.cwl import Document, streamable, tool, workflow
from lab.node import wait_for
from lab.runs import Bench
from streamflow_io.storage.intermediates.memory import PLACE, free_memory

pytestmark = pytest.mark.skipif((free_memory() or 0) < 2**30, reason="1 GB of /dev/shm has to be free")

MB: Final = 1 << 20
MEMORY: Final[Document] = {"intermediates": "remove", "memory": "500MB"}


def left() -> set[Path]:
    return {*PLACE.glob("streamflow-io-*")}


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    before = left()
    yield
    wait_for(lambda: left() <= before)


def writer(script: str, kind: Any = "stdout") -> Document:
    return {"run": tool(script, {}, {"o": kind}, stdout="a.txt"), "in": {}}


def reader(script: str, source: str, name: str, kind: Any = "File") -> Document:
    run = tool(script, {"i": kind}, {"o": "stdout"}, stdout=f"{name}.txt")
    return {"run": run, "in": {"i": source}}


NOTE: Final = 'note $PWD'


def chain(first: str) -> Document:
    """Each job notes its directory; the last one's file is the result."""
    steps = {
        "a": writer(f"{NOTE}; {first}"),
        "b": reader(f"{NOTE}; tr 0-4 5-9 < $i", "a/o", "b"),
        "c": reader(f"{NOTE}; sha1sum < $i; ln -s $i link", "b/o", "c"),
    }
    return workflow({}, steps, {"o": "c/o"})


NUMBERS: Final = "seq 1 9999999 | head -c 20000000"


def places(path: Path) -> list[bool]:
    """Whether the directory of each job was in memory, in the order in which the attempts ran."""
    lines = (path.parent / "trace").read_text().splitlines()
    return [line.split(" ")[1].startswith(f"{PLACE}/") for line in lines]


def run(bench: Bench, document: Document, config: Document, **environment: str) -> tuple[str, Any, list[bool]]:
    path = bench.write(document, {}, io=True, config=config)
    done = bench.finish(bench.start(path, **environment), path)
    assert done.ok, done.errors
    return done.log, done.results, places(path)


def test_the_second_run_writes_into_memory(bench: Bench) -> None:
    document = chain(NUMBERS)
    (plain,) = bench.run_all([bench.write_plain(document, {})])
    for expected in ([False, False, False], [True, True, False]):
        _, results, found = run(bench, document, MEMORY)
        assert results == plain.results
        assert found == expected
    assert bench.leftovers() == []
