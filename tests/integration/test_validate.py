"""`streamflow-io validate`: cwltool with our schema, then our rules; and the step paths are StreamFlow's.

At the end: the same mistakes in `plan` and `run`.
"""

import io
import json
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import cwl_utils.parser
import pytest
from cwltool.argparser import arg_parser
from cwltool.main import main as cwltool
from rich.console import Console
from streamflow.config.config import WorkflowConfig
from streamflow.cwl.translator import CWLTranslator
from streamflow.main import build_context
from streamflow.workflow.step import ExecuteStep

from lab import forked
from lab.coordination import subcommand
from lab.cwl import Document, bomb, found, streaming, tool, workflow
from lab.runs import Bench
from streamflow_io.commands.cwltool_validation import run_cwltool
from streamflow_io.commands.plan import plan_file
from streamflow_io.commands.validate import validate
from streamflow_io.hints.cwl import read_steps
from streamflow_io.hints.errors import HintErrors
from streamflow_io.hints.resolution import resolve

VERSIONS = ["v1.0", "v1.1", "v1.2"]
WORKFLOWS = Path(__file__).parents[2] / "workflows"
TOOL = """\
cwlVersion: {version}
class: CommandLineTool
$namespaces: {{sfio: "urn:streamflow-io:cwl#"}}
hints:
  - class: sfio:Streaming
    rules:
      - port: out
        committed: on_close
baseCommand: cat
inputs:
  source: {{type: File, streamable: true, inputBinding: {{position: 1}}}}
outputs:
  out: {{type: stdout, streamable: true}}
"""
WORKFLOW = """\
cwlVersion: {version}
class: Workflow
$namespaces:
  sfio: "urn:streamflow-io:cwl#"
  edam: http://edamontology.org/
  cwltool: "http://commonwl.org/cwltool#"
$schemas: [http://edamontology.org/EDAM_1.18.owl]
requirements: {{SubworkflowFeatureRequirement: {{}}}}
inputs: {{source: {{type: File, format: "edam:format_2572"}}}}
outputs: {{result: {{type: File, outputSource: second/out}}}}
hints:
  - class: sfio:IOTask
  - class: sfio:StorageBandwidth
    storageBW: auto(10,50,4)
  - class: cwltool:CUDARequirement
    cudaVersionMin: "11"
    cudaComputeCapability: "3.0"
steps:
  first:
    run: tool.cwl
    in: {{source: source}}
    out: [out]
  second:
    run:
      class: CommandLineTool
      hints:
        sfio:StorageBandwidth: {{storageBW: 0.5, direction: both}}
      baseCommand: cat
      inputs: {{source: File}}
      outputs: {{out: {{type: stdout}}}}
    in: {{source: first/out}}
    out: [out]
  inner:
    in: {{source: source}}
    out: []
    run:
      class: Workflow
      inputs: {{source: File}}
      outputs: []
      steps:
        - id: third
          run: tool.cwl
          in: {{source: source}}
          out: [out]
"""
# No process of it is the main one.
GRAPH = json.dumps(
    {
        "cwlVersion": "v1.2",
        "$graph": [
            {"id": name, "class": "CommandLineTool", "baseCommand": "ls", "inputs": [], "outputs": []}
            for name in ("one", "two")
        ],
    }
)
PATHS = ["/first", "/inner/third", "/second"]


def _write(directory: Path, version: str = "v1.2") -> str:
    (directory / "tool.cwl").write_text(TOOL.format(version=version))
    (directory / "workflow.cwl").write_text(WORKFLOW.format(version=version))
    return str(directory / "workflow.cwl")


def _pack(directory: Path) -> str:
    packed = io.StringIO()
    arguments = arg_parser().parse_args(["--pack", "--quiet", "--skip-schemas", _write(directory)])
    assert cwltool(args=arguments, stdout=packed) == 0
    (directory / "packed.cwl").write_text(packed.getvalue())
    return str(directory / "packed.cwl")


Command = Callable[..., tuple[int, str]]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """`streamflow-io validate` in this process, which has read the schemas of cwltool; prints no error."""
    monkeypatch.setenv("COLUMNS", "200")
    return subcommand("validate", capsys)


