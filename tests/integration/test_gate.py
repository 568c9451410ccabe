"""Consumers that start with their producer, and are held where they touch what is not committed."""

from __future__ import annotations

import pytest

from lab.cwl import Document, found, side_by_side, streamable, streaming, tool, workflow
from lab.gates import ATTEMPT, BY_LIST, FILES, MEET, assert_early, lister, pair, producer, reader
from lab.runs import RETRY, Bench


def read_as_an_optional_file() -> Document:
    script = "sleep 0.5; note opened; exec 3> out.txt; echo one >&3; meet read; echo two >&3"
    document = pair(producer(script, "on_termination", "File?", "out.txt"), reader())
    document["steps"]["b"]["run"]["inputs"]["file"] = "File?"
    return document


def read_by_a_scatter() -> Document:
    script = "for f in b a; do exec 3> $f.txt; echo $f >&3; meet read $f; echo $f end >&3; exec 3>&-; done; sleep 1"
    used = tool(
        "note read $name; cat $file; note got $name",
        {"file": "File"},
        {"out": "stdout"},
        stdout="$(inputs.file.nameroot).used",
    )
    used["requirements"][0]["envDef"].append({"envName": "name", "envValue": "$(inputs.file.nameroot)"})
    return pair(producer(script, "on_close", "File[]", "*.txt"), used, scatter="file")


def read_of_several_producers() -> Document:
    """A scattered producer, and one reader of all its files."""
    first = producer("meet read; echo $n > $n.txt", "on_termination", glob="$(inputs.n).txt")
    first["inputs"]["n"] = "int"
    first["requirements"][0]["envDef"].append({"envName": "n", "envValue": "$(inputs.n)"})
    merge = tool("", {"files": {"type": "File[]", "inputBinding": {}}}, {"out": "stdout"}, stdout="all.txt")
    merge["baseCommand"] = ["sh", "-c", 'echo "$(date +%s.%N) read" >> $TRACE; cat "$@"', "sh"]
    steps = {
        "a": {"run": first, "in": {"n": {"default": [1, 2]}}, "scatter": "n"},
        "b": {"run": merge, "in": {"files": "a/out"}},
    }
    return workflow({}, steps, {"a": "a/out", "b": "b/out"})


def chain_with_a_stream() -> Document:
    first = producer("meet read last; echo data > out.txt", "on_termination")
    rule = streaming({"port": "out", "mode": "no_update"})
    middle = tool("exec > out.txt; note read; cat $file", {"file": "File"}, {"out": found("out.txt")}, [rule])
    last = tool("note read last; cat $file", {"file": streamable()}, {"out": "stdout"}, stdout="read.txt")
    steps = {
        "a": {"run": first, "in": {}},
        "b": {"run": middle, "in": {"file": "a/out"}},
        "c": {"run": last, "in": {"file": "b/out"}},
    }
    return workflow({}, steps, {"out": "c/out"})


def reader_of_the_size() -> Document:
    second = reader("note read $size; cat $file")
    second["requirements"][0]["envDef"].append({"envName": "size", "envValue": "$(inputs.file.size)"})
    return pair(producer("echo data > out.txt; meet read 5", "on_close"), second)


def test_a_consumer_starts_before_its_file_exists(bench: Bench) -> None:
    """Each part of the workflow has another kind of edge."""
    script = "meet read; exec 3> out.txt; echo one >&3; sleep 0.5; echo two >&3; exec 3>&-; sleep 0.5"
    document = side_by_side(
        termination=pair(producer(script, "on_termination"), reader()),
        commit=pair(producer("meet read; echo data > out.txt; meet done", "on_close"), reader()),
        optional=read_as_an_optional_file(),
        scatter=read_by_a_scatter(),
        several=read_of_several_producers(),
        chain=chain_with_a_stream(),
        size=reader_of_the_size(),
    )
    _, ours = bench.run_both(document)
    assert_early(ours.part("termination"))
    assert ours.part("termination").time("done") > ours.part("termination").time("end")
    assert ours.files["termination-read.txt"] == b"one\ntwo\n"
    assert_early(ours.part("commit"), "done")
    optional = ours.part("optional")
    assert optional.time("opened") < optional.time("read") < optional.time("end")
    assert ours.files["optional-read.txt"] == b"one\ntwo\n"
    for name in "ab":
        assert_early(ours.part("scatter"), f"got {name}")
    assert [file["basename"] for file in ours.outputs["scatter-b"]] == ["scatter-a.used", "scatter-b.used"]
    assert_early(ours.part("several"))
    assert ours.files["several-all.txt"] == b"1\n2\n"
    assert_early(ours.part("chain"), "read last")
    told = "/size/a/out -> /size/b/file is delivered at commit: /size/b/file is used in the expression"
    assert f"{told} 'inputs.file.size'" in ours.log
    assert_early(ours.part("size"), "read 5")


