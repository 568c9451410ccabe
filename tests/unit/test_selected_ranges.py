"""Parts that there are not are told before the run, where the values are known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streamflow_io.commands.known_values import KnownValues
from streamflow_io.commands.selected_ranges import wrong_ranges
from streamflow_io.hints.cwl import load
from streamflow_io.hints.errors import HintError
from streamflow_io.hints.resolution import resolve

TOOL = """\
class: CommandLineTool
hints: [{{class: sfio:ReadSession, rules: [{{of: of, part: range{rule}}}]}}]
baseCommand: individuals
inputs: {{of: File, range: {{type: Any, default: {default}}}, count: int?}}
outputs: {{}}
"""
MAIN = """\
cwlVersion: v1.2
$namespaces: {{sfio: "urn:streamflow-io:cwl#"}}
class: Workflow
requirements: {{ScatterFeatureRequirement: {{}}, StepInputExpressionRequirement: {{}}}}
inputs:
  of: File
  ranges:
    type: Any
    default: {given}
  count: int?
outputs: {{}}
steps:
  sum:
    run: tool.cwl
    scatter: {scatter}
    out: []
    {step}
    in:
      of: of
      count: count
      {name}: {range}
"""
FIELDS: dict[str, Any] = {
    "given": "null", "scatter": "range", "step": "", "name": "range", "range": "ranges", "rule": "", "default": "null",
}  # fmt: skip


def wrong(directory: Path, job: str | None, **fields: Any) -> list[HintError]:
    fields = FIELDS | fields
    (directory / "tool.cwl").write_text(
        'cwlVersion: v1.2\n$namespaces: {sfio: "urn:streamflow-io:cwl#"}\n' + TOOL.format(**fields)
    )
    (main := directory / "main.cwl").write_text(MAIN.format(**fields))
    if job is not None:
        (directory / "job.yml").write_text(job)
    values = KnownValues(load(str(main)), None if job is None else str(directory / "job.yml"))
    return wrong_ranges(resolve(load(str(main))), values)


OF = "of: {class: File, path: all.vcf}\n"
ALL = "KofN with K from 1 to N, as 2of16"


@pytest.mark.parametrize(
    ("job", "fields", "place", "field", "message"),
    [
        (OF + "ranges:\n- 1of3\n- 5of3\n- 7of3\n", {}, "job.yml:4", "ranges[1]", "there is no part 5 of 3: 1 to 3"),
        (OF + "ranges: [0of3]\n", {}, "job.yml:2", "ranges[0]", "there is no part 0 of 3"),
        (OF + "ranges: [1of0]\n", {}, "job.yml:2", "ranges[0]", "there is no part 1 of 0: there is at least one part"),
        (OF + "ranges: [third]\n", {}, "job.yml:2", "ranges[0]", "'third' is not KofN"),
        (OF + "ranges: 4of3\n", {"scatter": "[]"}, "job.yml:2", "ranges", "there is no part 4 of 3"),
        (OF, {"given": "[1of2, 3of2]"}, "main.cwl:9", "inputs.ranges.default[1]", "there is no part 3 of 2"),
        (None, {"given": "[1of2, 3of2]"}, "main.cwl:9", "inputs.ranges.default[1]", "there is no part 3 of 2"),
        (
            OF, {"scatter": "[]", "range": "{default: 3of2}"}, "main.cwl:21", "steps.sum.in.range.default",
            "there is no part 3 of 2",
        ),
        (
            OF, {"scatter": "[]", "default": "3of2"}, "tool.cwl:6", "inputs.range.default",
            "there is no part 3 of 2",
        ),
        (OF + "ranges: [1, 4]\ncount: 3", {"rule": ", parts: count"}, "job.yml:2", "ranges[1]", "no part 4 of 3"),
        (OF + "ranges: [1, 4]", {"rule": ", parts: 3"}, "job.yml:2", "ranges[1]", "there is no part 4 of 3"),
        (OF, {"scatter": "[]", "range": "{}"}, "main.cwl:21", "steps.sum.in.range", "None is not KofN"),
        (OF, {"scatter": "[]", "name": "other"}, "main.cwl:18", "steps.sum.in", "None is not KofN"),
    ],
)  # fmt: skip
def test_a_part_that_there_is_not(
    tmp_path: Path, job: str | None, fields: dict[str, Any], place: str, field: str, message: str
) -> None:
    (error,) = wrong(tmp_path, job, **fields)
    assert (f"{Path(error.file).name}:{error.line}", error.field) == (place, field)
    assert error.message.startswith("`range` of /sum names no part of of: ")
    assert message in error.message
    assert error.allowed == ("a whole number from 1 to the parts" if "rule" in fields else ALL)


@pytest.mark.parametrize(
    ("job", "fields"),
    [
        (OF + "ranges: [1of3, 3of3]\n", {}),
        (OF + "ranges: [1of3]\n", {"given": "[5of3]"}),
        (OF + "ranges: [1of3]\n", {"default": "5of3"}),
        (OF + "ranges: []\n", {}),
        # The values are not known before the run.
        (None, {}),
        (OF + "ranges: [5of3]\n", {"range": "{source: ranges, valueFrom: 1of3}"}),
        (OF + "ranges: [5of3]\n", {"range": "{source: [ranges, ranges], linkMerge: merge_flattened}"}),
        (OF + "ranges: [5of3]\n", {"step": "when: $(inputs.count > 3)"}),
        (OF + "ranges: [1, 4]\n", {"rule": ", parts: count", "step": "when: $(inputs.count > 3)"}),
        ("- a list\n", {"given": "[5of3]"}),
        # cwltool says that this is no list.
        (OF + "ranges: 5of3\n", {}),
    ],
)
def test_nothing_is_said_of_what_there_is_or_is_not_known(
    tmp_path: Path, job: str | None, fields: dict[str, Any]
) -> None:
    assert wrong(tmp_path, job, **fields) == []


def test_values_go_through_the_scatters_of_workflows(tmp_path: Path) -> None:
    (tmp_path / "main.cwl").write_text(f"""\
