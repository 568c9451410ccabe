"""`streaming: auto` on SSH hosts and in containers: what is proven where, and where that holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from lab.container_sites import Containers, contained
from lab.cwl import Document, tool, workflow
from lab.machines.hosts import ADDRESSES
from lab.machines.laboratory import Laboratory
from lab.runs import Bench, Run
from lab.sites import Site, apart, hosts_site
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
    # The net needs the file at hand.
    far = learning.run(apart(hosts_site(hosts_laboratory, learning.place("far"))))
    assert learning.known == [("net", None, 1)]
    assert plain.results == ours.results == far.results
    check_gone(one)


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
