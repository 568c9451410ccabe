"""The hints of each step, and where they were written: CWL v1.0 to v1.2, other files, packed documents."""

from pathlib import Path

import cwl_utils.parser
import pytest

from streamflow_io.hints.cwl import read_steps
from streamflow_io.hints.errors import HintErrors
from streamflow_io.hints.inheritance import StepAnnotations
from streamflow_io.hints.resolution import resolve
from streamflow_io.hints.yaml_files import read_scheduler_config

VERSIONS = ["v1.0", "v1.1", "v1.2"]
TOOL = """\
cwlVersion: {version}
class: CommandLineTool
$namespaces: {{sfio: "urn:streamflow-io:cwl#"}}
hints:
  - class: sfio:StorageBandwidth
    storageBW: 20
  - class: sfio:Streaming
    rules:
      - port: out
        committed: on_close
baseCommand: cat
stdin: $(inputs.source.path)
inputs:
  source:
    type: File
    streamable: true
outputs:
  out: {{type: stdout, streamable: true}}
  log:
    type: File
    outputBinding: {{glob: log.txt}}
"""
WORKFLOW = """\
cwlVersion: {version}
class: Workflow
$namespaces: {{sfio: "urn:streamflow-io:cwl#"}}
requirements: {{SubworkflowFeatureRequirement: {{}}}}
inputs: {{source: File}}
outputs: {{result: {{type: File, outputSource: second/out}}}}
hints:
  - class: sfio:IOTask
  - class: sfio:StorageBandwidth
    storageBW: auto(10,50,4)
  - class: sfio:Streaming
    rules:
      - {{port: out, mode: no_update}}
      - {{port: log, committed: on_close}}
steps:
  first:
    run: tool.cwl
    in: {{source: source}}
    out: [out]
    hints:
      sfio:StorageBandwidth: {{storageBW: 30}}
      sfio:Streaming: {{rules: [{{port: log, committed: on_close:2}}]}}
  second:
    run:
      class: CommandLineTool
      baseCommand: cat
      inputs: {{source: File}}
      outputs: {{out: {{type: stdout}}}}
    in: {{source: first/out}}
    out: [out]
  inner:
    in: {{source: source}}
    out: []
    hints:
      - class: sfio:StorageBandwidth
        storageBW: 40
    run:
      class: Workflow
      inputs: {{source: File}}
      outputs: []
      steps:
        - id: third
          run: tool.cwl
          in: {{source: source}}
          out: [out]
        - id: fourth
          in: {{source: source}}
          out: [out]
          run:
            class: CommandLineTool
            baseCommand: cat
            inputs: {{source: File}}
            outputs: {{out: {{type: stdout}}}}
"""


def _load(directory: Path, version: str = "v1.2") -> dict[str, StepAnnotations]:
    (directory / "tool.cwl").write_text(TOOL.format(version=version))
    (directory / "workflow.cwl").write_text(WORKFLOW.format(version=version))
    return resolve(read_steps(cwl_utils.parser.load_document_by_uri(str(directory / "workflow.cwl"))))


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hints")


@pytest.fixture(scope="module", params=VERSIONS)
def steps(directory: Path, request: pytest.FixtureRequest) -> dict[str, StepAnnotations]:
    return _load(directory, request.param)


def test_the_nearest_level_wins_per_class(steps: dict[str, StepAnnotations]) -> None:
    assert list(steps) == ["/first", "/second", "/inner/third", "/inner/fourth"]
    found = {
        path: (str(step.storage_bandwidth.value.storage_bw), step.storage_bandwidth.level.value)
        for path, step in steps.items()
        if step.storage_bandwidth is not None
    }
    assert found == {
        "/first": ("20", "tool"),
        "/second": ("auto(10,50,4)", "workflow"),
        "/inner/third": ("20", "tool"),
        "/inner/fourth": ("40", "step"),
    }
    assert all(step.io_task is not None and step.io_task.level.value == "workflow" for step in steps.values())


def test_rules_are_inherited_per_port(steps: dict[str, StepAnnotations]) -> None:
    found = {
        path: {
            port: [(str(rule.value.committed), rule.value.mode, rule.level.value) for rule in rules]
            for port, rules in step.streaming.items()
        }
        for path, step in steps.items()
    }
    tool = [("on_close", "update", "tool")]
    outer = [("on_termination", "no_update", "workflow")]
    assert found == {
        "/first": {"out": tool, "log": [("on_close:2", "update", "step")]},
        "/second": {"out": outer},
        "/inner/third": {"out": tool, "log": [("on_close", "update", "workflow")]},
        "/inner/fourth": {"out": outer},
    }


