"""Streams and commits on Slurm and on SSH hosts: results are plain StreamFlow's, and nothing is left."""

from __future__ import annotations

import hashlib
import signal
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from lab.cwl import Document, found, streamable, streaming, tool, workflow
from lab.forked import Driver
from lab.machines.hosts import ADDRESSES
from lab.machines.laboratory import Laboratory
from lab.node import wait_for as wait_until
from lab.runs import Run, wait_for_note
from lab.sites import Site, apart
from lab.templates import Template
from streamflow_io.commands.watch import FollowedRun
from streamflow_io.report.analysis.live import LiveRun
from tests.e2e.test_laboratory import login

SMALL = [{"class": "ResourceRequirement", "coresMin": 0.1, "ramMin": 16}]
# What a run says that falls back.
FALLBACKS = ("delivered at", "othing streams", "not while they are written", "is not measured", "are not measured")


def wait_for(name: str) -> str:
    """Shell: wait until a job has made a file beside the trace; half a minute at most."""
    return f'i=0; until [ -e "$TRACE.{name}" ] || [ $i = 300 ]; do i=$((i+1)); sleep 0.1; done; '


def mark(name: str) -> str:
    return f'touch "$TRACE.{name}"; '


def producer(script: str, rule: Document) -> Document:
    return tool(script, {}, {"out": found("out.txt")}, [streaming({"port": "out", **rule})], requirements=SMALL)


def consumer(script: str, **fields: Document) -> Document:
    return tool(
        script,
        {"file": streamable()},
        {"out": found("copy.txt"), "host": found("host.txt")},
        requirements=SMALL,
        **fields,
    )


def chain(first: Document, second: Document) -> Document:
    """a, then b with what a writes; c has the result of b, and only that is a result."""
    last = tool("note last; cat $file > last.txt", {"file": "File"}, {"out": found("last.txt")}, requirements=SMALL)
    steps = {
        "a": {"run": first, "in": {}},
        "b": {"run": second, "in": {"file": "a/out"}},
        "c": {"run": last, "in": {"file": "b/out"}},
    }
    return workflow({}, steps, {"out": "c/out", "host": "b/host"})


def read_while_written(end: str = "note end") -> Document:
    """A producer that writes its second half when the first has been read."""
    return producer(f"exec > out.txt; echo first; {wait_for('first')}echo second; {end}", {"mode": "no_update"})


READER = (
    f"hostname > host.txt; {{ read line; note $line; {mark('first')}echo $line; cat; }} < $file > copy.txt; note all"
)


LONG = pytest.mark.long
# `test_placement_on_hosts.py` has streams on one host.
SAME_HOST = pytest.param("hosts", marks=LONG)
# Where a stream goes from one node to another; on Slurm it is a file that both have.
BETWEEN_HOSTS = pytest.mark.parametrize("place", [pytest.param("slurm", marks=LONG), "apart"], indirect=True)


@pytest.fixture(params=["slurm", "hosts", "apart"])
def place(request: pytest.FixtureRequest) -> Site:
    """Slurm; hosts, one of them in use; two hosts with a stream between them."""
    if request.param == "apart":
        return apart(request.getfixturevalue("hosts"))
    site: Site = request.getfixturevalue(request.param)
    return site


@pytest.mark.long
@pytest.mark.timeout(400)
def test_the_queue_is_what_jobs_wait_for(slurm: Site) -> None:
    """Others have all nodes: that is seen while the run goes on, and in its report."""
    slurm.control("sbatch", "-N4", "--exclusive", "-o", "/dev/null", "--wrap", "sleep 600")
    first = producer("exec > out.txt; echo first", {"mode": "no_update"})
    path = slurm.write(chain(first, consumer("cat $file > copy.txt; hostname > host.txt")), {}, True)
    process = slurm.start(path)
    wait_until(lambda: [*slurm.data.glob("**/telemetry.jsonl")], "telemetry", 60)
    (telemetry,) = slurm.data.glob("**/telemetry.jsonl")
    following = FollowedRun(telemetry, LiveRun("run"))

    def queued() -> bool:
        following.look()
        view = following.view(time.time())
        return any(step.name == "/a" and step.waits.get("queue") for step in view.steps)

    wait_until(queued, "a job in the queue", 60)
    following.close()
    # The job waits for more than the time that a queue manager takes in any case.
    time.sleep(1)
    slurm.control("scancel", slurm.queue()[0])
    run = slurm.finish(process, path, 200)
    assert run.ok, run.errors
    ((report,),) = [slurm.streamflow_io("report", "last")["runs"]]
    (step,) = [step for step in report["steps"] if step["step"] == "/a"]
    assert step["waited"]["queue"] > 1, step
    assert any(span["cause"] == "queue" and span["step"] == "/a" for span in report["path"]), report["path"]
    (job,) = [job for job in report["timeline"] if job["step"] == "/a"]
    assert job["waiting"][1] == job["running"][0]
    assert job["waiting"][1] - job["waiting"][0] >= job["waited"]["queue"]


