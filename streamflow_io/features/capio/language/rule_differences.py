"""Compare the rules of a CAPIO-CL file with those of the workflow, and say how bad each difference is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from streamflow_io.graph.capio_cl.configuration import CoordinatedFile, HomeNode
from streamflow_io.hints.commit import CommitRule

from .matching import fit

Severity = Literal["error", "warning"]
RuleKind = Literal["committed", "mode", "fileDeps", "nFiles", "directory", "homeNode"]
# Severity, kind, what the workflow says, what the file says, consequence.
Difference = tuple[Severity, RuleKind, str, str, str]

_PARTIAL = "a reader could see partial data"
_LATER = "readers wait longer than they must"


def differences(workflow: CoordinatedFile, file: CoordinatedFile) -> Iterator[Difference]:
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


def _kind(workflow: CoordinatedFile, file: CoordinatedFile) -> Iterator[Difference]:
    # Without a streaming item the language does not say which of both a path is.
    if workflow.is_directory != file.is_directory and (file.is_directory or not file.is_default):
        wanted, written = (("file", "directory")[f.is_directory] for f in (workflow, file))
        yield "error", "directory", wanted, written, "its rule does not hold as intended"


def _committed(workflow: CoordinatedFile, file: CoordinatedFile) -> Iterator[Difference]:
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


def _n_files(wanted: int | None, written: int | None) -> Iterator[Difference]:
    if wanted is None or wanted == written:
        return
    said = "no n_files" if written is None else f"n_files {written}"
    severity, consequence = _weighed(written is None or written < wanted, "a reader could miss entries")
    yield severity, "nFiles", f"nFiles {wanted}", said, consequence


def _file_deps(wanted: tuple[str, ...], written: tuple[str, ...]) -> Iterator[Difference]:
    missing = [dep for dep in wanted if not any(fit(other, dep) for other in written)]
    more = [dep for dep in written if not any(fit(dep, other) for other in wanted)]
    if missing or more:
        severity, consequence = _weighed(bool(missing))
        said = f"file_deps {', '.join(written) or 'none'}"
        yield severity, "fileDeps", f"fileDeps {', '.join(wanted)}", said, consequence


def _home_node(home: HomeNode) -> str:
    return f"home node {home.policy}" + (f" {home.application}" if home.application else "")
