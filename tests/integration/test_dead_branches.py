"""Steps that no output of the workflow needs. A run waits for them, as the CWL specification says."""

from __future__ import annotations

import os
import signal
from typing import Final

from lab.cwl import Document, found, streamable, streaming, tool, workflow
from lab.node import wait_for
from lab.runs import Bench, Run

#: Seconds that a dead branch takes at least after the outputs of the workflow are there.
LONG: Final = 1
FEW_CORES: Final = {"class": "ResourceRequirement", "coresMin": 0.1}
LIVE: Final[Document] = {"run": tool("echo a", {}, {"o": "stdout"}, stdout="a.txt"), "in": {}}


def slow(name: str, source: str = "a/o", **inputs: str) -> Document:
    """A step that reads a file, takes long, and notes that it has ended."""
    run = tool(
        f"sleep {LONG}; cat $i; note {name}",
        {"i": "File", **inputs},
        {"o": "stdout"},
        stdout=f"{name}.txt",
        requirements=[FEW_CORES],
    )
    return {"run": run, "in": {"i": source}}


def nested() -> Document:
    inner = workflow({"i": "File"}, {"inner": slow("nested", "i")}, {})
    return {"run": inner, "in": {"i": "a/o"}}


def looped() -> Document:
    requirement = {
        "class": "cwltool:Loop",
        "loopWhen": "$(inputs.round < 2)",
        "loop": {"round": {"valueFrom": "$(inputs.round + 1)"}, "i": "o"},
        "outputMethod": "last",
    }
    step = slow("loop", round="int")
    return {**step, "in": {"i": "a/o", "round": {"default": 0}}, "requirements": [requirement]}


def scattered() -> Document:
    return {**slow("part", each="int"), "in": {"i": "a/o", "each": {"default": [1, 2]}}, "scatter": "each"}


def without_outputs() -> Document:
    return {"run": tool(f"sleep {LONG}; note silent", {"i": "File"}, {}, requirements=[FEW_CORES]), "in": {"i": "a/o"}}


DEAD: Final[dict[str, Document]] = {
    "first": slow("first"),
    "second": slow("second", "first/o"),
    "part": scattered(),
    "nested": nested(),
    "loop": looped(),
    "taken": {**slow("taken"), "when": "$(1 == 1)"},
    "skipped": {**slow("skipped"), "when": "$(1 == 2)"},
    "silent": without_outputs(),
}
ENDS: Final = ["first", "loop", "loop", "nested", "part", "part", "second", "silent", "taken"]


def streams() -> dict[str, Document]:
    """A byte stream, and two files that are read once each is closed."""
    write = tool(
        f"cat $i; sleep {LONG}; note producer",
        {"i": "File"},
        {"o": {"type": "stdout", "streamable": True}},
        stdout="s.txt",
    )
    read = tool("cat $i; note consumer", {"i": streamable()}, {"o": "stdout"}, stdout="t.txt")
    make = tool(
        f"echo 1 > 1.part; sleep {LONG}; echo 2 > 2.part; note maker",
        {"i": "File"},
        {"o": found("*.part", "File[]")},
        [streaming({"port": "o", "committed": "on_close"})],
    )
    collect = tool("cat $i; note reader", {"i": "File"}, {"o": "stdout"}, stdout="r.txt")
    return {
        "producer": {"run": write, "in": {"i": "a/o"}},
        "consumer": {"run": read, "in": {"i": "producer/o"}},
        "maker": {"run": make, "in": {"i": "a/o"}},
        "reader": {"run": collect, "in": {"i": "maker/o"}, "scatter": "i"},
    }


def with_dead(steps: dict[str, Document]) -> Document:
    return workflow({}, {"a": LIVE, **steps}, {"a": "a/o"})


def noted(run: Run) -> list[str]:
    return sorted(what for _, what in run.trace)


def test_a_run_waits_for_all_steps(bench: Bench) -> None:
    """The result is that of the workflow without these steps."""
    paths = [
        bench.write_plain(with_dead({}), {}),
        bench.write(with_dead(DEAD), {}, True),
        bench.write(with_dead(DEAD), {}, True, {"observe": True}),
        bench.write(with_dead(streams()), {}, True),
        bench.write(with_dead({"quick": {"run": tool("note quick", {}, {}), "in": {}}}), {}, True),
    ]
    plain, *ours = bench.run_all(paths)
    assert [run.results for run in ours] == [plain.results] * 4, [run.errors for run in ours]
    streamed = ["consumer", "maker", "producer", "reader", "reader"]
    assert [noted(run) for run in ours] == [ENDS, ENDS, streamed, ["quick"]]
    assert bench.leftovers() == []


def test_plain_streamflow_cancels_a_dead_branch(bench: Bench) -> None:
    """Once it does not, `end_with_the_last_step` can go."""
    document = with_dead({"b": slow("b")})
    # StreamFlow may also notice the end of the dead step first.
    failed = next((plain for plain in (bench.run(document, io=False) for _ in range(5)) if not plain.ok), None)
    assert failed is not None
    assert "FAILED Workflow execution" in failed.log


def failing(script: str) -> Document:
    run = tool(f"{script}; echo reason >&2; exit 3", {"i": "File"}, {"o": "stdout"}, requirements=[FEW_CORES])
    return {"run": run, "in": {"i": "a/o"}}


ENDLESS: Final[Document] = {
    "run": tool("note endless; while [ -e $TRACE ]; do sleep 0.1; done", {"i": "File"}, {"o": "stdout"}),
    "in": {"i": "a/o"},
}
ONCE_IT_RUNS: Final = failing('until grep -q endless "$TRACE"; do sleep 0.1; done')


def test_what_fails_ends_the_run(bench: Bench) -> None:
    """At once, and wherever it is: the steps beside it would go on for ever."""
    after = {"b": slow("first"), "bad": {**failing("true"), "in": {"i": "b/o"}}}
    documents = [
        with_dead(after),
        workflow({}, {"a": LIVE, "bad": ONCE_IT_RUNS, "other": ENDLESS}, {"o": "other/o"}),
        workflow({}, {"a": LIVE, "bad": ONCE_IT_RUNS, "other": ENDLESS}, {"o": "bad/o"}),
    ]
    configs: list[Document] = [{"observe": True}, {}]
    paths = [bench.write(document, {}, True, config) for config in configs for document in documents]
    for run in bench.run_all(paths):
        assert not run.ok
        # StreamFlow says the first twice if it runs the job itself.
        *first, last = (line.split(" ERROR ")[1].strip() for line in run.log.splitlines() if " ERROR " in line)
        assert set(first) == {"FAILED Job /bad/0 with error:"}
        assert last == "FAILED Workflow execution: job /bad/0 of step /bad has failed (exit code 3)"
    # Without hints StreamFlow itself runs the jobs, and leaves alone those that it gives up.
    for path in paths[3:]:
        path.with_name("trace").unlink()
    wait_for(lambda: bench.leftovers() == [], "the end of all that they started")


def test_an_interrupt_ends_a_dead_branch(bench: Bench) -> None:
    path = bench.write(with_dead({"b": ENDLESS}), {}, True, {"observe": True})
    driver = bench.start(path)
    trace, output = path.parent / "trace", path.parent / "out" / "a.txt"
    wait_for(lambda: output.exists() and trace.exists(), "the dead branch, and the output")
    os.killpg(driver.pid, signal.SIGINT)
    run = bench.finish(driver, path)
    assert not run.ok
    wait_for(lambda: bench.leftovers() == [], "the end of all that it started")
