"""A `diskLimit` holds for each work directory, whether one host has it or all hosts share it."""

from __future__ import annotations

from dataclasses import replace
from operator import itemgetter

from lab.cwl import Document, tool, workflow
from lab.runs import RETRY, wait_for_note
from lab.sites import Site
from tests.e2e.test_allocation import NODE, lose_node, nodes_of, resume

SMALL = [{"class": "ResourceRequirement", "coresMin": 0.1, "ramMin": 16}]
#: Of two jobs, one has space.
LIMITED = {"intermediates": "remove", "diskLimit": "5MB"}
MEGABYTES = "head -c 4000000 /dev/zero"


def scatter(write: str) -> Document:
    """Each job writes 4 MB, which go when the next job has counted them."""
    texts = {"n": "string", "trace": "string"}
    first = tool(write, texts, {"o": "stdout"}, stdout="$(inputs.n).a", requirements=SMALL)
    count = tool("wc -c < $i", {"i": "File"}, {"o": "stdout"}, stdout="$(inputs.i.nameroot).b", requirements=SMALL)
    steps = {
        "a": {"run": first, "in": {"n": "n", "trace": "trace"}},
        "b": {"run": count, "in": {"i": "a/o"}},
    }
    inner = workflow(texts, steps, {"o": "b/o"})
    step = {"run": inner, "in": {"n": "names", "trace": "trace"}, "scatter": "n"}
    return workflow({"names": "string[]", "trace": "string"}, {"s": step}, {"o": "s/o"})


def test_hosts_that_share_a_work_directory(hosts: Site) -> None:
    """No job starts on one host while a job on the other host has all the space."""
    directory = hosts.shared / hosts.directory.name
    site = replace(hosts, deployment={**hosts.deployment, "workdir": str(directory)})
    names = [*"abc"]
    document = scatter(f"note begins; {MEGABYTES}; sleep 0.3; note ends")
    run = site.run(document, {"names": names}, config=LIMITED)
    assert run.ok, run.errors
    assert set(run.files.values()) == {b"4000000\n"}
    noted = [what for _, what in sorted(run.trace, key=itemgetter(0))]
    assert noted == ["begins", "ends"] * len(names)
    assert not [path for path in directory.iterdir() if path.name.startswith(".sfio-")]


def test_hosts_with_work_directories_of_their_own(hosts: Site) -> None:
    """Two jobs wait for each other: each host has space for one."""
    meet = "touch $TRACE.$n; until test -e $TRACE.a && test -e $TRACE.b; do sleep 0.05; done"
    run = hosts.run(scatter(f"{meet}; {MEGABYTES}"), {"names": [*"ab"]}, config=LIMITED)
    assert run.ok, run.errors
    assert set(run.files.values()) == {b"4000000\n"}


def test_a_lost_node_has_no_space_of_the_others(allocation: Site) -> None:
    """Another node sees what the jobs of the lost one have written, and removes it: the jobs have space there."""
    wait = '[ $(wc -l < "$TRACE") != 3 ] || sleep 600'
    site, names = allocation, [*"abc"]
    path = site.write(scatter(f"{NODE}{MEGABYTES}; {wait}"), {"names": names}, io=True, config=LIMITED, **RETRY)
    process = site.start(path)
    wait_for_note(path, " n", 3)
    lost = (path.parent / "trace").read_text().split()[-1]
    try:
        lose_node(site, lost)
        run = site.finish(process, path, 120)
    finally:
        resume(site, lost)
    assert run.ok, run.errors
    assert len(nodes_of(run)) == 2
    assert set(run.files.values()) == {b"4000000\n"}
    assert len(run.trace) == len(names) + 1
