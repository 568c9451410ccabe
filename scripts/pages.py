"""Markdown pages: their headings, links and blocks of code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_FENCE = re.compile(r"^(`{3,})(\w*)\n(.*?)^\1`*$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)")
_LINK = re.compile(r"!?\[[^\]]*\]\(([^()\s]+)(?:\s+\"[^\"]*\")?\)")


@dataclass(frozen=True)
class Block:
    """A block of code.

    :ivar line: where it begins in its page, from 1
    """

    language: str
    text: str
    line: int


def blocks(page: str) -> Iterator[Block]:
    """The fenced blocks of a page."""
    for match in _FENCE.finditer(page):
        yield Block(match[2], match[3], page.count("\n", 0, match.start()) + 1)


def links(page: str) -> list[str]:
    """The targets of all links and pictures of a page, but for what is code."""
    return _LINK.findall(_SPAN.sub("`", _FENCE.sub("", page)))


def anchors(page: str) -> set[str]:
    """The names of the headings of a page, as GitHub and MkDocs (with GitHub's slugs) give them."""
    found: set[str] = set()
    for heading in re.findall(r"^#{1,6} +(.+?) *$", _FENCE.sub("", page), re.MULTILINE):
        name, number = slug(heading), 0
        while (name if not number else f"{name}-{number}") in found:
            number += 1
        found.add(name if not number else f"{name}-{number}")
    return found


def slug(heading: str) -> str:
    """The name of a heading."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
    return re.sub(r" ", "-", re.sub(r"[^\w\- ]", "", text.strip().lower()))
