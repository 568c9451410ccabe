"""`streamflow-io coordination`: the configuration of a workflow, before it runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from streamflow.cwl.expression import DependencyResolver

from lab.cwl import Document, found, streamable, streaming, tool, workflow
from lab.official_capio_cl import parse
from lab.runs import Bench
from lab.templates import Template
from streamflow_io.cli import main
from streamflow_io.commands.plan import plan_file
from streamflow_io.graph.capio_cl.configuration import Configuration, CoordinatedFile
from tests.unit.test_capio_cl import as_read_officially, as_written, officially

READ = tool("cat $file", {"file": streamable()}, {"out": "stdout"}, stdout="read.txt")
PATTERN = "$(inputs.name).txt"


def planned(bench: Bench, document: Document, job: dict[str, Any] | None = None, **config: Any) -> Configuration:
    (plan,) = plan_file(bench.write(document, job or {}, True, config)).plans.values()
    return plan.configuration


def rules(configuration: Configuration) -> dict[str, tuple[str, str]]:
    return {file.path: (str(file.committed), file.mode) for file in configuration.files}


def readers(configuration: Configuration) -> dict[str, tuple[str, ...]]:
    return {file.path: file.consumers for file in configuration.files}


def writer(rule: Document | None, glob: str = "a.txt", kind: str = "File", **inputs: Any) -> Document:
    hints = [] if rule is None else [streaming({"port": "out", **rule})]
    return tool("true", inputs, {"out": found(glob, kind)}, hints)


def two_steps(first: Document, second: Document = READ, **inputs: Any) -> Document:
    steps = {"a": {"run": first, "in": {name: name for name in inputs}}, "b": {"run": second, "in": {"file": "a/out"}}}
    return workflow(inputs, steps, {"out": "b/out"})


def test_who_writes_and_who_reads(bench: Bench) -> None:
    configuration = planned(bench, two_steps(writer({"committed": "on_close:2", "mode": "no_update"})))
    assert configuration == Configuration(
        "main",
        ("a", "b"),
        (
            CoordinatedFile("a/a.txt", False, ("a",), ("b",), configuration.files[0].committed, "no_update"),
            CoordinatedFile("b/read.txt", False, ("b",), (), permanent=True),
        ),
    )
    assert rules(configuration)["a/a.txt"] == ("on_close:2", "no_update")


def test_what_falls_back_is_written_as_it_is_served(bench: Bench) -> None:
    reader = tool("cat $file", {"file": "File"}, {"out": "stdout"}, stdout="read.txt")
    document = two_steps(writer({"committed": "on_close", "mode": "no_update"}), reader)
    assert rules(planned(bench, document))["a/a.txt"] == ("on_close", "update")


def test_a_file_has_one_rule_for_all_its_readers(bench: Bench) -> None:
    document = two_steps(writer({"mode": "no_update"}))
    other = tool("cat $file", {"file": "File"}, {"out": "stdout"}, stdout="read.txt")
    document["steps"]["c"] = {"run": other, "in": {"file": "a/out", "trace": "trace"}, "out": ["out"]}
    assert rules(planned(bench, document))["a/a.txt"][1] == "update"


def test_instances_of_a_scatter_have_files_of_their_own(bench: Bench) -> None:
    document = two_steps(writer({"committed": "on_close"}, PATTERN, name="string"), READ, name="string[]")
    for step, inputs in (("a", "name"), ("b", "file")):
        document["steps"][step]["scatter"] = inputs
    document["outputs"]["out"]["type"] = {"type": "array", "items": "File"}
    configuration = planned(bench, document, {"name": ["x", "y"]})
    assert configuration.applications == ("a-0.0", "a-0.1", "b-0.0", "b-0.1")
    assert readers(configuration) == {
        "a-0.0/x.txt": ("b-0.0",),
        "a-0.1/y.txt": ("b-0.1",),
        "b-0.0/read.txt": (),
        "b-0.1/read.txt": (),
    }


def test_globs_are_evaluated_where_the_inputs_are_known(bench: Bench) -> None:
    globs = {
        PATTERN: "x.txt",
        "${ return inputs.name + '.' + inputs.name.length; }": "x.1",
        "$(inputs.file.nameroot).out": "reads.out",
        "$(runtime.outdir)/$(inputs.name)": "x",
        "$(inputs.file.size).txt": "*",
        "$(runtime.cores).txt": "*",
        "$(inputs.name.missing.field)": "*",
    }
    (bench.directory / "reads.fq").touch()
    inputs = {"name": "string", "file": "File"}
    steps: dict[str, Document] = {}
    for number, glob in enumerate(globs):
        steps[f"a{number}"] = {
            "run": writer(None, glob, name="string", file="File"),
            "in": {each: each for each in inputs},
        }
        steps[f"b{number}"] = {"run": READ, "in": {"file": f"a{number}/out"}}
    document = workflow(inputs, steps, {f"out{number}": f"b{number}/out" for number in range(len(globs))})
    job = {"name": "x", "file": {"class": "File", "path": str(bench.directory / "reads.fq")}}
    paths = {file.path for file in planned(bench, document, job).files}
    assert {f"a{number}/{expected}" for number, expected in enumerate(globs.values())} <= paths


def test_an_expression_is_parsed_once_for_all_instances(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """StreamFlow's parser takes 25 ms for a line of JavaScript, 0.2 s with a library."""
    parsed: list[str] = []
    parse = DependencyResolver.eval

    def counted(resolver: DependencyResolver, scan: str, jslib: str = "", **_: Any) -> None:
        parsed.append(scan)
        parse(resolver, scan, jslib)

    monkeypatch.setattr(DependencyResolver, "eval", counted)
    script = "${ return inputs.name + '-once.txt'; }"
    steps = {"a": {"run": writer({}, script, name="string"), "in": {"name": "names"}, "scatter": "name"}}
    names = ["x", "y", "z"]
    configuration = planned(bench, workflow({"names": "string[]"}, steps, {"out": "a/out"}), {"names": names})
    assert len(configuration.files) == len(names)
    assert parsed.count(script.removeprefix("$")) == 1