def test_places(directory: Path, steps: dict[str, StepAnnotations]) -> None:
    workflow, tool = str(directory / "workflow.cwl"), str(directory / "tool.cwl")
    first, second = steps["/first"], steps["/second"]
    assert first.io_task is not None
    assert (first.io_task.file, first.io_task.line) == (workflow, 8)
    assert first.storage_bandwidth is not None
    assert (first.storage_bandwidth.file, first.storage_bandwidth.line) == (tool, 5)
    assert [(rule.file, rule.line, rule.name) for rule in first.streaming["out"]] == [
        (tool, 9, "sfio:Streaming.rules[0]")
    ]
    assert [(rule.file, rule.line) for rule in first.streaming["log"]] == [(workflow, 22)]
    assert {name: (origin.file, origin.line) for name, origin in first.streamable_inputs.items()} == {
        "source": (tool, 14)
    }
    assert {name: (origin.file, origin.line) for name, origin in first.streamable_outputs.items()} == {
        "out": (tool, 18)
    }
    assert (dict(second.streamable_inputs), dict(second.streamable_outputs)) == ({}, {})


def test_a_single_tool_is_step_slash(tmp_path: Path) -> None:
    (tmp_path / "tool.cwl").write_text(TOOL.format(version="v1.2"))
    steps = resolve(read_steps(cwl_utils.parser.load_document_by_uri(str(tmp_path / "tool.cwl"))))
    assert list(steps) == ["/"]
    assert list(steps["/"].streaming) == ["out"]


GRAPH = """\
cwlVersion: v1.2
{namespaces}
$graph:
  - id: tool
    class: CommandLineTool
    hints:
      - class: {prefix}IOTask
    baseCommand: cat
    inputs: {{source: {{type: File, streamable: true}}}}
    outputs: {{out: {{type: stdout}}}}
  - id: main
    class: Workflow
    inputs: {{source: File}}
    outputs: []
    steps:
      only: {{run: "#tool", in: {{source: source}}, out: [out]}}
"""


@pytest.mark.parametrize(
    ("namespaces", "prefix"),
    [('$namespaces: {io: "urn:streamflow-io:cwl#"}', "io:"), ("# packed", "urn:streamflow-io:cwl#")],
)
def test_documents_with_a_graph(tmp_path: Path, namespaces: str, prefix: str) -> None:
    file = tmp_path / "graph.cwl"
    file.write_text(GRAPH.format(namespaces=namespaces, prefix=prefix))
    steps = resolve(read_steps(cwl_utils.parser.load_document_by_uri(str(file))))
    assert list(steps) == ["/only"]
    assert steps["/only"].io_task is not None
    assert steps["/only"].io_task.line == 7
    assert steps["/only"].streamable_inputs["source"].line == 9


@pytest.mark.parametrize("version", VERSIONS)
def test_processes_of_a_graph_may_have_namespaces_of_their_own(tmp_path: Path, version: str) -> None:
    """`cwltool --pack` writes such documents."""
    text = GRAPH.format(namespaces='$namespaces: {other: "https://example.org/"}', prefix="io:")
    own = '    $namespaces: {io: "urn:streamflow-io:cwl#"}\n    other:author: nobody\n'
    text = text.replace("v1.2", version).replace("    class: CommandLineTool\n", f"    class: CommandLineTool\n{own}")
    file = tmp_path / "graph.cwl"
    file.write_text(text)
    (step,) = resolve(read_steps(cwl_utils.parser.load_document_by_uri(str(file)))).values()
    assert step.io_task is not None
    assert step.io_task.line == 9
    assert step.streamable_inputs["source"].line == 11


def test_what_a_linked_file_runs_is_beside_the_file_itself(tmp_path: Path) -> None:
    (elsewhere := tmp_path / "elsewhere").mkdir()
    _load(elsewhere)
    (tmp_path / "link.cwl").symlink_to(elsewhere / "workflow.cwl")
    outer = "{run: link.cwl, in: {source: source}, out: [result]}"
    (tmp_path / "main.cwl").write_text(
        "cwlVersion: v1.2\nclass: Workflow\nrequirements: {SubworkflowFeatureRequirement: {}}\n"
        f"inputs: {{source: File}}\noutputs: {{}}\nsteps: {{outer: {outer}}}\n"
    )
    steps = resolve(read_steps(cwl_utils.parser.load_document_by_uri(str(tmp_path / "main.cwl"))))
    assert list(steps) == ["/outer/first", "/outer/second", "/outer/inner/third", "/outer/inner/fourth"]
    assert steps["/outer/first"].streamable_inputs["source"].file == str(elsewhere / "tool.cwl")


