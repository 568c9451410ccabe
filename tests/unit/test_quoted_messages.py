"""The messages that the pages quote are those that the program prints.

A table of a page whose first column is `message` or `reason` quotes messages: what stands in backticks in that column.
So do the explanations of message codes.
`...`, `…`, words in capitals and words in quotes stand for what differs from time to time.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest

from streamflow_io.messages.explanations import EXPLANATIONS
from tests.unit.test_messages import trees

REPOSITORY = Path(__file__).parents[2]
# Theirs: StreamFlow, cwl_utils, jsonschema.
OF_OTHERS = {"'config' is a required property", "NodeJSEngine requires Node.js engine"}
# What is put into a message: anything, in the code and on the page.
HOLE = "\0"
# Messages are put together from a few texts; of each there are two words, or all that it has.
MOST_TEXTS, LEAST_WORDS = 4, 2
_SPAN = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)")

Words = tuple[str, ...]


def quoted() -> Iterator[tuple[str, str]]:
    """Page and message."""
    for page in [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]:
        quotes = False
        for line in page.read_text().splitlines():
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            if not cells:
                quotes = False
            elif cells[0] in ("message", "reason"):
                quotes = True
            elif quotes:
                for _, text in _SPAN.findall(cells[0]):
                    yield page.name, text.strip()


QUOTED = [
    *quoted(),
    *((code.value, case.message) for code, explanation in EXPLANATIONS.items() for case in explanation.cases),
]


def words_of(text: str) -> Words:
    return tuple(re.findall(rf"{HOLE}|\w+(?:[-.]\w+)*", text))


def words_quoted(message: str) -> Words:
    return words_of(re.sub(r"\.\.\.|…|\b[A-Z]+\b(?!-)|['`]\w['`]|'\w+'|(?<![\w.-])\d\S*", HOLE, message))


@cache
def texts() -> frozenset[Words]:
    """The texts in the code, with a hole for each value that is put in."""
    found = set()
    for _, tree in trees():
        nodes = [*ast.walk(tree)]
        docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        literals = (node for node in nodes if isinstance(node, ast.Constant | ast.JoinedStr | ast.FormattedValue))
        found |= {words_of(_text(node)) for node in literals if id(node) not in docstrings}
    for file in (REPOSITORY / "node" / "src").rglob("*.rs"):
        for text in re.findall(r'"((?:[^"\\]|\\.)*)"', file.read_text(), re.DOTALL):
            found.add(words_of(re.sub(r"\{[^{}]*\}", HOLE, re.sub(r"\\\n\s*", "", text))))
    return frozenset(found)


def _text(node: ast.AST) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return re.sub(r"\{\w*\}", HOLE, node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(map(_text, node.values))
    return HOLE if isinstance(node, ast.FormattedValue) else ""


@cache
def texts_by_word() -> dict[str, list[Words]]:
    by_word = defaultdict(list)
    for text in texts():
        for word in set(text) - {HOLE}:
            by_word[word].append(text)
    return by_word


def ends(message: Words, begin: int, text: Words) -> set[int]:
    """Up to where a message, from one of its words on, can come from one text."""
    found, literals = set(), sum(word != HOLE for word in text)
    # Where in the message, where in the text, how many words are the same.
    ways = [(begin, index, 0) for index, word in enumerate(text) if word in (HOLE, message[begin])]
    seen = set(ways)
    while ways:
        at, index, same = ways.pop()
        if same >= max(1, min(LEAST_WORDS, literals)):
            found.add(at)
        if at == len(message) or index == len(text):
            continue
        following = []
        if message[at] == text[index]:
            following.append((at + 1, index + 1, same + (message[at] != HOLE)))
        if HOLE in (message[at], text[index]):
            following += [(at + 1, index + 1, same), (at, index + 1, same)]
        if message[at] == HOLE:
            following.append((at + 1, index, same))
        ways += [way for way in following if way not in seen]
        seen.update(following)
    return found


def is_printed(message: Words, among: Sequence[Words] | None = None) -> bool:
    """Whether a few texts of the code make a message, in which each word is a word of one of them."""
    all_words = {*message} - {HOLE}

    @cache
    def is_made(begin: int, texts: int) -> bool:
        """Whether at most this number of texts makes the message from one of its words on."""
        while begin < len(message) and message[begin] == HOLE:
            begin += 1
        if begin == len(message):
            return True
        words = message[begin : begin + 2]
        candidates = {text for word in words for text in texts_by_word().get(word, ())} if among is None else among
        # Most messages are one text, and that text has most of their words.
        for text in sorted(candidates, key=lambda text: -len(all_words.intersection(text))):
            reached = sorted(ends(message, begin, text), reverse=True)
            if any(end == len(message) or (texts > 1 and is_made(end, texts - 1)) for end in reached):
                return True
        return False

    return is_made(0, MOST_TEXTS)


def test_messages_are_found_in_the_pages() -> None:
    assert len(QUOTED) > 100
    assert {message for _, message in QUOTED} >= OF_OTHERS


@pytest.mark.parametrize(
    ("message", "texts", "printed"),
    [
        ("unknown storage 'tape'", [f"unknown storage {HOLE}"], True),
        ("no storage 'tape'", [f"unknown storage {HOLE}"], False),
        ("... is above the write bandwidth of storage", [f"{HOLE} is above the {HOLE} bandwidth of storage"], True),
        ("FILE was removed", [f"{HOLE}: {HOLE}"], False),
        ("S runs on D, T on E", [f"{HOLE} runs on {HOLE}, {HOLE} on {HOLE}"], True),
        ("S runs at D, T on E", [f"{HOLE} runs on {HOLE}, {HOLE} on {HOLE}"], False),
        ("the input is late: it waits", [f"the input is late: {HOLE}", "it waits"], True),
        ("the input is late: it sleeps", [f"the input is late: {HOLE}", "it waits"], False),
    ],
)
def test_a_message_is_compared_with_texts(message: str, texts: list[str], printed: bool) -> None:
    assert is_printed(words_quoted(message), [words_of(text) for text in texts]) is printed
