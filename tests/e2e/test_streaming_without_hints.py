"""`streaming: auto` on SSH hosts, on Slurm and in containers: what is proven where, and where that holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lab.container_sites import BUSYBOX, Containers, contained
from lab.cwl import Document, tool, workflow
from lab.machines.deployments import podman_environment, singularity_environment
from lab.machines.hosts import ADDRESSES
from lab.machines.laboratory import Laboratory, podman_obstacle
from lab.runs import Bench, Run
from lab.sites import Site, apart, hosts_site, slurm_site
from streamflow_io.records.learned.proofs import Proof, known_proofs
from tests.e2e.test_laboratory import login
from tests.e2e.test_streaming import check_gone

#: What proofs hold for is the same in each run.
JOB = {"trace": "/dev/null"}
SMALL = [{"class": "ResourceRequirement", "coresMin": 0.1, "ramMin": 16}]
READS = "/b reads /a/out while it is written"


def chain(*reader: str) -> Document:
    """/a writes for a while, and /b reads that with a program."""
    first = tool("seq 30000; sleep 2; seq 30000", {}, {"out": "stdout"}, stdout="numbers.txt", requirements=SMALL)
    second: Document = {
        "class": "CommandLineTool",
        "baseCommand": [*reader],
        "requirements": SMALL,
        "inputs": {"file": {"type": "File", "inputBinding": {"position": 1}}, "trace": "string"},
        "outputs": {"out": "stdout"},
        "stdout": "read.txt",
    }
    steps = {"a": {"run": first, "in": {}}, "b": {"run": second, "in": {"file": "a/out"}}}
    return workflow({}, steps, {"out": "b/out"})


class Learning:
    """Runs of one user, each somewhere else."""

    def __init__(self, directory: Path, document: Document) -> None:
        self.directory = directory
        self.document = document
        self.store = directory / "learned.db"

    def place(self, name: str) -> Path:
        (self.directory / name).mkdir()
        return self.directory / name

    def run(self, bench: Bench, rehearse: str = "wait", job: Mapping[str, Any] = JOB) -> Run:
        config = {"streaming": "auto", "rehearse": rehearse, "learned": str(self.store)}
        ours = bench.run(self.document, job, config=config, seconds=90)
        assert ours.ok, ours.errors
        # The stand-in for Singularity has no configuration.
        warned = [line for line in ours.log.splitlines() if " WARNING " in line and "configuration file" not in line]
        assert not warned, ours.errors
        return ours

    @property
    def proofs(self) -> list[Proof]:
        return sorted(known_proofs(self.store), key=lambda proof: proof.learned)

    @property
    def known(self) -> list[tuple[str | None, str | None, int]]:
        return [(proof.way, proof.reason, proof.runs) for proof in self.proofs]


def left_in_scratch(site: Site) -> int:
    """How many files and directories the jobs of runs have left on the second host, as they do."""
    look = "find /scratch -mindepth 1 ! -path '*/.streamflow-io*' | wc -l"
    return int(login(site.laboratory, ADDRESSES[1], look))


def test_what_is_proven_on_one_host_streams_on_another(hosts_laboratory: Laboratory, tmp_path: Path) -> None:
    learning = Learning(tmp_path, chain("cat"))
    site = apart(hosts_site(hosts_laboratory, learning.place("proving")))
    counts = [left_in_scratch(site)]
    for rehearse in ("never", "wait"):
        plain = learning.run(site, rehearse)
        counts.append(left_in_scratch(site))
    # A rehearsal leaves nothing.
    assert counts[2] - counts[1] == counts[1] - counts[0]
    check_gone(site)
    assert READS not in plain.log
    assert learning.known == [("net", None, 0)]
    one = replace(apart(hosts_site(hosts_laboratory, learning.place("one"))), elsewhere={})
    ours = learning.run(one)
    assert READS in ours.log
    assert learning.known == [("net", None, 1)]
    far = learning.run(apart(hosts_site(hosts_laboratory, learning.place("far"))))
    assert READS in far.log
    assert learning.known == [("net", None, 2)]
    assert plain.results == ours.results == far.results
    check_gone(one)


def test_a_reader_that_goes_back_gets_a_copy_from_another_host(hosts_laboratory: Laboratory, tmp_path: Path) -> None:
    script = "import sys; file = open(sys.argv[1], 'rb', 0); file.read(9); file.seek(0); print(len(file.read()))"
    learning = Learning(tmp_path, chain("python3", "-ISc", script))
    plain = learning.run(apart(hosts_site(hosts_laboratory, learning.place("proving"))))
    assert learning.known == [("net", None, 0)]
    far = learning.run(apart(site := hosts_site(hosts_laboratory, learning.place("far"))))
    assert READS in far.log
    assert learning.known == [("net", None, 1)]
    assert plain.results == far.results
    check_gone(site)


@pytest.mark.long
def test_programs_of_the_same_name_may_be_others(hosts_laboratory: Laboratory, tmp_path: Path) -> None:
    """On one host it does not look at what it reads, on the other it does."""
    name = f"/scratch/{tmp_path.name}.py"
    begin = "#!/usr/bin/python3 -ISE\nimport os, stat, sys\nfile = os.open(sys.argv[1], 0)\n"
    looks = "print(stat.S_ISFIFO(os.fstat(file).st_mode))\n"
    read = "while os.read(file, 65536): pass\n"
    for address, script in zip(ADDRESSES, (begin + looks + read, begin + "print(False)\n" + read), strict=True):
        login(hosts_laboratory, address, f"cat > {name} << 'END'\n{script}END\nchmod 755 {name}")
    learning = Learning(tmp_path, chain(name))
    plain = learning.run(apart(hosts_site(hosts_laboratory, learning.place("proving"))))
    assert learning.known == [("net", None, 0)]
    assert plain.files["read.txt"] == b"False\n"
    other = replace(apart(hosts_site(hosts_laboratory, learning.place("other"))), elsewhere={})
    for _ in range(2):
        assert learning.run(other).results == plain.results
        assert learning.known == [
            ("net", None, 0),
            (None, "the outputs differ with a stream: read.txt", 0),
        ]


@pytest.mark.long
def test_nothing_is_rehearsed_in_a_queue(slurm_laboratory: Laboratory, tmp_path: Path) -> None:
    learning = Learning(tmp_path, chain("cat"))
    site = slurm_site(slurm_laboratory, learning.place("slurm"))

    def jobs() -> int:
        return len(site.control("squeue", "-h", "-t", "all", "-o", "%i").split())

    before = jobs()
    plain = learning.run(site)
    assert jobs() - before == len(learning.document["steps"])
    assert plain.log.count("Nothing is rehearsed on hpc, whose cores are granted to jobs only") == 1
    assert not site.records("rehearsed")
    assert learning.known == []
    # On the node where one logs in, with its programs.
    learning.run(Bench(learning.place("here")))
    assert learning.known == [("net", None, 0)]
    ours = learning.run(site)
    assert READS in ours.log
    assert "Nothing is rehearsed" not in ours.log
    assert learning.known == [("net", None, 1)]
    assert ours.results == plain.results
    check_gone(site)


#: Writes down where it was.
WHERE = ("sh", "-c", 'pwd; echo "$0"; tail -n +2 "$0"')


def check_in_containers(bench: Containers, learning: Learning) -> None:
    """Streams that are proven in a container in the first run are used in the second, and nothing is left of either
    run.
    """
    runs = [learning.run(bench)]
    told = [line for line in runs[0].log.splitlines() if "/b/file" in line]
    assert learning.known == [("net", None, 0)], told
    runs.append(learning.run(bench))
    assert READS in runs[1].log
    assert learning.known == [("net", None, 1)]
    numbers = [run.files["read.txt"].splitlines()[2:] for run in runs]
    assert numbers[0] == numbers[1] != []
    assert bench.leftovers() == []


def test_in_containers(docker: Containers, tmp_path: Path) -> None:
    """In docker nothing can be mounted, also for a tool that writes down its paths."""
    check_in_containers(docker, Learning(tmp_path, contained(chain(*WHERE))))


@pytest.mark.long
def test_in_containers_of_podman(docker: Containers, tmp_path: Path) -> None:
    if (reason := podman_obstacle()) is not None:
        pytest.skip(reason)
    podman = replace(docker, environment=podman_environment(docker.laboratory))
    check_in_containers(podman, Learning(tmp_path, contained(chain(*WHERE), a=BUSYBOX, b=BUSYBOX)))


@pytest.mark.long
def test_in_containers_without_seccomp(docker: Containers, tmp_path: Path) -> None:
    docker.options = {"env": ["SFIO_NODE_WITHOUT_GATE=1"]}
    learning = Learning(tmp_path, contained(chain("cat")))
    runs = [learning.run(docker) for _ in range(2)]
    assert [run.log.count("no gate") for run in runs] == [1, 1]
    assert learning.known == []
    assert runs[0].results == runs[1].results
    assert docker.leftovers() == []


@pytest.mark.long
def test_in_containers_of_singularity(docker: Containers, tmp_path: Path) -> None:
    environment = docker.environment | singularity_environment(docker.laboratory)
    singularity = replace(docker, environment=environment, engine="singularity")
    check_in_containers(singularity, Learning(tmp_path, contained(chain(*WHERE))))
