"""Names that are not UTF-8, that have newlines, that are as long as names can be: as with plain StreamFlow.

StreamFlow lists a Directory that is an input or an output of a workflow, and can name no file there that is not UTF-8;
what is in its directories it does not look at.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from lab.cwl import NO_CORES, Document, found, streamable, streaming, tool, workflow
from lab.gates import MEET, assert_early, lister, pair
from lab.runs import Bench

NAMES = (b"caf\xe9", b"two\nlines", b"l" * 255)
# Notes as the shell does, and waits in `meet` as it does.
PRELUDE = f"""
import os, subprocess, sys, time
names = {NAMES!r}
def note(what):
    with open(os.environ["TRACE"], "a") as trace:
        subprocess.run(["date", f"+%s.%N {{what}}"], stdout=trace)
def meet(what):
    until = time.monotonic() + 60
    while "SFIO_JOB" in os.environ and what not in open(os.environ["TRACE"]).read() and time.monotonic() < until:
        time.sleep(0.05)
"""
WRITE = """
os.makedirs("out/sub")
for number, name in enumerate(names):
    with open(b"out/sub/" + name, "wb") as file:
        file.write(b"file " + name + b"\\n")
    meet(f"got {number}")
"""
BY_NAME = """
for number, name in enumerate(names):
    text = open(os.fsencode(os.environ["dir"]) + b"/sub/" + name, "rb").read()
    note(f"got {number}")
    sys.stdout.buffer.write(text)
"""
SCAN = """
texts = {}
for entry in os.scandir(os.fsencode(os.environ["dir"]) + b"/sub"):
    texts[entry.name] = open(entry.path, "rb").read()
    note(f"got {names.index(entry.name)}")
for name in names:
    sys.stdout.buffer.write(texts[name])
