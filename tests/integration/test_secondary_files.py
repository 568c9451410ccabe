"""Outputs with secondary files are delivered when all of these are committed, too."""

from __future__ import annotations

from typing import Any

from lab.cwl import Document, found, streaming, tool, workflow
from lab.gates import MEET
from lab.runs import Bench

BESIDE = [{"pattern": ".bai", "required": True}, {"pattern": "^.dict", "required": True}]


def indexed(name: str, glob: str, kind: str = "File", patterns: Any = BESIDE, **rule: Any) -> tuple[Document, Document]:
    """An output, and its rule."""
    return found(glob, kind, secondaryFiles=patterns), {"port": name, "committed": "on_close", **rule}


def producer(script: str, **outputs: tuple[Document, Document]) -> Document:
    rules = streaming(*(rule for _, rule in outputs.values()))
    return tool(MEET + script, {}, {name: output for name, (output, _) in outputs.items()}, [rules])


def reader(name: str, patterns: Any = BESIDE) -> Document:
    """Reads a file and all that lies beside it."""
    script = (
        f'note {name} ${{file##*/}}; cd "${{file%/*}}"; cat $(ls) > "$OLDPWD/{name}.txt"; ls >> "$OLDPWD/{name}.txt"'
    )
    return tool(script, {"file": {"type": "File", "secondaryFiles": patterns}}, {"out": found(f"{name}.txt")})


def test_a_file_comes_when_its_secondary_files_are_committed(bench: Bench) -> None:
    """Elements of a list do so, too; an element without all of its secondary files is delivered at the end."""
    script = """
    echo data > data.bam; sleep 0.3; echo index > data.bam.bai; sleep 0.3; note complete; echo dict > data.dict
    echo late > late.bam; echo index > late.bam.bai
    for i in 1 2; do echo $i > part$i.txt; echo index $i > part$i.txt.idx; done
    meet b data.bam; meet d part1.txt; note end"""
    perhaps = [".bai", ".csi?"]
    first = producer(
        script,
        out=indexed("out", "data.bam"),
        late=indexed("late", "late.bam", patterns=perhaps),
        parts=indexed("parts", "part*.txt", "File[]", [".idx"]),
    )
    steps = {
        "a": {"run": first, "in": {}},
        "b": {"run": reader("b"), "in": {"file": "a/out"}},
        "c": {"run": reader("c", perhaps), "in": {"file": "a/late"}},
        "d": {"run": reader("d", [".idx"]), "in": {"file": "a/parts"}, "scatter": "file"},
    }
    _, ours = bench.run_both(workflow({}, steps, {"b": "b/out", "c": "c/out", "d": "d/out", "a": "a/out"}))
    assert ours.time("complete") < ours.time("b data.bam") < ours.time("end")
    assert ours.time("d part1.txt") < ours.time("end") < ours.time("c late.bam")
    assert ours.files["b.txt"] == b"data\nindex\ndict\ndata.bam\ndata.bam.bai\ndata.dict\n"


def test_a_secondary_file_that_changes_after_its_commit_fails_the_run(bench: Bench) -> None:
    files = "echo data > data.bam; echo index > data.bam.bai; echo dict > data.dict"
    script = f"{files}; meet b data.bam; echo more >> data.bam.bai"
    first = producer(script, out=indexed("out", "data.bam"))
    steps = {"a": {"run": first, "in": {}}, "b": {"run": reader("b"), "in": {"file": "a/out"}}}
    run = bench.run(workflow({}, steps, {"b": "b/out"}))
    assert not run.ok
    assert "data.bam.bai of the output `out` was committed by `on_close`, but was written again afterwards" in run.log