SLOW = "meet linked; sleep 0.5; echo 1 > out.txt; sleep 0.5; echo 2 >> out.txt"
SLOW_FILES = "mkdir out; echo 0 > out/0; meet linked; sleep 0.5; echo 1 > out/1; sleep 0.5; echo 2 > out/2"
NAMES_INPUT = """printf '{"out": {"class": "File", "path": "%s"}}' $given > cwl.output.json"""
PASSES_INPUT = {"type": "File", "outputBinding": {"outputEval": "${return {class: 'File', path: inputs.given.path};}"}}


def referring(script: str, out: Document, read: str = "cat $file", kind: str = "File") -> Document:
    """/b ends before its input is committed, and has an output that refers to the input."""
    steps = {
        "a": {"run": producer(SLOW if kind == "File" else SLOW_FILES, "on_termination", kind), "in": {}},
        "b": {"run": tool(f"{script}\nnote linked", {"given": kind}, {"out": out}), "in": {"given": "a/out"}},
        "c": {"run": tool(read, {"file": out["type"]}, {"out": "stdout"}, stdout="read.txt"), "in": {"file": "b/out"}},
    }
    return workflow({}, steps, {"out": "c/out"})


def test_an_output_that_refers_to_what_is_not_committed(bench: Bench) -> None:
    """The output is as complete as the input, though the job has ended before."""
    document = side_by_side(
        file=referring("ln -s $given link", found("link")),
        named=referring(NAMES_INPUT, found("none*")),
        passed=referring("true", PASSES_INPUT),
        copied=referring("cp $given copy &", found("copy")),
        directory=referring("ln -s $given link", found("link", "Directory"), "cat $file/*", "Directory"),
        inside=referring("ln -s $given/2 link", found("link"), kind="Directory"),
        below=referring("mkdir m; ln -s $given m/link", found("m", "Directory"), "cat $file/link/*", "Directory"),
        tree=referring("cp -r $given copy &", found("copy", "Directory"), "cat $file/*", "Directory"),
    )
    _, ours = bench.run_both(document)
    for name in document["steps"]:
        assert_early(ours.part(name), "linked")


def linking(first: Document, given: Document | str, rule: Document, file: Document | str) -> Document:
    """/b ends before its input is committed, and /c may read the link of /b before the end of /b."""
    link = tool("ln -s $given link; note linked", {"given": given}, {"out": found("link")}, [streaming(rule)])
    steps = {
        "a": {"run": first, "in": {}},
        "b": {"run": link, "in": {"given": "a/out"}},
        "c": {"run": tool("note read; cat $file", {"file": file}, {"out": "stdout"}, stdout="read.txt"),
              "in": {"file": "b/out"}},
    }  # fmt: skip
    return workflow({}, steps, {"out": "c/out"})


def test_a_link_to_what_is_not_committed_is_committed_with_it(bench: Bench) -> None:
    gated = producer(SLOW, "on_termination")
    streamed = tool(f"{MEET}: > out.txt; {SLOW}; note end", {}, {"out": found("out.txt", streamable=True)})
    gate = {"port": "out", "committed": "on_termination", "start": "producer"}
    stream = {"port": "out", "mode": "no_update"}
    document = side_by_side(
        gate_gate=linking(gated, "File", gate, "File"),
        gate_stream=linking(gated, "File", stream, streamable()),
        stream_gate=linking(streamed, streamable(), gate, "File"),
        stream_stream=linking(streamed, streamable(), stream, streamable()),
    )
    _, ours = bench.run_both(document)
    for name in document["steps"]:
        assert_early(ours.part(name), "linked")


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


def test_through_a_subworkflow_and_when(bench: Bench) -> None:
    inside = workflow({"file": "File"}, {"b": {"run": reader(), "in": {"file": "file"}}}, {"out": "b/out"})
    steps = {
        "a": {"run": producer("meet read; echo data > out.txt", "on_termination"), "in": {}},
        "s": {"run": inside, "in": {"file": "a/out"}, "when": "$(inputs.file.basename != '')"},
    }
    _, ours = bench.run_both(workflow({}, steps, {"out": "s/out"}))
    assert_early(ours)


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