def _process(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return forked.run("streamflow-io", "validate", *arguments, environment={"COLUMNS": "200", **environment})


@pytest.mark.parametrize("version", VERSIONS)
def test_a_valid_workflow_in_every_version(tmp_path: Path, version: str) -> None:
    result = validate(_write(tmp_path, version))
    assert (result.messages, result.errors) == ((), ())
    assert result.ok
    assert sorted(result.steps) == PATHS


def test_packing_keeps_the_hints(tmp_path: Path) -> None:
    packed, plain = validate(_pack(tmp_path)), validate(_write(tmp_path))
    assert packed.ok, packed
    assert sorted(packed.steps) == PATHS
    for path, step in plain.steps.items():
        other = packed.steps[path]
        assert (step.io_task is None) == (other.io_task is None)
        assert step.storage_bandwidth is not None
        assert other.storage_bandwidth is not None
        assert step.storage_bandwidth.value == other.storage_bandwidth.value
        assert {port: [rule.value for rule in rules] for port, rules in step.streaming.items()} == {
            port: [rule.value for rule in rules] for port, rules in other.streaming.items()
        }
        assert list(step.streamable_inputs) == list(other.streamable_inputs)


@pytest.mark.parametrize("prepare", [_write, _pack])
async def test_step_paths_are_those_of_streamflow(tmp_path: Path, prepare: Callable[[Path], str]) -> None:
    file = prepare(tmp_path)
    Path(file).write_text(Path(file).read_text().replace("$schemas: [http://edamontology.org/EDAM_1.18.owl]\n", ""))
    document = cwl_utils.parser.load_document_by_uri(file)
    paths = sorted(resolve(read_steps(document)))
    database = {"type": "default", "config": {"connection": ":memory:"}}
    context = build_context({"database": database, "path": file})
    try:
        translator = CWLTranslator(
            context=context,
            name="names",
            output_directory=str(tmp_path),
            cwl_definition=document,
            cwl_inputs={},
            cwl_inputs_path=None,
            workflow_config=WorkflowConfig(
                "names", {"version": "v1.0", "workflows": {"names": {"type": "cwl", "config": {"file": file}}}}
            ),
        )
        steps = translator.translate().steps
    finally:
        await context.close()
    assert sorted(name for name, step in steps.items() if isinstance(step, ExecuteStep)) == paths == PATHS


def test_no_server_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **_: object) -> None:
        pytest.fail(f"asked for the address of {arguments[0]}")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    assert validate(_write(tmp_path)).ok


WRONG_FIELDS = [
    ("{class: sfio:IOTask, cores: 1}", "invalid field 'cores', expected one of: 'class'"),
    ("{class: sfio:StorageBandwidth, storage_bw: 3}", "missing required field 'storageBW'"),
    ("{class: sfio:StorageBandwidth, storageBW: [3]}", "the 'storageBW' field is not valid"),
    ("{class: sfio:Streaming, rules: [{prot: out}]}", "invalid field 'prot', expected one of: 'committed'"),
    ("{class: sfio:Streaming, rules: [{port: out, nFiles: many}]}", "the 'nFiles' field is not valid"),
    ("{class: sfio:Streaming, rules: [{port: out, permanent: 1}]}", "the 'permanent' field is not valid"),
]


@pytest.mark.parametrize(("hint", "message"), WRONG_FIELDS)
def test_cwltool_checks_the_fields_with_our_schema(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hint: str, message: str
) -> None:
    _write(tmp_path)
    (tmp_path / "tool.cwl").write_text(TOOL.format(version="v1.2").replace("hints:\n", f"hints:\n  - {hint}\n"))
    monkeypatch.chdir(tmp_path)
    cwl_valid, messages = run_cwltool("workflow.cwl", None, "v1.2", with_our_schema=True)
    text = " ".join(" ".join(messages).split())
    assert not cwl_valid
    assert message in text
    assert "tool.cwl:5:" in text


@pytest.mark.parametrize("hint", [hint for hint, _ in WRONG_FIELDS])
def test_wrong_fields_are_told_once(tmp_path: Path, hint: str) -> None:
    workflow = _write(tmp_path)
    (tmp_path / "tool.cwl").write_text(TOOL.format(version="v1.2").replace("hints:\n", f"hints:\n  - {hint}\n"))
    result = validate(workflow)
    assert (result.cwl_valid, result.messages, result.ok) == (True, (), False)
    assert {(error.file, error.line) for error in result.errors} == {(str(tmp_path / "tool.cwl"), 5)}


def test_mistakes_in_the_cwl_and_in_hints_are_told_together(tmp_path: Path) -> None:
    workflow = _write(tmp_path)
    tool = tmp_path / "tool.cwl"
    tool.write_text(tool.read_text().replace("port: out", "prot: out"))
    Path(workflow).write_text(Path(workflow).read_text().replace("in: {source: source}", "in: {other: source}"))
    result = validate(workflow)
    assert not result.cwl_valid
    text = " ".join(" ".join(result.messages).split())
    assert "missing required parameter 'source'" in text
    assert "prot" not in text
    assert {error.message for error in result.errors} == {"unknown field", "missing"}


