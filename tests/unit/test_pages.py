"""Links of the pages lead somewhere, and their blocks of code are what they say."""

from __future__ import annotations

import ast
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from scripts import tools
from scripts.pages import anchors, blocks, links
from tests.matrix.page import sections
from tests.matrix.running import Observation
from tests.matrix.table import CASES

REPOSITORY = Path(__file__).parents[2]
DOCS = REPOSITORY / "docs"
SPACK = "recipes/spack/packages/py-streamflow-io/package.py"
STREAMABLE = ", streamable: true"
#: The most characters of a line in a block on the site, in a window of 1,280 pixels.
COLUMNS = 85
_WHERE = ("*.md", ".github/*.md", ".github/*/*.md", "docs/*.md", "workflows/*/*.md", "cwl-extensions/*.md")
PAGES = sorted(page for where in _WHERE for page in REPOSITORY.glob(where))


def named(page: Path) -> str:
    return str(page.relative_to(REPOSITORY))


def targets(page: Path) -> Iterator[tuple[str, Path, str]]:
    """The links of a page into the repository: as written, file, and place in it."""
    for link in links(page.read_text()):
        if not re.match(r"[a-z]+:", link):
            file, _, anchor = link.partition("#")
            yield link, (page.parent / file).resolve() if file else page, anchor


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_lead_somewhere(page: Path) -> None:
    wrong = [
        link
        for link, file, anchor in targets(page)
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in anchors(file.read_text()))
    ]
    assert not wrong


def test_pages_keep_within_their_budgets() -> None:
    """The most words of a page, and of all pages together. What is said twice, or needed by no user, goes."""
    budgets = {
        "README.md": 500,
        "CHANGELOG.md": 800,
        "docs/tutorial.md": 600,
        "docs/guide.md": 2_500,
        "docs/how-it-works.md": 4_000,
        "docs/node-protocol.md": 4_000,
        "docs/benchmarks.md": 2_500,
        "docs/development.md": 2_500,
    }
    pages = [*(REPOSITORY / name for name in ("README.md", "CHANGELOG.md")), *DOCS.glob("*.md")]
    words = {named(page): len(page.read_text().split()) for page in pages}
    assert {page: words[page] for page, most in budgets.items() if words[page] > most} == {}
    assert sum(words.values()) <= 45_000


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=named)
def test_a_page_begins_with_its_readers(page: Path) -> None:
    _title, first, *_ = page.read_text().split("\n\n")
    assert re.match(r"This page (is (for|the reference for)|leads you)\b", first)


def test_the_short_name_of_an_option_comes_first() -> None:
    assert re.findall(r"`--[\w-]+`, `-\w\b", (DOCS / "command-line.md").read_text()) == []


def test_the_site_has_all_pages() -> None:
    text = re.sub(r"!!python/\S+|!ENV", "", (REPOSITORY / "mkdocs.yml").read_text())
    site = YAML(typ="safe", pure=True).load(text)
    listed = re.findall(r"[\w-]+\.md", json.dumps(site["nav"]))
    assert sorted(listed) == sorted(page.name for page in DOCS.glob("*.md"))
    assert site["repo_url"] == ["SFIO_REPOSITORY", ""]


def test_versions_are_the_same() -> None:
    project, citation, crate, spack = (
        re.findall(rf"^ *{key}[ =:(]+\"?([0-9.]+)\"?\)?$", (REPOSITORY / file).read_text(), re.MULTILINE)
        for file, key in (
            ("pyproject.toml", "version"),
            ("CITATION.cff", "version"),
            ("node/Cargo.toml", "version"),
            (SPACK, "version"),
        )
    )
    codemeta = json.loads((REPOSITORY / "codemeta.json").read_text())
    assert [codemeta["version"]] == project == citation == crate == spack == [conda_recipe()["context"]["version"]]


def conda_recipe() -> dict[str, Any]:
    recipe: dict[str, Any] = YAML(typ="safe", pure=True).load(REPOSITORY / "recipes" / "conda" / "recipe.yaml")
    return recipe


