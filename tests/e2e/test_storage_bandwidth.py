"""On Slurm and on SSH hosts no more storageBW is admitted than a storage has; results are those of plain StreamFlow."""

from __future__ import annotations

import pytest

from lab.cwl import Document, found, tool, workflow
from lab.sites import Site, at_once
from tests.e2e.test_streaming import check_gone, check_nothing_fell_back

IO_TASK = {"class": "sfio:IOTask"}
# Until four jobs have started, or for three seconds.
TOGETHER = 'i=0; until [ $(grep -c start "$TRACE") -ge 4 ] || [ $i = 30 ]; do i=$((i+1)); sleep 0.1; done;'
# With us two are at once, and a second later others would be there, too.
TWO_TOGETHER = TOGETHER.replace("-ge 4", "-ge 2") + " sleep 1;"


# MB.
COPIED = 40


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


def check_telemetry(site: Site, jobs: int) -> None:
    """Every job was admitted and has ended; at most 80 MB/s were given out."""
    admitted, ended = site.records("admitted"), site.records("ended")
    assert len({record["job"] for record in admitted}) == jobs
    assert max(record["allocated"] for record in admitted) == 80
    assert {record["location"].partition("/")[0] for record in admitted} == {site.name}
    assert [record["status"] for record in ended] == ["completed"] * jobs


def check_report(site: Site, jobs: int, *options: str) -> None:
    report = site.streamflow_io("report", "last", *options)
    assert [step["jobs"] for run in report["runs"] for step in run["steps"]] == [jobs]


@pytest.mark.long
def test_slurm_jobs_stay_within_the_storage(slurm: Site) -> None:
    """I/O tasks and others; the node is not known before a job runs, so that a storage of each node is one for all."""
    parts = {"parts": list(range(4))}
    plain = slurm.write(scattered([], TOGETHER), parts, io=False)
    results = []
    for hints, scope, others in (([IO_TASK], "shared", [plain]), ([], "node", [])):
        config = {"storages": [slurm.storage(100, scope=scope)]}
        path = slurm.write(scattered([*hints, bandwidth(40)], TWO_TOGETHER), parts, True, config)
        ours, *runs = slurm.run_all([path, *others])
        assert [at_once(run) >= 4 for run in runs] == [True] * len(others)
        assert ours.ok, ours.errors
        results += [run.results for run in (ours, *runs)]
        assert at_once(ours) == 2
        check_telemetry(slurm, 4)
    assert results == results[:1] * 3
    assert slurm.leftovers() == []
    page = slurm.directory / "report.html"
    check_report(slurm, 4, "--output", str(page))
    assert page.stat().st_size > 1000


@pytest.mark.long
def test_jobs_of_hosts_stay_within_the_storage(hosts: Site) -> None:
    """Each host has a storage, or they have one together; I/O tasks and others."""
    parts = {"parts": list(range(6))}
    plain = hosts.run(scattered([], TOGETHER), parts, io=False)
    assert at_once(plain) >= 4
    for hints, scope, most in (([IO_TASK], "node", {"host1": 2, "host2": 2}), ([], "shared", {})):
        config = {"storages": [hosts.storage(100, path="/scratch", scope=scope)]}
        ours = hosts.run(scattered([*hints, bandwidth(40)], TOGETHER), parts, config=config)
        assert ours.ok, ours.errors
        assert ours.results == plain.results
        for host, jobs in most.items():
            assert at_once(ours, f"start {host}", f"end {host}") == jobs
        assert at_once(ours) == (sum(most.values()) or 2)
        check_telemetry(hosts, 6)
    assert hosts.leftovers() == []
    check_report(hosts, 6)


@pytest.mark.long
def test_jobs_on_hosts_move_no_faster_than_it_is_required(hosts: Site) -> None:
    check_required(hosts, 4)


@pytest.mark.long
def test_jobs_on_slurm_move_no_faster_than_it_is_required(slurm: Site) -> None:
    """A queue takes its time before a job, and after it."""
    check_required(slurm, 8)


def check_required(site: Site, within: int) -> None:
    """An I/O task copies a file while another job computes, which ends after that is needed."""
    little = [{"class": "ResourceRequirement", "coresMin": 0.1, "ramMin": 16}]
    required = {**bandwidth("required"), "within": within}
    content = b"".join(b"%d\n" % number for number in range(1, 6_000_000))[: COPIED * 10**6]
    made = tool(f"seq 5999999 | head -c {len(content)} > made", {}, {"out": found("made")}, requirements=little)
    # In small pieces: a program that writes all at once may be over before it is looked at.
    script = (
        'for n in $(seq 0 39); do dd if="$file" of=copied bs=1M skip=$n seek=$n count=1 conv=notrunc status=none; done'
    )
    copy = tool(script, {"file": "File"}, {"out": found("copied")}, [IO_TASK, required])
    compute = tool(f"sleep {within + 1}; echo done > done", {"file": "File"}, {"out": found("done")})
    both = tool('cat "$file" "$other" > both', {"file": "File", "other": "File"}, {"out": found("both")})
    steps = {
        "make": {"run": made, "in": {}},
        "copy": {"run": copy, "in": {"file": "make/out"}},
        "compute": {"run": compute, "in": {"file": "make/out"}},
        "both": {"run": both, "in": {"file": "copy/out", "other": "compute/out"}},
    }
    config = {"storages": [site.storage(100)]}
    ours = site.run(workflow({}, steps, {"out": "both/out"}), config=config)
    assert ours.ok, ours.errors
    assert ours.files == {"both": content + b"done\n"}

    [request] = site.records("request")
    # Of the time StreamFlow needs some for itself.
    assert request["rule"] == "within"
    assert 1.1 * COPIED / within <= request["limit"] <= 2.5 * COPIED / within
    # The job is paused, is done in time, and not much sooner.
    [usage] = [record["usage"] for record in site.records("ended") if record["step"] == "/copy"]
    assert usage["pauses"] > 0, (usage, request, site.records("rate"))
    assert usage["pausedSeconds"] > 1
    assert usage["ended"] - usage["started"] >= 0.7 * COPIED / request["limit"]
    assert "not held" not in ours.log
    check_nothing_fell_back(ours.log)
    check_gone(site)


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
