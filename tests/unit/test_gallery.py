"""The gallery of the site: what it shows can be read."""

from __future__ import annotations

import re

import pytest

from scripts.gallery import EXAMPLES, annotated
from tests.unit.test_pages import DOCS


def test_the_page_shows_each_example() -> None:
    shown = re.findall(r"\(pictures/gallery-([\w-]+)\.svg\)", (DOCS / "gallery.md").read_text())
    assert sorted(shown) == sorted(EXAMPLES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_each_example_can_be_read(name: str) -> None:
    example = EXAMPLES[name]
    workflow, _, scheduler = example.read()
    assert workflow.is_file()
    assert isinstance(scheduler, dict)
    assert (example.directory / example.prepare[0]).is_file()
    assert annotated(workflow)
