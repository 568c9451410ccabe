"""`streamflow-io annotate`: what it writes is accepted by `validate` and `plan`, and leads back to the same file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lab.coordination import (
    Document,
    Run,
    app,
    genomes,
    genomes_file,
    rule,
    subcommand,
    variants,
    variants_file,
    write,
)
from lab.cwl import found, streamflow_file, tool, versioned, workflow
from lab.templates import WORKFLOWS
from streamflow_io.commands.plan import plan_workflow
from streamflow_io.commands.validate import validate
from streamflow_io.engine.plan import Plan
from streamflow_io.features.capio.annotate import load_capio_cl
from streamflow_io.features.capio.language.to_hints import annotate, annotation_text
from streamflow_io.graph.capio_cl.language import write_capio_cl
from streamflow_io.hints.models import AnnotationsFile, StreamingRule
from streamflow_io.hints.yaml_files import parse, plain, read_annotations

CWL = {
    "genomes": WORKFLOWS / "1000genome" / "main.cwl",
    "directories": WORKFLOWS / "1000genome" / "directories.cwl",
    "variants": WORKFLOWS / "variant-calling" / "variant-calling.cwl",
}


def template_file(name: str, place: Path, **config: object) -> Path:
    if name == "variants":
        return variants_file(place, **config)
    return genomes_file(place, CWL[name].name, **config)


def annotations(plan: Plan, document: Document, place: Path) -> Path:
    """The annotations file for a CAPIO-CL file."""
    configuration = load_capio_cl(write(place / "capio.json", document))
    annotation = annotate(configuration, plan.graph.steps, plan.graph.outputs, plan.graph.routes, plan.jobs)
    file = place / "annotations.yml"
    file.write_text(annotation_text(annotation, "capio.json"))
    assert AnnotationsFile.model_validate(plain(parse(file.read_text()))) == annotation.file
    return file


@pytest.mark.long
@pytest.mark.parametrize("name", ["genomes", "directories", "variants"])
def test_what_we_generate_leads_back(name: str, tmp_path: Path) -> None:
    plan = plan_workflow(template_file(name, tmp_path), None)
    document = dict(write_capio_cl(plan.configuration, "1.0"))
    file = annotations(plan, document, tmp_path)
    assert validate(str(CWL[name]), None, str(file)).ok
    again = plan_workflow(template_file(name, tmp_path, annotations=str(file)), None)
    assert [edge.fallback for edge in again.graph.edges] == [edge.fallback for edge in plan.graph.edges]
    assert again.configuration == plan.configuration


@pytest.mark.long
@pytest.mark.parametrize(("name", "document"), [("genomes", genomes()), ("variants", variants())])
def test_a_file_by_hand(name: str, document: Document, tmp_path: Path) -> None:
    plan = plan_workflow(template_file(name, tmp_path), None)
    file = annotations(plan, document, tmp_path)
    assert "Not expressed" not in file.read_text()
    again = plan_workflow(template_file(name, tmp_path, annotations=str(file)), None)
    assert again.configuration == plan.configuration


def test_inputs_become_streamable(tmp_path: Path) -> None:
    """A workflow without hints."""
    make = tool("echo 1 > made.txt", {}, {"made": found("made.txt")})
    use = tool('cat "$data" > used.txt', {"data": "File"}, {"used": found("used.txt")})
    steps = {"make": {"run": make, "in": {}}, "use": {"run": use, "in": {"data": "make/made"}}}
    cwl = write(tmp_path / "w.cwl", versioned(workflow({}, steps, {"used": "use/used"})))
    settings = write(tmp_path / "job.json", {"trace": "t"})
    streamflow = streamflow_file(cwl.name, settings.name, name="w", io={})
    plan = plan_workflow(write(tmp_path / "streamflow.yml", streamflow), None)
    document = {
        "name": "w",
        "IO_Graph": [
            {"name": "make", "input_stream": [], "output_stream": ["/data/made.txt"],
             "streaming": [{"name": ["/data/made.txt"], "committed": "on_close"}]},
            {"name": "use", "input_stream": ["/data/made.txt"], "output_stream": []},
        ],
    }  # fmt: skip
    file = annotations(plan, document, tmp_path)
    assert [entry.value for entry in read_annotations(file).streamable] == ["/use/data"]
    assert "# reads /data/made.txt as it is written: the tool must read it front to back, once" in file.read_text()
    streamflow["scheduling"]["scheduler"]["config"] = {"annotations": file.name}
    again = plan_workflow(write(tmp_path / "streamflow.yml", streamflow), None)
    assert [(edge.delivery.value, edge.fallback) for edge in again.graph.edges] == [("stream", None)]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return subcommand("annotate", capsys)


def test_the_command(run: Run, tmp_path: Path) -> None:
    document = variants() | {"exclude": ["/scratch/*.log"], "storage": {"memory": ["/scratch/aligned.sam"], "fs": []}}
    rule(document, "sort").update(committed="on_file", file_deps=["/scratch/sort.log"])
    app(document, "call")["name"] = "caller"
    source, output = write(tmp_path / "capio.json", document), tmp_path / "annotations.yml"
    file = variants_file(tmp_path)
    code, told = run(file, "--from", source, "--output", output)
    assert code == 0
    for line in (
        "not expressed: application caller: no step, or more than one, has this name",
        "not expressed: /scratch/*.log: exclude: hints coordinate only what they name; no rule is written for it",
        "not expressed: storage: there is no such hint",
    ):
        assert line in told
        assert line.removeprefix("not expressed: ") in output.read_text()
    (entry,) = plain(parse(output.read_text()))["steps"]["/sort"]  # type: ignore[index]
    assert [StreamingRule.model_validate(each).file_deps for each in entry["rules"]] == [("sort.log",)]
    (planned := tmp_path / "planned").mkdir()
    plan = plan_workflow(variants_file(planned, annotations=str(output)), None)
    assert {str(edge.rule.committed) for edge in plan.graph.edges if edge.route.output.step == "/sort"} == {"on_file"}

    code, told = run(file, "--from", source, "--output", output)
    assert code == 1
    assert "--output" in told
    assert "--force" in told
    output.write_text("")
    code, told = run(file, "--from", source, "--output", output, "--force", "--json")
    assert code == 0
    assert {each["subject"] for each in json.loads(told)["unexpressed"]} >= {"application caller"}
    assert plain(parse(output.read_text())) is not None


def test_a_file_of_another_workflow_is_no_success(run: Run, tmp_path: Path) -> None:
    code, told = run(variants_file(tmp_path), "--from", write(tmp_path / "capio.json", genomes()))
    assert code == 1
    assert "# - application sifting: no step, or more than one, has this name" in told
