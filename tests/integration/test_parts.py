"""Splits that write nothing: their program says where it cuts, and the jobs that read parts get them from the file."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from lab.cwl import Document, found, tool, workflow
from lab.runs import RETRY, Bench
from lab.splits import count, fifo, job, written
from streamflow_io.commands.plan import plan_file

# Says parts if it is asked, else writes them: `each` lines in each.
SPLIT = """\
import json, os, sys

path, each, mode = sys.argv[1], int(sys.argv[2]), sys.argv[3]
say = os.environ.get("SFIO_PARTS")
bounds, offset = [], 0
with open(path, "rb") as file:
    lines = file.readlines()
for start in range(0, len(lines), each):
    length = sum(map(len, lines[start:start + each]))
    bounds.append((offset, length))
    offset += length
names = [f"chunk-{number:02d}.txt" for number in range(len(bounds))]
for name, (start, length) in list(zip(names, bounds))[:: -1 if mode == "backwards" else 1]:
    if say is None or mode == "writes":
        with open(path, "rb") as file, open(name, "wb") as part:
            file.seek(start)
            part.write(file.read(length))
    else:
        with open(say, "a") as parts:
            parts.write(json.dumps({"path": name, "extents": [[start, length]]}) + "\\n")
if mode == "json":
    chunks = [{"class": "File", "path": name} for name in reversed(names)]
    with open("cwl.output.json", "w") as output:
        json.dump({"chunks": chunks}, output)
