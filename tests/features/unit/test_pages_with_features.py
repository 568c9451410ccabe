"""The pages, and the codes of messages, are those of the core with all features: these tests need all of them."""

from __future__ import annotations

import argparse
import ast
import contextlib
import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel, TypeAdapter
from ruamel.yaml import YAML

from scripts import reference
from scripts.pages import blocks
from streamflow_io.cli import parser_of
from streamflow_io.hints.config import SchedulerConfig
from streamflow_io.hints.models import HINT_CLASSES, PREFIX, Hint, StreamingRule
from streamflow_io.hints.sessions import SessionRule
from streamflow_io.messages import Code
from streamflow_io.messages.explanations import EXPLANATIONS
from tests.unit import test_named_modules as modules
from tests.unit.test_messages import in_python, in_rust, trees
from tests.unit.test_pages import DOCS, PAGES, REPOSITORY, named


def test_files_and_directories_that_pages_name_are_there() -> None:
    pages = {page.name: page for page in modules.PAGES}
    missing = [(page, file) for page, file in set(modules.named()) if not modules.found(file, pages[page])]
    missing += [pair for pair in set(modules.directories()) if not (REPOSITORY / pair[1]).is_dir()]
    assert not missing


@pytest.mark.parametrize("page", reference.PAGES)
def test_pages_that_follow_from_the_code_are_up_to_date(page: str) -> None:
    assert (DOCS / page).read_text() == reference.PAGES[page](), "python -m scripts.reference"


def mappings(value: object) -> Iterator[dict[str, Any]]:
    """All mappings in nested data."""
    if isinstance(value, dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from mappings(inner)


def test_hints_and_configs_of_examples_are_allowed() -> None:
    hints, configs = 0, 0
    for page in PAGES:
        for block in blocks(page.read_text()):
            if block.language != "yaml":
                continue
            for each in mappings(list(YAML(typ="safe", pure=True).load_all(block.text))):
                if str(each.get("class")).startswith(PREFIX):
                    TypeAdapter(Hint).validate_python(each)
                    hints += 1
                elif each.get("type") == "sfio.io-aware":
                    SchedulerConfig.model_validate(each["config"])
                    configs += 1
    assert hints > 10
    assert configs > 10


def test_the_page_of_hints_has_each_field() -> None:
    page = (DOCS / "hints.md").read_text()
    sections = {name: page.partition(f"## sfio:{name}\n")[2].partition("\n## ")[0] for name in HINT_CLASSES}
    rules: dict[str, type[BaseModel]] = {"Streaming": StreamingRule, "ReadSession": SessionRule}
    missing = [
        (name, field.alias or key)
        for name, section in sections.items()
        for key, field in rules.get(name, HINT_CLASSES[name]).model_fields.items()
        if key != "class_" and f"| `{field.alias or key}` |" not in section
    ]
    assert all(sections.values())
    assert not missing


def commands() -> Iterator[tuple[str, str]]:
    """Page and command line."""
    for page in PAGES:
        for block in blocks(page.read_text()):
            if block.language in ("sh", "console"):
                for line in block.text.replace("\\\n", " ").splitlines():
                    if match := re.match(r"(?:\$ |sudo )?(streamflow-io .*)", line):
                        yield named(page), match[1]


def test_commands_are_those_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(parser: argparse.ArgumentParser, message: str) -> None:
        raise ValueError(message)

    monkeypatch.setattr(argparse.ArgumentParser, "error", refuse)
    found = sorted(set(commands()))
    assert len(found) > 50
    for page, line in found:
        words = shlex.split(re.split(r" (?:[|>&;]|\|\|) ", line)[0], comments=True)[1:]
        try:
            with contextlib.suppress(SystemExit):  # --help, --version
                parser_of(words)[0].parse_args(words)
        except ValueError as error:
            pytest.fail(f"{page}: {line}: {error}")


def test_each_code_is_used_and_no_other() -> None:
    used = {Code[name].value for _, name in in_python()} | in_rust()
    assert used == {code.value for code in Code}


#: What is put into a message: in the code a value; on a page `...`, capitals, one letter, a number or a quoted word.
HOLE = "\0"
VALUES = r"\.\.\.|…|\b[A-Z]+\b(?!-)|['`]\w['`]|'\w+'|(?<![\w.-])\d\S*"
#: StreamFlow and others print these, or the program puts them together word by word.
NOT_COMPARED = (
    "'config' is a required property",
    "NodeJSEngine requires Node.js engine",
    "needs StepInputExpressionRequirement",
    "Warning: Write bandwidth still rises",
    "nested_crossproduct needs",
    "flat_crossproduct needs",
    "a list is scattered as a whole here (S): linkMerge",
    "The storageBW of S is not applied on D",
    "is not held to its storageBW on D",
    "Windows are not remembered",
    "Nothing streams on L",
    "capio_server has ended",
)


def quoted() -> Iterator[str]:
    """The messages in the first column of tables that are called `message` or `reason`, and those with codes."""
    for page in PAGES:
        for table in re.findall(r"^\| (?:message|reason) .*\n((?:\|.*\n)*)", page.read_text(), re.MULTILINE):
            for row in table.splitlines():
                yield from re.findall(r"`([^`]+)`", re.split(r"(?<!\\)\|", row)[1])
    for explanation in EXPLANATIONS.values():
        yield from (case.message for case in explanation.cases)


def printed() -> Iterator[str]:
    """The texts in Python and Rust."""
    for _, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                yield "".join(str(each.value) if isinstance(each, ast.Constant) else HOLE for each in node.values)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value
    for file in (REPOSITORY / "node" / "src").rglob("*.rs"):
        for text in re.findall(r'"((?:[^"\\]|\\.)*)"', file.read_text(), re.DOTALL):
            yield re.sub(r"\\\n\s*", "", text)


def runs(text: str, length: int = 3) -> Iterator[list[tuple[str, ...]]]:
    """The words that stand together in each part: a message is put together at colons, other marks, and `but`."""
    for part in re.split(rf"[{HOLE}:;,()]|\{{[^{{}}]*\}}|\b(?:but|because|which)\b", text):
        words = re.findall(r"\w+(?:[-.]\w+)*", part)
        yield [tuple(words[i : i + length]) for i in range(max(1, len(words) - length + 1))]


def test_messages_that_pages_quote_are_those_of_the_program() -> None:
    """Each word of a message stands beside two of its neighbours, or all of its part, in a text of the program."""
    known = {run for text in printed() for length in (1, 2, 3) for part in runs(text, length) for run in part}
    messages = [message for message in quoted() if not any(text in message for text in NOT_COMPARED)]
    assert len(messages) > 150
    parts = [(message, part) for message in messages for part in runs(re.sub(VALUES, HOLE, message))]
    wrong = [(text, part) for text, part in parts if {*sum(part, ())} - {*sum(known.intersection(part), ())}]
    assert not wrong
