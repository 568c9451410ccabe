"""Consumers read bytes while the producer writes them; results are those of plain StreamFlow."""

from __future__ import annotations

import os
from typing import Any

import pytest

from lab.cwl import Document, found, side_by_side, streamable, streaming, tool, workflow
from lab.forked import LOOP
from lab.gates import MEET
from lab.runs import Bench, Run

# Ends when something has been read of it, or the test says that no job will read it before its end.
SLOW = """note start
{
  for i in 1 2 3 4 5; do echo line $i; sleep 0.1; done
  i=0
  until [ -z "$SFIO_JOB" ] || [ $i = $TRIES ] || [ -e "$TRACE.alone" ] || grep -q "$READ" "$TRACE"; do
    i=$((i+1)); sleep 0.1
  done
} > $OUT
note end"""


def producer(out: Any = None, name: str = "out.txt", hints: list[Document] | None = None, tries: int = 300) -> Document:
    script = slow(name, tries)
    return tool(script, {}, {"out": out or streamable(outputBinding={"glob": name})}, hints)


def slow(out: str, tries: int = 300, read: str = "read.* line 1") -> str:
    """A script that writes a file, or its standard output.

    :param tries: tenths of seconds after which it does not wait for its reader any more: few where none will read
    :param read: a pattern of the note that its reader makes
    """
    return SLOW.replace("> $OUT", out and f"> {out}").replace("$TRIES", str(tries)).replace("$READ", read)


def reader(name: str = "read", **fields: Any) -> Document:
    script = f'note {name}; while read line; do note {name} $line; echo "$line"; done < $file'
    return tool(script, {"file": streamable()}, {"out": "stdout"}, stdout=f"{name}.txt", **fields)


def chain(*steps: Document) -> Document:
    """Steps a, b, c... each reading the output of the one before."""
    names = "abcdefghijkl"[: len(steps)]
    bodies = {
        name: {"run": run, "in": {"file": f"{before}/out"} if before else {}}
        for name, before, run in zip(names, ("", *names), steps, strict=False)
    }
    return workflow({}, bodies, {name: f"{name}/out" for name in names})


def assert_streamed(run: Run) -> None:
    assert run.time("read line 1") < run.time("end"), run.trace


def test_a_file_is_read_while_it_is_written(bench: Bench) -> None:
    first = producer()
    # Some lines are written after the first one has been read.
    more = "for i in 6 7 8 9; do echo line $i; sleep 0.1; done\n} > out.txt"
    first["baseCommand"] = [word.replace("} > out.txt", more) for word in first["baseCommand"]]
    plain, ours = bench.run_both(chain(first, reader()))
    assert plain.time("read") > plain.time("end")
    assert_streamed(ours)
    (run,) = [one for one in bench.telemetry() if one["event"] == "run"]
    assert run["workflowName"] == "main"
    early = ("edge", "reading", "streamed", "committed", "fallback")
    told = {one["event"]: one for one in bench.telemetry() if one["event"] in early}
    assert told.keys() == {"edge", "reading", "streamed"}
    assert (told["edge"]["input"], told["edge"]["delivery"]) == ("/b/file", "stream")
    assert (told["streamed"]["job"], told["streamed"]["outputs"]) == ("/b/0", ["/a/out"])
    assert told["streamed"]["bytes"] == len(ours.files["out.txt"])
    assert [told["reading"][name] for name in ("input", "output", "sources")] == ["/b/file", "/a/out", ["/a/0"]]
    assert [told["streamed"][name] for name in ("input", "source")] == ["/b/file", "/a/0"]
    [ended] = [one["time"] for one in bench.telemetry() if one["event"] == "ended" and one["job"] == "/a/0"]
    # The producer sleeps between its lines; the reader does not.
    assert told["streamed"]["first"] + 0.2 < told["streamed"]["last"] < ended
    assert told["streamed"]["waited"] > 0.2
    assert ours.log.count("/b reads /a/out while it is written") == 1
    assert "while it is written" not in plain.log


def test_a_chain_under_another_event_loop(bench: Bench) -> None:
    """StreamFlow may choose uvloop one day."""
    bench.environment = {LOOP: "uvloop"}
    _, ours = bench.run_both(chain(producer(), reader(), reader("again")))
    assert_streamed(ours)


def test_a_failure_under_another_event_loop(bench: Bench) -> None:
    failing = tool("echo line; echo oops >&2; exit 3", {}, {"out": streamable(outputBinding={"glob": "out.txt"})})
    bench.environment = {LOOP: "uvloop"}
    run = bench.run(chain(failing, reader()), io=True)
    assert run.code == 1
    assert "job /a/0 of step /a has failed (exit code 3)" in run.log
    assert "oops" in run.log
    assert bench.leftovers() == []


@pytest.mark.parametrize(
    "read",
    [
        "cat $file > /dev/null; ",
        pytest.param("", marks=pytest.mark.long),
    ],
    ids=["all", "not"],
)
def test_an_output_that_is_a_link_to_the_input(bench: Bench, read: str) -> None:
    link = tool(f"{read}ln -s $file link.txt", {"file": streamable()}, {"out": found("link.txt")})
    last = tool("cat $file", {"file": "File"}, {"out": "stdout"}, stdout="last.txt")
    plain, _ = bench.run_both(chain(producer(tries=10), link, last))
    assert plain.files["last.txt"].count(b"line") == 5


def standard_streams() -> Document:
    first = tool(slow(""), {}, {"out": streamable("stdout")}, stdout="out.txt")
    second = tool(
        'while read line; do note read $line; echo "$line"; done',
        {"file": streamable()},
        {"out": "stdout"},
        stdin="$(inputs.file.path)",
        stdout="read.txt",
    )
    return chain(first, second)


