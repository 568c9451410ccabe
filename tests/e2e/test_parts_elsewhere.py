"""Splits that write nothing on SSH hosts, on Slurm and in containers: jobs read parts of a file that they see there."""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from lab import forked, memory_limit
from lab.container_sites import BUSYBOX, Containers, contained
from lab.cwl import Document, found, streamable, tool, workflow
from lab.machines.deployments import ssh_deployment
from lab.machines.hosts import ADDRESSES
from lab.memory_limit import limited_memory
from lab.runs import Run
from lab.sites import Site
from lab.splits import count, counted, job
from tests.e2e.test_laboratory import login
from tests.e2e.test_streaming import check_gone
from tests.features.cuts.integration.test_declared_parts import scattered as declared_scattered
from tests.features.cuts.integration.test_declared_parts import split as declared
from tests.integration.test_node_read import cached, forget
from tests.integration.test_read_sessions import MIB, SIZE, summing, told

LONG = pytest.mark.long
RULE = {"class": "sfio:ReadSession", "rules": [{"port": "chunks", "of": "reads"}]}
# Of `each` lines each; in a language that all have.
SPLIT = """note split; LC_ALL=C awk -v each="$each" -v say="$SFIO_PARTS" '
function end() {
    if (lines && say != "")
        printf "{\\"path\\": \\"%s\\", \\"extents\\": [[%d, %d]]}\\n", name, start, offset - start >> say
    lines = 0
}
{
    if (lines == 0) { start = offset; name = sprintf("chunk-%02d.txt", number++) }
    if (say == "") print > name
    offset += length($0) + 1
    if (++lines == each) end()
}
END { end() }' "$reads"; if [ "$SFIO_PARTS" ]; then note said; fi; """
WRITTEN = "The files of /split/chunks are written, as without its rule of `sfio:ReadSession`: "


def scattered(reader: Document | None = None, after: str = "") -> Document:
    """:param after: what the split does then"""
    inputs = {"reads": "File", "each": "int"}
    run = tool(SPLIT + after, inputs, {"chunks": found("chunk-*.txt", "File[]")}, hints=[RULE])
    steps = {
        "split": {"run": run, "in": {"reads": "reads", "each": "each"}},
        "count": {"run": reader or count(), "in": {"chunk": "split/chunks"}, "scatter": "chunk"},
    }
    (output,) = steps["count"]["run"]["outputs"]
    return workflow(inputs, steps, {"counted": f"count/{output}"})


def check_virtual(ours: Run) -> None:
    assert ours.ok, ours.errors
    assert (len(ours.times("said")), len(ours.times("count l"))) == (1, 3)
    assert ours.files in (counted(), texts())
    assert " WARNING " not in ours.log, ours.errors


def texts() -> dict[str, bytes]:
    """The files that jobs of :data:`STREAMED` make."""
    lines = {name.replace("counted", "text"): text.splitlines(keepends=True) for name, text in counted().items()}
    return {name: b"".join(text[1:-1]) for name, text in lines.items()}


def one_host(hosts: Site) -> Site:
    deployment = {**ssh_deployment(hosts.laboratory, ADDRESSES[0]), "workdir": "/scratch"}
    return replace(hosts, deployment=deployment)


