"""The gallery of the site: what it shows exists, and its pictures show when steps worked."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from scripts import site
from scripts.gallery import EXAMPLES, annotated
from scripts.timelines import Span, busy
from tests.unit.test_pages import DOCS

A_WORKFLOW = """
steps:
  one: {run: tools/one.cwl, in: {}, out: [made]}
  inner:
    run: inner.cwl   # a subworkflow
"""


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


def test_annotated_documents_are_found_in_subworkflows(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    main = tmp_path / "main.cwl"
    texts = {
        "main.cwl": A_WORKFLOW,
        "inner.cwl": "steps: {two: {run: tools/two.cwl}, three: {run: tools/three.cwl}, again: {run: inner.cwl}}",
        "tools/one.cwl": "outputs: {made: {type: stdout, streamable: true}}",
        "tools/two.cwl": "hints: [{class: sfio:IOTask}]",
        "tools/three.cwl": "outputs: {made: {type: stdout, streamable: false}}",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    assert annotated(main) == [tmp_path / "tools/one.cwl", tmp_path / "tools/two.cwl"]


def test_a_step_is_busy_while_one_of_its_jobs_runs() -> None:
    spans = [Span("b", 4, 5), Span("a", 0, 2), Span("a", 1, 1.5), Span("a", 2.25, 3), Span("b", 7, 8)]
    assert busy(spans, pause=0.25) == [("a", [(0, 3)]), ("b", [(4, 5), (7, 8)])]
    assert busy(spans, pause=0.1) == [("a", [(0, 2), (2.25, 3)]), ("b", [(4, 5), (7, 8)])]


def shown(markdown: str, page: str, repository: str = "") -> str:
    """The text of a page of the site."""
    return site.on_page_markdown(
        markdown, SimpleNamespace(file=SimpleNamespace(src_uri=page)), {"repo_url": repository}
    )


def test_links_out_of_the_pages_need_the_address_of_the_repository() -> None:
    text = "[k-means](../workflows/kmeans/README.md), [hints](hints.md)"
    assert shown(text, "index.md") == "k-means, [hints](hints.md)"
    assert "(https://a.example/b/blob/main/workflows/kmeans/README.md)" in shown(
        text, "index.md", "https://a.example/b"
    )


def test_the_gallery_links_what_was_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site, "GALLERY", tmp_path)
    picture = "![a](pictures/gallery-one.svg) ![b](pictures/gallery-two.svg)"
    assert shown(picture, "gallery.md") == picture
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "index.md").touch()
    assert "](gallery/one/index.md)" in shown(picture, "gallery.md")
    assert "two/index.md" not in shown(picture, "gallery.md")
    of_a_run = "![c](../../pictures/gallery-one.svg)"
    assert shown(of_a_run, "gallery/one/index.md") == of_a_run
