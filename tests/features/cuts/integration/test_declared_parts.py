"""Splits whose cuts are declared: real until what they write was compared once, then virtual."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from lab.cwl import Document, found, tool, workflow
from lab.runs import Bench, Run
from lab.splits import LINES, count, fifo, job, stdin, written
from streamflow_io.commands.plan import plan_file
from streamflow_io.features.cuts.planning import DeclaredCuts

RULE: Document = {"port": "chunks", "of": "reads", "records": "lines", "every": 14, "names": "chunk-%02d.txt"}


def split(script: str = "", rule: Document = RULE, **fields: Any) -> Document:
    """A tool of coreutils, without the input `trace`, which is another one in each run."""
    words = ["split", "-l", "14", "-a", "2", "--numeric-suffixes=1", "--additional-suffix=.txt"]
    shell: Document = {
        "baseCommand": ["sh", "-c", script, "split"] if script else words,
        "arguments": [] if script else [{"position": 2, "valueFrom": "chunk-"}],
    }
    return {
        "class": "CommandLineTool",
        **shell,
        "requirements": [{"class": "InlineJavascriptRequirement"}],
        "hints": [{"class": "sfio:ReadSession", "rules": [rule]}],
        "inputs": {"reads": {"type": "File", "inputBinding": {"position": 1}}},
        "outputs": {"chunks": found("chunk-*.txt", "File[]")},
        **fields,
    }


def scattered(run: Document, reader: Document | None = None, **more: Any) -> Document:
    """:param more: inputs of the split that are inputs of the workflow"""
    document = workflow(
        {"reads": "File", **more},
        {
            "split": {"run": run, "in": {"reads": "reads", **{name: name for name in more}}},
            "count": {"run": reader or count(), "in": {"chunk": "split/chunks"}, "scatter": "chunk"},
        },
        {"counted": "count/counted"},
    )
    del document["steps"]["split"]["in"]["trace"]
    return document


def again(bench: Bench, document: Document, values: Document, plain: Run, **settings: Any) -> Run:
    """Our next run, with the results of plain StreamFlow."""
    ours = bench.run(document, values, **settings)
    assert ours.ok, ours.errors
    assert ours.results == plain.results
    assert bench.leftovers() == []
    return ours


def test_virtual_from_the_second_run_on(bench: Bench, tmp_path: Path) -> None:
    document, values = scattered(split()), job(tmp_path)
    del values["each"]
    plain, first = bench.run_both(document, values)
    assert len(written(bench)) == 3
    assert first.log.count("The rule of `sfio:ReadSession` for /split/chunks is verified: 3 parts") == 1
    assert " WARNING " not in first.log, first.errors
    second = again(bench, document, values, plain)
    assert written(bench) == []
    assert "verified" not in second.log
    assert " WARNING " not in second.log, second.errors


def test_a_wrong_declaration_is_refuted(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = job(tmp_path)
    del values["each"]
    document = scattered(split(rule={**RULE, "every": 13}))
    plain, first = bench.run_both(document, values)
    why = "chunk-01.txt: the split has written 158 bytes, the rule gives 143"
    assert f"for /split/chunks is refuted, and does nothing: {why}" in first.log, first.errors
    second = again(bench, document, values, plain)
    assert len(written(bench)) == 3
    assert second.log.count(why) == 1
    assert "does nothing: refuted on 20" in second.log
    monkeypatch.setenv("XDG_DATA_HOME", str(bench.data))
    plan = plan_file(bench.write(document, values, io=True)).plans["main"]
    (partition,) = plan.parts.partitions
    assert str(partition.trial).endswith(why)


@pytest.mark.parametrize(
    ("cores", "word", "is_bound"),
    [
        ("$(inputs.reads.size > 99 ? 1 : 2)", "$(runtime.cores)", True),
        ("$(inputs.reads.size > 99 ? 1 : 2)", "$(runtime.outdir)", False),
        ("$(1 + 1)", "$(runtime.cores)", False),
    ],
)
def test_cuts_may_depend_on_what_a_job_asks_for(
    bench: Bench, tmp_path: Path, cores: str, word: str, is_bound: bool
) -> None:
    """A verdict then holds for the same file only."""
    run = split("split -l $((7 * $2)) $1 chunk-", arguments=[{"position": 2, "valueFrom": word}])
    run["requirements"].append({"class": "ResourceRequirement", "coresMin": cores})
    plan = plan_file(bench.write(scattered(run), {"reads": job(tmp_path)["reads"]}, io=True)).plans["main"]
    cuts = plan.parts.cuts
    assert isinstance(cuts, DeclaredCuts)
    assert cuts.declared["/split", "chunks"].is_bound is is_bound


def test_a_reader_of_fastq(bench: Bench, tmp_path: Path) -> None:
    rule = {**RULE, "records": "fastq", "every": 2}
    run = split("split -l 8 -a 2 --numeric-suffixes=1 --additional-suffix=.txt $1 chunk-", rule)
    values = job(tmp_path, text="".join(f"@read {n}\n{'ACGT' * n}\n+\n{'IIII' * n}\n" for n in range(7)))
    document = scattered(run, fifo())
    plain, first = bench.run_both(document, {"reads": values["reads"]})
    assert "is verified: 4 parts" in first.log, first.errors
    again(bench, document, {"reads": values["reads"]}, plain)
    assert written(bench) == []


@pytest.mark.long
def test_headers_and_odd_names(bench: Bench, tmp_path: Path) -> None:
    rule = {**RULE, "records": "csv", "every": 3, "names": "chunk-é [1] %d.txt"}
    script = """sed 1d "$1" | split -l 3 - part-; i=1
    for part in part-*; do { head -n 1 "$1"; cat "$part"; } > "chunk-é [1] $i.txt"; i=$((i + 1)); done"""
    (tmp_path / "the reads").mkdir()
    document = scattered(split(script, rule), stdin())
    values = job(tmp_path / "the reads", text="name,value\n" + "".join(f"{n},{n * n}\n" for n in range(10)))
    plain, first = bench.run_both(document, {"reads": values["reads"]})
    assert "is verified: 4 parts" in first.log, first.errors
    again(bench, document, {"reads": values["reads"]}, plain)
    assert written(bench) == []


@pytest.mark.long
def test_outputs_that_nobody_uses(bench: Bench, tmp_path: Path) -> None:
    """The split's program makes them, and does not run; if the outputs are used, it does."""
    run = split("split -l 14 -a 2 --numeric-suffixes=1 --additional-suffix=.txt $1 chunk-; wc -l < $1; date > log")
    run["outputs"] |= {"number": "stdout", "log": found("log")}
    run["stdout"] = "number"
    document, values = scattered(run), {"reads": job(tmp_path)["reads"]}
    plain, first = bench.run_both(document, values)
    assert "is verified" in first.log, first.errors
    again(bench, document, values, plain)
    assert written(bench) == []
    document["outputs"]["number"] = {"type": "File", "outputSource": "split/number"}
    _, ours = bench.run_both(document, values)
    assert (
        "for /split/chunks does nothing: /split/number is used, too: only a run of the program makes this output"
        in ours.log
    )
    assert len(written(bench)) == 3


