"""The globs of the hints: `*`, `?` and `[...]`, none of which matches a slash. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

_CLASS = re.compile(r"\[(!?)(\]?[^\]]*)\]")
_RANGE = re.compile(r"(.)-(.)|(.)", re.DOTALL)


@dataclass(frozen=True)
class _Chars:
    """A set of characters: those in the ranges, or all others; `star` stands for any number of them."""

    ranges: tuple[tuple[str, str], ...]
    negated: bool = False
    star: bool = False

    def __contains__(self, char: str) -> bool:
        return any(low <= char <= high for low, high in self.ranges) != self.negated

    def meets(self, other: _Chars) -> bool:
        # The lowest common character begins a range of one set, or follows an excluded range.
        starts = {"\0"}
        for chars in (self, other):
            starts |= {chr(ord(high) + 1) if chars.negated else low for low, high in chars.ranges}
        return any(char in self and char in other for char in starts)


_NO_SLASH = (("/", "/"),)
_ANY = _Chars(_NO_SLASH, negated=True)
_STAR = _Chars(_NO_SLASH, negated=True, star=True)


def is_pattern(text: str) -> bool:
    """Whether a text has characters that make it a glob."""
    return any(char in text for char in "*?[")


def matches(pattern: str, path: str) -> bool:
    """Whether a glob matches a path.

    :param pattern: a glob; without a slash it is compared with the last part of the path, else with all of it
    :param path: a path relative to the Directory, or to the job's output directory
    """
    if "/" not in pattern:
        path = path.rpartition("/")[2]
    return _meet(_parse(pattern), tuple(_Chars(((char, char),)) for char in path))


def overlap(one: str, other: str) -> bool:
    """Whether there can be a path that both globs match."""
    if ("/" in one) != ("/" in other):
        one, other = (text.rpartition("/")[2] for text in (one, other))
    return _meet(_parse(one), _parse(other))


@lru_cache(maxsize=1024)
def _parse(pattern: str) -> tuple[_Chars, ...]:
    items: list[_Chars] = []
    position = 0
    while position < len(pattern):
        char = pattern[position]
        if char == "[" and (found := _CLASS.match(pattern, position)) is not None:
            ranges = tuple((m[1] or m[3], m[2] or m[3]) for m in _RANGE.finditer(found[2]))
            items.append(_Chars(ranges + _NO_SLASH, negated=True) if found[1] else _Chars(ranges))
            position = found.end()
            continue
        items.append(_STAR if char == "*" else _ANY if char == "?" else _Chars(((char, char),)))
        position += 1
    return tuple(items)


def _meet(one: tuple[_Chars, ...], other: tuple[_Chars, ...]) -> bool:
    """Whether the languages of two globs have a word in common: a walk over the product of their automata."""
    todo, seen = [(0, 0)], {(0, 0)}
    while todo:
        i, j = todo.pop()
        if i == len(one) and j == len(other):
            return True
        following: list[tuple[int, int]] = []
        if i < len(one) and one[i].star:
            following.append((i + 1, j))
        if j < len(other) and other[j].star:
            following.append((i, j + 1))
        if i < len(one) and j < len(other) and one[i].meets(other[j]):
            following.append((i if one[i].star else i + 1, j if other[j].star else j + 1))
        todo += [state for state in following if state not in seen]
        seen.update(following)
    return False
