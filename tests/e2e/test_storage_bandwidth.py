"""On Slurm and on SSH hosts no more storageBW is admitted than a storage has; results are those of plain StreamFlow."""

from __future__ import annotations

import pytest

from lab.cwl import Document, found, tool, workflow
from lab.sites import Site, at_once
from tests.e2e.test_streaming import check_gone, check_nothing_fell_back

IO_TASK = {"class": "sfio:IOTask"}
# Until four jobs have started, or for three seconds.
TOGETHER = 'i=0; until [ $(grep -c start "$TRACE") -ge 4 ] || [ $i = 30 ]; do i=$((i+1)); sleep 0.1; done;'


def bandwidth(value: float | str) -> Document:
    return {"class": "sfio:StorageBandwidth", "storageBW": value}


def scattered(hints: list[Document], script: str) -> Document:
    """Jobs that write a small file, and note when and on which host."""
    write = tool(
        f'note "start $(hostname)"; {script} echo $part > out.txt; note "end $(hostname)"',
        {"part": "int"},
        {"out": found("out.txt")},
        hints,
        requirements=[{"class": "ResourceRequirement", "coresMin": 0.1, "ramMin": 16}],
    )
    steps = {"a": {"run": write, "scatter": "part", "in": {"part": "parts"}}}
    return workflow({"parts": "int[]"}, steps, {"out": "a/out"})


@pytest.mark.parametrize("site", ["slurm", pytest.param("hosts", marks=pytest.mark.long)], indirect=True)
def test_a_limit_is_learned(site: Site) -> None:
    """Under a bandwidth of 8 and 4 executors: 4, then 2 at once. What jobs write is measured where they run."""
    config: Document = {"storages": [site.storage(8)]}
    if site.is_slurm:
        site.deployment["config"]["maxConcurrentJobs"] = 4  # and as many executors
    else:
        config["ioExecutors"] = 4
    script = "head -c 300000 /dev/zero > more.bin; sleep 0.5;"
    ours = site.run(scattered([IO_TASK, bandwidth("auto(2,4,2)")], script), {"parts": list(range(8))}, config=config)
    assert ours.ok, ours.errors
    assert at_once(ours) <= 4
    assert [(epoch["constraint"], epoch["registered"]) for epoch in site.records("epoch")] == [(2, True), (4, True)]
    assert "learned" in [choice["reason"] for choice in site.records("choice")]
    usages = [record["usage"] for record in site.records("ended")]
    assert [300_000 <= usage["bytesWritten"] < 310_000 for usage in usages] == [True] * 8
    check_nothing_fell_back(ours.log)
    check_gone(site)
    (learned,) = site.streamflow_io("learned", "list")["learned"]
    assert learned["step"] == "/a"


def test_jobs_go_where_their_input_is(hosts: Site) -> None:
    """The first step is spread by free bandwidth, the second follows its input."""
    first = tool(
        # All have begun before one of them gives its bandwidth back.
        f"note start; {TOGETHER.replace('= 30', '= 300')} hostname > first.txt",
        {"part": "int"},
        {"out": found("first.txt")},
        [IO_TASK, bandwidth(50)],
    )
    second = tool(
        "cat $file > second.txt; hostname >> second.txt",
        {"file": "File"},
        {"out": found("second.txt")},
        [IO_TASK, bandwidth(10)],
    )
    steps = {
        "a": {"run": first, "scatter": "part", "in": {"part": "parts"}},
        "b": {"run": second, "scatter": "file", "in": {"file": "a/out"}},
    }
    document = workflow({"parts": "int[]"}, steps, {"out": "b/out"})
    config = {"storages": [hosts.storage(100, scope="node")]}
    ours = hosts.run(document, {"parts": list(range(4))}, config=config)
    assert ours.ok, ours.errors
    places = sorted(content.decode().split() for content in ours.files.values())
    assert places == [["host1", "host1"]] * 2 + [["host2", "host2"]] * 2
