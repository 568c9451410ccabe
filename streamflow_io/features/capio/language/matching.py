"""Finds what a path of a configuration means, the step of an application and outputs, and says it in words of hints.

A coordination configuration that was written by hand has names and directories of its own. An application is looked
up by :class:`StepNames`; a path is compared by its end with :func:`fit`, because only the end of it is the tool's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from enum import Enum
from functools import lru_cache
from posixpath import commonprefix
from typing import Literal

from msgspec import Struct

from streamflow_io.graph.capio_cl.configuration import CoordinatedFile, application_name
from streamflow_io.graph.io_graph import Output, OutputKind
from streamflow_io.hints.commit import ON_TERMINATION, CommitRule
from streamflow_io.hints.globs import is_pattern, matches, overlap
from streamflow_io.hints.models import FiringRule

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


# What a claim is about: the output as a whole, some entries of it, the directory that the files of a File[] are in; or
# it says only that the file is kept.
Part = Literal["whole", "entries", "around", "kept"]


class Claim(Struct, frozen=True):
    """A rule for an output, or for a part of it.

    :ivar path: of the configuration, where it comes from
    :ivar files: of `entries`: their globs
    """

    output: Output
    path: str
    part: Part
    files: tuple[str, ...] = ()
    committed: CommitRule = ON_TERMINATION
    mode: FiringRule = "update"
    file_deps: tuple[str, ...] = ()
    n_files: int | None = None
    permanent: bool = False
    home_node: str | None = None

    @property
    def rule(self) -> tuple[object, ...]:
        """The rule that two claims on the same files must have in common."""
        return self.committed, self.mode, frozenset(self.file_deps), self.n_files, self.home_node

    @property
    def is_default(self) -> bool:
        """Whether it says no more than what holds without a hint."""
        return (self.committed, self.mode, self.permanent, self.home_node) == (ON_TERMINATION, "update", False, None)


# The outputs of the step, or globs, that a path of `file_deps` is; a text: why hints cannot say it.
FindDependency = Callable[[str], "tuple[str, ...] | str"]


class Covered(Struct, frozen=True):
    """The part of an output that a path means.

    :ivar files: globs for entries of a Directory or File[]. Empty: the path means all of the output
    """

    files: tuple[str, ...]
    fit: Fit


def covers(
    path: str, output: Output, globs: Collection[tuple[str, ...]], *, is_directory: bool | None = None
) -> Covered | None:
    """How a path fits the files of an output. None: the path does not fit.

    :param globs: those of the output, in each of the jobs that can be meant
    :param is_directory: whether the path is a directory. None: the path may be either
    """
    holds_entries = output.kind is OutputKind.DIRECTORY
    fits: dict[str, Fit] = {}
    for glob in dict.fromkeys(glob for of_job in globs for glob in of_job):
        for directory in _directories(output.step):
            found = fit(path, f"{directory}/{glob}", path_is_directory=is_directory, other_is_directory=holds_entries)
            if found is not None and (glob not in fits or found.score > fits[glob].score):
                fits[glob] = found
    if not fits:
        return None
    nearest = max(fits, key=lambda glob: fits[glob].score)
    best = fits[nearest]
    if best.relation is Relation.ENTRY:
        return Covered((best.entry,), best)
    several = output.kind is OutputKind.FILES and best.relation is Relation.SAME
    if several and not any(all(includes(components(path), components(glob)) for glob in of_job) for of_job in globs):
        return Covered((tail(path, nearest),), best)
    return Covered((), best)


def claim(
    file: CoordinatedFile, output: Output, covered: Covered, find: FindDependency, names: StepNames
) -> Claim | str:
    """The claim of a file of the configuration about an output, or why hints cannot make it."""
    if output.kind is OutputKind.OTHER:
        return f"{output.name} is no File, File[] or Directory, so that no rule can hold for it"
    if not all(glob.strip() for glob in covered.files):
        return "a name of nothing but white space"
    n_files = None
    if file.committed.kind == "on_n_files":
        n_files = file.n_files
        if output.kind is OutputKind.FILE:
            return f"on_n_files: {output.name} is a single file"
        if n_files is None or n_files < 1:
            return "on_n_files without n_files from 1"
    file_deps: dict[str, None] = {}
    if file.committed.kind == "on_file":
        for path in file.file_deps:
            found = find(path)
            if isinstance(found, str):
                return found
            file_deps.update(dict.fromkeys(found))
        if not file_deps:
            return "on_file without file_deps"
    around = covered.fit.relation is Relation.AROUND
    return Claim(
        output,
        file.path,
        "around" if around else "entries" if covered.files else "whole",
        covered.files,
        file.committed,
        file.mode,
        tuple(file_deps),
        n_files,
        file.permanent,
        None if file.home_node is None else names.step(file.home_node),
    )


def dependency_glob(name: str, ports: Collection[str]) -> str:
    """A file name as an entry of `fileDeps` that cannot be taken for the name of an output."""
    if is_pattern(name) or ({".", "/"} & set(name) and name not in ports):
        return name
    index = next((index for index, char in enumerate(name) if char.isalnum()), None)
    return f"{name}*" if index is None else f"{name[:index]}[{name[index]}]{name[index + 1 :]}"


def in_job(path: str, step: str) -> str:
    """A path as seen from the job's output directory; of a path that does not begin with it, the last component."""
    parts = components(path)
    if len(parts) > 1 and not path.startswith("/") and any(overlap(parts[0], each) for each in _directories(step)):
        return "/".join(parts[1:])
    return parts[-1] if parts else ""


def _directories(step: str) -> tuple[str, str]:
    """The directories of the jobs of a step: of one job, and of the instances of a scatter."""
    name = application_name(step)
    return name, f"{name}-*"
