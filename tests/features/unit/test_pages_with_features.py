"""The pages, and the codes of messages, are those of the core with all features: these tests need all of them."""

from __future__ import annotations

import argparse
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
from tests.unit import test_named_modules as modules
from tests.unit.test_messages import in_python, in_rust
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
            for each in mappings(list(YAML(typ="safe").load_all(block.text))):
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
