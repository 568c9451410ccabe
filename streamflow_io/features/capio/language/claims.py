"""Say in the words of hints what one path of a configuration says of one output of a step."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Literal

from msgspec import Struct

from streamflow_io.graph.capio_cl.applications import application_name
from streamflow_io.graph.capio_cl.configuration import CoordinatedFile
from streamflow_io.graph.io_graph import Output, OutputKind
from streamflow_io.hints.commit import ON_TERMINATION, CommitRule
from streamflow_io.hints.globs import is_pattern, overlap
from streamflow_io.hints.models import FiringRule

from .matching import Fit, Relation, StepNames, components, fit, includes, tail

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
