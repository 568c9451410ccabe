"""`memory` on SSH hosts and on the nodes of an allocation; results are those of plain StreamFlow."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from lab.cwl import Document, tool, workflow
from lab.machines.hosts import ADDRESSES
from lab.node import wait_for
from lab.node_remote import find_marked
from lab.runs import RETRY, Run, kill_group, wait_for_note
from lab.sites import Site, apart
from streamflow_io.runtime.embedded import find_sfio_node
from tests.e2e.test_allocation import kill_serve, lose_node, resume
from tests.e2e.test_laboratory import login
from tests.e2e.test_streaming import check_gone

SMALL: Final = [{"class": "ResourceRequirement", "coresMin": 0.1, "ramMin": 16}]
MEMORY: Final[Document] = {"intermediates": "remove", "memory": "500MB"}
PLACE: Final = "/dev/shm/"
NOTE: Final = "note $PWD"


def step(script: str, name: str, source: str | None = None, kind: Any = "File", output: Any = "stdout") -> Document:
    given = {} if source is None else {"i": kind}
    run = tool(script, given, {"o": output}, requirements=SMALL, stdout=f"{name}.txt")
    return {"run": run, "in": {} if source is None else {"i": source}}


def chain(first: str = "seq 1 99999", second: str = "tr 0-4 5-9 < $i") -> Document:
    """Each job notes its directory; the last one's file is the result."""
    steps = {
        "a": step(f"{NOTE}; {first}", "a"),
        "b": step(f"{NOTE}; {second}", "b", "a/o"),
        "c": step(f"{NOTE}; cat $i", "c", "b/o"),
    }
    return workflow({}, steps, {"o": "c/o"})


def in_memory(run: Run) -> list[bool]:
    """Whether the directory of each job was in memory, in the order in which the attempts ran."""
    return [what.startswith(PLACE) for _, what in run.trace if what.startswith("/")]


def left_in_memory(site: Site) -> list[str]:
    """The directories that runs have left in the memory of hosts, or of nodes."""
    if not site.is_slurm:
        return [name for address in ADDRESSES for name in login(site.laboratory, address, "ls /dev/shm").split()]
    return [path.name for node in nodes(site) for path in Path(f"/proc/{node}/root{PLACE}").glob("streamflow-io-*")]


