"""Files that the pages name are there, and what the pages say is in them is in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]
# Where a page need not say that a file is.
ROOTS = ("", "streamflow_io", "node/src", "tests/unit", "tests/integration")
_FILE = r"(?:[\w.-]+/)*[\w-]+\.(?:py|rs)"
# In running text, and in the drawing of the layout.
_NAMED = re.compile(rf"`({_FILE})`|^  +({_FILE})\b|[ (]({_FILE})(?=[ ),])", re.MULTILINE)
# `module.py` (`function`, `Class.method`).
_WITH_NAMES = re.compile(rf"`({_FILE})`\s+\(((?:`[\w.]+`(?:,\s+)?)+)\)")


def found(name: str, page: Path) -> list[Path]:
    places = [REPOSITORY / root / name for root in ROOTS] + [page.parent / name]
    if "/" not in name:
        places += [path for root in ("streamflow_io", "node/src") for path in (REPOSITORY / root).rglob(name)]
    return [path for path in places if path.is_file()]


def named() -> Iterator[tuple[str, str]]:
    for page in PAGES:
        for groups in _NAMED.findall(page.read_text()):
            yield page.name, next(filter(None, groups))


def directories() -> Iterator[tuple[str, str]]:
    for page in PAGES:
        for name in re.findall(r"`((?:streamflow_io|node|tests|benchmarks|lab)/[\w/]*)`", page.read_text()):
            yield page.name, name


def test_the_layout_has_all_packages() -> None:
    layout = "".join((REPOSITORY / "docs" / "development.md").read_text().split("```")[1:4:2])
    drawn = set(re.findall(r"^ *(\w+)/", layout, re.MULTILINE)) | set(re.findall(r"(\w+)/ ", layout))
    packages = {path.parent.name for path in (REPOSITORY / "streamflow_io").glob("*/__init__.py")}
    assert packages <= drawn


def test_what_a_page_says_is_in_a_module_is_in_it() -> None:
    missing = []
    for page in PAGES:
        for file, names in _WITH_NAMES.findall(page.read_text()):
            [path] = set(found(file, page))
            text = path.read_text()
            for name in re.findall(r"`([\w.]+)`", names):
                if any(
                    not re.search(rf"\b(?:def|class|fn|struct|enum|trait) {part}\b", text) for part in name.split(".")
                ):
                    missing.append(f"{page.name}: {file}: {name}")
    assert not missing