"""
CHANGE = 'with open(b"out/sub/" + names[0], "ab") as file:\n    file.write(b"more")\n'


def python(script: str) -> str:
    return f"{shlex.quote(sys.executable)} -c {shlex.quote(PRELUDE + script)}"


def directory(script: str, **fields: str) -> Document:
    """The first file tells the name of the Directory."""
    rule = streaming({"port": "out", "start": "producer", "committed": "on_close", **fields})
    return tool(f"{MEET}note start; {python(script)}; note end", {}, {"out": found("ou*", "Directory")}, [rule])


def without_directory(document: Document) -> Document:
    del document["outputs"]["a"]
    return document


@pytest.mark.parametrize(
    ("fields", "reader"),
    [
        pytest.param({}, lister(python(BY_NAME)), marks=pytest.mark.long),
        ({"mode": "no_update"}, lister(python(SCAN), streamable("Directory"))),
    ],
)
def test_files_of_a_directory_are_read_as_they_are_committed(
    bench: Bench, fields: dict[str, str], reader: Document
) -> None:
    _, ours = bench.run_both(without_directory(pair(directory(WRITE, **fields), reader)))
    assert_early(ours, "got 2")
    assert ours.files["read.txt"] == b"".join(b"file " + name + b"\n" for name in NAMES)


def test_a_file_that_changes_after_its_commit_is_named(bench: Bench) -> None:
    run = bench.run(without_directory(pair(directory(WRITE + CHANGE), lister(python(BY_NAME)))))
    assert not run.ok
    assert r"out/sub/caf\udce9 of the output `out` was committed by `on_close`, but was written again" in run.log
    assert bench.leftovers() == []


@pytest.mark.parametrize("kind", [pytest.param("File", marks=pytest.mark.long), "File[]"])
def test_a_file_that_streamflow_cannot_name_is_an_error_that_names_it(bench: Bench, kind: str) -> None:
    rule = streaming({"port": "out", "committed": "on_close"})
    first = tool(python('open(names[0] + b".txt", "w").close()'), {}, {"out": found("*.txt", kind)}, [rule])
    document = pair(first, tool("echo", {"x": kind}, {"out": "stdout"}))
    assert not bench.run(document, io=False).ok
    run = bench.run(document)
    assert not run.ok
    said = "FAILED Job /a/0: StreamFlow has no File with a name that is not UTF-8: "
    assert run.log.count(said) == 1, run.errors
    assert r"/caf\xe9.txt" in run.log
    assert "UnicodeEncodeError" not in run.log
    assert bench.leftovers() == []


def test_the_name_of_a_committed_file_is_no_expression_and_no_pattern(bench: Bench) -> None:
    names = ("cost$(USD).txt", "${return 1}.txt", "a&b (1).txt", "*[a]?.txt")
    script = f'{MEET}for n in {shlex.join(names)}; do echo "$n" > "$n"; done; meet got 4; note end'
    rule = streaming({"port": "out", "committed": "on_close"})
    made = tool(script, {}, {"out": found("*.txt", "File[]")}, [rule], requirements=[NO_CORES])
    script = 'cat "$0" && note read; note "got $(grep -c read "$TRACE")"'
    read = tool(script, {}, {"out": "stdout"}, stdout="read.txt", requirements=[NO_CORES])
    read["inputs"]["file"] = {"type": "File", "inputBinding": {}}
    steps = {"a": {"run": made, "in": {}}, "b": {"run": read, "in": {"file": "a/out"}, "scatter": "file"}}
    join = tool("", {"files": {"type": "File[]", "inputBinding": {}}}, {"out": "stdout"}, stdout="joined.txt")
    steps["c"] = {"run": {**join, "baseCommand": ["cat"]}, "in": {"files": "b/out"}}
    _, ours = bench.run_both(workflow({}, steps, {"a": "a/out", "c": "c/out"}))
    assert ours.time("got 4") < ours.time("end")
    assert {name: ours.files[name].decode() for name in names} == {name: f"{name}\n" for name in names}


def test_plain_streamflow_quotes_no_element_of_a_list(bench: Bench) -> None:
    """`docs/upstream.md` says so, until this is mended."""
    printing = {
        "class": "CommandLineTool",
        "baseCommand": ["printf", "%s|"],
        "inputs": {"list": {"type": "string[]", "inputBinding": {}}, "trace": "string"},
        "outputs": {"out": "stdout"},
        "stdout": "out.txt",
    }
    document = workflow({"list": "string[]"}, {"a": {"run": printing, "in": {"list": "list"}}}, {"out": "a/out"})
    ended = bench.run(document, {"list": ["two words"]}, io=False)
    assert ended.files == {"out.txt": b"two|words|"}, ended.errors


def test_the_directory_for_temporary_files_has_a_space(tmp_path: Path) -> None:
    """StreamFlow itself needs none in the directories of jobs only."""
    (directory := tmp_path / "two words").mkdir()
    bench, work = Bench(directory), tmp_path / "work"
    work.mkdir()
    main = {
        "type": "cwl",
        "config": {"file": "main.cwl", "settings": "job.json"},
        "bindings": [{"step": "/", "target": {"deployment": "here"}}],
    }
    here = {"type": "local", "config": {}, "workdir": str(work)}
    write = tool("echo made", {}, {"out": streamable("stdout")}, stdout="made.txt")
    save = tool("cat $x > saved", {"x": "File"}, {"out": found("saved")}, [{"class": "sfio:IOTask"}])
    read = tool("cat $x", {"x": streamable()}, {"out": "stdout"}, stdout="read.txt")
    steps = {
        "a": {"run": write, "in": {}},
        "b": {"run": save, "in": {"x": "a/out"}},
        "c": {"run": read, "in": {"x": "a/out"}},
    }
    document = workflow({}, steps, {name: f"{name}/out" for name in "abc"})
    settings = {"workflows": {"main": main}, "deployments": {"here": here}}
    plain, ours = (bench.run(document, io=io, **settings) for io in (False, True))
    assert plain.ok, plain.errors
    assert ours.ok, ours.errors
    assert ours.results == plain.results
