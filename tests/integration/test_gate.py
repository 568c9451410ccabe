"""Consumers that start with their producer, and are held where they touch what is not committed."""

from __future__ import annotations

import pytest

from lab.cwl import found, streamable, streaming, tool, workflow
from lab.gates import ATTEMPT, BY_LIST, FILES, RETRY, assert_early, lister, pair, producer, reader
from lab.runs import Bench


@pytest.mark.parametrize("committed", ["on_termination", pytest.param("on_close", marks=pytest.mark.long)])
def test_a_consumer_starts_before_its_file_exists(bench: Bench, committed: str) -> None:
    script = "meet read; exec 3> out.txt; echo one >&3; sleep 1; echo two >&3; exec 3>&-; sleep 1"
    _, ours = bench.run_both(pair(producer(script, committed), reader()))
    assert_early(ours)
    assert ours.files["read.txt"] == b"one\ntwo\n"
    if committed == "on_termination":
        assert ours.time("done") > ours.time("end")


def test_a_consumer_goes_on_at_the_commit(bench: Bench) -> None:
    _, ours = bench.run_both(pair(producer("meet read; echo data > out.txt; meet done", "on_close"), reader()))
    assert_early(ours, "done")


@pytest.mark.parametrize(
    ("kind", "glob"), [("File?", "out.txt"), pytest.param("File", "o*.txt", marks=pytest.mark.long)]
)
def test_a_file_that_is_not_certain_is_there_when_it_is_opened(bench: Bench, kind: str, glob: str) -> None:
    script = "sleep 0.5; exec 3> out.txt; note opened; echo one >&3; meet read; echo two >&3"
    document = pair(producer(script, "on_termination", kind, glob), reader())
    if kind == "File?":
        document["steps"]["b"]["run"]["inputs"]["file"] = kind
        document["outputs"]["a"]["type"] = kind
    _, ours = bench.run_both(document)
    assert ours.time("opened") < ours.time("read") < ours.time("end")
    assert ours.files["read.txt"] == b"one\ntwo\n"


def test_a_failed_producer_is_retried_with_its_consumer(bench: Bench) -> None:
    script = f"{ATTEMPT}meet read; echo part > out.txt; sleep 0.5; [ $attempt -ge 2 ] || exit 3; echo whole >> out.txt"
    run = bench.run(pair(producer(script, "on_termination"), reader()), **RETRY)
    assert run.ok, run.errors
    assert [len(run.times(what)) for what in ("try", "read", "done", "end")] == [2, 2, 1, 1]
    assert run.files["read.txt"] == b"part\nwhole\n"
    assert bench.leftovers() == []


def test_a_consumer_does_not_outlive_its_producer(bench: Bench) -> None:
    document = pair(producer("meet read; echo part > out.txt; exit 3", "on_termination"), reader())
    run = bench.run(document)
    assert not run.ok
    assert (len(run.times("read")), run.times("done"), run.files) == (1, [], {})
    assert bench.leftovers() == []


def test_a_consumer_that_fails_is_retried_alone(bench: Bench) -> None:
    again = reader(f"{ATTEMPT}note read; cat $file; [ $attempt -ge 2 ] || exit 3; note done")
    run = bench.run(pair(producer("meet read; echo data > out.txt; meet done", "on_close"), again), **RETRY)
    assert run.ok, run.errors
    assert [len(run.times(what)) for what in ("start", "try", "end")] == [1, 2, 1]
    assert_early(run, "done")
    assert run.files["read.txt"] == b"data\n"
    assert bench.leftovers() == []


def test_files_of_a_list_go_to_a_scatter_before_they_are_committed(bench: Bench) -> None:
    script = "for f in b a; do exec 3> $f.txt; echo $f >&3; meet read $f; echo $f end >&3; exec 3>&-; done; sleep 1"
    used = tool(
        "note read $name; cat $file; note got $name",
        {"file": "File"},
        {"out": "stdout"},
        stdout="$(inputs.file.nameroot).used",
    )
    used["requirements"][0]["envDef"].append({"envName": "name", "envValue": "$(inputs.file.nameroot)"})
    document = pair(producer(script, "on_close", "File[]", "*.txt"), used, scatter="file")
    _, ours = bench.run_both(document)
    for name in "ab":
        assert_early(ours, f"got {name}")
    assert [file["basename"] for file in ours.outputs["b"]] == ["a.used", "b.used"]