LOOP = """\
cwlVersion: v1.2
class: Workflow
$namespaces: {{cwltool: "http://commonwl.org/cwltool#", sfio: "urn:streamflow-io:cwl#"}}
requirements: {{InlineJavascriptRequirement: {{}}}}
inputs: {{number: int}}
outputs: {{number: {{type: int, outputSource: again/number}}}}
steps:
  again:
    requirements:
      cwltool:Loop:
        {fields}
        loop: {{number: number}}
        outputMethod: last
    hints: [{hint}]
    in: {{number: number}}
    out: [number]
    run:
      class: ExpressionTool
      inputs: {{number: int}}
      outputs: {{number: int}}
      expression: "$({{number: inputs.number + 1}})"
"""
LOOP_WHEN = "loopWhen: $(inputs.number < 3)"


@pytest.mark.parametrize(
    ("fields", "cwl_valid", "hint", "mistakes"),
    [
        (LOOP_WHEN, True, "sfio:IOTask", []),
        (LOOP_WHEN, True, "sfio:IOTask, cores: 1", ["unknown field"]),
        ("loopWen: 1", False, "sfio:IOTask", []),
    ],
)
def test_extensions_of_cwltool_are_checked_beside_our_hints(
    tmp_path: Path, fields: str, cwl_valid: bool, hint: str, mistakes: list[str]
) -> None:
    file = tmp_path / "workflow.cwl"
    file.write_text(LOOP.format(fields=fields, hint=f"{{class: {hint}}}"))
    result = validate(str(file))
    assert result.cwl_valid is cwl_valid, result.messages
    assert ("invalid field 'loopWen'" in " ".join(" ".join(result.messages).split())) is not cwl_valid
    assert [error.message for error in result.errors] == mistakes


@pytest.mark.parametrize(
    "name", ["tools/partition.cwl", *sorted(f"{path.parent.name}/main.cwl" for path in WORKFLOWS.glob("*/main.cwl"))]
)
def test_the_templates_are_valid(name: str) -> None:
    result = validate(str(WORKFLOWS / name))
    assert (result.errors, result.warnings) == ((), ())
    assert result.ok, result.messages


def test_no_file_is_left(tmp_path: Path) -> None:
    workflow = _write(tmp_path)
    (tmp_path / "tmp").mkdir()
    (tmp_path / "job.yml").write_text(
        f"source: {{class: File, path: {workflow}, format: 'http://edamontology.org/format_2572'}}\n"
    )
    ended = _process(workflow, str(tmp_path / "job.yml"), TMPDIR=str(tmp_path / "tmp"))
    assert (ended.returncode, ended.stderr) == (0, "")
    assert list((tmp_path / "tmp").iterdir()) == []


def test_our_rules_come_after_cwltool(tmp_path: Path) -> None:
    workflow = _write(tmp_path)
    tool = tmp_path / "tool.cwl"
    tool.write_text(tool.read_text().replace("port: out", "port: uot"))
    result = validate(workflow)
    assert result.cwl_valid
    assert [(error.file, error.line) for error in result.errors] == [(str(tool), 7)]
    assert not result.ok
    assert result.steps == {}


def test_exit_codes_and_output_for_people(tmp_path: Path, command: Command) -> None:
    workflow = _write(tmp_path)
    code, good = command(workflow)
    assert code == 0
    assert "valid: 3 steps, 3 with hints" in good
    assert "auto(10,50,4)" in good
    (tmp_path / "annotations.yml").write_text("streamable: [/first/x]\n")
    code, bad = command(workflow, "--annotations", str(tmp_path / "annotations.yml"))
    assert code == 1
    assert "annotations.yml:1: streamable[0]" in bad
    assert "allowed: /first/out, /first/source" in bad
    assert _process().returncode == 2


def test_json_for_programs(tmp_path: Path, command: Command) -> None:
    workflow = _write(tmp_path)
    result = json.loads(command(workflow, "--json")[1])
    assert (result["ok"], result["cwl"], result["errors"]) == (True, {"valid": True, "messages": []}, [])
    second = result["steps"]["/second"]["sfio:StorageBandwidth"]
    assert (second["storageBW"], second["direction"], second["line"]) == (0.5, "both", 27)
    (rule,) = result["steps"]["/first"]["streaming"]["out"]
    assert (rule["committed"], rule["mode"], rule["start"], rule["level"]) == ("on_close", "update", "commit", "tool")
    (tmp_path / "tool.cwl").write_text(TOOL.format(version="v1.2").replace("on_close", "on_closed"))
    code, bad = command(workflow, "--json")
    assert code == 1
    (error,) = json.loads(bad)["errors"]
    assert error == {
        "file": str(tmp_path / "tool.cwl"),
        "line": 8,
        "field": "sfio:Streaming.rules[0].committed",
        "message": "'on_closed' is no commit rule",
        "allowed": "on_termination, on_close, on_close:N with 1 <= N < 10^9, on_file, on_n_files",
    }


