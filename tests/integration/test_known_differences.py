"""Differences from plain StreamFlow that `docs/how-it-works.md` lists, and that no other test shows."""

from __future__ import annotations

import pytest

from lab.cwl import found, streaming, tool
from lab.gates import FILES, lister, pair, producer
from lab.runs import Bench

# `DIR/.` is the directory itself for both.
LOOK = "if test -L $dir; then echo link; else echo directory; fi; find $dir/. | wc -l; ls $dir/."


def test_a_directory_at_the_gate_is_no_link(bench: Bench) -> None:
    document = pair(producer(FILES, "on_close", "Directory"), lister(LOOK))
    plain, ours = (bench.run(document, io=io) for io in (False, True))
    assert plain.files["read.txt"] == b"link\n4\n1\n2\n3\n"
    assert ours.files["read.txt"] == b"directory\n4\n1\n2\n3\n"


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