@pytest.mark.parametrize("place", ["slurm", pytest.param("one host", marks=LONG)])
def test_where_all_see_the_file(place: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    site: Site = request.getfixturevalue("slurm" if place == "slurm" else "hosts")
    site = site if place == "slurm" else one_host(site)
    check_virtual(site.run_ours(scattered(), job(tmp_path)))
    check_gone(site)


def two_hosts(hosts: Site, *ports: Document) -> Site:
    """The split on the first host, its readers on the second."""
    first, second = ({**ssh_deployment(hosts.laboratory, address), "workdir": "/scratch"} for address in ADDRESSES)
    return replace(hosts, deployment=first, others={"second": second}, elsewhere={"/count": "second"}, ports=ports)


STREAMED = tool(
    'note "count l"; cat "$chunk"', {"chunk": streamable()}, {"text": "stdout"}, stdout="$(inputs.chunk.nameroot).text"
)


@LONG
def test_hosts_that_see_the_file(hosts: Site, shared: Path) -> None:
    values = job(shared)
    values["reads"]["path"] = f"{shared.name}/reads.txt"  # By its binding, in the shared directory.
    site = two_hosts(hosts, {"port": "/reads", "target": {"deployment": "hosts", "workdir": str(hosts.shared)}})
    ours = site.run(scattered(STREAMED), values)
    check_virtual(ours)
    check_gone(site)


@pytest.mark.parametrize("reader", [count(), pytest.param(STREAMED, marks=LONG)], ids=["file", "stream"])
def test_hosts_that_do_not_see_the_file(hosts: Site, tmp_path: Path, reader: Document) -> None:
    """StreamFlow has copied the file to the first host, which sends the parts."""
    site = two_hosts(hosts)
    check_virtual(site.run_ours(scattered(reader), job(tmp_path)))
    check_gone(site)


@LONG
def test_who_neither_sees_nor_reaches_the_file(hosts: Site, tmp_path: Path) -> None:
    """The file is on the driver's node: the run finds that out before a part is said."""
    site = replace(one_host(hosts), steps=("/count",))
    _, ours = site.run_both(scattered(), job(tmp_path))
    assert ours.times("said") == []
    assert ours.log.count(f"{WRITTEN}/count, on hosts/{ADDRESSES[0]}, does not see the file (") == 1, ours.errors
    check_gone(site)


@LONG
def test_an_input_that_comes_early_here_and_is_copied_to_a_host(hosts: Site, tmp_path: Path) -> None:
    """The copy is compared with its checksum, for which it waits."""
    document = scattered()
    document["steps"]["whole"] = {"run": summing(), "in": {"chunk": "reads", "trace": "trace"}, "out": ["summed"]}
    document["outputs"]["whole"] = {"type": "File", "outputSource": "whole/summed"}
    site = replace(one_host(hosts), steps=("/whole",))
    plain, ours = site.run_both(document, job(tmp_path))
    assert ours.files.pop("summed.txt") == plain.files["summed.txt"]
    check_virtual(ours)
    check_gone(site)


@pytest.mark.parametrize("place", ["allocation", pytest.param("hosts", marks=LONG)])
def test_a_split_that_edits_its_input(place: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """The split replaces the link to a file of another job by a file of its own."""
    site: Site = request.getfixturevalue(place)
    site = one_host(site) if place == "hosts" else site
    document = scattered(count())
    split = document["steps"]["split"]
    split["run"] = tool('sed -i "s/line/a longer line/" "$reads"; ' + SPLIT, {"reads": "File", "each": "int"},
        {"chunks": found("chunk-*.txt", "File[]")}, hints=[RULE])  # fmt: skip
    copy = tool('cat "$reads"', {"reads": "File"}, {"out": "stdout"}, stdout="copy.txt")
    document["steps"]["copy"] = {"run": copy, "in": {"reads": "reads", "trace": "trace"}, "out": ["out"]}
    split["in"]["reads"] = "copy/out"
    plain, ours = site.run_both(document, job(tmp_path))
    assert ours.results == plain.results
    assert len(ours.times("said")) == 1
    check_gone(site)


# Says parts of equal bytes, and does not read the file; an arithmetic expression of the shell looks as one of CWL.
SAY = """size=`stat -L -c %s "$of"`; i=0; while [ $i -lt $count ]; do start=`expr $size \\* $i / $count`
i=`expr $i + 1`; length=`expr $size \\* $i / $count - $start`
echo '{"path": "chunk-'$i'.bin", "extents": [['$start', '$length']]}' >> "$SFIO_PARTS"; done; note said"""
COLD = 'dd if="$of" iflag=nocache count=0 2> /dev/null; echo 1'


def cold_split(directory: Path) -> tuple[Document, Document]:
    """Make a file that is not in memory; return it, and the sums of its parts."""
    path = directory / "reads.bin"
    path.write_bytes(b"".join(bytes([number]) * MIB for number in range(SIZE // MIB)))
    forget(path)
    if cached(path) != 0:
        pytest.skip("the page cache cannot be looked at, or keeps all")
    inputs = {"of": "File", "count": "int"}
    run = tool(SAY, {**inputs, "done": "File"}, {"chunks": found("chunk-*.bin", "File[]")})
    run["hints"] = [{"class": "sfio:ReadSession", "rules": [{"port": "chunks", "of": "of"}]}]
    steps = {
        "cold": {"run": tool(COLD, {"of": "File"}, {"done": "stdout"}, stdout="done"), "in": {"of": "of"}},
        "split": {"run": run, "in": {"of": "of", "count": "count", "done": "cold/done"}},
        "count": {"run": summing(), "in": {"chunk": "split/chunks"}, "scatter": "chunk"},
    }
    values = {"of": {"class": "File", "path": f"{directory.name}/reads.bin"}, "count": 8}
    return workflow(inputs, steps, {"summed": "count/summed"}), values


@pytest.fixture
def shared(hosts: Site, tmp_path: Path) -> Path:
    """A directory that both hosts see."""
    directory = hosts.shared / tmp_path.name
    directory.mkdir()
    return directory


@pytest.fixture(params=[pytest.param("one host", marks=LONG), pytest.param("one deployment", marks=LONG), "two hosts"])
def reading(hosts: Site, request: pytest.FixtureRequest) -> Site:
    """Hosts that read the input `of` in the directory that they share."""
    port = {"port": "/of", "target": {"deployment": "hosts", "workdir": str(hosts.shared)}}
    if request.param == "two hosts":
        return two_hosts(hosts, port)
    return replace(one_host(hosts) if request.param == "one host" else hosts, ports=(port,))


def check_sums(ours: Run, shared: Path) -> None:
    assert ours.ok, ours.errors
    content = (shared / "reads.bin").read_bytes()
    parts = [content[SIZE * number // 8 : SIZE * (number + 1) // 8] for number in range(8)]
    sums = sorted(f"{hashlib.sha1(part).hexdigest()}  -\n".encode() for part in parts)
    assert sorted(ours.files.values()) == sums


def test_a_file_is_read_ahead_on_the_hosts_that_see_it(
    reading: Site, shared: Path, request: pytest.FixtureRequest
) -> None:
    """Each byte is read once, on one of them."""
    ours = reading.run(*cold_split(shared))
    check_sums(ours, shared)
    check_each_byte_is_read_once(reading, 1 if request.node.callspec.params["reading"] == "one host" else 2)
    assert " WARNING " not in ours.log, ours.errors
    check_gone(reading)


def check_each_byte_is_read_once(site: Site, sessions: int) -> None:
    """The sessions of a run share the parts of the file, and have read no byte twice."""
    ends = told(site, "sessionEnd")
    assert len(ends) == len(told(site, "session")) == sessions
    # Nodes of one machine share its page cache: a session may find what another has read.
    assert {end["reason"] for end in ends} <= ({"done"} if sessions == 1 else {"done", "cached"})
    assert len(told(site, "consumed")) == 8
    assert sum(record["bytes"] for record in told(site, "chunk")) == SIZE


def test_a_file_is_read_ahead_on_the_nodes_of_an_allocation(allocation: Site, tmp_path: Path) -> None:
    """The nodes and the driver share the directory."""
    document, values = cold_split(tmp_path)
    values["of"]["path"] = str(tmp_path / "reads.bin")
    ours = allocation.run(document, values)
    check_sums(ours, tmp_path)
    check_each_byte_is_read_once(allocation, 2)
    assert " WARNING " not in ours.log, ours.errors
    check_gone(allocation)


@LONG
@pytest.mark.parametrize("reading", ["one host"], indirect=True)
def test_the_window_is_within_the_cgroup_of_the_host(reading: Site, shared: Path) -> None:
    if (obstacle := memory_limit.obstacle()) is not None:
        pytest.skip(obstacle)

    def move(processes: Path) -> None:
        """All that is run on the host from now on is in a cgroup."""
        login(reading.laboratory, ADDRESSES[0], f"echo 1 > {processes}")

    with limited_memory(512 * MIB) as limited:
        move(limited.processes)
        try:
            ours = reading.run(*cold_split(shared))
            check_gone(reading)
        finally:
            move(limited.processes.parent.parent / "cgroup.procs")
    check_sums(ours, shared)
    assert [record["window"] for record in told(reading, "session")] == [256 * MIB]


def cold_selecting(directory: Path, before: str = "") -> tuple[Document, Document]:
    """Make a file that is not in memory; return it, and the sums of the parts that jobs select.

    :param before: what they do first
    """
    document, values = cold_split(directory)
    script = 'size=`stat -L -c %s "$of"`; size=`expr $size / 8`; skip=`expr ${range%of*} - 1`; '
    run = tool(
        before + script + 'dd if="$of" bs=$size skip=$skip count=1 status=none | sha1sum',
        {"of": "File", "range": "string", "done": "File"},
        {"summed": "stdout"},
        stdout="summed.txt",
        hints=[{"class": "sfio:ReadSession", "rules": [{"of": "of", "part": "range", "records": "bytes"}]}],
    )
    inputs = {"of": "of", "range": "ranges", "done": "cold/done"}
    steps = {"cold": document["steps"]["cold"], "count": {"run": run, "in": inputs, "scatter": "range"}}
    document = workflow({"of": "File", "ranges": "string[]"}, steps, {"summed": "count/summed"})
    return document, {"of": values["of"], "ranges": [f"{number}of8" for number in range(1, 9)]}


@LONG
@pytest.mark.parametrize("reading", ["one host", "one deployment"], indirect=True)
def test_jobs_that_select_their_own_part(reading: Site, shared: Path) -> None:
    """The file is read ahead on the host that has it: StreamFlow makes a copy for the other one."""
    ours = reading.run(*cold_selecting(shared))
    check_sums(ours, shared)
    assert len(told(reading, "session")) == 1
    assert sum(record["bytes"] for record in told(reading, "chunk")) <= SIZE
    assert " WARNING " not in ours.log, ours.errors
    check_gone(reading)


@pytest.mark.parametrize("reading", [pytest.param("one deployment", marks=LONG)], indirect=True)
def test_each_host_reads_what_its_jobs_select(reading: Site, shared: Path) -> None:
    """Both have the file, and no byte of it is read ahead on both."""
    reading.ports[0]["target"]["locations"] = 2
    slow = 'note "at `hostname` $range"; case `hostname` in host1) sleep 0.5;; *) sleep 3;; esac; '
    document, values = cold_selecting(shared, slow)
    ours = reading.run(document, values)
    check_sums(ours, shared)
    consumed = Counter(record["session"] for record in told(reading, "consumed"))
    ran = Counter(what.split()[1] for _, what in ours.trace if what.startswith("at "))
    assert len(ran) == len(told(reading, "session")) == 2
    assert sorted(consumed.values()) == sorted(ran.values())
    assert min(ran.values()) < 4
    chunks = [record["bytes"] for record in told(reading, "chunk")]
    assert SIZE // 2 <= sum(chunks) <= SIZE
    assert " WARNING " not in ours.log, ours.errors
    check_gone(reading)


@LONG
@pytest.mark.parametrize("reading", ["two hosts"], indirect=True)
def test_a_reader_that_is_killed(reading: Site, shared: Path) -> None:
    # With this window it lives until the last part is consumed.
    path = reading.write(*cold_split(shared), io=True, config={"sessionWindow": 1})
    process = reading.start(path)
    kill = (
        "i=0; until [ $i = 300 ]; do i=$((i+1)); for p in /proc/[0-9]*; do tr '\\0' ' ' 2>&- < $p/cmdline | "
        "grep -q -a '^[^ ]*[s]fio-node read' && kill -9 ${p#/proc/} && echo killed && exit; done; sleep 0.02; done"
    )
    assert "killed" in login(reading.laboratory, ADDRESSES[0], kill)
    ours = reading.finish(process, path, 60)
    check_sums(ours, shared)
    assert ours.log.count("is not read ahead any more") == 1
    # The session of the other host goes on.
    (lost, *others) = sorted(told(reading, "sessionEnd"), key=lambda end: end["reason"] in ("done", "cached"))
    assert lost["reason"] in ("lost", "stalled")
    assert len(others) <= 1
    check_gone(reading)


@LONG
def test_a_file_that_changes_between_cut_and_read(slurm: Site, tmp_path: Path) -> None:
    ours = slurm.run(scattered(after="sleep 0.1; echo >> $reads; "), job(tmp_path))
    assert not ours.ok
    assert "reads.txt has another size than when it was cut into parts" in ours.log
    assert ours.files == {}
    check_gone(slurm)


@LONG
def test_slurm_and_the_driver(slurm: Site, tmp_path: Path) -> None:
    """Nodes of Slurm cannot be tried: the hint says what they see, and is compared with the login node's view."""
    slurm.steps = ("/count",)
    _, ours = slurm.run_both(scattered(), job(tmp_path))
    assert ours.times("said") == []
    assert ours.log.count("name the storage that hpc shares, with `scope: shared`, among the `storages`") == 1
    shared = {"name": "home", "path": str(tmp_path), "scope": "shared", "read": 1000}
    check_virtual(slurm.run_ours(scattered(), job(tmp_path), config={"storages": [shared]}))
    check_gone(slurm)


@pytest.mark.parametrize("images", [{}, pytest.param({"split": BUSYBOX}, marks=LONG)], ids=["one", "two"])
def test_containers(docker: Containers, tmp_path: Path, images: Document) -> None:
    check_virtual(docker.run_ours(contained(scattered(), **images), job(tmp_path)))


@LONG
@pytest.mark.parametrize("outside", ["split", "count"])
def test_a_container_and_its_host(docker: Containers, tmp_path: Path, outside: str) -> None:
    docker.workdir = tmp_path / "work"
    docker.options = {"volume": [f"{docker.workdir}:{docker.workdir}", f"{tmp_path}:{tmp_path}:ro"]}
    check_virtual(docker.run_ours(contained(scattered(), **{outside: None}), job(tmp_path)))


@LONG
def test_declared_cuts_on_a_host(hosts: Site, tmp_path: Path) -> None:
    """Compared there once, then virtual."""
    run = declared()
    site, values = one_host(hosts), job(tmp_path)
    del values["each"]
    plain, first = site.run_both(declared_scattered(run), values)
    assert first.log.count("The rule of `sfio:ReadSession` for /split/chunks is verified: 3 parts") == 1, first.errors
    second = site.run(declared_scattered(run), values)
    assert second.ok, second.errors
    assert second.results == plain.results
    assert "writes no parts: sfio-node finds the cuts, instead of its program" in second.log
    assert " WARNING " not in second.log, second.errors
    check_gone(site)


@LONG
def test_provenance(slurm: Site, tmp_path: Path) -> None:
    path = slurm.write(scattered(), job(tmp_path), io=True)
    place = path.parent
    for words in (
        ("run", path, "--name", "ours", "--outdir", place / "out"),
        ("prov", "ours", "--file", path, "--outdir", place, "--name", "crate.zip"),
    ):
        finished = forked.run(
            "streamflow", *words, cwd=place, environment=slurm.environment, namespaces=slurm.namespaces
        )
        assert finished.returncode == 0, finished.stderr
    with zipfile.ZipFile(place / "crate.zip") as crate:
        graph = json.loads(crate.read("ro-crate-metadata.json"))["@graph"]
    values = [entity.get("value", "") for entity in graph if entity["@type"] == "PropertyValue"]
    assert any("'basename': 'chunk-00.txt'" in value for value in values)