def check_nothing_fell_back(log: str) -> None:
    told = [line for line in log.splitlines() if "WARNING" in line and any(words in line for words in FALLBACKS)]
    assert told == []


def check_gone(site: Site) -> None:
    """No process, run directory, FIFO or socket is left, here or on the hosts."""
    end = time.monotonic() + 60
    while left := [*site.leftovers(), *left_on_hosts(site)]:
        assert time.monotonic() < end, left
        time.sleep(0.2)


def left_on_hosts(site: Site) -> list[str]:
    return [] if site.is_slurm else [line for address in ADDRESSES for line in left_at(site.laboratory, address)]


def left_at(laboratory: Laboratory, address: str) -> list[str]:
    look = (
        "find /tmp /scratch /dev/shm \\( -name 'streamflow-io-*' -o -type p -o -type s \\) "
        "! -path '*/.streamflow-io/*'; "
        "for p in /proc/[0-9]*; do tr '\\0' ' ' 2>&- < $p/cmdline | grep -a -e '[s]fio-node' -e '[T]RACE'; done; true"
    )
    return [f"{address}: {line}" for line in login(laboratory, address, look).splitlines() if line]


@LONG
def test_the_1000genome_template(site: Site, tmp_path_factory: pytest.TempPathFactory) -> None:
    template = Template.copy("1000genome", tmp_path_factory.mktemp("template"))
    scale = {"chromosomes": 22, "records": 120, "instances": 2, "populations": "EUR", "draws": 5}
    generated = template.script("generate.py", "tiny", *(f"--{name}={value}" for name, value in scale.items()))
    assert generated.returncode == 0, generated.stderr
    plain, _ = site.run_template(template, "streamflow.yml", "generated/tiny/job.yml")
    ours, log = site.run_template(template, "streamflow-io.yml", "generated/tiny/job.yml")
    assert len(plain) == 7
    assert ours == plain
    check_nothing_fell_back(log)
    check_gone(site)


@pytest.mark.parametrize("place", ["slurm", SAME_HOST, "apart"], indirect=True)
def test_bytes_are_read_while_they_are_written(place: Site) -> None:
    """Another user of the host cannot replace the stream: StreamFlow makes the directories of jobs for all users."""
    other = "setpriv --reuid=65534 --regid=65534 --clear-groups mv"
    attack = "".join(f'{other} "{above}" "{above}.moved" && note moved; ' for above in ("${file%/*}", "${file%/*/*}"))
    reader = f"note began; {attack}{READER}" if place.elsewhere else READER
    ours = place.run(chain(read_while_written(), consumer(reader)))
    assert ours.ok, ours.errors
    assert ours.time("first") < ours.time("end") < ours.time("all") < ours.time("last")
    assert ours.files["last.txt"] == b"first\nsecond\n"
    if place.elsewhere:
        assert ours.files["host.txt"] == b"host2\n"
        assert (len(ours.times("began")), ours.times("moved")) == (1, [])
    check_nothing_fell_back(ours.log)
    check_gone(place)