def test_several_producers_to_one_consumer(bench: Bench) -> None:
    first = producer("meet read; echo $n > $n.txt", "on_termination", glob="$(inputs.n).txt")
    first["inputs"]["n"] = "int"
    first["requirements"][0]["envDef"].append({"envName": "n", "envValue": "$(inputs.n)"})
    merge = tool("", {"files": {"type": "File[]", "inputBinding": {}}}, {"out": "stdout"}, stdout="all.txt")
    merge["baseCommand"] = ["sh", "-c", 'echo "$(date +%s.%N) read" >> $TRACE; cat "$@"', "sh"]
    steps = {
        "a": {"run": first, "in": {"n": "numbers"}, "scatter": "n"},
        "b": {"run": merge, "in": {"files": "a/out"}},
    }
    document = workflow({"numbers": "int[]"}, steps, {"a": "a/out", "b": "b/out"})
    _, ours = bench.run_both(document, {"numbers": [1, 2]})
    assert_early(ours)
    assert ours.files["all.txt"] == b"1\n2\n"


def test_through_a_subworkflow_and_when(bench: Bench) -> None:
    inside = workflow({"file": "File"}, {"b": {"run": reader(), "in": {"file": "file"}}}, {"out": "b/out"})
    steps = {
        "a": {"run": producer("meet read; echo data > out.txt", "on_termination"), "in": {}},
        "s": {"run": inside, "in": {"file": "a/out"}, "when": "$(inputs.file.basename != '')"},
    }
    _, ours = bench.run_both(workflow({}, steps, {"out": "s/out"}))
    assert_early(ours)


def test_a_chain_with_a_stream_starts_as_one(bench: Bench) -> None:
    first = producer("meet read last; echo data > out.txt", "on_termination")
    rule = streaming({"port": "out", "mode": "no_update"})
    middle = tool("exec > out.txt; note read; cat $file", {"file": "File"}, {"out": found("out.txt")}, [rule])
    last = tool("note read last; cat $file", {"file": streamable()}, {"out": "stdout"}, stdout="read.txt")
    steps = {
        "a": {"run": first, "in": {}},
        "b": {"run": middle, "in": {"file": "a/out"}},
        "c": {"run": last, "in": {"file": "b/out"}},
    }
    _, ours = bench.run_both(workflow({}, steps, {"out": "c/out"}))
    assert_early(ours, "read last")


@pytest.mark.long
def test_a_consumer_that_starts_long_after_the_end(bench: Bench) -> None:
    slow = tool("sleep 2; note slow; echo x", {}, {"out": "stdout"}, stdout="slow.txt")
    both = tool(
        "note read; cat $file $dir/*", {"file": "File", "dir": "Directory"}, {"out": "stdout"}, stdout="read.txt"
    )
    steps = {
        "a": {"run": producer("echo data > out.txt", "on_close"), "in": {}},
        "d": {"run": producer(FILES, "on_close", "Directory"), "in": {}},
        "s": {"run": slow, "in": {}},
        "b": {"run": both, "in": {"file": "a/out", "dir": "d/out", "late": "s/out"}},
    }
    both["inputs"]["late"] = "File"
    _, ours = bench.run_both(workflow({}, steps, {"out": "b/out"}))
    assert ours.time("read") > ours.time("slow")
    assert ours.files["read.txt"] == b"data\nfile 1\nfile 2\nfile 3\n"


def test_what_needs_the_value_starts_at_the_commit(bench: Bench) -> None:
    second = reader("note read $size; cat $file")
    second["requirements"][0]["envDef"].append({"envName": "size", "envValue": "$(inputs.file.size)"})
    _, ours = bench.run_both(pair(producer("echo data > out.txt; sleep 1", "on_close"), second))
    assert "/a/out -> /b/file is delivered at commit: /b/file is used in the expression 'inputs.file.size'" in ours.log
    assert_early(ours, "read 5")


@pytest.mark.parametrize("kind", [pytest.param("File", marks=pytest.mark.long), "Directory"])
def test_without_the_gate_a_consumer_waits_for_all_of_it(bench: Bench, kind: str) -> None:
    if kind == "File":
        document = pair(producer("echo data > out.txt; sleep 1", "on_termination"), reader())
    else:
        document = pair(producer(f"{FILES}; sleep 1", "on_close", "Directory"), lister(BY_LIST))
    plain = bench.run(document, io=False)
    path = bench.write(document, {}, io=True)
    ours = bench.finish(bench.start(path, SFIO_NODE_WITHOUT_GATE="1"), path)
    assert ours.ok, ours.errors
    assert ours.results == plain.results
    assert ours.time("read") > ours.time("end")
    assert "WARNING  Job /b/0: no gate" in ours.log
    assert bench.leftovers() == []
