"""Finds the step of an application, and the outputs that a path of a configuration means.

A coordination configuration that was written by hand has names and directories of its own. An application is looked
up by :class:`StepNames`; a path is compared by its end with :func:`fit`, because only the end of it is the tool's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import Enum
from functools import lru_cache
from posixpath import commonprefix

from msgspec import Struct

from streamflow_io.graph.capio_cl.applications import application_name
from streamflow_io.hints.globs import is_pattern, matches, overlap

_WILDCARD = re.compile(r"\[(?:!.|[^!])[^\]]*\]|[*?]", re.DOTALL)
_INSTANCE = re.compile(r"(.+?)[-_.]?\d+(?:\.\d+)*")


class StepNames:
    """The steps of a workflow, to be found by the name of an application.

    The first of these that fits exactly one step: its path, or its application name (`chromosome.individuals`; dots
    and slashes are the same); the end of its path (`individuals` for `/chromosome/individuals`).

    If none fits, the number at the end is taken off, and the rest is looked up likewise. The number tells the instances
    of a group (`individuals-0.3`, `individuals_1`, `individuals1`). So `decompress_1` is the step `/decompress_1` if
    that step exists, and otherwise an instance of `/decompress`.
    """

    def __init__(self, steps: Iterable[str]) -> None:
        self._steps = [(_dotted(application_name(step)), step) for step in steps]

    def step(self, application: str) -> str | None:
        """The path of the step that an application is; None if there is none, or more than one."""
        name = _dotted(application)
        found = [step for known, step in self._steps if known == name]
        found = found or [step for known, step in self._steps if known.endswith(f".{name}")]
        if not found and (instance := _INSTANCE.fullmatch(name)) is not None:
            return self.step(instance[1])
        return found[0] if len(found) == 1 else None


def _dotted(name: str) -> str:
    return name.strip("/").replace("/", ".")


class Relation(Enum):
    """The relation of one path to another."""

    SAME = "the same"
    ENTRY = "an entry of it"
    AROUND = "a directory around it"


class Fit(Struct, frozen=True):
    """How well two paths fit.

    :ivar literal: characters of their common end that are no glob in either
    :ivar components: how many components of their ends can be the same
    :ivar entry: what is in the directory, if one of them is: the rest of the other path
    """

    literal: int
    components: int
    relation: Relation
    entry: str = ""

    @property
    def score(self) -> tuple[int, int, bool]:
        """The greater, the better."""
        return self.literal, self.components, self.relation is Relation.SAME


def fit(
    path: str, other: str, *, path_is_directory: bool | None = False, other_is_directory: bool = False
) -> Fit | None:
    """Compare two paths by their ends, component by component, each as a glob.

    The beginning of a path is not compared: `/scratch/run/chr22.tar`, `out/chr*.tar` and
    `chromosome.individuals-*/chr22.tar` fit each other. Of several paths, the one with the longest common end is meant
    (:attr:`Fit.score`). Paths with nothing but wildcards in common do not fit, unless one has nothing else.

    :param other: the same, below the directory of an application
    :param path_is_directory: `path` may be a directory with `other` in it; None: if it is no glob, and nothing else
        fits
    :param other_is_directory: `other` is a directory, so that `path` may be in it
    :return: None if they have no common end
    """
    ours, theirs = components(path), components(other)
    found = [_common_end(ours, theirs, Relation.SAME)]
    if other_is_directory:
        for length in range(len(ours) - 1, 0, -1):
            found.append(_common_end(ours[:length], theirs, Relation.ENTRY, "/".join(ours[length:])))
    if path_is_directory or (path_is_directory is None and not any(found) and not is_pattern("".join(ours[-1:]))):
        for length in range(len(theirs) - 1, 0, -1):
            found.append(_common_end(ours, theirs[:length], Relation.AROUND, "/".join(theirs[length:])))
    return max((each for each in found if each is not None), key=lambda each: each.score, default=None)


def includes(path: Sequence[str], glob: Sequence[str]) -> bool:
    """Whether the end of a path surely matches all that a glob matches."""
    end = path[-len(glob) :]
    if len(end) > 1 and not all(map(_meet, end, glob[-len(end) :])):
        return False
    pattern, text = "/".join(end), "/".join(glob)
    # The wildcards of the glob are taken as characters: only `*` may stand for them.
    return pattern == text or (not {"?", "["} & set(pattern) and matches(pattern, text))


def tail(path: str, glob: str) -> str:
    """The end of a path that has as many components as a glob."""
    return "/".join(components(path)[-len(components(glob)) :])


@lru_cache(maxsize=4096)
def components(path: str) -> tuple[str, ...]:
    """The parts of a path between the slashes, without empty ones and `.`."""
    return tuple(part for part in path.split("/") if part not in ("", "."))


def _meet(one: str, other: str) -> bool:
    """Whether there can be a name that two components both match."""
    if one == other or "*" in (one, other):
        return True
    start, end = _ends(one)
    other_start, other_end = _ends(other)
    if not (start.startswith(other_start) or other_start.startswith(start)):
        return False  # what most differ in, and faster than the walk over both globs
    return (end.endswith(other_end) or other_end.endswith(end)) and overlap(one, other)


@lru_cache(maxsize=4096)
def _ends(component: str) -> tuple[str, str]:
    """The beginning of a component, up to its first wildcard, and its end, from its last."""
    parts = _WILDCARD.split(component)
    return parts[0], parts[-1]


def _common_end(one: Sequence[str], other: Sequence[str], relation: Relation, entry: str = "") -> Fit | None:
    literal = count = 0
    for a, b in zip(reversed(one), reversed(other), strict=False):
        if not _meet(a, b):
            break
        count += 1
        literal += _in_common(a, b)
    inner = other[1:] or other
    if literal or count >= max(len(inner), 1) or (count and is_pattern(one[-1]) and includes(one, inner)):
        return Fit(literal, count, relation, entry)
    return None


def _in_common(one: str, other: str) -> int:
    """How many characters of two components stand for themselves in both, roughly: for an order, not for a proof."""
    if one == other or not is_pattern(one) or not is_pattern(other):
        return min(len(_WILDCARD.sub("", text)) for text in (one, other))
    (start, end), (other_start, other_end) = _ends(one), _ends(other)
    return len(commonprefix([start, other_start])) + len(commonprefix([end[::-1], other_end[::-1]]))
