"""An allocation whose work directory is on a distributed file system: the driver and each node have own caches."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.cwl import Document, found, streamable, streaming, tool, workflow
from lab.machines.laboratory import Laboratory, slurm_obstacle, start_slurm
from lab.sites import allocation_site, on_volume
from tests.e2e.conftest import require_glusterfs, require_laboratories
from tests.e2e.test_allocation import nodes_of, three_streams
from tests.e2e.test_allocation_local import files_for_both_nodes
from tests.e2e.test_streaming import check_gone, check_nothing_fell_back


@pytest.fixture(scope="module")
def laboratory() -> Iterator[Laboratory]:
    require_laboratories()
    require_glusterfs()
    if (reason := slurm_obstacle()) is not None:
        pytest.skip(reason)
    with start_slurm(is_distributed=True) as running:
        yield running


def line_by_line() -> Document:
    """A stream of a file that grows by a line at a time."""
    lines = "awk 'BEGIN { for (i = 0; i < 3000; i++) { print i; fflush() } }' > out.txt"
    first = tool(lines, {}, {"out": found("out.txt")}, [streaming({"port": "out", "mode": "no_update"})])
    last = tool("cat < $file > out.txt", {"file": streamable()}, {"out": found("out.txt")})
    steps = {"a": {"run": first, "in": {}}, "b": {"run": last, "in": {"file": "a/out"}}}
    return workflow({}, steps, {"out": "b/out"})


def test_files_and_streams_on_a_distributed_file_system(laboratory: Laboratory, tmp_path: Path) -> None:
    with allocation_site(laboratory, tmp_path) as allocation:
        site = on_volume(allocation)
        _, lines = site.run_both(line_by_line(), {})
        assert "1 byte stream carried" in lines.log
        check_nothing_fell_back(lines.log)
        _, ours = site.run_both(files_for_both_nodes(), {"numbers": [1, 2]}, seconds=120)
        assert len(nodes_of(ours)) == 2
        check_nothing_fell_back(ours.log)
        check_gone(site)


@pytest.mark.long
def test_the_size_of_a_file_may_come_before_its_bytes(laboratory: Laboratory, tmp_path: Path) -> None:
    """Each producer writes 109 kB at once, and the readers of all streams are faster than the file system."""
    with allocation_site(laboratory, tmp_path) as allocation:
        site = on_volume(allocation)
        for _ in range(4):
            ours = site.run(three_streams(), config={"oversubscribe": "never"})
            assert ours.ok, ours.errors
            assert "3 byte streams carried" in ours.log
            assert ours.files["out.txt"].decode() == "".join(f"{number}\n" for number in range(1, 20001)) * 2
            check_nothing_fell_back(ours.log)
        check_gone(site)