@pytest.mark.parametrize(
    ("place", "tls"),
    [("apart", True), *(pytest.param(place, False, marks=LONG) for place in ("apart", "slurm"))],
    indirect=["place"],
)
def test_a_large_stream_is_the_same(place: Site, tls: bool) -> None:
    """20 MB, into standard input, over a link of 200 Mbit/s; plain, or inside TLS."""
    # Brackets, so that the search does not find itself.
    look = "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -o -e '[-]-listen --tls' | sort -u > host.txt"
    script = "i=0; while [ $i -lt 40 ]; do i=$((i+1)); head -c 500000 /dev/zero | tr '\\0' $((i % 10)); done > out.txt"
    second = consumer(f"{look}; sha1sum > copy.txt", stdin="$(inputs.file.path)")
    ours = place.run(chain(producer(script, {"mode": "no_update"}), second), config={"tls": True} if tls else {})
    assert ours.ok, ours.errors
    written = b"".join(b"%d" % (i % 10) * 500_000 for i in range(1, 41))
    assert ours.files["last.txt"].split()[0].decode() == hashlib.sha1(written).hexdigest()
    assert ours.files["host.txt"] == (b"--listen --tls\n" if tls else b"")
    check_nothing_fell_back(ours.log)
    check_gone(place)


#: glob, what writes first and at the end, what is copied, and what is told
CHANGED = (
    "out.txt",
    "exec 3> out.txt; echo header >&3; seq 1 99999 >&3",
    "printf H 1<> out.txt; exec 3>&-",
    "Header",
    "starts again when its input is final: job /a/0 has not written its output front to back",
)
RENAMED = (
    "out.*",
    "seq 1 99999 > out.tmp",
    "mv out.tmp out.txt",
    "1",
    "starts again with the final output: the output `out` of job /a/0 is out.txt",
)


@pytest.mark.parametrize(
    ("place", "what"),
    [pytest.param(place, what, marks=LONG) for place in ("apart", "slurm", "hosts") for what in (CHANGED, RENAMED)],
    ids=[f"{place}-{what}" for place in ("apart", "slurm", "hosts") for what in ("changed", "renamed")],
    indirect=["place"],
)
def test_who_has_read_enough_of_what_is_changed_reads_again(place: Site, what: tuple[str, str, str, str, str]) -> None:
    glob, write, end, copied, told = what
    first = producer(f"{write}; {wait_for('first')}{end}", {"mode": "no_update"})
    first["outputs"]["out"]["outputBinding"]["glob"] = glob
    script = "hostname > host.txt; { head -n 1 $file; basename $file; } > copy.txt; note read; "
    run = place.run(chain(first, consumer(script + mark("first"))), seconds=120)
    assert run.ok, run.errors
    assert run.files["last.txt"].decode() == f"{copied}\nout.txt\n"
    assert f"Job /b/0 {told}" in run.log
    assert len(run.times("read")) == 2
    check_gone(place)


@LONG
def test_a_file_is_delivered_at_its_commit(site: Site) -> None:
    first = producer(f"echo early > out.txt; {wait_for('read')}note end", {"committed": "on_close"})
    second = consumer(f"note read; {mark('read')}hostname > host.txt; cat $file > copy.txt")
    ours = site.run(chain(first, second))
    assert ours.ok, ours.errors
    assert ours.time("read") < ours.time("end")
    assert ours.files["last.txt"] == b"early\n"
    check_nothing_fell_back(ours.log)
    check_gone(site)


def test_the_gate_on_slurm(slurm: Site) -> None:
    """The consumer runs on another node, and is held until the file is committed."""
    rule = {"committed": "on_close", "start": "producer"}
    first = producer(f"{wait_for('started')}note write; echo done > out.txt", rule)
    second = consumer(f"note started; {mark('started')}hostname > host.txt; cat $file > copy.txt; note read")
    ours = slurm.run(chain(first, second))
    assert ours.ok, ours.errors
    assert ours.time("started") < ours.time("write") < ours.time("read")
    assert ours.files["last.txt"] == b"done\n"
    check_nothing_fell_back(ours.log)
    check_gone(slurm)


@pytest.mark.parametrize(
    ("place", "death"),
    [
        pytest.param("slurm", "exit 3", marks=LONG),
        pytest.param("hosts", "kill -9 $$", marks=LONG),
        ("apart", "kill -9 $$"),
    ],
    indirect=["place"],
)
def test_a_failed_producer_never_looks_like_an_end_of_file(place: Site, death: str) -> None:
    ours = place.run(chain(read_while_written(death), consumer(READER)))
    assert not ours.ok
    assert ours.files == {}
    assert len(ours.times("first")) == 1
    assert ours.times("all") == ours.times("last") == []
    check_gone(place)


