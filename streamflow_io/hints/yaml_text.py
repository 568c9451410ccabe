"""Reads YAML from others in a time that its length bounds, or refuses the text with one message."""

from __future__ import annotations

import re

from ruamel.yaml import YAML
from ruamel.yaml.error import FileMark, MarkedYAMLError, YAMLError
from ruamel.yaml.events import AliasEvent, CollectionEndEvent, CollectionStartEvent, NodeEvent
from schema_salad.utils import yaml_no_ts

# Hand-written files nest and repeat less, and Python's own limits are not far away.
_DEEPEST = 200
# The most nodes that aliases may add: a number in any case, or this many times the number of written nodes.
_FREE_COPIES = 10_000
_COPIES = 10
_BRACKETS = re.compile(r"[\[\]{}]")
_ALIAS = re.compile(r"(?:^|[\s,:\[{-])\*[^\s,\[\]{}*]", re.MULTILINE)
# Each level of block style takes a column.
_INDENTED = re.compile(r"^[ ?:-]{100}", re.MULTILINE)
# Python reads no longer numbers; in quotes they are texts.
_DIGITS = re.compile(r"(?<![^\s,\[{])[-+]?[0-9][0-9_]{4299,}(?![^\s,\]}])")


class TooMuchError(MarkedYAMLError):
    """YAML that is well-formed, and too large or too deep.

    :param problem: what is too large or too deep
    :param line: from 1
    :param file: the path of the file. Empty: not known
    """

    def __init__(self, problem: str, line: int, file: str = "") -> None:
        super().__init__(problem=problem, problem_mark=FileMark(file, 0, line - 1, 0))
        self.line = line
        self._text = f"{file}:{line}: {problem}" if file else problem

    def __str__(self) -> str:
        return self._text


def parse(text: str) -> object:
    """Parse YAML or JSON as cwl_utils does; mappings and lists remember their lines.

    :raises ruamel.yaml.error.YAMLError: if the text is neither, or too much
    """
    check(text)
    return _load(text)


def _load(text: str) -> object:
    try:
        return yaml_no_ts().load(text)
    except RecursionError:
        raise _too_deep(text) from None
    except (ValueError, TypeError, AttributeError, KeyError, AssertionError) as error:
        if (digits := _DIGITS.search(text)) is not None:
            raise TooMuchError(f"a number of {len(digits[0])} digits", _line(text, digits.start())) from None
        # ruamel.yaml has no error of its own for values that it cannot make, for instance of a tag.
        raise YAMLError(f"a value cannot be read: {error}") from None


def check(text: str) -> None:
    """Check that a document can be read, and walked through, in reasonable time and depth. The text may be no YAML.

    Costs almost nothing for a document without deep nesting, aliases and long numbers.

    :raises TooMuchError: if the document is too much
    """
    depth = 0
    for bracket in _BRACKETS.finditer(text):
        depth = depth + 1 if bracket[0] in "[{" else max(depth - 1, 0)
        # Brackets in texts count, too: texts do not have this many open brackets.
        if depth > _DEEPEST:
            raise TooMuchError(f"more than {_DEEPEST} lists and mappings in each other", _line(text, bracket.start()))
    try:
        if _ALIAS.search(text) is not None:
            _check_aliases(text)
        if _INDENTED.search(text) is not None or _DIGITS.search(text) is not None:
            _load(text)
    except RecursionError:
        raise _too_deep(text) from None
    except TooMuchError:
        raise
    except YAMLError:
        pass  # The reader of the document reports the error.


def _check_aliases(text: str) -> None:
    """Count the nodes of a document with every alias replaced by its value, without replacing any."""
    sizes: dict[str, int] = {}
    around: list[tuple[str | None, int]] = []
    written = size = 0
    for event in YAML(typ="rt", pure=True).parse(text):
        if isinstance(event, AliasEvent):
            if any(anchor == event.anchor for anchor, _ in around):
                raise TooMuchError("an alias stands for what it is a part of", event.start_mark.line + 1)
            size += sizes.get(event.anchor, 1)
        elif isinstance(event, NodeEvent):
            written, size = written + 1, size + 1
            if isinstance(event, CollectionStartEvent):
                around.append((event.anchor, size - 1))
        elif isinstance(event, CollectionEndEvent):
            anchor, before = around.pop()
            if anchor is not None:
                sizes[anchor] = size - before
        if size > written + max(_FREE_COPIES, _COPIES * written):
            line = event.start_mark.line + 1
            raise TooMuchError(f"{written} values are written, and aliases make more than {size} of them", line)


def _too_deep(text: str) -> TooMuchError:
    indented = _INDENTED.search(text)
    return TooMuchError(
        "lists and mappings are too deep in each other", _line(text, indented.start() if indented else 0)
    )


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1