def several_streams() -> Document:
    both = tool(
        "while read left <&3 && read right <&4; do note read $left $right; echo $left $right; done 3< $left 4< $right",
        {"left": streamable(), "right": streamable()},
        {"out": "stdout"},
        stdout="both.txt",
    )
    steps = {
        "a": {"run": producer(name="a.txt"), "in": {}},
        "b": {"run": producer(name="b.txt"), "in": {}},
        "c": {"run": both, "in": {"left": "a/out", "right": "b/out"}},
    }
    return workflow({}, steps, {"out": "c/out"})


def list_to_many() -> Document:
    """A list streams into a scatter, and goes to another scatter and to one reader at the commits."""
    rule = {"port": "out", "committed": "on_close", "mode": "no_update"}
    lines = "for f in b a; do { echo $f 1; meet read $f 1; echo $f 2; } > $f.txt; note end $f; done"
    script = f"{MEET}{lines}; meet committed; note end"
    made = tool(script, {}, {"out": found("*.txt", "File[]")}, [streaming(rule)])
    streamed = tool(
        'while read line; do note read $line; echo "$line"; done < $file',
        {"file": streamable()},
        {"out": "stdout"},
        stdout="$(inputs.file.nameroot).streamed",
    )
    committed = tool(
        "note committed; cat $file", {"file": "File"}, {"out": "stdout"}, stdout="$(inputs.file.nameroot).committed"
    )
    whole = tool("", {"files": {"type": "File[]", "inputBinding": {}}}, {"out": "stdout"}, stdout="whole.txt")
    whole["baseCommand"] = "cat"
    steps = {
        "a": {"run": made, "in": {}},
        "b": {"run": streamed, "in": {"file": "a/out"}, "scatter": "file"},
        "c": {"run": committed, "in": {"file": "a/out"}, "scatter": "file"},
        "d": {"run": whole, "in": {"files": "a/out"}},
    }
    return workflow({}, steps, {name: f"{name}/out" for name in "bcd"})


def defaults() -> Document:
    second = reader()
    second["inputs"] |= {
        "script": {"type": "File", "default": {"class": "File", "location": "job.json"}},
        "number": {"type": "int", "default": 3},
        "optional": "string?",
    }
    document = chain(producer(), second)
    document["steps"]["b"]["in"]["number"] = {"default": 4}
    return document


def whole_files(**fields: Any) -> Document:
    second = tool("note read; cat $file", {"file": streamable(**fields)}, {"out": "stdout"}, stdout="read.txt")
    return chain(producer(tries=10), second)


def sized() -> Document:
    second = tool("note read $size", {"file": streamable()}, {"out": "stdout"}, stdout="read.txt")
    second["requirements"][0]["envDef"].append({"envName": "size", "envValue": "$(inputs.file.size)"})
    return chain(producer(tries=10), second)


def test_every_kind_of_edge_in_one_workflow(bench: Bench) -> None:
    enough = tool("head -n 1 $file; note read line 1", {"file": streamable()}, {"out": "stdout"}, stdout="head.txt")
    document = side_by_side(
        standard=standard_streams(),
        several=several_streams(),
        list=list_to_many(),
        enough=chain(producer(), enough),
        defaults=defaults(),
        contents=whole_files(loadContents=True),
        binding=whole_files(inputBinding={"valueFrom": "$(self.size)"}),
        size=sized(),
    )
    _, ours = bench.run_both(document)
    for name in ("standard", "enough", "defaults"):
        assert_streamed(ours.part(name))
    several = ours.part("several")
    assert several.time("read line 1 line 1") < min(several.times("end"))
    of_list = ours.part("list")
    for name in "ab":
        assert of_list.time(f"read {name} 1") < of_list.time(f"end {name}")
    assert of_list.time("read b 1") < of_list.time("committed") < of_list.time("end")
    assert [file["basename"] for file in ours.outputs["list-b"]] == ["list-a.streamed", "list-b.streamed"]
    for name in ("contents", "binding"):
        assert ours.part(name).time("read") > ours.part(name).time("end")
        assert f"/{name}/a/out -> /{name}/b/file is delivered at termination" in ours.log
    assert "/contents/b/file has loadContents" in ours.log
    assert ours.part("size").time("read 35") > ours.part("size").time("end")
    assert "is used in the expression 'inputs.file.size', which needs the whole file" in ours.log


def test_seven_stages_run_as_one_on_two_cores(bench: Bench) -> None:
    middle = tool(
        "cat $file", {"file": streamable()}, {"out": streamable("stdout")}, stdout="$(inputs.file.nameroot)+.txt"
    )
    _, ours = bench.run_both(chain(producer(), *[middle] * 5, reader()))
    assert_streamed(ours)


def test_a_consumer_through_a_subworkflow_and_when(bench: Bench) -> None:
    inside = workflow({"file": "File"}, {"b": {"run": reader(), "in": {"file": "file"}}}, {"out": "b/out"})
    steps = {
        "a": {"run": producer(), "in": {}},
        "s": {"run": inside, "in": {"file": "a/out"}, "when": "$(inputs.file.basename != '')"},
    }
    _, ours = bench.run_both(workflow({}, steps, {"out": "s/out"}))
    assert_streamed(ours)


def test_oversubscribe_never_starts_late_and_loses_nothing(bench: Bench) -> None:
    cores = {"class": "ResourceRequirement", "coresMin": len(os.sched_getaffinity(0))}
    first, second = producer(tries=10), reader()
    first["requirements"].append(cores)
    second["requirements"].append(cores)
    _, ours = bench.run_both(chain(first, second), config={"oversubscribe": "never"})
    assert ours.time("read line 1") > ours.time("end")
