"""`memory`: files that are removed lie in /dev/shm, as far as they fit; the results are those of plain StreamFlow."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from lab import forked
from lab.cwl import Document, streamable, tool, workflow
from lab.node import wait_for
from lab.runs import Bench, wait_for_note
from streamflow_io.storage.intermediates.memory import memory_here
from tests.integration.test_windows import BLOCK, BLOCKS, awaited

pytestmark = pytest.mark.skipif(memory_here().free < 2**30, reason="1 GB of /dev/shm has to be free")

PLACE: Final = Path("/dev/shm")
MEMORY: Final[Document] = {"intermediates": "remove", "memory": "500MB"}


def left(bench: Bench) -> list[Path]:
    """The directories in memory of the runs whose jobs have noted them."""
    noted = {word for trace in bench.directory.rglob("trace") for word in trace.read_text().split()}
    found = {PLACE / Path(word).relative_to(PLACE).parts[0] for word in noted if word.startswith(f"{PLACE}/")}
    return [path for path in found if path.exists()]


@pytest.fixture(autouse=True)
def nothing_is_left(bench: Bench) -> Iterator[None]:
    yield
    wait_for(lambda: not left(bench), "nothing in memory")


def writer(script: str, kind: Any = "stdout") -> Document:
    return {"run": tool(script, {}, {"o": kind}, stdout="a.txt"), "in": {}}


def reader(script: str, source: str, name: str, kind: Any = "File") -> Document:
    run = tool(script, {"i": kind}, {"o": "stdout"}, stdout=f"{name}.txt")
    return {"run": run, "in": {"i": source}}


NOTE: Final = "note $PWD"


def chain(first: str) -> Document:
    """Each job notes its directory; the last one's file is the result."""
    steps = {
        "a": writer(f"{NOTE}; {first}"),
        "b": reader(f"{NOTE}; tr 0-4 5-9 < $i", "a/o", "b"),
        "c": reader(f"{NOTE}; sha1sum < $i; ln -s $i link", "b/o", "c"),
    }
    return workflow({}, steps, {"o": "c/o"})


NUMBERS: Final = "seq 1 9999999 | head -c 20000000"


def places(path: Path) -> list[bool]:
    """Whether the directory of each job was in memory, in the order in which the attempts ran."""
    noted = [line.split(" ")[1] for line in (path.parent / "trace").read_text().splitlines()]
    return [what.startswith(f"{PLACE}/") for what in noted if what.startswith("/")]


def run(bench: Bench, document: Document, config: Document, **environment: str) -> tuple[str, Any, list[bool]]:
    path = bench.write(document, {}, io=True, config=config)
    done = bench.finish(bench.start(path, **environment), path)
    assert done.ok, done.errors
    return done.log, done.results, places(path)


def test_the_second_run_writes_into_memory(bench: Bench) -> None:
    document = chain(NUMBERS)
    (plain,) = bench.run_all([bench.write_plain(document, {})])
    for expected in ([False, False, False], [True, True, False]):
        _, results, found = run(bench, document, MEMORY)
        assert results == plain.results
        assert found == expected
    # The first file stays until the second job has ended, and the second job would need as much.
    _, _, found = run(bench, document, {**MEMORY, "memory": "60MB"})
    assert found == [True, False, False]
    assert bench.leftovers() == []


def test_windows_in_memory(bench: Bench) -> None:
    steps = {
        "a": writer(f"{NOTE}; {awaited(40 * BLOCK)}", streamable("stdout")),
        "b": reader(f"{NOTE}; tr 0-4 5-9 < $i", "a/o", "b", streamable()),
        "c": reader("sha1sum < $i", "b/o", "c", streamable()),
    }
    steps["b"]["run"]["outputs"] = {"o": streamable("stdout")}
    document = workflow({}, steps, {"o": "c/o"})
    (plain,) = bench.run_all([bench.write_plain(document, {})])
    for expected in ([False, False], [True, True]):
        log, results, found = run(bench, document, {"intermediates": "window", "memory": "4GB"}, **BLOCKS)
        assert results == plain.results
        assert found == expected
        assert "SFIO-" not in log
    assert "/a/o" in {line["output"] for line in bench.telemetry() if line["event"] == "discarded"}


IN_MEMORY: Final = f"case $PWD in {PLACE}/*)"


def test_a_job_that_memory_is_too_small_for_runs_again_on_the_disk(bench: Bench) -> None:
    cases = {
        "seq 1 999; exit 1": "FAILED Job /a/0",
        "head -c 30000000 /dev/zero; sleep 600": "they are larger than",
    }
    (plain,) = bench.run_all([bench.write_plain(chain("seq 1 99999"), {})])
    for otherwise, why in cases.items():
        document = chain(f"{IN_MEMORY} {otherwise};; *) seq 1 99999;; esac")
        run(bench, document, MEMORY)
        log, results, found = run(bench, document, MEMORY)
        assert results == plain.results
        assert found == [True, False, True, False]
        assert f"Job /a/0 starts again, with its files on the disk: {why}" in log
        assert bench.leftovers() == []


