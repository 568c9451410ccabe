"""Where calls are refused that look into another process, as in containers, nothing is wrong, and little is later."""

from __future__ import annotations

import pytest

from lab.cwl import found, streamable, streaming, tool, workflow
from lab.gates import BY_LIST, BY_NAME, FILES, lister, producer
from lab.node import Node
from lab.refused_calls import refusing
from lab.runs import Bench

TOGETHER = "cat $f > {0}/one & cat $f > {0}/other; wait"


@pytest.mark.parametrize("script", [TOGETHER, "paste $f $f > {0}/one"], ids=["two programs", "one program"])
def test_a_second_opening_is_seen(runtime: Node, script: str) -> None:
    """A second opening must be seen: the process that opens a stream second gets an empty file, or a part."""
    out, fifo = runtime.base / "out", runtime.base / "in" / "f"
    (out / "p").write_text("text\n" * 100)
    events = runtime.run / "jobs" / "p"
    events.mkdir()
    lines = [f'{{"event":"{event}","port":"out","path":"{out}/p","size":500}}\n' for event in ("opened", "committed")]
    (events / "events.jsonl").write_text("".join([*lines, '{"event":"exit","success":true}\n']))
    for number in range(10):
        stream = runtime.stream("p", out / "p", fifo)
        command = f"f={fifo}; {script.format(runtime.base)}"
        job = runtime.shell(f"c{number}", command, inputs=[stream], wrapper=refusing("kcmp"), stderr=-3)
        assert job.wait() == 75, number
        assert "opened again" in str(job.exit()["message"])


@pytest.mark.long
def test_results_are_the_same(bench: Bench) -> None:
    """A stream, a gate whose names are read in the memory of the caller, and a listing with entries as they come."""
    kinds = {"update": BY_NAME, "no_update": BY_LIST}
    steps = {"bytes": {"run": tool("sleep 1; seq 1 1000 > out.txt", {}, {"out": found("out.txt")}), "in": {}}}
    steps["bytes"]["run"]["hints"] = [streaming({"port": "out", "mode": "no_update"})]
    copy = tool("cat $file", {"file": streamable()}, {"out": "stdout"}, stdout="copy.txt")
    steps["read_bytes"] = {"run": copy, "in": {"file": "bytes/out"}}
    for mode, script in kinds.items():
        made = producer(f"{FILES}; meet read {mode}", "on_n_files", "Directory", nFiles=3, mode=mode)
        read = lister(script.replace("note read", f"note read {mode}"))
        read["stdout"] = f"{mode}.txt"
        steps[mode] = {"run": made, "in": {}}
        steps[f"read_{mode}"] = {"run": read, "in": {"dir": f"{mode}/out"}}
    document = workflow({}, steps, {name: f"{name}/out" for name in steps if name.startswith("read")})
    plain = bench.run(document, io=False)
    bench.prefix = tuple(refusing())
    ours = bench.run(document)
    assert ours.ok, ours.errors
    assert ours.results == plain.results
    assert bench.leftovers() == []
    assert "no gate" not in ours.log
    assert ours.files["no_update.txt"] == b"file 1\nfile 2\nfile 3\n"
