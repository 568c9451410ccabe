"""`tests/README.md`, and a page of each feature, list promises: their tests exist, and `make test` runs them."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "tests" / "README.md", *sorted((ROOT / "tests" / "features").glob("*/README.md"))]
TEXTS = [page.read_text(encoding="utf-8") for page in PAGES]
HEAD = "| guarantee | test |"
_ROW = re.compile(r"^\| (.+) \| `(test_\w+\.py)::(\w+)` \|$", re.MULTILINE)
ROWS = [tuple(row) for text in TEXTS for row in _ROW.findall(text)]
LONG = "pytest.mark.long"


@cache
def _texts() -> dict[str, str]:
    """The files that the pages name, wherever they are: features have their tests beside them."""
    named = {file for _, file, _ in ROWS}
    places = [place for place in ROOT.iterdir() if place.is_dir() and not place.name.startswith((".", "node", "build"))]
    found = (path for place in places for path in place.rglob("test_*.py") if path.name in named)
    return {path.name: path.read_text(encoding="utf-8") for path in found}


def test_each_guarantee_has_its_test() -> None:
    for guarantee, file, test in ROWS:
        check_test(guarantee, file, test)


def check_test(guarantee: str, file: str, test: str) -> None:
    """Check that a test exists, and that `make test` runs this test."""
    text = _texts().get(file)
    assert text is not None, f"no file of tests is called {file}"
    assert not re.search(rf"^pytestmark = .*{LONG}", text, re.MULTILINE), f"make test runs no test of {file}"
    found = re.search(rf"((?:^.+\n)*)^(?:(?:async )?def {test}\(|{test} = )", text, re.MULTILINE)
    assert found is not None, f"{file} has no {test}: {guarantee}"
    assert not {f"@{LONG}", "@LONG"} & set(found[1].splitlines()), f"make test does not run {file}::{test}: {guarantee}"


def test_every_row_is_read() -> None:
    tables = "".join(text[text.index(HEAD) :] for text in TEXTS)
    rows = [line for line in tables.splitlines() if line.startswith("| ") and line != HEAD]
    assert len(rows) == len(ROWS)
    assert len({guarantee for guarantee, _, _ in ROWS}) == len(ROWS)
