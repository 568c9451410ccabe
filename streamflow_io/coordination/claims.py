"""What one path of a coordination configuration says of one output of a step, in the words of hints. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from streamflow_io.hints.commit import CommitRule
from streamflow_io.hints.globs import is_pattern, matches
from streamflow_io.hints.models import FiringRule

from .configuration import CoordinatedFile
from .graph import Output, OutputKind
from .matching import Fit, Relation, StepNames, components, fit


@dataclass(frozen=True)
class Claim:
    """A rule for an output, or for entries of it.

    :ivar files: globs of the entries; none: the output as a whole
    :ivar path: of the configuration, where it comes from
    :ivar only_permanent: it says only that the file is kept
    """

    output: Output
    files: tuple[str, ...]
    path: str
    committed: CommitRule = CommitRule()  # noqa: RUF009 (frozen)
    mode: FiringRule = "update"
    file_deps: tuple[str, ...] = ()
    n_files: int | None = None
    permanent: bool = False
    home_node: str | None = None
    only_permanent: bool = False

    @property
    def rule(self) -> tuple[object, ...]:
        """What two claims must have in common to be one rule."""
        return self.committed, self.mode, self.file_deps, self.n_files, self.home_node


# The outputs of the step, or globs, that a path of `file_deps` is; a text: why hints cannot say it.
FindDependency = Callable[[str], "tuple[str, ...] | str"]


def covers(path: str, output: Output, globs: tuple[str, ...]) -> tuple[tuple[str, ...], Fit] | None:
    """How a path fits the files of an output.

    :return: globs for the entries of a Directory or File[] that the path means (none: all of the output), and the fit;
        None if it does not fit
    """
    directory = output.kind is OutputKind.DIRECTORY
    fits = {
        glob: found for glob in globs if (found := fit(path, glob, is_directory=directory, around=True)) is not None
    }
    if not fits:
        return None
    nearest = max(fits, key=lambda glob: fits[glob].score)
    best = fits[nearest]
    if best.relation is Relation.ENTRY:
        return (best.entry,), best
    several = output.kind is OutputKind.FILES and best.relation is Relation.SAME
    if several and not all(_includes(_tail(path, glob), glob) for glob in globs):
        return (_tail(path, nearest),), best
    return (), best


def _tail(path: str, glob: str) -> str:
    """The end of a path that is as long as a glob."""
    return "/".join(components(path)[-len(components(glob)) :])


def _includes(pattern: str, other: str) -> bool:
    """Whether a glob surely matches all that another one matches."""
    # The other's wildcards are taken as characters: only `*` may stand for them.
    return pattern == other or (not {"?", "["} & set(pattern) and matches(pattern, other))


def claim(
    file: CoordinatedFile,
    output: Output,
    files: tuple[str, ...],
    find: FindDependency,
    names: StepNames,
    is_result: bool,
) -> Claim | str:
    """What a file of the configuration says of an output, or why hints cannot say that.

    :param files: globs of the entries of the output that the file is; none: all of it
    :param is_result: the output is a workflow output, which is kept without a hint
    """
    if output.kind is OutputKind.OTHER:
        return f"{output.name} is no File, File[] or Directory, so that no rule can hold for it"
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
    home = file.home_node.application if file.home_node is not None else None
    return Claim(
        output,
        files,
        file.path,
        file.committed,
        file.mode,
        tuple(file_deps),
        n_files,
        file.permanent and not is_result,
        names.step(home) if home is not None else None,
    )


def dependency_glob(name: str, ports: Collection[str]) -> str:
    """A file name as an entry of `fileDeps` that cannot be taken for the name of an output."""
    if is_pattern(name) or ({".", "/"} & set(name) and name not in ports):
        return name
    index = next((index for index, char in enumerate(name) if char.isalnum()), None)
    return f"{name}*" if index is None else f"{name[:index]}[{name[index]}]{name[index + 1 :]}"
