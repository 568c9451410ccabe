"""What a streaming step does with each of its outputs, as data that is kept with the step."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Literal

from pydantic import BaseModel, ConfigDict

from streamflow_io.graph.io_graph import Delivery, OutputKind
from streamflow_io.hints.globs import matches
from streamflow_io.hints.models import StreamingRule
from streamflow_io.runtime.protocol import OutputRule, WatchedOutput

_NODE_KINDS: dict[OutputKind, Literal["file", "files", "directory"]] = {
    OutputKind.FILE: "file",
    OutputKind.FILES: "files",
    OutputKind.DIRECTORY: "directory",
}


def early_port(delivery: Delivery, port: str) -> str:
    """The name of the port on which an output is delivered before its job ends."""
    return f"__{delivery.value}__{port}"


def element_port(delivery: Delivery, port: str) -> str:
    """The name of the port on which the elements of a list are delivered one by one."""
    return f"__{delivery.value}_element__{port}"


def order_port(port: str) -> str:
    """The name of the port that says in which order the elements of a list are that were delivered one by one."""
    return f"__order__{port}"


def is_early_port(port: str) -> bool:
    """Whether a port of a step is one of those that we add."""
    return port.startswith((*(f"__{delivery.value}_" for delivery in Delivery), order_port("")))


class EarlyOutput(BaseModel):
    """An output that is delivered before its job ends.

    :ivar deliveries: how it is delivered, to some consumers in one way, to some in another
    :ivar elements: how the elements of a list are delivered one by one, if they are
    :ivar secondary: the patterns of the secondary files of each of its files, which are complete before it is
    :ivar of: the input that the program of the step may say its parts of, which are the elements of the list then
    :ivar fixed_name: more depends on its name than those that read it before its job has ended
    :ivar fixed: more depends on whether there is one
    :ivar record: the output that it is a field of
    :ivar when_proven: it streams only when it is proven, while the run goes on, that its readers can read it so
    """

    model_config = ConfigDict(frozen=True, defer_build=True)

    port: str
    kind: OutputKind
    rules: tuple[StreamingRule, ...]
    deliveries: tuple[Delivery, ...] = ()
    elements: tuple[Delivery, ...] = ()
    secondary: tuple[str, ...] = ()
    of: str | None = None
    fixed_name: bool = False
    fixed: bool = False
    record: str | None = None
    when_proven: bool = False

    @property
    def ports(self) -> tuple[str, ...]:
        """The ports on which it is delivered early."""
        elements = [element_port(delivery, self.port) for delivery in self.elements]
        order = [order_port(self.port)] if elements else []
        return (*(early_port(delivery, self.port) for delivery in self.deliveries), *elements, *order)

    @property
    def rule(self) -> StreamingRule:
        """The rule for the output as a whole."""
        return min(self.rules, key=lambda rule: bool(rule.files))

    def rule_for(self, path: str) -> StreamingRule | None:
        """The rule for one file.

        :param path: relative to the output directory of the job
        """
        named = [rule for rule in self.rules if any(matches(glob, path) for glob in rule.files)]
        return next(iter(named), None) or next((rule for rule in self.rules if not rule.files), None)

    @property
    def may_have_more(self) -> bool:
        """Whether elements may come when a rule says that the list is complete: its number is known at the end only."""
        return bool(self.elements) and self.rule.committed.kind == "on_n_files"

    def secondary_files(self, path: str) -> tuple[str, ...]:
        """Where the secondary files of a file are, or of what a glob matches; as StreamFlow looks for them."""
        return tuple(_beside(path, pattern) for pattern in self.secondary)

    def watched(self, root: str, globs: tuple[str, ...]) -> WatchedOutput:
        """What the node runtime has to watch.

        :param root: the output directory of the job
        :param globs: where the output is found, relative to it
        """
        rules = sorted(self.rules, key=lambda rule: not rule.files)
        globs = tuple(
            dict.fromkeys((*globs, *(beside for pattern in globs for beside in self.secondary_files(pattern))))
        )
        everything = () if self.kind is OutputKind.DIRECTORY else globs
        return WatchedOutput(
            port=self.port,
            root=root,
            globs=globs,
            kind=_NODE_KINDS[self.kind],
            rules=tuple(
                OutputRule(
                    globs=rule.files or everything,
                    committed=rule.committed.kind,
                    closes=rule.committed.closes,
                    file_deps=rule.file_deps,
                    n_files=rule.n_files,
                )
                for rule in rules
            ),
            phases=True if Delivery.STREAM in (*self.deliveries, *self.elements) and not self.when_proven else None,
        )


def _beside(path: str, pattern: str) -> str:
    while pattern.startswith("^"):
        path, pattern = posixpath.splitext(path)[0], pattern[1:]
    return path + pattern


def directory_of(globs: Iterable[str], entry: str) -> str | None:
    """The Directory that an entry belongs to.

    :param globs: those of the Directory, relative to the output directory of the job
    :param entry: the path of a file in it, relative to the same
    """
    parts = entry.split("/")
    for pattern in globs:
        depth = 0 if pattern == "." else pattern.count("/") + 1
        path = "/".join(parts[:depth]) or "."
        if depth < len(parts) and (depth == 0 or matches(pattern, path)):
            return path
    return None


def relative(path: str, directory: str) -> str:
    """A path relative to a directory above it; both as they come from the node runtime, and in StreamFlow's tokens."""
    prefix = f"{directory.rstrip('/')}/"
    # Of a Directory there may be many, and pathlib takes its time.
    return path[len(prefix) :] if path.startswith(prefix) else str(PurePosixPath(path).relative_to(directory))


def relative_or_absolute(path: str, directory: str) -> str:
    """A path relative to a directory if that is above it, else as it is; without `.` and `..`."""
    path = posixpath.normpath(path)
    return relative(path, directory) if PurePosixPath(path).is_relative_to(directory) else path