def needed() -> list[str]:
    """Return the requirements of the package."""
    text = (REPOSITORY / "pyproject.toml").read_text()
    (listed,) = re.findall(r"^dependencies = \[\n(.*?)^\]", text, re.MULTILINE | re.DOTALL)
    (python,) = re.findall(r'^requires-python = "(.*)"', text, re.MULTILINE)
    return [f"python{python}", *re.findall(r'"(.*)"', listed)]


def test_the_recipe_for_conda_needs_what_the_package_needs() -> None:
    assert [each.replace(" ", "") for each in conda_recipe()["requirements"]["run"]] == needed()


def test_the_recipe_for_spack_needs_what_the_package_needs() -> None:
    """Spack names the last version that is allowed; `pyproject.toml` the first that is not."""
    until = {"<0.2.1": "0.2.0", "<3": "2", "": ""}

    def in_spack(requirement: str) -> str:
        match = re.fullmatch(r"([\w.-]+)(?:>=([\w.]+))?,?(<[\w.]+)?", requirement)
        assert match is not None
        name, since, before = match.groups("")
        name = name if name == "python" else f"py-{re.sub('[._]', '-', name)}"
        return f"{name}@{since}:{until[before]}" if since else name

    found = re.findall(r'^    depends_on\("(.*)", type=with_python\)$', (REPOSITORY / SPACK).read_text(), re.MULTILINE)
    assert found == [in_spack(each) for each in needed()]


def test_pictures_have_words() -> None:
    without = [page.name for page in PAGES if re.search(r"!\[\s*\]\(", page.read_text())]
    assert not without


def test_the_data_of_the_tools_are_what_the_matrix_expects() -> None:
    for section, table in zip(
        tools.read(), sections({case: Observation(case.expected.outcome) for case in CASES}), strict=True
    ):
        assert (section.title, section.rules) == (table.title, table.rules)
        assert [*section.results] == [*table.results]
        for name, results in section.results.items():
            assert results in (table.results[name], dict.fromkeys(table.rules, tools.NOT_INSTALLED))


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_blocks_of_data_and_of_python_can_be_read(page: Path) -> None:
    for block in blocks(page.read_text()):
        if block.language == "yaml":
            list(YAML(typ="safe", pure=True).load_all(block.text))
        elif block.language == "json":
            rest = block.text.strip()
            while rest:
                rest = rest[json.JSONDecoder().raw_decode(rest)[1] :].lstrip()
        elif block.language == "python":
            ast.parse(block.text)
        else:
            assert block.language in ("", "sh", "console", "cwl"), block


@pytest.mark.parametrize("page", [REPOSITORY / "README.md", *sorted(DOCS.glob("*.md"))], ids=named)
def test_comments_in_blocks_are_seen_without_scrolling(page: Path) -> None:
    lines = [line for block in blocks(page.read_text()) if block.language for line in block.text.splitlines()]
    wide = [line for line in lines if len(line) > COLUMNS and re.search(r"(^|\s)# ", line)]
    assert wide == [], f"a line with a comment has at most {COLUMNS} columns"


def test_blocks_of_a_shell_can_be_read() -> None:
    """All in one: each is a function that is never called."""
    found = [block for page in PAGES for block in blocks(page.read_text()) if block.language == "sh"]
    script = "\n".join(f"f{number}() {{\n{block.text}\n:\n}}" for number, block in enumerate(found))
    checked = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, check=False, timeout=60)
    assert checked.stderr == ""


def test_the_tutorial_ends_with_the_example_of_the_readme() -> None:
    """The pictures of the tutorial are those of this example."""
    readme, tutorial = (
        [block.text for block in blocks(page.read_text()) if block.language == "yaml"]
        for page in (REPOSITORY / "README.md", DOCS / "tutorial.md")
    )
    workflow, streamflow_file, *changed = tutorial
    for line in changed:
        (plain,) = [plain for plain in workflow.splitlines(keepends=True) if plain == line.replace(STREAMABLE, "")]
        workflow = workflow.replace(plain, line)
    load = YAML(typ="safe", pure=True).load
    assert [load(workflow), streamflow_file] == [load(readme[0]), readme[1]]
