"""A host is lost while others read parts of a file through links from it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.cwl import Document, found, streamable, tool, workflow
from lab.machines.hosts import ADDRESSES
from lab.machines.laboratory import Laboratory, start_hosts
from lab.runs import wait_for_note
from lab.sites import Site, hosts_site
from tests.e2e.conftest import require_laboratories
from tests.e2e.test_parts_elsewhere import SAY, two_hosts
from tests.e2e.test_streaming import left_at

SIZE = 128 << 20


@pytest.fixture
def lost(tmp_path: Path) -> Iterator[Site]:
    """Two hosts of its own: the first will not come back."""
    require_laboratories()
    with start_hosts() as laboratory:
        yield hosts_site(laboratory, tmp_path)


def first_process(laboratory: Laboratory, address: str) -> int:
    """Process 1 of a host, without which there is none of the others, nor its network."""
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            is_first = (directory / "status").read_text().partition("NSpid:")[2].splitlines()[0].endswith("\t1")
            root = directory / "root"
            is_here = is_first and (root / str(laboratory.directory / "shared").lstrip("/")).is_dir()
            if is_here and f"\n{address} " in (root / "etc" / "hosts").read_text():
                return int(directory.name)
        except OSError:
            continue
    raise AssertionError(f"no host {address}")


def halves(directory: Path) -> tuple[Document, Document]:
    """A file in two parts, whose readers pause in the middle."""
    path = directory / "reads.bin"
    with path.open("wb") as file:
        file.truncate(SIZE)
    inputs = {"of": "File", "count": "int"}
    split = tool(SAY, inputs, {"chunks": found("chunk-*.bin", "File[]")})
    split["hints"] = [{"class": "sfio:ReadSession", "rules": [{"port": "chunks", "of": "of"}]}]
    pause = 'note began; until [ -e "$go" ]; do sleep 0.1; done'
    reader = tool(
        f'exec 3< "$chunk"; dd bs=1k count=1 status=none <&3; {pause}; cat <&3',
        {"chunk": streamable(), "go": "string"},
        {"counted": "stdout"},
        stdout="$(inputs.chunk.nameroot).out",
    )
    steps = {
        "split": {"run": split, "in": {"of": "of", "count": "count"}},
        "count": {"run": reader, "in": {"chunk": "split/chunks", "go": "go"}, "scatter": "chunk"},
    }
    document = workflow({**inputs, "go": "string"}, steps, {"counted": "count/counted"})
    return document, {"of": {"class": "File", "path": f"{directory.name}/reads.bin"}, "count": 2}


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("how", ["killed", "unplugged"])
def test_a_host_is_lost_while_parts_are_read_from_it(lost: Site, how: str) -> None:
    """The readers of the parts try for a minute to connect to it.

    Then the run fails, says what could not be read, and leaves nothing.
    """
    laboratory = lost.laboratory
    (directory := lost.shared / "input").mkdir()
    site = two_hosts(lost, {"port": "/of", "target": {"deployment": "hosts", "workdir": str(lost.shared)}})
    document, values = halves(directory)
    path = site.write(document, {**values, "go": str(directory / "go")}, io=True)
    process = site.start(path)
    wait_for_note(path, "began", 2, seconds=40)
    if how == "unplugged":
        # No process is told of the end of a connection.
        laboratory.run("ip", "link", "set", "host1", "down")
    os.kill(first_process(laboratory, ADDRESSES[0]), signal.SIGKILL)
    (directory / "go").touch()
    ours = site.finish(process, path, 200)
    assert (ours.code, ours.files) == (1, {})
    last = [line for line in ours.log.splitlines() if " ERROR " in line][-1]
    assert f"cannot read {directory}/reads.bin from {ADDRESSES[0]}:" in last, ours.errors
    assert "No route to host" in last
    assert site.leftovers() == []
    assert left_at(laboratory, ADDRESSES[1]) == []