FORMATS = ["capio-cl-1.1", "capio-cl-1.0"]


@pytest.mark.parametrize("format_", FORMATS)
def test_the_document_is_printed_or_written(bench: Bench, capsys: pytest.CaptureFixture[str], format_: str) -> None:
    path = bench.write(two_steps(writer({"committed": "on_close"})), {}, True)
    target = bench.directory / "capio.json"
    assert main(["coordination", str(path), "--format", format_]) == 0
    printed = capsys.readouterr().out
    assert main(["coordination", str(path), "--format", format_, "--output", str(target)]) == 0
    assert capsys.readouterr().out == ""
    assert target.read_text() == printed
    document = json.loads(printed)
    assert main(["coordination", str(path), "--format", format_, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"ok": True, "output": None, "document": document}
    assert document.get("version") == (1.1 if format_ == FORMATS[0] else None)
    (plan,) = plan_file(path).plans.values()
    engine = parse(document, "1.1" if format_ == FORMATS[0] else "1.0", bench.directory)
    for file in plan.configuration.files:
        assert as_read_officially(engine, file) == as_written(file)


def test_an_output_that_cannot_be_written_is_told(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    path = bench.write(two_steps(writer(None)), {}, True)
    assert main(["coordination", str(path), "--output", str(bench.directory / "missing" / "capio.json")]) == 1
    assert "--output\n  cannot be written: No such file or directory" in capsys.readouterr().err


def test_a_file_that_exists_is_replaced_only_if_asked_for(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    path, target = bench.write(two_steps(writer(None)), {}, True), bench.directory / "capio.json"
    target.write_text("mine")
    assert main(["coordination", str(path), "--output", str(target)]) == 1
    assert "exists\n  allowed: another file, or --force to overwrite it" in capsys.readouterr().err
    assert target.read_text() == "mine"
    assert main(["coordination", str(path), "--output", str(target), "--force"]) == 0
    assert json.loads(target.read_text())["name"] == "main"


def test_one_of_several_workflows(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    path = bench.write(two_steps(writer(None)), {}, True)
    document = json.loads(path.read_text())
    document["workflows"]["other"] = document["workflows"]["main"]
    path.write_text(json.dumps(document))
    assert main(["coordination", str(path)]) == 1
    assert "allowed: --workflow with one of main, other" in capsys.readouterr().err
    assert main(["coordination", str(path), "--workflow", "other"]) == 0
    assert json.loads(capsys.readouterr().out)["name"] == "other"
    assert main(["plan", str(path), "--workflow", "other", "--json"]) == 0
    assert list(json.loads(capsys.readouterr().out)["workflows"]) == ["other"]
    assert main(["plan", str(path), "--workflow", "another"]) == 1
    told = capsys.readouterr().err
    assert "unknown workflow 'another'" in told
    assert "allowed: --workflow with one of main, other" in told


def test_the_official_parser_reads_that_of_a_template(tmp_path: Path) -> None:
    """The test of properties in test_expansion.py has every other shape."""
    template = Template.copy("hmmer", tmp_path)
    (tmp_path / "file").touch()
    (template.directory / "generated").mkdir()
    entry = f"{{class: File, path: {tmp_path / 'file'}}}"
    job = f"{{models: {entry}, database: {entry}, fragments: 2}}"
    (template.directory / "generated" / "job.yml").write_text(job)
    (plan,) = plan_file(template.directory / "streamflow-io.yml").plans.values()
    engine = officially(plan.configuration, "1.1", tmp_path)
    assert plan.configuration.files
    for coordinated in plan.configuration.files:
        assert as_read_officially(engine, coordinated) == as_written(coordinated), coordinated.path
