"""Splits that write nothing on SSH hosts, on Slurm and in containers: jobs read parts of a file that they see there."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from lab.container_sites import BUSYBOX, Containers, contained
from lab.cwl import Document, found, streamable, tool, workflow
from lab.machines.deployments import ssh_deployment
from lab.machines.hosts import ADDRESSES
from lab.runs import Run
from lab.sites import Site
from lab.splits import count, job
from tests.e2e.test_streaming import check_gone
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


def check_virtual(ours: Run, readers: int = 3) -> None:
    assert ours.ok, ours.errors
    assert (len(ours.times("said")), len(ours.times("count l"))) == (1, readers)
    assert " WARNING " not in ours.log, ours.errors


def one_host(hosts: Site) -> Site:
    deployment = {**ssh_deployment(hosts.laboratory, ADDRESSES[0]), "workdir": "/scratch"}
    return replace(hosts, deployment=deployment)


@pytest.mark.parametrize("place", ["slurm", pytest.param("one host", marks=LONG)])
def test_where_all_see_the_file(place: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    site: Site = request.getfixturevalue("slurm" if place == "slurm" else "hosts")
    site = site if place == "slurm" else one_host(site)
    _, ours = site.run_both(scattered(), job(tmp_path))
    check_virtual(ours)
    check_gone(site)


def two_hosts(hosts: Site, *ports: Document) -> Site:
    """The split on the first host, its readers on the second."""
    first, second = ({**ssh_deployment(hosts.laboratory, address), "workdir": "/scratch"} for address in ADDRESSES)
    return replace(hosts, deployment=first, others={"second": second}, elsewhere={"/count": "second"}, ports=ports)


STREAMED = tool(
    'note "count l"; cat "$chunk"', {"chunk": streamable()}, {"text": "stdout"}, stdout="$(inputs.chunk.nameroot).text"
)


@pytest.mark.parametrize("reader", [count(), pytest.param(STREAMED, marks=LONG)], ids=["file", "stream"])
def test_hosts_that_do_not_see_the_file(hosts: Site, tmp_path: Path, reader: Document) -> None:
    """StreamFlow has copied the file to the first host, which sends the parts."""
    site = two_hosts(hosts)
    _, ours = site.run_both(scattered(reader), job(tmp_path))
    check_virtual(ours)
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
    assert sum(end["parts"] for end in ends) == len(told(site, "arrived")) == len(told(site, "consumed")) == 8
    assert sum(end["storageBytes"] + end["cachedBytes"] for end in ends) == SIZE


@pytest.mark.parametrize("images", [{}, pytest.param({"split": BUSYBOX}, marks=LONG)], ids=["one", "two"])
def test_containers(docker: Containers, tmp_path: Path, images: Document) -> None:
    _, ours = docker.run_both(contained(scattered(), **images), job(tmp_path))
    check_virtual(ours)
