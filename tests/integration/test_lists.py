"""Lists: their elements go to a scatter one by one, and whatever follows has what it has in plain StreamFlow."""

from __future__ import annotations

from typing import Any

import pytest

from lab.cwl import PRELUDE, Document, found, streaming, tool, workflow
from lab.gates import MEET
from lab.runs import Bench

SMALL: list[Document] = [{"class": "ResourceRequirement", "coresMin": 0}]
EDGES = [{"committed": "on_close"}, {"committed": "on_close", "start": "producer"}]


def lister(prefix: str, script: str = "sleep 0.3", **rule: str) -> Document:
    """Writes three files in another order than that of its glob."""
    script = f"for i in 3 1 2; do echo $i > {prefix}$i.txt; {script}; done; note end"
    outputs = {"out": found("*.txt", "File[]")}
    return tool(script, {}, outputs, [streaming({"port": "out", **rule})], requirements=SMALL)


def maker(prefix: str, *numbers: str, unit: str = "0.", **rule: str) -> Document:
    """Makes one file, named after its numbers; with higher numbers it takes longer: tenths of seconds, or seconds."""
    name, total = prefix + "".join(f"${n}" for n in numbers), "+".join(numbers)
    script = f"note make {name}; echo {name} > {name}.txt; sleep {unit}$(({total})); note made {name}"
    hints = [streaming({"port": "out", **rule})]
    return tool(script, dict.fromkeys(numbers, "int"), {"out": found("*.txt")}, hints, requirements=SMALL)


def element(name: str, **inputs: Any) -> Document:
    script = f"note {name} $(basename $file); echo {name} $(basename $file) $n; cat $file"
    return tool(
        script,
        {"file": "File", **inputs},
        {"out": "stdout"},
        stdout=f"$(inputs.file.nameroot).{name}",
        requirements=SMALL,
    )


def nested(depth: int) -> Any:
    kind: Any = "File"
    for _ in range(depth):
        kind = {"type": "array", "items": kind}
    return kind


def names(name: str, depth: int = 1) -> Document:
    """Tells the names and contents of the files of a list, in its order."""
    inputs = {"files": {"type": nested(depth), "inputBinding": {"position": 1}}}
    read = tool("", inputs, {"out": "stdout"}, stdout=f"{name}.names")
    read["baseCommand"] = ["sh", "-c", 'for f in "$@"; do echo "$(basename "$f"): $(cat "$f")"; done', "sh"]
    return read


def scattered(run: Document, source: str, **fields: Any) -> Document:
    return {"run": run, "in": {"file": source}, "scatter": "file", **fields}


def crossed(run: Document, method: str, **inputs: str) -> Document:
    return {"run": run, "in": inputs, "scatter": list(inputs), "scatterMethod": method}


def every_way(source: str, other: str) -> dict[str, Document]:
    """Steps for every way in which a list can go on, some of them with another list."""
    step = source[0]

    def merged(name: str, depth: int = 1, **fields: Any) -> Document:
        return {"run": names(f"{step}-{name}", depth), "in": {"files": {"source": [source], **fields}}}

    both = {**element("", n="int"), "stdout": f"$(inputs.file.nameroot).{step}-$(inputs.n)"}
    within = {"in": {"run": names(f"{step}-inside"), "in": {"files": "files"}}}
    inside = workflow({"files": {"type": "File[]"}}, within, {"out": "in/out"})
    return {
        "nested": merged("nested", 2, source=[source, other], linkMerge="merge_nested"),
        "flat": merged("flat", source=[source, other], linkMerge="merge_flattened"),
        "alone": merged("alone", linkMerge="merge_flattened"),
        "picked": merged("picked", linkMerge="merge_flattened", pickValue="all_non_null"),
        "computed": merged("computed", valueFrom="$(self.slice().reverse())"),
        "inside": {"run": inside, "in": {"files": source}},
        "again": scattered(element(f"{step}-again"), source),
        "paired": crossed(element(f"{step}-paired", n="int"), "dotproduct", file=source, n="numbers"),
        "crossed": crossed(both, "flat_crossproduct", file=source, n="numbers"),
    }


@pytest.mark.parametrize("edge", [EDGES[0], pytest.param(EDGES[1], marks=pytest.mark.long)])
def test_a_list_goes_on_in_its_order(bench: Bench, edge: Document) -> None:
    """Both the list whose elements went to a scatter, and that of the results of the scatter."""
    steps = {
        "a": {"run": lister("a", **edge), "in": {}},
        "b": scattered(element("b"), "a/out"),
        **every_way("b/out", "a/out"),
        **{
            f"own_{name}": step
            for name, step in every_way("a/out", "b/out").items()
            if name in ("flat", "alone", "again")
        },
    }
    outputs = {name: f"{name}/out" for name in steps}
    bench.run_both(workflow({"numbers": "int[]"}, steps, outputs), {"numbers": [5, 6, 7]})


