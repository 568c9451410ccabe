"""YAML from others is read in a time that its length bounds, or refused."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from ruamel.yaml.error import YAMLError
from ruamel.yaml.scalarfloat import ScalarFloat
from schema_salad.utils import yaml_no_ts

from lab import json_documents
from lab.cwl import bomb, streamable, tool, workflow
from streamflow_io.engine.translator import _runs_in
from streamflow_io.hints import cwl
from streamflow_io.hints.yaml_text import TooMuchError, check, parse


@pytest.mark.parametrize(
    ("text", "problem", "line"),
    [
        (bomb(), "values are written, and aliases make more than", 5),
        (bomb().replace("x8: ", "x8: {<<: *a7, y: ") + "}", "and aliases make more than", 5),
        ("[" * 100_000, "more than 200 lists and mappings in each other", 1),
        ("a:\n" + "{a: " * 300, "more than 200 lists and mappings in each other", 2),
        ("".join(f"{' ' * level}a:\n" for level in range(1000)), "too deep in each other", 101),
        ("- " * 1000 + "a", "too deep in each other", 1),
        (f"a: 1\nb: {'9' * 5000}", "a number of 5000 digits", 2),
        (f"[-{'1' * 9999}]", "a number of 10000 digits", 1),
        ("a: &a [1, *a]", "an alias stands for what it is a part of", 1),
    ],
    ids=range(9),
)
def test_too_much(text: str, problem: str, line: int) -> None:
    before = time.process_time()
    with pytest.raises(TooMuchError, match=problem) as error:
        parse(text)
    assert error.value.line == line
    assert time.process_time() - before < 2


@pytest.mark.parametrize(
    "text",
    [
        "a: &shared {x: [1, 2, 3]}\nb: *shared\nc: [*shared, *shared]",
        bomb(3),
        "a: " + "[" * 100 + "]" * 100,
        f"a: '{'9' * 5000}'\nb: v{'9' * 5000}\nc: |\n  {'9' * 5000}",
        f"program: |\n{'  if (a) { b(); }' * 500}\n",
        "a: * 3\nb: 2 *c",
    ],
    ids=range(6),
)
def test_what_people_write(text: str) -> None:
    check(text)


def test_a_value_that_cannot_be_made() -> None:
    with pytest.raises(YAMLError, match="a value cannot be read"):
        parse("a: !!int x")


def test_dates_are_texts_as_in_cwl() -> None:
    assert parse("a: 2001-99-99") == {"a": "2001-99-99"}


def test_looking_for_files_to_read_goes_through_what_is_shared_once() -> None:
    before = time.process_time()
    assert list(_runs_in(f"run: tool.cwl\n{bomb(12)}")) == ["tool.cwl"]
    assert time.process_time() - before < 2


def test_a_file_is_checked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """cwl_utils fetches what `run` names again for each input of each step: half of the time of a large plan."""
    checked: list[str] = []
    monkeypatch.setattr(cwl, "check", checked.append)
    file = tmp_path / "tool.cwl"
    fetcher = cwl.Fetcher({}, requests.Session())
    for text in ("a: 1", "b: 2"):
        file.write_text(text)
        assert [fetcher.fetch_text(file.as_uri()) for _ in range(3)] == [text] * 3
    assert checked == ["a: 1", "b: 2"]


def test_runs_of_tests_read_json_as_all_others_do() -> None:
    step = {"run": tool("true\n\u20ac", {"file": streamable()}, {"out": "stdout"}, count=12), "in": {"file": "file"}}
    for indent in (None, 1):
        text = json.dumps(workflow({"file": "File"}, {"step": step}, {"out": "step/out"}), indent=indent)
        known, read = json_documents.read_slowly(yaml_no_ts(), text), json_documents.load(yaml_no_ts(), text)
        assert read == known
        assert [*places(read)] == [*places(known)]
    # How many digits were written is remembered.
    assert isinstance(json_documents.load(yaml_no_ts(), '{"a": 1.50}')["a"], ScalarFloat)


def places(value: Any) -> Iterator[object]:
    """Yield the lines and columns of all that a document has."""
    if isinstance(value, dict | list):
        yield type(value), value.lc.line, value.lc.col, value.lc.data
        for part in value.values() if isinstance(value, dict) else value:
            yield from places(part)
