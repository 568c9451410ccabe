"""On Slurm and on SSH hosts no more storageBW is admitted than a storage has; results are those of plain StreamFlow."""

from __future__ import annotations

import signal
import time

import pytest

from tests.cwl import Document, found, tool, workflow
from tests.e2e.support import Site, at_once

IO_TASK = {"class": "sfio:IOTask"}


def bandwidth(value: float | str) -> Document:
    return {"class": "sfio:StorageBandwidth", "storageBW": value}


def scattered(hints: list[Document], seconds: float = 1.5, script: str = "") -> Document:
    """Steps that take their time to write a small file, and note when and on which host."""
    write = tool(
        f'note "start $(hostname)"; {script} sleep {seconds}; echo $part > out.txt; note "end $(hostname)"',
        {"part": "int"},
        {"out": found("out.txt")},
        hints,
        requirements=[{"class": "ResourceRequirement", "coresMin": 1, "ramMin": 16}],
    )
    steps = {"a": {"run": write, "scatter": "part", "in": {"part": "parts"}}}
    return workflow({"parts": "int[]"}, steps, {"out": "a/out"})


def check_telemetry(site: Site, jobs: int, most: float) -> None:
    """Every job was admitted and has ended, never with more than that in all; the commands for people can read it."""
    admitted, ended = site.records("admitted"), site.records("ended")
    assert len({record["job"] for record in admitted}) == jobs
    assert max(record["allocated"] for record in admitted) == most
    assert [record["status"] for record in ended] == ["completed"] * jobs
    assert {record["location"].partition("/")[0] for record in admitted} == {site.name}
    report = site.streamflow_io("report", "last", "--output", str(site.directory / "report.html"))
    assert report["ok"]
    assert (site.directory / "report.html").stat().st_size > 1000
    assert site.streamflow_io("learned", "list")["ok"]


@pytest.mark.parametrize("hints", [[IO_TASK], []], ids=["IO tasks", "others"])
def test_slurm_jobs_stay_within_the_storage(slurm: Site, hints: list[Document]) -> None:
    document = scattered([*hints, bandwidth(40)])
    plain, ours = slurm.run_both(document, {"parts": list(range(5))}, config={"storages": [slurm.storage(100)]})
    assert at_once(plain) > 2
    assert at_once(ours) == 2
    check_telemetry(slurm, 5, 80)


@pytest.mark.parametrize("scope", ["node", "shared"])
def test_jobs_of_hosts_stay_within_the_storage(hosts: Site, scope: str) -> None:
    """Each host has a storage, or they have one together."""
    config = {"storages": [hosts.storage(100, path="/scratch", scope=scope)]}
    plain, ours = hosts.run_both(scattered([IO_TASK, bandwidth(40)]), {"parts": list(range(8))}, config=config)
    on_each = {host: at_once(ours, f"start {host}", f"end {host}") for host in ("host1", "host2")}
    if scope == "node":
        assert on_each == {"host1": 2, "host2": 2}
    else:
        assert at_once(plain) > 2
        assert at_once(ours) == 2
    check_telemetry(hosts, 8, 80)


def test_bandwidth_is_returned_by_failed_jobs(site: Site) -> None:
    """Each job fails once; with StreamFlow's failure manager it is tried again, and finds the bandwidth free."""
    script = 'test -e "$TRACE.$part" || { touch "$TRACE.$part"; note failed; exit 1; };'
    ours = site.run(
        scattered([IO_TASK, bandwidth(60)], 0.1, script),
        {"parts": [1, 2]},
        config={"storages": [site.storage(100)]},
        failureManager={"type": "default", "config": {"max_retries": 3, "retry_delay": 0}},
    )
    assert ours.ok, ours.errors
    assert len(ours.times("failed")) == 2
    assert sorted(record["status"] for record in site.records("ended")) == ["completed"] * 2 + ["failed"] * 2
    assert {record["allocated"] for record in site.records("admitted")} == {60}
    assert site.leftovers() == []


def test_after_a_cancelled_run_all_is_free(site: Site) -> None:
    """StreamFlow 0.2.0rc3 does not end jobs that run; those that wait for bandwidth were not even submitted."""
    config = {"storages": [site.storage(100)]}
    path = site.write(scattered([IO_TASK, bandwidth(60)], 6), {"parts": [1, 2, 3]}, True, config)
    process = site.start(path)
    trace = path.parent / "trace"
    end = time.monotonic() + 30
    while not (trace.exists() and "start" in trace.read_text()):
        assert time.monotonic() < end, (path.parent / "stderr").read_text()
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    cancelled = site.finish(process, path)
    assert not cancelled.ok
    assert sum(what.startswith("start") for _, what in cancelled.trace) == 1
    assert [record["status"] for record in site.records("ended")] == ["cancelled"] * len(site.records("submitted"))
    if site.is_slurm:
        assert len(site.cancel_jobs()) <= 1
    again = site.run(scattered([IO_TASK, bandwidth(60)], 0), {"parts": [1, 2]}, config=config)
    assert again.ok, again.errors
    assert len(again.trace) == 4


def test_a_limit_is_learned(site: Site) -> None:
    """Under a bandwidth of 8 and 4 executors: 4, 2 at once; the time of a job does not depend on it."""
    config: Document = {"storages": [site.storage(8)]}
    if site.is_slurm:
        site.deployment["config"]["maxConcurrentJobs"] = 4  # and so many executors
    else:
        config["ioExecutors"] = 4
    ours = site.run(scattered([IO_TASK, bandwidth("auto")], 1), {"parts": list(range(10))}, config=config)
    assert ours.ok, ours.errors
    assert at_once(ours) == 4
    epochs = site.records("epoch")
    assert [(epoch["constraint"], epoch["registered"]) for epoch in epochs[:2]] == [(2, True), (4, False)]
    (learned,) = site.streamflow_io("learned", "list")["learned"]
    assert learned["step"] == "/a"


def test_jobs_go_where_their_input_is(hosts: Site) -> None:
    """The first step is spread by free bandwidth, the second follows its input."""
    first = tool("hostname > first.txt", {"part": "int"}, {"out": found("first.txt")}, [IO_TASK, bandwidth(60)])
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