def test_an_optional_input_is_that_of_its_own_job(bench: Bench) -> None:
    """Also where files are committed in another order than that in which their jobs end."""
    script = "sleep $n; echo $n > $n.txt; sleep $((4 - 2 * n))"
    hints = [streaming({"port": "out", "committed": "on_close"})]
    made = tool(script, {"n": "int"}, {"out": found("*.txt")}, hints, requirements=SMALL)
    read = tool("cat $file; echo $n", {"file": "File", "n": "int"}, {"out": "stdout"}, requirements=SMALL)
    read["inputs"]["file"], read["stdout"] = "File?", "$(inputs.n).read"
    steps = {"b": {"run": made, "in": {"n": "n"}}, "c": {"run": read, "in": {"file": "b/out", "n": "n"}}}
    inner = workflow({"n": "int"}, steps, {"out": "c/out"})
    document = workflow({"ns": "int[]"}, {"s": {"run": inner, "in": {"n": "ns"}, "scatter": "n"}}, {"out": "s/out"})
    _, ours = bench.run_both(document, {"ns": [2, 0]})
    assert ours.files == {"2.read": b"2\n2\n", "0.read": b"0\n0\n"}


def test_a_list_or_record_of_streams_goes_to_an_optional_input(bench: Bench) -> None:
    """Also to one with a default, and to one of a subworkflow. Each reader reads before a writer has ended."""
    names = ("list", "default", "record", "merged")
    meet_all = "; ".join(f"meet read {name}" for name in names)
    script = f"{MEET}echo $n 1 > $n.txt; {meet_all}; echo $n 2 >> $n.txt; note end"
    out = found("$(inputs.n).txt", streamable=True)
    field = {"name": "file", "type": "File", "streamable": True}
    record = {"type": "record", "name": "r", "fields": [{**field, "outputBinding": out["outputBinding"]}]}
    made = tool(script, {"n": "int"}, {"out": out, "record": {"type": record}}, requirements=SMALL)

    def reader(name: str, kind: Any, argument: str = "$(inputs.i)", **fields: Any) -> Document:
        read = tool("", {}, {"out": "stdout"}, stdout=f"{name}.read", arguments=[argument], requirements=SMALL)
        command = f'{PRELUDE}for f in "$@"; do while read l; do note read {name}; echo $l; done < "$f"; done'
        read["baseCommand"], read["inputs"]["i"] = ["sh", "-c", command, "sh"], {"type": kind, **fields}
        return read

    files = {"type": "array", "items": "File"}
    inner = {"d": {"run": reader("merged", files, streamable=True), "in": {"i": "i"}}}
    readers = {
        "list": (reader("list", ["null", files], streamable=True), "a/out"),
        "default": (reader("default", files, default=[], streamable=True), "a/out"),
        "record": (reader("record", ["null", {**record, "fields": [field]}], "$(inputs.i.file)"), "b/record"),
        "merged": (
            workflow({"i": {"type": ["null", files]}}, inner, {"out": "d/out"}),
            {"source": ["b/out", "b/out"], "linkMerge": "merge_flattened"},
        ),
    }
    steps = {
        "a": {"run": made, "in": {"n": "ns"}, "scatter": "n"},
        "b": {"run": made, "in": {"n": {"default": 3}}},
        **{name: {"run": read, "in": {"i": source}} for name, (read, source) in readers.items()},
    }
    document = workflow({"ns": "int[]"}, steps, {name: f"{name}/out" for name in readers})
    _, ours = bench.run_both(document, {"ns": [1, 2]})
    assert all(ours.time(f"read {name}") < ours.time("end") for name in names), ours.trace


@pytest.mark.long
def test_elements_wait_for_no_other_input(bench: Bench) -> None:
    """The step may have anything else: a default, an optional input without a value, a constant, a second list."""
    more = {"n": {"type": "int", "default": 4}, "k": "int?", "c": "string", "s": "int"}
    fixed = {"c": {"valueFrom": "constant"}, "s": {"default": 5}}
    inside = {"y": {"run": element("c", **more), "in": {"file": "file", "k": "k", **fixed}}}
    steps = {
        "a": {"run": lister("a", "sleep 1", committed="on_close"), "in": {}},
        "b": {"run": element("b", **more), "in": {"file": "a/out", **fixed}, "scatter": "file"},
        "c": scattered(workflow({"file": "File", "k": "int?"}, inside, {"out": "y/out"}), "a/out"),
        "x": {"run": maker("x", "n", unit=""), "in": {"n": "numbers"}, "scatter": "n"},
        "y": crossed(element("y", n="int", k="int?"), "dotproduct", file="x/out", n="numbers"),
    }
    outputs = {name: f"{name}/out" for name in steps}
    plain, ours = bench.run_both(workflow({"numbers": "int[]"}, steps, outputs), {"numbers": [4, 1, 0]})
    assert plain.time("b a3.txt") > plain.time("end")
    for reader in ("b a3.txt", "b a1.txt", "c a3.txt", "c a1.txt"):
        assert ours.time(reader) < ours.time("end"), ours.trace
    assert plain.time("y x0.txt") > plain.time("made x4")
    assert ours.time("y x0.txt") < ours.time("made x4"), ours.trace
