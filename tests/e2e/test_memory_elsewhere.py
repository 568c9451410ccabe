"""`memory` on SSH hosts and on the nodes of an allocation; results are those of plain StreamFlow."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from lab.cwl import Document, streamable, tool, workflow
from lab.machines.hosts import ADDRESSES
from lab.node import wait_for
from lab.runs import Run
from lab.sites import Site, apart
from tests.e2e.test_allocation import kill_serve
from tests.e2e.test_laboratory import login
from tests.e2e.test_streaming import LONG, RETRY, check_gone
from tests.integration.test_windows import awaited

SMALL: Final = [{"class": "ResourceRequirement", "coresMin": 0.1, "ramMin": 16}]
MEMORY: Final[Document] = {"intermediates": "remove", "memory": "500MB"}
PLACE: Final = "/dev/shm/"
MB: Final = 1 << 20
NOTE: Final = "note $PWD"


def step(script: str, name: str, source: str | None = None, kind: Any = "File", output: Any = "stdout") -> Document:
    given = {} if source is None else {"i": kind}
    run = tool(script, given, {"o": output}, requirements=SMALL, stdout=f"{name}.txt")
    return {"run": run, "in": {} if source is None else {"i": source}}


def chain(first: str = "seq 1 9999999 | head -c 20000000", second: str = "tr 0-4 5-9 < $i") -> Document:
    """Each job notes its directory; the last one's file is the result."""
    steps = {
        "a": step(f"{NOTE}; {first}", "a"),
        "b": step(f"{NOTE}; {second}", "b", "a/o"),
        "c": step(f"{NOTE}; cat $i", "c", "b/o"),
    }
    return workflow({}, steps, {"o": "c/o"})


def in_memory(run: Run) -> list[bool]:
    """Whether the directory of each job was in memory, in the order in which the attempts ran."""
    return [what.startswith(PLACE) for _, what in run.trace if what.startswith("/")]


def left_in_memory(site: Site) -> list[str]:
    """What is left of runs in the memory of hosts, or of nodes."""
    if not site.is_slurm:
        return [name for address in ADDRESSES for name in login(site.laboratory, address, "ls /dev/shm").split()]
    return [path.name for node in nodes(site) for path in Path(f"/proc/{node}/root{PLACE}").glob("streamflow-io-*")]


def nodes(site: Site) -> Iterator[int]:
    """The processes that are nodes of the Slurm."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words, variables = ((process / name).read_bytes().split(b"\0") for name in ("cmdline", "environ"))
        except OSError:
            continue
        if words[0].endswith(b"slurmd") and f"SLURM_CONF={site.environment['SLURM_CONF']}".encode() in variables:
            yield int(process.name)


@pytest.fixture(params=["apart", pytest.param("hosts", marks=LONG), "allocation"])
def place(request: pytest.FixtureRequest) -> Iterator[Site]:
    """On the first, /b runs on another host than the others."""
    site: Site = request.getfixturevalue("hosts" if request.param == "apart" else request.param)
    yield apart(site) if request.param == "apart" else site
    wait_for(lambda: not left_in_memory(site), "nothing in memory", 60)
    check_gone(site)


def test_the_second_run_writes_into_memory(place: Site) -> None:
    (plain,) = place.run_all([place.write_plain(chain(), {})], 120)
    assert plain.ok, plain.errors
    for expected in ([False, False, False], [True, True, False]):
        ours = place.run(chain(), config=MEMORY, seconds=120)
        assert ours.ok, ours.errors
        assert ours.results == plain.results
        assert in_memory(ours) == expected
        assert "SFIO-" not in ours.log
