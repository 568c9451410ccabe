"""The globs of the hints, and of outputs: `*`, `?`, `[...]` and `[!...]`.

These are the globs of :mod:`glob`, by which StreamFlow finds the outputs of a local job. None of the patterns matches a
slash, or a dot at the beginning of a name, and nothing else is special.

`node/src/protocol/pattern.rs` implements the same globs; `tests/globs.json` tests both.
"""

from __future__ import annotations

import re
import sys
from functools import cached_property, lru_cache

from msgspec import Struct

# The first character in the brackets may be a bracket.
_CLASS = re.compile(r"\[(?:(!)(.[^\]]*)|([^!][^\]]*))\]", re.DOTALL)
_RANGE = re.compile(r"(.)-(.)|(.)", re.DOTALL)


class _Chars(Struct, frozen=True):
    """A set of characters: those in the ranges, or all others. `star` stands for any number of them."""

    ranges: tuple[tuple[str, str], ...]
    negated: bool = False
    star: bool = False

    def __contains__(self, char: str) -> bool:
        return any(low <= char <= high for low, high in self.ranges) != self.negated

    def meets(self, other: _Chars) -> bool:
        # The lowest common character begins a range of one set, or follows an excluded range.
        starts = {"\0"}
        for chars in (self, other):
            starts |= {chr(min(ord(high) + 1, sys.maxunicode)) if chars.negated else low for low, high in chars.ranges}
        return any(char in self and char in other for char in starts)


class _Name(Struct, frozen=True, dict=True):
    """A glob for one name, without slashes. A number with a bit for each position stands for a set of positions."""

    items: tuple[_Chars, ...]

    @cached_property
    def positions(self) -> dict[_Chars, int]:
        """The positions of each set of characters."""
        positions: dict[_Chars, int] = {}
        for position, chars in enumerate(self.items):
            positions[chars] = positions.get(chars, 0) | (1 << position)
        return positions

    @cached_property
    def stars(self) -> int:
        """The positions of stars."""
        return self.positions.get(_STAR, 0)

    @cached_property
    def _accepting(self) -> dict[str, int]:
        """The positions that accept a character, for each character asked for so far."""
        return {}

    def meeting(self, chars: _Chars) -> int:
        """Return the positions whose characters have one in common with others."""
        return sum(positions for own, positions in self.positions.items() if own.meets(chars))

    def matches(self, name: str) -> bool:
        """Whether the glob matches a name. Takes as many operations as the name has characters."""
        reached = 1 | (self.stars & 1) << 1
        for char in _HIDDEN[0] + name[1:] if name.startswith(".") else name:
            if (accepting := self._accepting.get(char)) is None:
                accepting = sum(positions for own, positions in self.positions.items() if char in own)
                self._accepting[char] = accepting
            read = reached & accepting
            reached = (read & ~self.stars) << 1 | (read & self.stars)
            reached |= (reached & self.stars) << 1
        return bool(reached & (1 << len(self.items)))


# Stands for the dot at the beginning of a hidden name, which only a dot in a glob matches. No name has this character.
_HIDDEN = ("\0", "\0")
_ANY = _Chars((_HIDDEN,), negated=True)
_STAR = _Chars((_HIDDEN,), negated=True, star=True)


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
    globs, names = pattern.split("/"), path.split("/")
    return len(globs) == len(names) and all(_parse(glob).matches(name) for glob, name in zip(globs, names, strict=True))


def overlap(one: str, other: str) -> bool:
    """Whether there can be a path that both globs match."""
    if ("/" in one) != ("/" in other):
        one, other = (text.rpartition("/")[2] for text in (one, other))
    ones, others = one.split("/"), other.split("/")
    return len(ones) == len(others) and all(_meet(_parse(a), _parse(b)) for a, b in zip(ones, others, strict=True))


def _one(char: str, position: int) -> _Chars:
    return _Chars((_HIDDEN if (position, char) == (0, ".") else (char, char),))


@lru_cache(maxsize=1024)
def _parse(pattern: str) -> _Name:
    items: list[_Chars] = []
    position = 0
    while position < len(pattern):
        char = pattern[position]
        if char == "[" and (found := _CLASS.match(pattern, position)) is not None:
            ranges = tuple((m[1] or m[3], m[2] or m[3]) for m in _RANGE.finditer(found[2] or found[3]))
            items.append(_Chars((*ranges, _HIDDEN), negated=True) if found[1] else _Chars(ranges))
            position = found.end()
            continue
        if char != "*" or items[-1:] != [_STAR]:  # Several stars match the same as one.
            items.append(_STAR if char == "*" else _ANY if char == "?" else _one(char, position))
        position += 1
    return _Name(tuple(items))


def _meet(one: _Name, other: _Name) -> bool:
    """Whether some name matches both globs. Takes as many operations as `one` has items.

    A walk over the product of their automata, for all positions in `other` at once.
    """
    stars = other.stars
    meeting: dict[_Chars, int] = {}
    reached = 1 | (stars & 1) << 1
    for chars in one.items:
        if chars not in meeting:
            meeting[chars] = other.meeting(chars)
        if chars.star:
            reached = _spread(reached, meeting[chars], len(other.items))
        else:
            read = reached & meeting[chars]
            reached = (read & ~stars) << 1 | (read & stars)
            reached |= (reached & stars) << 1
    return bool(reached & (1 << len(other.items)))


def _spread(reached: int, through: int, last: int) -> int:
    """Return all positions that are reached from others through adjacent ones."""
    ahead, distance = through << 1, 1
    while distance <= last:
        reached |= ahead & (reached << distance)
        ahead &= ahead << distance
        distance *= 2
    return reached
