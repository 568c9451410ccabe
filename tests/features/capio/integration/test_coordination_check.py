"""`streamflow-io coordination --check`: files for the templates, right and with one mistake of each kind."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from lab.coordination import (
    Document,
    Run,
    app,
    application,
    genomes,
    genomes_file,
    rule,
    subcommand,
    variants,
    variants_file,
    write,
)
from streamflow_io.commands.plan import plan_workflow
from streamflow_io.engine.plan import Plan
from streamflow_io.features.capio.coordination import check
from streamflow_io.features.capio.language.comparison import compare
from streamflow_io.features.capio.loading import load_capio_cl
from streamflow_io.graph.capio_cl.language import write_capio_cl
from streamflow_io.hints.errors import HintErrors


class Plans(dict[str, Plan]):
    """The plans of the templates, when they are asked for: they take long, and many files are compared with each."""

    def __init__(self, place: Path) -> None:
        self._place = place

    def __missing__(self, name: str) -> Plan:
        if name == "variants":
            file = variants_file(self._place)
        else:
            file = genomes_file(self._place, "directories.cwl" if name == "directories" else "main.cwl")
        self[name] = plan_workflow(file, None)
        return self[name]


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> Plans:
    return Plans(tmp_path_factory.mktemp("plans"))


def found(plan: Plan, document: Document, place: Path) -> list[tuple[str, str, str]]:
    theirs = load_capio_cl(write(place / "capio.json", document))
    findings = compare(plan.configuration, theirs, plan.graph.steps)
    return [(finding.severity, finding.kind, finding.subject) for finding in findings]


@pytest.mark.parametrize(
    ("name", "document"), [pytest.param("genomes", genomes(), marks=pytest.mark.long), ("variants", variants())]
)
def test_a_file_that_is_right(plans: Plans, name: str, document: Document, tmp_path: Path) -> None:
    assert found(plans[name], document, tmp_path) == []


@pytest.mark.parametrize(
    "name", ["variants", *(pytest.param(name, marks=pytest.mark.long) for name in ("genomes", "directories"))]
)
def test_what_we_generate_is_right(plans: Plans, name: str, tmp_path: Path) -> None:
    assert found(plans[name], dict(write_capio_cl(plans[name].configuration, "1.1")), tmp_path) == []


C = "/chromosome"
MERGED = f"{C}/individuals_merge"
MISTAKES: list[tuple[Callable[[Document], object], list[tuple[str, str, str]]]] = [
    (
        lambda d: app(d, "frequency")["input_stream"].remove("*.sifted.tsv"),
        [("error", "missing edge", f"{C}/sifting -> {C}/frequency")],
    ),
    (
        lambda d: app(d, "frequency")["input_stream"].append("*.genes.tsv"),
        [("warning", "unknown edge", f"{C}/mutation_overlap -> {C}/frequency")],
    ),
    (
        lambda d: app(d, "individuals").update(name="individual"),
        [("error", "missing edge", f"{C}/individuals -> {MERGED}"), ("warning", "unknown application", "individual")],
    ),
    (lambda d: d["IO_Graph"].append(application("plots", "", "")), [("warning", "unknown application", "plots")]),
    (
        lambda d: rule(d, "individuals").update(committed="on_termination"),
        [("warning", "committed", f"{C}/individuals")],
    ),
    (lambda d: rule(d, "individuals").update(committed="on_close:2"), [("warning", "committed", f"{C}/individuals")]),
    (
        lambda d: rule(d, "individuals").update(committed="on_file", file_deps=["done"]),
        [("error", "committed", f"{C}/individuals")],
    ),
    (lambda d: rule(d, "individuals").update(mode="update"), [("warning", "mode", f"{C}/individuals")]),
    (
        lambda d: rule(d, "individuals").update(dirname=rule(d, "individuals").pop("name")),
        [("error", "directory", f"{C}/individuals")],
    ),
    (lambda d: d["permanent"].remove("*.sifted.tsv"), [("error", "permanent", f"{C}/sifting")]),
    (lambda d: d["permanent"].append("chr*.*of*.tsv"), [("warning", "permanent", f"{C}/individuals")]),
    (lambda d: d.update(exclude=["*.sifted.tsv"]), [("error", "excluded", f"{C}/sifting")]),
    (
        lambda d: (
            app(d, "frequency")["output_stream"].remove("*.frequency.tsv"),
            d["permanent"].remove("*.frequency.tsv"),
        ),
        [("warning", "missing file", f"{C}/frequency")],
    ),
]


@pytest.mark.parametrize(("mistake", "expected"), MISTAKES)
def test_one_mistake(
    plans: Plans,
    mistake: Callable[[Document], object],
    expected: list[tuple[str, str, str]],
    tmp_path: Path,
) -> None:
    document = genomes()
    mistake(document)
    assert found(plans["genomes"], document, tmp_path) == expected


def test_a_file_that_lets_readers_in_too_early(plans: Plans, tmp_path: Path) -> None:
    document = variants()
    rule(document, "sort").update(committed="on_close")
    app(document, "filter")["streaming"] = [{"name": ["/scratch/variants.vcf"], "committed": "on_close"}]
    app(document, "bwa_index")["streaming"] = [{"name": ["/scratch/lambda_virus.fa"], "mode": "no_update"}]
    assert found(plans["variants"], document, tmp_path) == [
        ("error", "committed", "/sort"),
        ("error", "mode", "/bwa_index"),
        ("error", "mode", "/faidx"),
    ]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return subcommand("coordination", capsys)


def test_the_command(run: Run, tmp_path: Path) -> None:
    streamflow_file = variants_file(tmp_path)
    code, printed = run(streamflow_file, "--check", write(tmp_path / "right.json", variants()))
    assert code == 0
    assert "right.json: says what the workflow variant-calling and its hints say" in printed
    document = variants()
    app(document, "sort")["input_stream"] = []
    wrong = write(tmp_path / "wrong.json", document)
    code, printed = run(streamflow_file, "--check", wrong, "--json")
    assert code == 1
    told = json.loads(printed)
    assert told["ok"] is False
    assert told["findings"] == [
        {
            "severity": "error",
            "kind": "missing edge",
            "subject": "/fixmate -> /sort",
            "paths": ["fixed.bam"],
            "workflow": "an edge",
            "file": "/scratch/fixed.bam: written by fixmate, read by nobody",
            "consequence": "nothing keeps the reader from reading too early",
        }
    ]


def test_the_table_names_steps_files_and_sides(plans: Plans, tmp_path: Path) -> None:
    document = variants()
    app(document, "sort")["input_stream"] = []
    console = Console(file=io.StringIO(), width=120)
    check(plans["variants"], write(tmp_path / "capio.json", document)).show(console)
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    for text in ("missing edge", "/fixmate -> /sort", "  fixed.bam", "read by nobody", "1 error, 0 warnings"):
        assert text in shown


def test_warnings_alone_are_well(plans: Plans, tmp_path: Path) -> None:
    document = variants()
    rule(document, "sort")["mode"] = "update"
    result = check(plans["variants"], write(tmp_path / "capio.json", document))
    assert [finding.severity for finding in result.findings] == ["warning"]
    assert result.ok


def test_a_file_that_cannot_be_read(plans: Plans, tmp_path: Path) -> None:
    with pytest.raises(HintErrors, match="cannot be read"):
        check(plans["variants"], tmp_path / "missing.json")
