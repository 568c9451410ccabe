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
    "outputs": {"out": found("read.txt")},
    "stdout": "read.txt",
}


def pairs(output: str, *, inside: bool, suffix: bool = False) -> Document:
    """Lists of lists of files, read by one job.

    :param output: of two outputs with the same content, the one that is read
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
    read: Document = {"run": READ, "in": {"files": f"pair/{output}"}, "out": ["out"]}
    if suffix:
        read["run"] = {**READ, "inputs": {**READ["inputs"], "early": "string[]"}}
        read["in"]["early"] = "words"
    document = workflow(lists, {}, {})
    document["steps"] = {"pair": wrapped if inside else scatter, "read": read}
    document["outputs"] = {"out": {"type": "File", "outputSource": "read/out"}}
    return document


def readers(run: Run) -> list[str]:
    """The jobs of the reader."""
    return [line.split("(job ")[1].split(")")[0] for line in run.log.splitlines() if "EXECUTING step /read" in line]


#: Where the scatter is, and what its reader gets.
WAYS: Final[list[dict[str, Any]]] = [{"inside": False}, {"inside": True}, {"inside": True, "suffix": True}]


@pytest.mark.parametrize(
    ("lists", "ways"), [(LISTS, WAYS), ({**LISTS, "numbers": []}, WAYS[:1]), ({**LISTS, "words": []}, WAYS[2:])]
)
def test_all_outputs_are_gathered_as_the_last_one(bench: Bench, lists: Document, ways: list[dict[str, Any]]) -> None:
    """The last one is what StreamFlow gathers correctly."""
    paths = [bench.write_plain(pairs("second", inside=True), lists)]
    paths += [bench.write(pairs(output, **way), lists, True) for way in ways for output in ("first", "second")]
    plain, *ours = bench.run_all(paths)
    assert plain.ok, plain.errors
    assert [run.results[1] for run in ours] == [plain.results[1]] * len(ours), [run.errors for run in ours]
    assert [readers(run) for run in ours] == [["/read/0"]] * len(ours)
    assert bench.leftovers() == []


def test_plain_streamflow_gathers_the_other_outputs_once_too_often(bench: Bench) -> None:
    """Once it does not, `sizes_of_nested_lists_made_once` can go."""
    plain = bench.run(pairs("first", inside=False), LISTS, io=False)
    assert sorted(readers(plain)) == ["/read/", "/read/0"], plain.errors