def test_a_job_that_always_fails(bench: Bench) -> None:
    flag = bench.directory / "flag"
    document = chain(f"seq 1 99999; ! test -e {flag}")
    run(bench, document, MEMORY)
    flag.touch()
    path = bench.write(document, {}, io=True, config=MEMORY)
    done = bench.finish(bench.start(path), path)
    assert not done.ok
    assert places(path) == [True, False]
    assert bench.leftovers() == []


def test_nothing_is_left_of_a_driver_that_is_ended(bench: Bench) -> None:
    flag = bench.directory / "flag"
    document = chain(f"seq 1 99999; test ! -e {flag} || {{ {IN_MEMORY} note there; sleep 600;; esac; }}")
    run(bench, document, MEMORY)
    flag.touch()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        path = bench.write(document, {}, io=True, config=MEMORY)
        driver = bench.start(path)
        wait_for_note(path, "there", seconds=40)
        assert left(bench)
        os.kill(driver.pid, number)
        driver.wait(60)
        wait_for(lambda: not left(bench), f"nothing in memory after signal {number}")
        wait_for(lambda: not bench.leftovers(), f"no process after signal {number}")


@pytest.mark.parametrize(
    ("memory", "message"),
    [(0, "0 is no size"), ("-1GB", "'-1GB' is no size"), ("900TB", "900TB is more than the memory of this node")],
)
def test_a_wrong_size_ends_the_run_before_it_starts(bench: Bench, memory: object, message: str) -> None:
    path = bench.write(chain(NUMBERS), {}, io=True, config={**MEMORY, "memory": memory})
    done = bench.finish(bench.start(path), path)
    assert not done.ok
    assert f"scheduling.scheduler.config.memory: {message}; allowed: " in done.log


def test_the_plan_says_what_may_lie_in_memory(bench: Bench) -> None:
    path = bench.write(chain(NUMBERS), {}, io=True, config=MEMORY)
    done = forked.run("streamflow-io", "plan", path, environment={"XDG_DATA_HOME": str(bench.data)})
    shown = " ".join(done.stdout.split())
    assert "These steps may write up to 500 MB into memory, once their sizes are known: /a, /b" in shown
    assert "/c writes to the disk: /c/o may be a result of the workflow" in shown


RETRY: Final = {"failureManager": {"type": "default", "config": {"max_retries": 2, "retry_delay": 0}}}


def test_directories_links_and_scatters(bench: Bench) -> None:
    """A result may be a link to a file in memory, or be in it."""
    directory = {"type": "Directory", "outputBinding": {"glob": "$(inputs.n)"}}
    make = {
        "run": tool("mkdir $n; echo $n > $n/x; ln -s x $n/y; echo z > $n/z", {"n": "string"}, {"o": directory}),
        "in": {"n": "names"},
        "scatter": "n",
    }
    linked = {"type": "File", "outputBinding": {"glob": "link-*"}}
    whole = {"type": "Directory", "outputBinding": {"glob": "whole-*"}}
    link = {
        "run": tool(
            f"{NOTE}; ln -s $i/x link-${{i##*/}}; mkdir whole-${{i##*/}}; ln -s $i whole-${{i##*/}}/d",
            {"i": "Directory"},
            {"o": linked, "whole": whole},
        ),
        "in": {"i": "make/o"},
        "scatter": "i",
    }
    end = reader("cat $i | tee copy", "link/o", "end-$(inputs.i.basename)")
    end["scatter"] = "i"
    document = workflow(
        {"names": "string[]"},
        {"make": make, "link": link, "end": end},
        {"o": "end/o", "link": "link/o", "whole": "link/whole"},
    )
    given = {"names": ["a", "b"]}
    (plain,) = bench.run_all([bench.write_plain(document, given)])
    assert plain.ok, plain.errors
    for settings in ({}, {}, RETRY):
        ours = bench.run(document, given, config=MEMORY, **settings)
        assert ours.ok, ours.errors
        assert ours.results == plain.results
        assert ours.files == plain.files
    assert bench.leftovers() == []


def test_a_failure_manager_retries_on_the_disk(bench: Bench) -> None:
    flag = bench.directory / "flag"
    document = chain(f"{IN_MEMORY} exit 1;; esac; test ! -e {flag} || {{ rm {flag}; exit 1; }}; seq 1 99999")
    run(bench, document, MEMORY)
    flag.touch()
    path = bench.write(document, {}, io=True, config=MEMORY, **RETRY)
    done = bench.finish(bench.start(path), path)
    assert done.ok, done.errors
    assert places(path) == [True, False, False, True, False]