cwlVersion: v1.2
$namespaces: {{sfio: "urn:streamflow-io:cwl#"}}
class: Workflow
requirements: {{SubworkflowFeatureRequirement: {{}}, ScatterFeatureRequirement: {{}}}}
inputs: {{of: File, all: Any}}
outputs: {{}}
steps:
  each:
    scatter: [some]
    in: {{of: of, some: all}}
    out: []
    run:
      class: Workflow
      inputs: {{of: File, some: Any}}
      outputs: {{}}
      steps:
        sum:
          scatter: range
          in: {{of: of, range: some}}
          out: []
          run: {{{", ".join(TOOL.format(rule="", default="null").splitlines())}}}
""")
    (tmp_path / "job.yml").write_text(OF + "all:\n- [1of2, 2of2]\n-\n  - 1of1\n  - 2of1\n")
    document = load(str(tmp_path / "main.cwl"))
    values = KnownValues(document, str(tmp_path / "job.yml"))
    known = values.of("/each/sum", "range")
    assert known is not None
    assert [each.value for each in known] == ["1of2", "2of2", "1of1", "2of1"]
    (error,) = wrong_ranges(resolve(document), values)
    assert (error.line, error.field) == (6, "all[1][1]")


def test_a_tool_alone(tmp_path: Path) -> None:
    (tmp_path / "tool.cwl").write_text(
        'cwlVersion: v1.2\n$namespaces: {sfio: "urn:streamflow-io:cwl#"}\n' + TOOL.format(rule="", default="2of1")
    )
    document = load(str(tmp_path / "tool.cwl"))
    (error,) = wrong_ranges(resolve(document), KnownValues(document, None))
    assert (error.line, error.field) == (6, "inputs.range.default")