@pytest.mark.parametrize(
    ("job", "valid", "message"),
    [
        ("source: {class: File, path: tool.cwl, format: 'http://edamontology.org/format_2572'}\n", True, ""),
        ("source: 3\n", False, "the 'source' field is not valid because is not a dict. Expected a File object"),
        ("other: 3\n", False, "Missing required input parameter 'source'"),
        ("source: {\n", False, "job.yml:2:"),
        (None, False, "No such file"),
    ],
)
def test_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job: str | None, valid: bool, message: str) -> None:
    monkeypatch.chdir(tmp_path)
    if job is not None:
        (tmp_path / "job.yml").write_text(job)
    result = validate(_write(tmp_path), str(tmp_path / "job.yml"))
    assert result.ok is valid
    assert message in " ".join(" ".join(result.messages).split())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file"),
        ("{", "workflow.cwl:"),
        ("class: Workflow\n", "cwlVersion"),
        ("cwlVersion: v1.2\nclass: X\n", "X"),
        (GRAPH, "#one, #two"),
    ],
)
def test_what_is_no_workflow(tmp_path: Path, content: str | None, message: str) -> None:
    file = tmp_path / "workflow.cwl"
    if content is not None:
        file.write_text(content)
    result = validate(str(file))
    assert not result.ok
    output = io.StringIO()
    result.show(Console(file=output, width=200))
    assert message in output.getvalue()
    assert "not valid" in output.getvalue()


TOO_MUCH = {
    "bomb": (bomb(), "values are written, and aliases make more than"),
    "deep": ("x: " + "[" * 100_000, "more than 200 lists and mappings in each other"),
    "deeper": ("".join(f"{' ' * level}x:\n" for level in range(2000)), "too deep in each other"),
    "digits": (f"x: {'9' * 5000}", "a number of 5000 digits"),
}


@pytest.mark.parametrize(
    ("name", "place"),
    [("bomb", "workflow"), ("deep", "workflow"), ("bomb", "tool"), ("digits", "tool"), ("deeper", "job"),
     ("digits", "annotations")],
)  # fmt: skip
def test_what_is_too_much_is_refused_at_once_with_one_message(tmp_path: Path, name: str, place: str) -> None:
    workflow, job, annotations = _write(tmp_path), tmp_path / "job.yml", tmp_path / "annotations.yml"
    job.write_text("source: {class: File, path: tool.cwl, format: 'http://edamontology.org/format_2572'}\n")
    annotations.write_text("steps: {}\n")
    text, problem = TOO_MUCH[name]
    file = {"workflow": Path(workflow), "tool": tmp_path / "tool.cwl", "job": job, "annotations": annotations}[place]
    file.write_text(f"{file.read_text()}{text}\n")
    streamflow = tmp_path / "streamflow.yml"
    config = {"type": "cwl", "config": {"file": "workflow.cwl", "settings": "job.yml"}}
    scheduler = {"type": "sfio.io-aware", "config": {"annotations": "annotations.yml"}}
    streamflow.write_text(
        json.dumps({"version": "v1.0", "workflows": {"one": config}, "scheduling": {"scheduler": scheduler}})
    )
    before = time.process_time()
    result = validate(workflow, str(job), str(annotations))
    (message,) = (*result.messages, *(str(error) for error in result.errors))
    with pytest.raises(HintErrors) as planned:
        plan_file(streamflow)
    assert time.process_time() - before < 10
    (error,) = planned.value.errors
    for shown in (message, str(error)):
        assert problem in shown
        assert str(file) in shown


def _misspelt() -> Document:
    made = tool("echo ran > ran", {}, {"out": found("ran")}, [streaming({"port": "uot"}), streaming({"prot": "out"})])
    return workflow({}, {"make": {"run": made, "in": {}}}, {"out": "make/out"})


