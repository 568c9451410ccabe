"""The codes of messages: each is explained, each is used, and the page is what the program prints."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from scripts import pages
from streamflow_io.commands.explain import answer, documentation_of
from streamflow_io.messages import Code, coded
from streamflow_io.messages.explanations import EXPLANATIONS, explanation_text
from tests.unit.test_architecture import MODULES, tree

REPOSITORY = Path(__file__).parents[2]
DOCS = REPOSITORY / "docs"
PAGES = "https://example.org/owner/name/blob/main/docs"


def trees() -> list[tuple[Path, ast.Module]]:
    """The modules, without those that quote the messages of others."""
    return [(file, tree(file)) for file in MODULES.values() if file.parent.name != "messages"]


def in_python() -> Iterator[tuple[Path, str]]:
    """The names of codes that modules use."""
    for file, module in trees():
        for node in ast.walk(module):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "Code":
                yield file, node.attr


def in_rust() -> set[str]:
    files = (REPOSITORY / "node" / "src").rglob("*.rs")
    return {code for file in files for code in re.findall(r"SFIO-[A-Z]\d{3}", file.read_text())}


def test_each_code_is_explained() -> None:
    assert set(EXPLANATIONS) == set(Code)


def test_what_an_explanation_refers_to_is_there() -> None:
    for code in Code:
        text = explanation_text(code)
        assert set(re.findall(r"SFIO-[A-Z]\d{3}", text)) <= {each.value for each in Code}, code
        more = EXPLANATIONS[code].more
        if more is not None:
            page, _, anchor = more.partition("#")
            assert not anchor or anchor in pages.anchors((DOCS / page).read_text()), code


def test_an_explanation_leads_to_its_page() -> None:
    """Whoever has a wheel has no `docs/`."""
    built = documentation_of(["Changelog, https://h/o/n/blob/main/CHANGELOG.md", f"Documentation, {PAGES}/index.md"])
    assert built == PAGES
    code = next(code for code in Code if EXPLANATIONS[code].more)
    assert explanation_text(code, built).endswith(f"\nMore: {PAGES}/{EXPLANATIONS[code].more}")
    assert documentation_of([]) is None
    assert explanation_text(code).endswith(" in the repository of StreamFlow-IO")


def test_a_reason_keeps_its_code() -> None:
    reason = coded("X has loadContents", Code.WHOLE_FILE)
    assert reason == "X has loadContents [SFIO-S003]"
    assert coded(f"The rule does nothing: {reason}", Code.PARTS_WRITTEN) == f"The rule does nothing: {reason}"


def test_programs_get_all_of_it() -> None:
    found = answer([Code.LISTED]).to_json()["codes"]["SFIO-S002"]
    assert found["title"] == EXPLANATIONS[Code.LISTED].title
    assert found["cases"][0].keys() == {"message", "to_do"}
    assert len(answer([]).to_json()["codes"]) == len(Code)