def test_a_gang_is_submitted_together_and_a_reader_that_is_first_waits(slurm: Site) -> None:
    """No job runs before both are in the queue; then the reader is let run first."""
    written = producer("note write; echo first > out.txt; echo second >> out.txt", {"mode": "no_update"})
    path = slurm.write(chain(written, consumer(f"note started; {READER}")), {}, io=True)
    slurm.control("scontrol", "update", "partitionname=all", "state=down")
    try:
        driver = slurm.start(path)
        wait_until(lambda: len(slurm.queue()) == 2, "two jobs in the queue", 60)
        first, _ = slurm.queue()
        slurm.control("scontrol", "hold", first)
        slurm.control("scontrol", "update", "partitionname=all", "state=up")
        wait_for_note(path, "started")
        slurm.control("scontrol", "release", first)
    finally:
        slurm.control("scontrol", "update", "partitionname=all", "state=up")
    ours = slurm.finish(driver, path)
    assert ours.ok, ours.errors
    assert ours.time("started") < ours.time("write") < ours.time("all")
    assert ours.files["last.txt"] == b"first\nsecond\n"
    check_gone(slurm)


@pytest.mark.parametrize("without", ["producer", pytest.param("reader", marks=LONG)])
def test_a_host_where_there_can_be_no_runtime(hosts: Site, without: str) -> None:
    """A producer there delivers at its end; a reader there gets its file when it is committed."""
    place = apart(hosts)
    address = ADDRESSES[without == "reader"]
    first = producer(
        f"{{ echo first; echo second; }} > out.txt; {wait_for('first') if without == 'reader' else ''}note end",
        {"mode": "no_update", "committed": "on_close"},
    )
    login(hosts.laboratory, address, "mkdir -p /scratch/.streamflow-io; chown 65534 /scratch/.streamflow-io")
    try:
        ours = place.run(chain(first, consumer(READER)))
    finally:
        login(hosts.laboratory, address, "chown 0 /scratch/.streamflow-io")
    assert ours.ok, ours.errors
    assert ours.files["last.txt"] == b"first\nsecond\n"
    assert (ours.time("first") < ours.time("end")) == (without == "reader")
    (told,) = (line for line in ours.log.splitlines() if "WARNING" in line and "streams" in line)
    assert "Nothing streams on " in told
    assert f"/{address}, all is as with plain StreamFlow: " in told
    check_gone(place)


def test_nodes_of_slurm_that_do_not_see_the_work_directory(slurm: Site) -> None:
    """Slurm names a file that is missing, or nothing. The run says what may be wrong."""
    workdir = str(slurm.laboratory.directory / "local" / "unseen")
    site = replace(slurm, deployment={**slurm.deployment, "workdir": workdir})
    prints = tool("seq 9", {}, {"out": {**found("out.txt"), "streamable": True}}, stdout="out.txt")
    for first in (producer("seq 9 > out.txt", {"mode": "no_update"}), prints):
        ours = site.run(chain(first, consumer("cat $file > last.txt")))
        assert not ours.ok
        (last,) = (line for line in ours.log.splitlines() if "FAILED Workflow execution" in line)
        assert "perhaps its node does not see the `workdir`, which login node and compute nodes have to share" in last
    check_gone(site)


def test_a_job_that_slurm_has_killed_has_failed(slurm: Site) -> None:
    """Plain StreamFlow takes its outputs for complete."""
    run = interrupted(slurm, lambda _: slurm.cancel_jobs())
    assert not run.ok
    assert run.files == {}
    assert run.times("last") == []
    check_gone(slurm)


@pytest.mark.parametrize(
    ("place", "number"),
    [
        pytest.param("slurm", signal.SIGINT, marks=LONG),
        pytest.param("hosts", signal.SIGINT, marks=LONG),
        ("apart", signal.SIGKILL),
    ],
    indirect=["place"],
)
def test_nothing_is_left_when_the_driver_ends(place: Site, number: signal.Signals) -> None:
    run = interrupted(place, lambda driver: driver.send_signal(number))
    assert not run.ok
    assert run.times("all") == []
    if place.is_slurm:
        wait_until(lambda: not place.queue(), "the end of jobs that were ended", 40)
    check_gone(place)


#: Shell: stops all of `sfio-node` on a host, so that none can do anything about the death of another, and kills them.
KILL_ALL = (
    "for number in STOP KILL; do for p in /proc/[0-9]*; do "
    "case $(readlink $p/exe) in *sfio-node*) kill -$number ${p#/proc/};; esac; done; done; true"
)


