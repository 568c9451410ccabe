"""Finds where a coordination configuration that was written by hand contradicts a workflow.

Both are compared step by step. The instances of a scatter, and the applications of the file that
:class:`~.matching.StepNames` finds to be one step, are that step.

A path of the file means a path of the workflow if the same step writes both, and their ends fit
(:func:`~.matching.fit`). Where the file names no writer, the same step has to read both. So `chr*.txt`,
`/scratch/chr22.txt` and `chromosome.individuals-*/chr22.txt` can be the same.

Edges are looked for in all paths that fit. Rules are compared with those of the longest common end only, as the most
specific glob wins in CAPIO-CL.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from streamflow_io.graph.capio_cl.configuration import Configuration, CoordinatedFile, HomeNode
from streamflow_io.hints.commit import CommitRule
from streamflow_io.hints.globs import is_pattern
from streamflow_io.wording import first_of

from .matching import Fit, PathIndex, Relation, StepNames, components, fit

Severity = Literal["error", "warning"]
RuleKind = Literal["committed", "mode", "fileDeps", "nFiles", "directory", "homeNode"]
# Severity, kind, what the workflow says, what the file says, consequence.
RuleDifference = tuple[Severity, RuleKind, str, str, str]

_PARTIAL = "a reader could see partial data"
_LATER = "readers wait longer than they must"

Kind = Literal[
    "missing edge", "unknown edge", "unknown application", "missing file",
    "committed", "mode", "fileDeps", "nFiles", "permanent", "excluded", "directory", "homeNode",
]  # fmt: skip
Edge = tuple[str, str]
_MOST_NAMES = 3


class Difference(Struct, frozen=True):
    """One contradiction, for all files that have it.

    :ivar severity: `error`: a reader could see wrong or partial data, a result could be lost, or an edge is missing;
        `warning`: slower than it could be, or without effect
    :ivar kind: what differs
    :ivar subject: the edge as `/a -> /b`, the step that writes the files, or the application
    :ivar paths: the files, as seen from the job's output directory; where the workflow has none, as the file names them
    :ivar workflow: what the workflow and its hints say
    :ivar file: what the file says
    :ivar consequence: what comes of it, for people
    """

    severity: Severity
    kind: Kind
    subject: str
    paths: tuple[str, ...]
    workflow: str
    file: str
    consequence: str


class _StepFile(Struct, frozen=True):
    """A file with the steps that its applications are; what is no step is left out."""

    file: CoordinatedFile
    producers: frozenset[str]
    consumers: frozenset[str]

    @property
    def writer(self) -> str:
        return ", ".join(sorted(self.producers)) or "workflow input"

    @property
    def paths(self) -> tuple[str]:
        """The path without the directory of the application, so that all instances say the same."""
        return (_inner(self.file.path),)

    @property
    def edges(self) -> list[Edge]:
        return [(one, other) for one in sorted(self.producers) for other in sorted(self.consumers) if one != other]


def compare(workflow: Configuration, file: Configuration, steps: Iterable[str]) -> tuple[Difference, ...]:
    """Compare the configuration in a file with that of the workflow.

    :param workflow: the configuration that follows from the workflow and its hints
    :param file: the configuration that was written by hand
    :param steps: the paths of all steps of the workflow
    :return: each contradiction once, errors first; none if running with the file gives what the hints ask for
    """
    names = StepNames(steps)
    ours = _files(workflow, names)
    theirs = _files(file, names)
    pairs = _pairs(ours, theirs)
    index = PathIndex((other.file.path, other) for other in theirs)
    findings = [
        *_unknown_applications(file, names),
        *(finding for other in pairs.theirs for finding in _unknown_edges(other, pairs)),
    ]
    for one in ours:
        findings += [
            *_missing_edges(one, index, pairs.ours[one]),
            *_kept(one, pairs),
            *_excluded(one, pairs.ours[one]),
        ]
        for other in _meant(one, pairs):
            for severity, kind, wanted, written, consequence in differences(one.file, other.file):
                said = f"{other.file.path}: {written}"
                findings.append(Difference(severity, kind, one.writer, one.paths, wanted, said, consequence))
    return _together(findings)


def _together(findings: Iterable[Difference]) -> tuple[Difference, ...]:
    """One finding for those that differ in nothing but their paths."""
    found: dict[Difference, dict[str, None]] = {}
    for finding in findings:
        found.setdefault(replace(finding, paths=()), {}).update(dict.fromkeys(finding.paths))
    together = (replace(finding, paths=tuple(sorted(paths))) for finding, paths in found.items())
    return tuple(sorted(together, key=lambda each: (each.severity, each.kind, each.subject, each.paths, each.file)))


def _files(configuration: Configuration, names: StepNames) -> list[_StepFile]:
    """The files of a configuration; those of the instances of one step that differ in nothing else are one."""

    def steps(applications: Sequence[str]) -> frozenset[str]:
        return frozenset(step for name in applications if (step := names.step(name)) is not None)

    files = (_StepFile(file, steps(file.producers), steps(file.consumers)) for file in configuration.files)
    return list({_without_instances(file): file for file in files}.values())


def _without_instances(file: _StepFile) -> _StepFile:
    deps = tuple(_inner(dep) for dep in file.file.file_deps)
    path = _inner(file.file.path)
    return replace(file, file=replace(file.file, path=path, producers=(), consumers=(), file_deps=deps))


def _related(ours: _StepFile, theirs: _StepFile) -> Fit | None:
    """How the paths of two files fit, if both can be the same file."""
    if theirs.file.producers:
        same_step = bool(ours.producers & theirs.producers)
    else:
        same_step = not theirs.file.consumers or bool(ours.consumers & theirs.consumers)
    if not same_step:
        return None
    return fit(
        theirs.file.path,
        ours.file.path,
        path_is_directory=theirs.file.is_directory or None,
        other_is_directory=ours.file.is_directory,
    )


class _Pairs(Struct, frozen=True):
    """The files of the workflow and of the file that can be the same, seen from both."""

    ours: Mapping[_StepFile, Mapping[_StepFile, Fit]]
    theirs: Mapping[_StepFile, Mapping[_StepFile, Fit]]


def _pairs(ours: Sequence[_StepFile], theirs: Sequence[_StepFile]) -> _Pairs:
    same = {one.file.path for one in ours} & {other.file.path for other in theirs}
    by_path = {other.file.path: other for other in theirs}
    index = PathIndex((other.file.path, other) for other in theirs)
    without_same = PathIndex((other.file.path, other) for other in theirs if other.file.path not in same)
    by_ours: dict[_StepFile, dict[_StepFile, Fit]] = {}
    by_theirs: dict[_StepFile, dict[_StepFile, Fit]] = {other: {} for other in theirs}
    for one in ours:
        by_ours[one] = {}
        path = one.file.path
        # A path that both have is no other file of theirs that is also ours.
        near = [by_path[path], *without_same.near(path)] if path in same else index.near(path)
        for other in near:
            if (found := _related(one, other)) is not None:
                by_ours[one][other] = by_theirs[other][one] = found
    return _Pairs(by_ours, by_theirs)


def _meant(one: _StepFile, pairs: _Pairs) -> Iterator[_StepFile]:
    """The files whose rules hold for one of ours: of all that its steps write, those of the longest common end.

    The rule of a directory is not that of the files in it. If ours is a glob, each of theirs can be a part of it that
    fits no other of ours better.
    """
    candidates = {
        other: found.score
        for other, found in pairs.ours[one].items()
        if other.producers and found.relation is Relation.SAME and not other.file.excluded
    }
    best = max(candidates.values(), default=None)
    for other, score in candidates.items():
        part = is_pattern(_inner(one.file.path)) and all(found.score <= score for found in pairs.theirs[other].values())
        if part or score == best:
            yield other


def _unknown_applications(file: Configuration, names: StepNames) -> Iterator[Difference]:
    for application in file.mentioned:
        if names.step(application) is None:
            yield Difference(
                "warning", "unknown application", application, (), "no step, or more than one, has this name",
                f"application {application}", "its rules apply to no step",
            )  # fmt: skip


def _missing_edges(
    one: _StepFile, theirs: PathIndex[_StepFile], related: Mapping[_StepFile, Fit]
) -> Iterator[Difference]:
    # The writers of a file and its readers can be named with different globs.
    writers = frozenset().union(*(other.producers for other in related))
    readers = frozenset().union(*(other.consumers for other in related))
    for producer, consumer in one.edges:
        if producer in writers and consumer in readers:
            continue
        said = [
            _ends(other.file)
            for other in theirs.near(one.file.path)
            if (producer in other.producers or consumer in other.consumers)
            and fit(other.file.path, one.file.path, path_is_directory=None) is not None
        ]
        yield Difference(
            "error", "missing edge", f"{producer} -> {consumer}", one.paths, "an edge",
            "; ".join(said[:3]) or "nothing about it", "nothing keeps the reader from reading too early",
        )  # fmt: skip


def _unknown_edges(other: _StepFile, pairs: _Pairs) -> Iterator[Difference]:
    writers = frozenset().union(*(one.producers for one in pairs.theirs[other]))
    readers = frozenset().union(*(one.consumers for one in pairs.theirs[other]))
    for producer, consumer in other.edges:
        if producer not in writers or consumer not in readers:
            yield Difference(
                "warning", "unknown edge", f"{producer} -> {consumer}", (other.file.path,), "no such edge",
                _ends(other.file), "without effect",
            )  # fmt: skip


def _kept(one: _StepFile, pairs: _Pairs) -> Iterator[Difference]:
    others = pairs.ours[one]
    permanent = [other for other in others if other.file.permanent]
    if one.file.permanent and not others:
        # With consumers it is a missing edge already.
        if not one.consumers:
            yield Difference(
                "warning", "missing file", one.writer, one.paths, "permanent: a workflow output", "nothing about it",
                "it is kept only if the runtime keeps files that the configuration does not name",
            )  # fmt: skip
    elif one.file.permanent and not permanent:
        yield Difference(
            "error", "permanent", one.writer, one.paths, "permanent", f"{_paths(others)}: not permanent",
            "a result could be lost at the end of the run",
        )  # fmt: skip
    elif not one.file.permanent:
        needless = [other for other in permanent if not any(our.file.permanent for our in pairs.theirs[other])]
        if needless:
            yield Difference(
                "warning", "permanent", one.writer, one.paths, "not permanent", f"{_paths(needless)}: permanent",
                "it is kept without need",
            )  # fmt: skip


def _excluded(one: _StepFile, related: Mapping[_StepFile, Fit]) -> Iterator[Difference]:
    excluded = [other for other in related if other.file.excluded]
    if one.consumers and excluded:
        whole = not is_pattern(_inner(one.file.path)) or any(is_pattern(other.file.path) for other in excluded)
        yield Difference(
            "error" if whole else "warning", "excluded", one.writer, one.paths, "coordinated",
            f"{_paths(excluded)}: excluded",
            "nothing is coordinated: a reader could see partial data" if whole else "perhaps a file that others read",
        )  # fmt: skip


def _paths(files: Iterable[_StepFile]) -> str:
    return ", ".join(file.file.path for file in files)


def _ends(file: CoordinatedFile) -> str:
    return f"{file.path}: written by {_names(file.producers)}, read by {_names(file.consumers)}"


def _names(applications: Sequence[str]) -> str:
    return first_of(applications, _MOST_NAMES) or "nobody"


def _inner(path: str) -> str:
    """A path of ours without the directory of the application, so that all instances say the same."""
    return "/".join(components(path)[1:]) or path


def differences(workflow: CoordinatedFile, file: CoordinatedFile) -> Iterator[RuleDifference]:
    """Compare the rules for one file.

    Later than the hints say is a warning; earlier, or by another rule so that it could be earlier, an error.
    """
    yield from _kind(workflow, file)
    yield from _committed(workflow, file)
    if workflow.mode != file.mode and workflow.consumers:
        severity, consequence = _weighed(is_early=file.mode == "no_update")
        yield severity, "mode", f"mode {workflow.mode}", f"mode {file.mode}", consequence
    if workflow.home_node is not None and file.home_node is not None and workflow.home_node != file.home_node:
        yield (
            "warning", "homeNode", _home_node(workflow.home_node), _home_node(file.home_node),
            "the data lies elsewhere than the hints ask for",
        )  # fmt: skip


def _kind(workflow: CoordinatedFile, file: CoordinatedFile) -> Iterator[RuleDifference]:
    # Without a streaming item the language does not say which of both a path is.
    if workflow.is_directory != file.is_directory and (file.is_directory or not file.is_default):
        wanted, written = (("file", "directory")[f.is_directory] for f in (workflow, file))
        yield "error", "directory", wanted, written, "its rule does not hold as intended"


def _committed(workflow: CoordinatedFile, file: CoordinatedFile) -> Iterator[RuleDifference]:
    if not workflow.consumers:
        return
    wanted, written = workflow.committed, file.committed
    if wanted != written:
        severity, consequence = _weighed(_is_earlier(written, wanted))
        yield severity, "committed", f"committed {wanted}", f"committed {written}", consequence
    elif wanted.kind == "on_n_files":
        yield from _n_files(workflow.n_files, file.n_files)
    elif wanted.kind == "on_file":
        yield from _file_deps(workflow.file_deps, file.file_deps)


def _weighed(is_early: bool, if_early: str = _PARTIAL) -> tuple[Severity, str]:
    """How bad it is that readers get something earlier than the workflow says, or later, and what comes of it."""
    return ("error", if_early) if is_early else ("warning", _LATER)


def _is_earlier(written: CommitRule, wanted: CommitRule) -> bool:
    """Whether a rule holds earlier than another one, or could."""
    if wanted.kind == written.kind == "on_close":
        return written.closes < wanted.closes
    return written.kind != "on_termination"


def _n_files(wanted: int | None, written: int | None) -> Iterator[RuleDifference]:
    if wanted is None or wanted == written:
        return
    said = "no n_files" if written is None else f"n_files {written}"
    severity, consequence = _weighed(written is None or written < wanted, "a reader could miss entries")
    yield severity, "nFiles", f"nFiles {wanted}", said, consequence


def _file_deps(wanted: tuple[str, ...], written: tuple[str, ...]) -> Iterator[RuleDifference]:
    missing = [dep for dep in wanted if not any(fit(other, dep) for other in written)]
    more = [dep for dep in written if not any(fit(dep, other) for other in wanted)]
    if missing or more:
        severity, consequence = _weighed(bool(missing))
        said = f"file_deps {', '.join(written) or 'none'}"
        yield severity, "fileDeps", f"fileDeps {', '.join(wanted)}", said, consequence


def _home_node(home: HomeNode) -> str:
    return f"home node {home.policy}" + (f" {home.application}" if home.application else "")
