"""Inputs that are declared `streamable`, and are not read so: results are those of plain StreamFlow all the same."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from lab.cwl import Document, found, streamable, streaming, tool, workflow
from lab.runs import Bench, Run
from streamflow_io.records.learned.proofs import Proof, known_proofs

CODE = "[SFIO-S022]"
#: Nothing but what goes wrong.
ALONE = {"rehearse": "never"}
LINES = "seq 20000 | while read -r n; do echo line $n; done"

OPENS_TWICE = "cat $file $file > read.txt"
ASKS_THE_SIZE = 'import os, sys; assert os.fstat(f.fileno()).st_size > 99999, "too short"; print(len(f.read()))'
SEEKS = "f.seek(0, 2); n = f.tell(); f.seek(0); print(n, len(f.read()))"
MAPS = "import mmap; print(len(mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)[:]))"
READERS = {"twice": OPENS_TWICE, "size": ASKS_THE_SIZE, "seeks": SEEKS, "maps": MAPS}


def producer(script: str = f"note start; {{ {LINES}; }} > out.txt; note end", rule: Document | None = None) -> Document:
    out = streamable(outputBinding={"glob": "out.txt"}) if rule is None else found("out.txt")
    return tool(script, {}, {"out": out}, None if rule is None else [streaming(rule)])


def reader(script: str, by: str = "path", **fields: Any) -> Document:
    """A tool that reads `file`, which is declared `streamable`: a shell script, or one in Python with the file `f`."""
    inputs = {"file": streamable(), **fields.pop("inputs", {})}
    if "f." not in script:
        return tool(f"note read; {script}", inputs, {"out": found("read.txt")}, **fields)
    opened = 'open(sys.argv[1], "rb")' if by == "path" else "sys.stdin.buffer"
    argument = '"$file"' if by == "path" else ""
    command = f"note read; {sys.executable} -ISc 'import sys; f = {opened}; {script}' {argument} > read.txt"
    if by != "path":
        fields["stdin"] = "$(inputs.file.path)"
    return tool(command, inputs, {"out": found("read.txt")}, **fields)


def chain(second: Document, first: Document | None = None, **more: Document) -> Document:
    steps: dict[str, Document] = {
        "a": {"run": first or producer(), "in": {}},
        "b": {"run": second, "in": {"file": "a/out"}},
        **more,
    }
    return workflow({}, steps, {name: f"{name}/out" for name in steps})


def known(bench: Bench) -> list[Proof]:
    path = bench.data / "streamflow-io" / "learned.db"
    return [proof for proof in known_proofs(path) if proof.key.kind == "declared"] if path.exists() else []


def warned(run: Run) -> list[str]:
    return [line for line in run.log.splitlines() if " WARNING " in line and "later runs do not stream" in line.lower()]


@pytest.mark.parametrize(
    ("name", "by"),
    [
        pytest.param(name, by, marks=[] if (name, by) in (("size", "path"), ("maps", "stdin")) else pytest.mark.long)
        for name in READERS
        for by in ("path", "stdin")
    ],
)
def test_a_wrong_reader_reads_the_file(bench: Bench, name: str, by: str) -> None:
    if name == "twice" and by == "stdin":
        pytest.skip("nobody opens standard input")
    document = chain(reader(READERS[name], by))
    plain, ours = bench.run_both(document, config=ALONE)
    [warning] = warned(ours)
    assert "/b/file is declared `streamable`, but the tool fails with a stream, and not with the file" in warning
    assert "Remove `streamable` from /b/file" in warning
    assert warning.endswith(CODE)
    failed = "Not delivered as asked: /a/out: the reader has failed with the stream, and starts again with the file"
    assert failed in ours.log
    assert len(ours.times("read")) == 2
    [proof] = known(bench)
    assert proof.is_refused
    assert (proof.step, proof.key.port) == ("/b", "file")

    again = bench.run(document, config=ALONE)
    assert again.ok, again.errors
    assert again.results == plain.results
    assert len(again.times("read")) == 1
    assert again.time("read") > again.time("end")
    assert not warned(again)
    assert "/a/out -> /b/file is delivered at termination: /b/file is declared `streamable`, but" in again.log


@pytest.mark.parametrize(
    "script",
    [
        "cat $file | cksum > read.txt",
        pytest.param("cksum > read.txt; cat $file | tail -n 1 >> read.txt", marks=pytest.mark.long),
    ],
)
def test_standard_input_that_is_read_by_path_too_is_the_file(bench: Bench, script: str) -> None:
    """The pipeline hides that a program finds no file."""
    _, ours = bench.run_both(chain(reader(script, stdin="$(inputs.file.path)")), config=ALONE)
    [warning] = warned(ours)
    assert "was opened again" in warning
    assert [proof.step for proof in known(bench)] == ["/b"]


@pytest.mark.parametrize("told", ["file", "directory"])
def test_standard_input_whose_path_is_told_in_another_way_is_the_file(bench: Bench, told: str) -> None:
    """A staged file has the path, or a variable has the directory."""
    second = reader(". ./read.sh; cksum >> read.txt", stdin="$(inputs.file.path)")
    variables, *_ = second["requirements"]
    variables["envDef"] = [
        {"envName": "TRACE", "envValue": "$(inputs.trace)"},
        {"envName": "PLACE", "envValue": "$(inputs.file.dirname)" if told == "directory" else "nowhere"},
    ]
    entry = "cat $(inputs.file.path) | cksum > read.txt"
    staged = {"class": "InitialWorkDirRequirement", "listing": [{"entryname": "read.sh", "entry": entry}]}
    if told == "directory":
        second["baseCommand"][-1] = 'cat "$PLACE/out.txt" | cksum > read.txt; cksum >> read.txt'
    else:
        second["requirements"].append(staged)
    _, ours = bench.run_both(chain(second), config=ALONE)
    [warning] = warned(ours)
    assert "was opened again" in warning
    assert [proof.step for proof in known(bench)] == ["/b"]


def writes_until(mark: str, more: str = ":") -> Document:
    """A writer that goes on until its reader has left a mark, and does something more.

    :param more: may use `began`, the second in which it has begun
    """
    awaited = f"until grep -q {mark} $TRACE; do sleep 0.05; done"
    return producer(f"began=$(date +%s); {{ seq 9000; {awaited}; {more}; }} > out.txt; note end")


def test_a_reader_that_waits_for_the_file_begins_with_it_in_later_runs(bench: Bench) -> None:
    """The command asks for the size before it reads: it would hold its cores, and gain nothing."""
    second, whole = reader("test -s $file && cksum < $file > read.txt"), producer("seq 9000 > out.txt; note end")
    plain = bench.run(chain(second, whole), io=False)
    # The reader, which has begun with its writer, waits longer than it has run.
    longer = "sleep $(($(date +%s) - began + 2))"
    ours = bench.run(chain(second, writes_until("read", longer)), config=ALONE)
    assert ours.ok, ours.errors
    assert ours.results == plain.results
    assert ours.time("read") < ours.time("end")
    assert "[SFIO-S024]" in ours.log
    reason = (
        "the command asks by path for more than its bytes, and then waited longer for the whole file than it had run"
    )
    assert compared(bench) == {"/b/file": (None, reason)}
    again = bench.run(chain(second, whole), config=ALONE)
    assert again.results == plain.results
    assert again.time("read") > again.time("end")
    assert f"an earlier run has found: {reason}" in again.log


def test_a_reader_that_asks_after_it_has_read_is_a_stream_in_later_runs(bench: Bench) -> None:
    second = reader("head -n 8000 $file | cksum > read.txt; sleep 1; note asks; test -s $file")
    ours = bench.run(chain(second, writes_until("asks")), config=ALONE)
    assert ours.ok, ours.errors
    assert "[SFIO-S024]" in ours.log
    assert known(bench) == []


def test_strict_declarations_fail_the_run(bench: Bench) -> None:
    run = bench.run(chain(reader(OPENS_TWICE)), config={**ALONE, "declarations": "strict"})
    assert run.code != 0
    assert "was opened again" in run.errors
    assert known(bench) == []


#: A program that writes the size that the system tells, as `zstd` does.
WRITES_THE_SIZE = "import os; print(os.fstat(f.fileno()).st_size, len(f.read()))"
WAITS = {"rehearse": "wait"}


def compared(bench: Bench) -> dict[str, tuple[str | None, str | None]]:
    """The findings about each declared input."""
    return {f"{proof.step}/{proof.key.port}": (proof.way, proof.reason) for proof in known(bench)}


def test_what_readers_make_of_a_stream_is_compared_with_the_file_once(bench: Bench) -> None:
    """The answer by path is that of the complete file, but the answer about the open stream is not."""
    both = "import os; n = len(f.read()); print(os.stat(sys.argv[1]).st_size, os.fstat(f.fileno()).st_size, n)"
    tools = {
        "path": reader(WRITES_THE_SIZE),
        "stdin": reader(WRITES_THE_SIZE, "stdin"),
        "both": reader(both),
        "right": reader("cat $file > read.txt"),
        "seconds": reader("{ cat $file; date +%s; } > read.txt"),
        "moment": reader("{ cat $file; date +%s%N; } > read.txt"),
    }
    # The tool does not get the path.
    tools["stdin"]["requirements"][0]["envDef"] = [{"envName": "TRACE", "envValue": "$(inputs.trace)"}]
    for name, each in tools.items():
        each["baseCommand"][2] = each["baseCommand"][2].replace("read.txt", f"{name}.txt")
        each["outputs"]["out"]["outputBinding"]["glob"] = f"{name}.txt"
    steps: dict[str, Document] = {"a": {"run": producer(), "in": {}}}
    steps |= {name: {"run": each, "in": {"file": "a/out"}} for name, each in tools.items()}
    document, job = workflow({}, steps, {name: f"{name}/out" for name in steps}), {"trace": str(bench.directory / "t")}
    plain = bench.run(document, job, io=False)
    ours = bench.run(document, job, config=WAITS)
    assert ours.ok, ours.errors
    wrong = ("path", "stdin", "both")

    def files(run: Run) -> list[bytes]:
        return [run.files[f"{name}.txt"] for name in (*wrong, "right")]

    assert [one == other for one, other in zip(files(ours), files(plain), strict=True)] == [False] * 3 + [True]
    reasons = {name: f"the output `out` ({name}.txt) differs with the complete file" for name in wrong}
    found = compared(bench)
    assert {name: found[f"/{name}/file"] for name in wrong} == {name: (None, why) for name, why in reasons.items()}
    assert found["/right/file"] == ("pipe", None)
    assert found["/seconds/file"][0] == "pipe"
    assert found["/moment/file"] == ("pipe", "the outputs differ from run to run: moment.txt")
    warnings = warned(ours)
    for name, why in reasons.items():
        told = f"/{name}/file is declared `streamable`, but {why}. The results of this run are those of the stream"
        assert sum(told in warning for warning in warnings) == 1
    assert len(warnings) == len(wrong)
    assert bench.leftovers() == []

    again = bench.run(document, job, config=WAITS)
    assert files(again) == files(plain)
    assert not warned(again)
    assert all(f"an earlier run has found: {why}" in again.log for why in reasons.values())
    assert [record for record in bench.telemetry() if record["event"] == "rehearsed"] == []


def test_a_comparison_with_a_small_sample_says_nothing_of_larger_files(bench: Bench) -> None:
    """The reader reads as many bytes as a buffer has, and asks for the size only if there may be more."""
    most = 2**18
    script = f"import os; n = len(f.read({most})); print(n < {most} or os.fstat(f.fileno()).st_size, n + len(f.read()))"
    small, large = (chain(reader(script), producer(f"seq {count} > out.txt")) for count in (30_000, 60_000))
    job = {"trace": str(bench.directory / "trace")}
    _, ours = bench.run_both(small, job, config=WAITS)
    assert not warned(ours)
    assert compared(bench) == {"/b/file": ("pipe", None)}

    plain = bench.run(large, job, io=False)
    [warning] = warned(bench.run(large, job, config=WAITS))
    assert "the output `out` (read.txt) differs with the complete file" in warning
    again = bench.run(large, job, config=WAITS)
    assert again.results == plain.results
    assert not warned(again)


def test_a_reader_that_fails_with_the_file_fails_as_with_plain_streamflow(bench: Bench) -> None:
    document = chain(reader("cat $file > read.txt; note failed; echo too bad >&2; exit 3"))
    retrying = {"failureManager": {"type": "default", "config": {"max_retries": 2, "retry_delay": 0}}}
    run = bench.run(document, config=ALONE, **retrying)
    assert run.code != 0
    assert "too bad" in run.errors
    assert "streamable" not in run.errors
    assert len(run.times("failed")) == 3
    assert known(bench) == []


def test_those_that_read_from_a_wrong_reader_start_again(bench: Bench) -> None:
    first = producer("for i in 1 2 3; do echo line $i; sleep 0.2; done > out.txt")
    middle = tool(
        "while read -r line; do echo middle $line; done < $file > middle.txt; cat $file >> middle.txt",
        {"file": streamable()},
        {"out": streamable(outputBinding={"glob": "middle.txt"})},
    )
    last = reader("cat $file > read.txt")
    steps: dict[str, Document] = {
        "a": {"run": first, "in": {}},
        "b": {"run": middle, "in": {"file": "a/out"}},
        "c": {"run": last, "in": {"file": "b/out"}},
    }
    _, ours = bench.run_both(workflow({}, steps, {name: f"{name}/out" for name in steps}), config=ALONE)
    [warning] = warned(ours)
    assert "/b/file" in warning
    assert [proof.step for proof in known(bench)] == ["/b"]
