"""Differences from plain StreamFlow that `docs/how-it-works.md` lists, and that no other test shows."""

from __future__ import annotations

import pytest

from lab.cwl import Document, found, streaming, tool, workflow
from lab.gates import FILES, lister, pair, producer
from lab.runs import Bench

# `DIR/.` is the directory itself for both.
LOOK = "if test -L $dir; then echo link; else echo directory; fi; find $dir/. | wc -l; ls $dir/."


def test_a_directory_at_the_gate_is_no_link(bench: Bench) -> None:
    document = pair(producer(FILES, "on_close", "Directory"), lister(LOOK))
    plain, ours = (bench.run(document, io=io) for io in (False, True))
    assert plain.files["read.txt"] == b"link\n4\n1\n2\n3\n"
    assert ours.files["read.txt"] == b"directory\n4\n1\n2\n3\n"


def test_a_condition_of_a_tool_without_inputs(bench: Bench) -> None:
    """Plain StreamFlow runs all of these jobs. Each reader has one job."""
    say = {
        "class": "CommandLineTool",
        "baseCommand": ["echo", "said"],
        "inputs": {},
        "outputs": {"out": "stdout"},
        "stdout": "said.txt",
    }
    read = tool('note read; cat ${file:-/dev/null}; echo "$file" | wc -w', {}, {"out": "stdout"}, stdout="read.txt")
    read["inputs"]["file"] = "File?"
    read["requirements"][0]["envDef"].append(
        {"envName": "file", "envValue": "$(inputs.file === null ? '' : inputs.file.path)"}
    )
    steps: Document = {}
    for name, when in {"never": "$(false)", "always": "$(true)", "asked": "$(inputs.x > 1)"}.items():
        steps[name] = {"run": say, "in": {"x": {"default": 1}} if name == "asked" else {}, "when": when}
        printed = {**read, "stdout": f"{name}.txt"}
        steps[f"{name}-read"] = {"run": printed, "in": {"file": f"{name}/out"}}
    outputs = {name: f"{name}/out" for name in steps}
    ours = bench.run_ours(workflow({}, steps, outputs))
    assert [ours.outputs[name] is None for name in ("never", "always", "asked")] == [True, False, True]
    assert {name: text for name, text in ours.files.items() if name != "said.txt"} == {
        "never.txt": b"0\n",
        "always.txt": b"said\n1\n",
        "asked.txt": b"0\n",
    }
    assert len(ours.times("read")) == 3


def test_a_tool_that_fails_long_after_its_close_has_committed(bench: Bench) -> None:
    """The reader has begun with the file, and the run fails all the same, without a result."""
    script = "echo 1 > out.txt; meet read; exit 3"
    read = tool("note read; cat $file", {"file": "File"}, {"out": "stdout"}, stdout="read.txt")
    rule = streaming({"port": "out", "committed": "on_close"})
    made = producer(script, "on_close")
    made["hints"] = [rule]
    run = bench.run(pair(made, read))
    assert not run.ok
    assert run.time("read") > 0
    assert "read.txt" not in run.files


@pytest.mark.long
def test_a_list_of_directories_has_no_commit_rule(bench: Bench) -> None:
    made = tool(
        "mkdir d1 d2", {}, {"out": found("d*", "Directory[]")}, [streaming({"port": "out", "committed": "on_close"})]
    )
    read = tool("ls -d $dirs", {"dirs": "Directory[]"}, {"out": "stdout"}, stdout="read.txt")
    run = bench.run(pair(made, read))
    assert not run.ok
    assert "output 'out' is no File, File[] or Directory" in run.log