@pytest.mark.long
def test_nothing_is_left_where_all_of_the_node_runtime_was_killed_at_once(hosts: Site) -> None:
    """A process that the shell of a job has started waits at a FIFO for ever."""
    place = apart(hosts)
    reader = f"note first; {{ {wait_for('killed')}cat $file; }} & wait; touch copy.txt host.txt"
    path = place.write(chain(read_while_written(wait_for("killed")), consumer(reader)), {}, io=True)
    driver = place.start(path)
    wait_for_note(path, "first")
    login(place.laboratory, ADDRESSES[1], KILL_ALL)
    ours = place.finish(driver, path, 60)
    assert not ours.ok
    assert "sfio-node serve has ended at " in ours.log
    check_gone(place)


def test_after_ctrl_c_nothing_waits_in_the_queue(slurm: Site) -> None:
    waiting = producer("note never; touch out.txt", {"mode": "no_update"})
    path = slurm.write(chain(waiting, consumer(READER)), {}, io=True)
    slurm.control("scontrol", "update", "partitionname=all", "state=down")
    try:
        driver = slurm.start(path)
        wait_until(lambda: len(slurm.queue()) == 2, "two jobs in the queue", 60)
        driver.send_signal(signal.SIGINT)
        run = slurm.finish(driver, path, 60)
        assert slurm.queue() == []
    finally:
        slurm.control("scontrol", "update", "partitionname=all", "state=up")
    assert not run.ok
    assert "does not wrap" not in run.log
    assert run.times("never") == []
    check_gone(slurm)


def interrupted(site: Site, act: Callable[[Driver], object]) -> Run:
    """A run to which something is done when a stream is read; its producer would write on for a minute."""
    end = "i=0; while [ $i -lt 600 ]; do i=$((i+1)); sleep 0.1; done; note end"
    path = site.write(chain(read_while_written(end), consumer(READER)), {}, io=True)
    driver = site.start(path)
    wait_for_note(path, "first")
    act(driver)
    return site.finish(driver, path, 60)


@pytest.mark.long
@BETWEEN_HOSTS
def test_what_jobs_do_with_their_files_is_observed(place: Site) -> None:
    """Without hints; and a file that StreamFlow has copied, or made a link to, is known to be the same."""
    first = tool("echo first > out.txt", {}, {"out": found("out.txt")}, requirements=SMALL)
    ours = place.run(chain(first, consumer("hostname > host.txt; cat $file > copy.txt")), config={"observe": True})
    assert ours.ok, ours.errors
    assert [(record["job"], record["path"]) for record in place.records("output") if record["port"] == "out"] == [
        ("/a/0", "out.txt"),
        ("/b/0", "copy.txt"),
        ("/c/0", "last.txt"),
    ]
    read = {record["job"]: record for record in place.records("input") if record["input"] == "file"}
    assert (read["/b/0"]["source"], read["/b/0"]["path"]) == ("/a/0", "out.txt")
    assert (read["/c/0"]["source"], read["/c/0"]["path"]) == ("/b/0", "copy.txt")
    assert read["/b/0"]["opens"] == read["/c/0"]["opens"] == 1
    check_nothing_fell_back(ours.log)
    check_gone(place)


def test_a_host_gets_a_local_file_at_its_commit(hosts: Site) -> None:
    """While the producer still runs, because its other output is not complete."""
    first = tool(
        f"echo early > first.txt; {wait_for('read')}note end; echo late > late.txt",
        {},
        {"early": found("first.txt"), "late": found("late.txt")},
        [streaming({"port": "early", "committed": "on_close"})],
    )
    second = tool(
        f"note read; {mark('read')}cat $file > copy.txt; hostname >> copy.txt",
        {"file": "File"},
        {"out": found("copy.txt")},
    )
    steps = {"a": {"run": first, "in": {}}, "b": {"run": second, "in": {"file": "a/early"}}}
    document = workflow({}, steps, {"late": "a/late", "copy": "b/out"})
    hosts.steps = ("/b",)
    ours = hosts.run(document)
    assert ours.ok, ours.errors
    assert ours.time("read") < ours.time("end")
    copied = ours.files["copy.txt"].decode().split()
    assert copied[0] == "early"
    assert copied[1] in ("host1", "host2")
    check_gone(hosts)