def nodes(site: Site) -> Iterator[int]:
    """The processes that are nodes of the Slurm."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words, variables = ((process / name).read_bytes().split(b"\0") for name in ("cmdline", "environ"))
        except OSError:
            continue
        if words[0].endswith(b"slurmd") and f"SLURM_CONF={site.environment['SLURM_CONF']}".encode() in variables:
            yield int(process.name)


def clear(site: Site) -> None:
    """Clear the run directories on nodes whose processes were all killed at once, as a later `serve` does."""
    for run in [alive.parent for alive in site.directory.rglob("streamflow-io-*/alive")]:
        memory, node = run / "memory", next(nodes(site))
        if memory.is_symlink():
            node = next((each for each in nodes(site) if Path(f"/proc/{each}/root{memory.readlink()}").exists()), node)
        subprocess.run(
            ["nsenter", f"--target={node}", "--mount", "--", find_sfio_node(), "clear", "--directory", run], check=True
        )


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Iterator[Site]:
    """On the first, /b runs on another host than the others."""
    site: Site = request.getfixturevalue("hosts" if request.param == "apart" else request.param)
    site = apart(site) if request.param == "apart" else site
    yield site
    wait_for(lambda: not left_in_memory(site), "nothing in memory", 60)
    check_gone(site)


@pytest.mark.parametrize("place", ["apart"], indirect=True)
def test_the_second_run_writes_into_memory(place: Site) -> None:
    (plain,) = place.run_all([place.write_plain(chain(), {})], 120)
    assert plain.ok, plain.errors
    for expected in ([False, False, False], [True, True, False]):
        ours = place.run(chain(), config=MEMORY, seconds=120)
        assert ours.ok, ours.errors
        assert ours.results == plain.results
        assert in_memory(ours) == expected
        assert "SFIO-" not in ours.log


def test_a_job_reads_from_the_memory_of_another_node(allocation: Site) -> None:
    """Each node has one of the first jobs, because both need all cores of a node."""
    whole = [{"class": "ResourceRequirement", "coresMin": 2, "ramMin": 16}]
    script = f"{NOTE}; until test $(grep -c ' /' $TRACE) -ge 2; do sleep 0.1; done; seq 1 99999"
    make = tool(script, {"n": "int"}, {"o": "stdout"}, requirements=whole, stdout="$(inputs.n).txt")
    files = {"i": {"type": "File[]", "inputBinding": {}}}
    both = tool(f'{NOTE}; cat "$0" "$@"', files, {"o": "stdout"}, requirements=whole, stdout="both.txt")
    steps: dict[str, Document] = {
        "a": {"run": make, "in": {"n": "numbers"}, "scatter": "n"},
        "b": {"run": both, "in": {"i": "a/o"}},
    }
    document = workflow({"numbers": "int[]"}, steps, {"o": "b/o"})
    for expected in ([False, False, False], [True, True, False]):
        ours = allocation.run(document, {"numbers": [1, 2]}, config=MEMORY, seconds=120)
        assert ours.ok, ours.errors
        assert ours.files["both.txt"] == 2 * "".join(f"{n}\n" for n in range(1, 100_000)).encode()
        assert in_memory(ours) == expected
        assert "Files go through the driver" not in ours.log
    check_gone(allocation)


@pytest.mark.parametrize(("lose", "again"), [(kill_serve, True), (lose_node, False)])
def test_a_file_in_the_memory_of_a_lost_node(allocation: Site, lose: Callable[[Site, str], None], again: bool) -> None:
    """A failure manager makes the file again at the other node. Otherwise the run ends, and names the file."""
    whole = [{"class": "ResourceRequirement", "coresMin": 2, "ramMin": 16}]
    flag = allocation.shared / f"{allocation.directory.name}.flag"
    make = tool(f"{NOTE}; note $SLURMD_NODENAME; seq 1 99999", {}, {"o": "stdout"}, requirements=whole, stdout="a.txt")
    waits = f"note waits; until test -e {flag}; do sleep 0.1; done; echo"
    wait = tool(waits, {}, {"o": "stdout"}, requirements=whole, stdout="w.txt")
    read = tool("note reads; cat $i", {"i": "File", "w": "File"}, {"o": "stdout"}, requirements=whole, stdout="r.txt")
    steps: dict[str, Document] = {
        "a": {"run": make, "in": {}},
        "w": {"run": wait, "in": {}},
        "r": {"run": read, "in": {"i": "a/o", "w": "w/o"}},
    }
    document = workflow({}, steps, {"o": "r/o"})
    flag.touch()
    first = allocation.run(document, config=MEMORY, seconds=120)
    assert first.ok, first.errors
    flag.unlink()
    path = allocation.write(document, {}, io=True, config=MEMORY, **(RETRY if again else {}))
    driver = allocation.start(path)
    log = path.parent / "stderr"
    wait_for(lambda: "COMPLETED Step /a" in log.read_text(), "the end of the writer", 60)
    wait_for_note(path, "waits")
    trace = (path.parent / "trace").read_text()
    assert PLACE in trace
    (node,) = re.findall(r" (n\d)", trace)
    try:
        lose(allocation, node)
        wait_for(lambda: f"No more jobs start at hpc/{node}" in log.read_text(), "the loss", 60)
        flag.touch()
        ours = allocation.finish(driver, path, 120)
    finally:
        resume(allocation, node)
    # Slurm kills all processes of a node that is lost, and their guard with them.
    clear(allocation)
    wait_for(lambda: not left_in_memory(allocation), "nothing in memory", 60)
    if again:
        assert ours.ok, ours.errors
        assert ours.results == first.results
        return
    assert ours.code == 1
    assert ours.times("reads") == []
    assert re.search(rf"{PLACE}\S*/a.txt cannot be copied: it is on hpc/{node}, and node {node} ", ours.errors)


def small_memory(site: Site, size: str) -> None:
    for address in ADDRESSES:
        login(site.laboratory, address, f"mount -o remount,size={size} /dev/shm")


def test_hosts_without_enough_memory(hosts: Site) -> None:
    site, document = apart(hosts), chain("seq 1 9999999 | head -c 4000000")
    first = site.run(document, config=MEMORY, seconds=120)
    small_memory(site, "4m")
    try:
        second = site.run(document, config=MEMORY, seconds=120)
    finally:
        small_memory(site, "50%")
    assert in_memory(first) == in_memory(second) == [False, False, False]
    assert second.ok, second.errors
    assert first.results == second.results


def kill_runtimes(site: Site) -> None:
    """Kill all `serve`: nothing else of the node runtime hears of it before."""
    if site.is_slurm:
        for number in range(1, 5):
            kill_serve(site, f"n{number}")
        return
    serves = "tr '\\0' ' ' 2>&- < $p/cmdline | grep -q 'node-[^ ]* serve'"
    kill = f"for p in /proc/[0-9]*; do {serves} && kill -9 ${{p#/proc/}}; done; true"
    for address in ADDRESSES:
        login(site.laboratory, address, kill)


@pytest.mark.parametrize(
    ("place", "kills"), [("apart", ("driver", "runtime", "both")), ("allocation", ("both",))], indirect=["place"]
)
def test_nothing_is_left_of_what_is_killed(place: Site, kills: tuple[str, ...]) -> None:
    flag = place.shared / f"{place.directory.name}.flag"
    waits = f"test ! -e {flag} || {{ case $PWD in {PLACE}*) note there; sleep 600;; esac; }}"
    document = chain(second=f"tr 0-4 5-9 < $i; {waits}")
    first = place.run(document, config=MEMORY, seconds=120)
    assert first.ok, first.errors
    for killed in kills:
        flag.touch()
        kill(place, document, killed, flag)
        wait_for(lambda: not left_in_memory(place), f"nothing in memory without {killed}", 60)
        check_gone(place)


def kill(place: Site, document: Document, killed: str, flag: Path) -> None:
    """Kill the driver, all runtimes or both when a file is in memory. The job waits as long as the flag is there."""
    path = place.write(document, {}, io=True, config=MEMORY, **RETRY)
    driver = place.start(path)
    try:
        wait_for_note(path, "there")
        assert left_in_memory(place)
        flag.unlink()
        if killed != "driver":
            kill_runtimes(place)
        if killed != "runtime":
            # The driver may have ended with the first runtime.
            with contextlib.suppress(ProcessLookupError):
                os.kill(driver.pid, signal.SIGKILL)
    except BaseException:
        kill_group(driver)
        raise
    done = place.finish(driver, path, 120)
    assert not done.ok
    if killed == "both" and place.is_slurm:
        # With cgroups, Slurm kills all processes of a step at once, and their guard with them.
        wait_for(lambda: not find_marked(b"/streamflow-io-"), "the end of the step")
        clear(place)
    if killed == "runtime":
        assert "job /b/0 of step /b has failed" in done.errors
        assert "Files of jobs in memory on " in done.errors
