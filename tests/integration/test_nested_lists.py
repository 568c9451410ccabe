"""A step whose `nested_crossproduct` has several outputs."""

from __future__ import annotations

from typing import Any, Final

import pytest

from lab.cwl import NO_CORES, Document, found, workflow
from lab.runs import Bench, Run

NESTED: Final[Document] = {"type": "array", "items": {"type": "array", "items": "File"}}
LISTS: Final[Document] = {"numbers": [1, 2, 3], "words": ["a", "b"]}
#: Without other inputs, which would keep jobs from running that have no tag.
READ: Final[Document] = {
    "class": "CommandLineTool",
    "baseCommand": ["sh", "-c", 'cat "$@"', "sh"],
    "inputs": {"files": {"type": NESTED, "inputBinding": {"position": 1}}},
}


def pairs(*outputs: str, inside: bool, suffix: bool = False) -> Document:
    """Lists of lists of files, each read by one job.

    :param outputs: of two outputs with the same content, those that are read
    :param inside: the scatter is in a subworkflow
    :param suffix: the reader gets a second input, which comes early
    """
    pair: Document = {
        "class": "CommandLineTool",
        "baseCommand": ["sh", "-c", 'echo "$0 $1" | tee first.txt > second.txt'],
        "requirements": [NO_CORES],
        "inputs": {
            "number": {"type": "int", "inputBinding": {"position": 1}},
            "word": {"type": "string", "inputBinding": {"position": 2}},
        },
        "outputs": {"first": found("first.txt"), "second": found("second.txt")},
    }
    scatter: Document = {
        "run": pair,
        "in": {"number": "numbers", "word": "words"},
        "out": ["first", "second"],
        "scatter": ["number", "word"],
        "scatterMethod": "nested_crossproduct",
    }
    lists: Document = {"numbers": "int[]", "words": "string[]"}
    made: Document = {name: {"type": NESTED, "outputSource": f"pair/{name}"} for name in ("first", "second")}
    part = {"class": "Workflow", "inputs": lists, "steps": {"pair": scatter}, "outputs": made}
    wrapped = {"run": part, "in": dict(zip(lists, lists, strict=True)), "out": ["first", "second"]}
    document = workflow(lists, {}, {})
    document["steps"] = {"pair": wrapped if inside else scatter}
    document["outputs"] = {}
    for output in outputs:
        file = f"{output}.read"
        read: Document = {"run": {**READ, "outputs": {"out": found(file)}, "stdout": file}, "out": ["out"]}
        read["in"] = {"files": f"pair/{output}"}
        if suffix:
            read["run"]["inputs"] = {**READ["inputs"], "early": "string[]"}
            read["in"]["early"] = "words"
        document["steps"][f"read-{output}"] = read
        document["outputs"][output] = {"type": "File", "outputSource": f"read-{output}/out"}
    return document


def readers(run: Run) -> list[str]:
    """The jobs of the readers."""
    lines = run.log.splitlines()
    return sorted(line.split("(job ")[1].split(")")[0] for line in lines if "EXECUTING step /read" in line)


#: Where the scatter is, and what its reader gets.
WAYS: Final[list[dict[str, Any]]] = [{"inside": False}, {"inside": True}, {"inside": True, "suffix": True}]


@pytest.mark.parametrize(
    ("lists", "ways"), [(LISTS, WAYS), ({**LISTS, "numbers": []}, WAYS[:1]), ({**LISTS, "words": []}, WAYS[2:])]
)
def test_all_outputs_are_gathered_as_the_last_one(bench: Bench, lists: Document, ways: list[dict[str, Any]]) -> None:
    """The last one is what StreamFlow gathers correctly."""
    paths = [bench.write_plain(pairs("second", inside=True), lists)]
    paths += [bench.write(pairs("first", "second", **way), lists, True) for way in ways]
    plain, *ours = bench.run_all(paths)
    assert plain.ok, plain.errors
    read = plain.files["second.read"]
    expected = {"first.read": read, "second.read": read}
    assert [run.files for run in ours] == [expected] * len(ours), [run.errors for run in ours]
    assert [readers(run) for run in ours] == [["/read-first/0", "/read-second/0"]] * len(ours)
    assert bench.leftovers() == []


def test_plain_streamflow_gathers_the_other_outputs_once_too_often(bench: Bench) -> None:
    """Once it does not, `sizes_of_nested_lists_made_once` can go."""
    plain = bench.run(pairs("first", inside=False), LISTS, io=False)
    assert readers(plain) == ["/read-first/", "/read-first/0"], plain.errors