def test_an_imported_hint_has_its_own_file(tmp_path: Path) -> None:
    (tmp_path / "hint.yml").write_text("# a hint\nclass: sfio:IOTask\n")
    text = TOOL.format(version="v1.2").replace("hints:\n", "hints:\n  - $import: hint.yml\n")
    (tmp_path / "tool.cwl").write_text(text)
    (step,) = resolve(read_steps(cwl_utils.parser.load_document_by_uri(str(tmp_path / "tool.cwl")))).values()
    assert step.io_task is not None
    assert (step.io_task.file, step.io_task.line) == (str(tmp_path / "hint.yml"), 2)


def test_other_hints_are_none_of_ours(tmp_path: Path) -> None:
    text = TOOL.format(version="v1.2").replace(
        "hints:\n", "hints:\n  - {class: vendor:Thing, port: 3}\n  - {class: ToolTimeLimit, timelimit: 3}\n"
    )
    (tmp_path / "tool.cwl").write_text(text.replace("sfio:", "vendor:").replace("streamflow-io", "vendor"))
    (step,) = resolve(read_steps(cwl_utils.parser.load_document_by_uri(str(tmp_path / "tool.cwl")))).values()
    assert not step.streaming
    assert step.storage_bandwidth is None


ANNOTATIONS = """\
steps:
  /:
    - class: sfio:StorageBandwidth
      storageBW: 1
  /inner:
    - class: sfio:StorageBandwidth
      storageBW: 2
    - class: sfio:Streaming
      rules: [{port: log, mode: no_update}]
  /inner/third:
    - class: urn:streamflow-io:cwl#StorageBandwidth
      storageBW: 3
streamable: [/second/source, /second/out]
"""


def test_annotations_win_over_the_cwl_and_the_longest_path_over_others(tmp_path: Path) -> None:
    _load(tmp_path)
    (tmp_path / "annotations.yml").write_text(ANNOTATIONS)
    document = cwl_utils.parser.load_document_by_uri(str(tmp_path / "workflow.cwl"))
    steps = resolve(read_steps(document), tmp_path / "annotations.yml")
    bandwidths = {path: str(s.storage_bandwidth.value.storage_bw) for path, s in steps.items() if s.storage_bandwidth}
    assert bandwidths == {"/first": "1", "/second": "1", "/inner/third": "3", "/inner/fourth": "2"}
    third = steps["/inner/third"].streaming
    assert [(rule.value.mode, rule.level.value, rule.line) for rule in third["log"]] == [
        ("no_update", "annotations", 9)
    ]
    assert third["out"][0].level.value == "tool"
    origin = steps["/second"].streamable_inputs["source"]
    assert (origin.file, origin.line, origin.level.value) == (str(tmp_path / "annotations.yml"), 13, "annotations")
    assert list(steps["/second"].streamable_outputs) == ["out"]


def test_the_scheduler_config_is_read_with_its_lines(tmp_path: Path) -> None:
    file = tmp_path / "streamflow.yml"
    file.write_text(
        "version: v1.0\nscheduling:\n  scheduler:\n    type: sfio.io-aware\n    config:\n      runtime: off\n"
    )
    config = read_scheduler_config(file)
    assert config is not None
    assert config.runtime == "off"
    file.write_text(file.read_text().replace("runtime: off", "runtime: fuse"))
    with pytest.raises(HintErrors) as mistakes:
        read_scheduler_config(file)
    assert [(error.file, error.line) for error in mistakes.value.errors] == [(str(file), 6)]
    file.write_text("version: v1.0\nscheduling: {scheduler: {type: default}}\n")
    assert read_scheduler_config(file) is None


def test_the_example_of_the_documentation(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "hints.md").read_text(encoding="utf-8")
    workflow, annotations = (block.split("```")[0] for block in page.split("```yaml\n")[1:])
    (tmp_path / "workflow.cwl").write_text(workflow)
    (tmp_path / "annotations.yml").write_text(annotations)
    document = cwl_utils.parser.load_document_by_uri(str(tmp_path / "workflow.cwl"))
    steps = resolve(read_steps(document))
    assert [path for path, step in steps.items() if step] == ["/align", "/call", "/save"]
    assert steps["/call"].streaming["calls"][0].value.files == ("*.vcf",)
    annotated = resolve(read_steps(document), tmp_path / "annotations.yml")
    assert str(annotated["/align"].streaming["alignments"][0].value.committed) == "on_close"
    assert list(annotated["/align"].streamable_outputs) == ["alignments"]