def test_mistakes_in_hints_stop_a_run_and_are_told_once(bench: Bench) -> None:
    run = bench.run(_misspelt())
    assert (run.ok, run.files, run.trace) == (False, {}, [])
    for message in (
        "rules[0].port: unknown port 'uot'; allowed: outputs with files: out",
        "rules[0].prot: unknown field",
    ):
        # By StreamFlow's logger, and again at the end of its stack trace. Nothing of ours comes on top.
        assert run.log.count(message) == 2
    assert run.log.count("Traceback (most recent call last)") == 1


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("main.cwl", "a: {b", "expected ',' or '}'"),
        ("main.cwl", "cwlVersion: v1.2\nclass: X\n", "X"),
        ("main.cwl", GRAPH, "#one, #two"),
        ("job.json", "a: {b", "expected ',' or '}'"),
    ],
)
def test_a_plan_of_what_is_no_workflow(bench: Bench, name: str, text: str, message: str) -> None:
    path = bench.write(workflow({}, {}, {}), {}, io=True)
    (path.parent / name).write_text(text)
    with pytest.raises(HintErrors) as mistakes:
        plan_file(path)
    (error,) = mistakes.value.errors
    assert error.file == str(path.parent / "main.cwl")
    assert message in error.message
    assert f"streamflow-io validate {path.parent}/main.cwl {path.parent}/job.json" in error.allowed


def test_a_refusal_is_not_below_warnings(tmp_path: Path) -> None:
    odd = tool("", {}, {"text": "stdout"}, stdout="${ var name = () => 'text.txt'; return name(); }")
    odd["requirements"] = [{"class": "InlineJavascriptRequirement"}]
    document = workflow({}, {"a": {"run": odd, "in": {}}}, {})
    document["steps"]["b"] = {"run": "bad.cwl", "in": [], "out": []}
    (tmp_path / "main.cwl").write_text(json.dumps({"cwlVersion": "v1.2", **document}))
    (tmp_path / "bad.cwl").write_text("cwlVersion: v1.2\nclass: CommandLineTool\ninputs: []\noutputs: 3\n")
    valid, messages = run_cwltool(str(tmp_path / "main.cwl"), None)
    assert not valid
    (message,) = messages
    assert '"outputs" section is not valid' in message


def test_a_plan_of_valid_cwl_that_streamflow_cannot_translate(bench: Bench) -> None:
    """Thus cwltool packs a tool that has an `id` of its own."""
    tool = {"class": "CommandLineTool", "id": "#t.cwl", "baseCommand": "echo", "outputs": []}
    step = {"id": "#main/s", "run": "#t.cwl", "in": [{"id": "#main/s/x", "source": "#main/x"}], "out": []}
    main = {"class": "Workflow", "id": "#main", "inputs": [{"id": "#main/x", "type": "string"}], "outputs": []}
    graph = [{**tool, "inputs": [{"id": "#t.cwl/t/x", "type": "string"}]}, {**main, "steps": [step]}]
    path = bench.write(workflow({}, {}, {}), {}, io=True)
    (path.parent / "main.cwl").write_text(json.dumps({"cwlVersion": "v1.2", "$graph": graph}))
    (path.parent / "job.json").write_text('{"x": "word"}')
    with pytest.raises(HintErrors) as mistakes:
        plan_file(path)
    (error,) = mistakes.value.errors
    assert "Cannot retrieve input port x from step /s/t/x-token-transformer" in error.message
    assert error.allowed == "a workflow that StreamFlow can translate; this one is valid CWL"


@pytest.mark.parametrize(("name", "field"), [("main.cwl", "file"), ("job.json", "settings")])
def test_a_plan_without_a_file(bench: Bench, name: str, field: str) -> None:
    path = bench.write(workflow({}, {}, {}), {}, io=True)
    path.write_text(json.dumps(json.loads(path.read_text()), indent=1))
    (path.parent / name).unlink()
    with pytest.raises(HintErrors) as mistakes:
        plan_file(path)
    (error,) = mistakes.value.errors
    line = next(n for n, text in enumerate(path.read_text().splitlines(), 1) if f'"{field}"' in text)
    assert (error.file, error.line, error.field) == (str(path), line, f"workflows.main.config.{field}")
    assert error.message == f"{path.parent}/{name}: there is no such file"


def test_a_mistake_in_the_scheduler_config_stops_a_run(bench: Bench) -> None:
    config = {"storages": [{"name": "s", "path": "/s", "write": "100MB"}]}
    message = "storages[0].write: '100MB' is not allowed; allowed: write bandwidth: a number of MB/s above 0"
    path = bench.write(_misspelt(), {}, io=True, config=config)
    path.write_text(json.dumps(json.loads(path.read_text()), indent=1))
    line = next(n for n, text in enumerate(path.read_text().splitlines(), 1) if '"write"' in text)
    run = bench.finish(bench.start(path), path)
    assert run.code == 1
    assert f"{path}:{line}: scheduling.scheduler.config.{message}" in run.log
    assert "$schema" not in run.log