@pytest.mark.long
def test_a_glob_that_does_not_find_the_names(bench: Bench, tmp_path: Path) -> None:
    _, ours = bench.run_both(
        scattered(split(rule={**RULE, "names": "part-%02d.txt"})), {"reads": job(tmp_path)["reads"]}
    )
    assert "does nothing: the glob of /split/chunks does not find part-01.txt, as `names` has it" in ours.log


def test_what_is_compressed_is_not_cut(bench: Bench, tmp_path: Path) -> None:
    document, values = scattered(split()), {"reads": job(tmp_path)["reads"]}
    assert "is verified" in bench.run(document, values).log
    (tmp_path / "reads.txt").write_bytes(gzip.compress(b"a\n" * 100))
    ours = bench.run(document, values)
    assert not ours.ok
    assert "FAILED Job /split/0" in ours.errors
    assert "is compressed, and cannot be cut into records: decompress it" in ours.errors, ours.errors
    assert bench.leftovers() == []


@pytest.mark.long
def test_a_program_that_reads_what_is_compressed(bench: Bench, tmp_path: Path) -> None:
    """The program is never verified, and does its work."""
    (tmp_path / "reads.txt.gz").write_bytes(gzip.compress("".join(LINES).encode()))
    values = {"reads": {"class": "File", "path": str(tmp_path / "reads.txt.gz")}}
    script = "zcat $1 | split -l 14 -a 2 --numeric-suffixes=1 --additional-suffix=.txt - chunk-"
    document = scattered(split(script))
    plain, _ = bench.run_both(document, values)
    second = again(bench, document, values, plain)
    why = "reads.txt.gz: is compressed, and cannot be cut into records: decompress it"
    assert "could not be compared with what the program writes" in second.log
    assert why in second.log
    assert len(written(bench)) == 3


@pytest.mark.long
def test_a_real_split_that_is_tried_again(bench: Bench, tmp_path: Path) -> None:
    """The input of the split is put into the output directory, which is another one for each attempt."""
    # A tool that names the file as a word would be another tool as soon as the file is there.
    script = f"""data={tmp_path}; test -e "$data/once" || {{ touch "$data/once"; split -l 2 $1 chunk-; exit 3; }}
    split -l 14 -a 2 --numeric-suffixes=1 --additional-suffix=.txt $1 chunk-"""
    staged = {"class": "InitialWorkDirRequirement", "listing": ["$(inputs.reads)"]}
    run = split(script, requirements=[{"class": "InlineJavascriptRequirement"}, staged])
    document, values = scattered(run), {"reads": job(tmp_path)["reads"]}
    retries = {"failureManager": {"type": "default", "config": {"max_retries": 3, "retry_delay": 0}}}
    first = bench.run(document, values, **retries)
    assert "is verified: 3 parts" in first.log, first.errors
    again(bench, document, values, first)
    assert written(bench) == []
    assert bench.run_both(document, values)[0].results == first.results


@pytest.mark.long
@pytest.mark.parametrize("wrong", [0, 1])
def test_the_number_of_records(bench: Bench, tmp_path: Path, wrong: int) -> None:
    """Another step uses it; without hints its program has counted them."""
    script = "split -l 14 -a 2 --numeric-suffixes=1 --additional-suffix=.txt $1 chunk-; wc -l < $1 > number"
    run = split(script, {**RULE, "count": "records"})
    evaluated = {"glob": "number", "loadContents": True, "outputEval": f"$(parseInt(self[0].contents) + {wrong})"}
    run["outputs"]["records"] = {"type": "int", "outputBinding": evaluated}
    use = tool("echo $records", {"records": "int"}, {"used": "stdout"}, stdout="used.txt")
    document, values = scattered(run), {"reads": job(tmp_path)["reads"]}
    document["steps"]["use"] = {"run": use, "in": {"records": "split/records", "trace": "trace"}, "out": ["used"]}
    document["outputs"] |= {
        "used": {"type": "File", "outputSource": "use/used"},
        "records": {"type": "int", "outputSource": "split/records"},
    }
    plain, first = bench.run_both(document, values)
    why = "the program counts 41 records, the rule gives 40"
    assert ("is verified: 3 parts" in first.log) is not bool(wrong), first.errors
    assert (why in first.log) is bool(wrong)
    again(bench, document, values, plain)
    assert bool(written(bench)) is bool(wrong)