"""


def session(**rule: Any) -> Document:
    return {"class": "sfio:ReadSession", "rules": [{"port": "chunks", "of": "reads", **rule}]}


def split(directory: Path, mode: str = "says", *hints: Document, before: str = ":", after: str = "") -> Document:
    """The tool that splits.

    :param before: what it does first
    :param after: what it does then
    """
    program = directory / "split.py"
    program.write_text(SPLIT)
    return tool(
        f'note split; {before}; python3 -S -E {program} "$reads" "$each" {mode}; {after}',
        {"reads": "File", "each": "int"},
        {"chunks": found("chunk-*.txt", "File[]")},
        hints=list(hints or (session(),)),
    )


def then_joined(directory: Path, run: Document, reader: Document | None = None) -> Document:
    """All that the readers have made, in one file, in order."""
    document = scattered(directory, run, reader)
    join = tool("", {}, {"text": "stdout"}, stdout="text.txt") | {"baseCommand": ["cat"]}
    join["inputs"]["counted"] = {"type": "File[]", "inputBinding": {"position": 1}}
    document["steps"]["join"] = {"run": join, "in": {"counted": "count/counted", "trace": "trace"}, "out": ["text"]}
    document["outputs"]["text"] = {"type": "File", "outputSource": "join/text"}
    return document


def scattered(directory: Path, run: Document, reader: Document | None = None) -> Document:
    return workflow(
        {"reads": "File", "each": "int"},
        {
            "split": {"run": run, "in": {"reads": "reads", "each": "each"}},
            "count": {"run": reader or count(), "in": {"chunk": "split/chunks"}, "scatter": "chunk"},
        },
        {"counted": "count/counted"},
    )


def test_nothing_is_written(bench: Bench, tmp_path: Path) -> None:
    _, ours = bench.run_both(scattered(tmp_path, split(tmp_path)), job(tmp_path))
    assert written(bench) == []
    assert len(ours.times("count l")) == 3, "links to files in memory"
    assert " WARNING " not in ours.log, ours.errors


def test_a_reader_of_a_fifo(bench: Bench, tmp_path: Path) -> None:
    _, ours = bench.run_both(scattered(tmp_path, split(tmp_path), fifo()), job(tmp_path))
    assert written(bench) == []
    assert len(ours.times("count fifo")) == 3


def test_texts_and_several_extents(bench: Bench, tmp_path: Path) -> None:
    """A header that each part has, a part that is in two places, and a text that is nowhere."""
    script = """if [ "$SFIO_PARTS" ]; then
    echo '{"path": "chunk-1.txt", "extents": [[0, 4], [10, 5], "Cg=="]}' >> "$SFIO_PARTS"
    echo '{"path": "chunk-2.txt", "extents": [[0, 4], [2, 5]]}' >> "$SFIO_PARTS"
    else { dd if=$reads bs=1 count=4; dd if=$reads bs=1 skip=10 count=5; echo; } > chunk-1.txt 2> /dev/null
    { dd if=$reads bs=1 count=4; dd if=$reads bs=1 skip=2 count=5; } > chunk-2.txt 2> /dev/null; fi"""
    run = tool(script, {"reads": "File", "each": "int"}, {"chunks": found("chunk-*.txt", "File[]")}, [session()])
    bench.run_both(scattered(tmp_path, run), job(tmp_path))
    assert written(bench) == []


def test_a_reader_that_needs_more_than_a_part(bench: Bench, tmp_path: Path) -> None:
    reader = count()
    reader["arguments"] = [{"valueFrom": "$(inputs.chunk.checksum)"}]
    _, ours = bench.run_both(scattered(tmp_path, split(tmp_path), reader), job(tmp_path))
    assert "is used in the expression 'inputs.chunk.checksum'" in ours.errors
    assert len(set(written(bench))) == 3


def test_a_wrong_line(bench: Bench, tmp_path: Path) -> None:
    line = '{"path": "chunk-9.txt", "extents": [[0, 100000]]}'
    run = split(tmp_path, after=f"""sleep 0.7; printf '%s\\n' '{line}' >> "$SFIO_PARTS"; sleep 5""")
    ours = bench.run(scattered(tmp_path, run), job(tmp_path, each=20))
    assert not ours.ok
    assert "FAILED Job /split/0" in ours.errors
    assert "outside the file" in ours.errors, ours.errors
    assert ours.files == {}
    assert bench.leftovers() == []


def test_a_split_that_cuts_elsewhere_when_it_is_tried_again(bench: Bench, tmp_path: Path) -> None:
    run = split(tmp_path, after='test -e "$TRACE.once" || { touch "$TRACE.once"; sleep 1; exit 3; }')
    script = run["baseCommand"][2]
    run["baseCommand"][2] = script.replace("note split;", 'note split; test ! -e "$TRACE.once" || each=13;')
    ours = bench.run(scattered(tmp_path, run), job(tmp_path), **RETRY)
    assert not ours.ok
    assert "Job /split/0: the part chunk-00.txt is another one than before: " in ours.errors, ours.errors
    assert "by the rule {port: chunks, of: reads} of `sfio:ReadSession`" in ours.errors
    assert bench.leftovers() == []


def test_a_split_that_does_not_say_a_part_again(bench: Bench, tmp_path: Path) -> None:
    script = """note split
    i=$(ls "$TRACE".once* 2> /dev/null | wc -l)
    echo '{"path": "chunk-'$i'.txt", "extents": [[0, 5]]}' >> "$SFIO_PARTS"
    test $i = 1 || { touch "$TRACE.once"; sleep 1; exit 3; }"""
    run = tool(script, {"reads": "File", "each": "int"}, {"chunks": found("chunk-*.txt", "File[]")}, [session()])
    ours = bench.run(scattered(tmp_path, run), job(tmp_path), **RETRY)
    assert not ours.ok
    assert "Job /split/0: the part chunk-0.txt was reported by an earlier attempt, and is missing now" in ours.errors
    assert bench.leftovers() == []


def test_a_reader_that_fails_is_tried_again_alone(bench: Bench, tmp_path: Path) -> None:
    reader = count()
    reader["baseCommand"][2] = (
        'case $(basename "$chunk") in chunk-01.txt) test -e "$TRACE.once" || { touch "$TRACE.once"; exit 3; };; esac; '
        + reader["baseCommand"][2]
    )
    document = then_joined(tmp_path, split(tmp_path), reader)
    plain, ours = (bench.run(document, job(tmp_path), io=io, **RETRY) for io in (False, True))
    assert ours.ok, ours.errors
    assert ours.results == plain.results
    assert len(ours.times("split")) == 1
    assert bench.leftovers() == []


def test_the_file_changes_before_its_parts_are_read(bench: Bench, tmp_path: Path) -> None:
    reader = fifo()
    cut = 'until [ -e "$TRACE.cut" ]; do sleep 0.1; done; sleep 1'
    wait = tool(f"{cut}; echo 1 >> $path", {"path": "string"}, {"waited": "stdout"}, stdout="waited.txt")
    reader["inputs"]["waited"] = "File"
    document = scattered(tmp_path, split(tmp_path, after='touch "$TRACE.cut"'), reader)
    document["inputs"]["path"] = "string"
    document["steps"]["wait"] = {"run": wait, "in": {"path": "path", "trace": "trace"}, "out": ["waited"]}
    document["steps"]["count"]["in"]["waited"] = "wait/waited"
    ours = bench.run(document, {**job(tmp_path), "path": str(tmp_path / "reads.txt")})
    assert not ours.ok
    assert "its input `chunk` is a part of a file that has changed since it was cut" in ours.errors, ours.errors
    assert ours.files == {}
    assert bench.leftovers() == []


@pytest.mark.parametrize("intermediates", ["keep", "remove"])
def test_a_program_that_edits_its_file_first(bench: Bench, tmp_path: Path, intermediates: str) -> None:
    """The program edits a file of its own, in the place of the link to its input, and splits that."""
    document = then_joined(tmp_path, split(tmp_path, before="sed -i 's/^/a longer line /' \"$reads\""))
    bench.run_both(document, job(tmp_path), config={"intermediates": intermediates})
    assert written(bench) == []


def test_without_a_node_runtime_files_are_written(bench: Bench, tmp_path: Path) -> None:
    document = scattered(tmp_path, split(tmp_path))
    path = bench.write(document, job(tmp_path), io=True, config={"runtime": "off"})
    ours = bench.finish(bench.start(path), path)
    assert ours.ok, ours.errors
    assert len(written(bench)) == 3


def test_the_plan_says_which_splits_are_virtual(bench: Bench, tmp_path: Path) -> None:
    document = scattered(tmp_path, split(tmp_path))
    document["steps"]["kept"] = document["steps"]["split"]
    document["outputs"]["kept"] = {"type": "File[]", "outputSource": "kept/chunks"}
    plans = plan_file(bench.write(document, job(tmp_path), io=True))
    shown = io.StringIO()
    plans.show(Console(width=200, file=shown))
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in shown.getvalue().splitlines()]
    assert ["/split/chunks", "virtual", "parts of /split/reads, reported by the program"] in rows
    written = "/kept/chunks is a workflow output: its files have to be written"
    assert ["/kept/chunks", "real", written] in rows
    plan = plans.plans["main"]
    assert {*plan.parts.virtual} == {"/split/chunks"}
    assert {file.path.split("/")[0].split("-")[0] for file in plan.configuration.files} == {"count", "kept"}
    assert len(list(plan.warnings)) == 1
