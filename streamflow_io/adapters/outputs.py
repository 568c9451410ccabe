"""How a streaming step delivers each of its outputs, as data that is saved with the step."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Literal

from pydantic import BaseModel, ConfigDict

from streamflow_io.graph.io_graph import Delivery, OutputKind
from streamflow_io.hints.globs import matches
from streamflow_io.hints.models import StreamingRule
from streamflow_io.runtime.protocol import OutputRule, WatchedOutput, WindowSpec

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
    """The name of the port for the order of the elements of a list that were delivered one by one."""
    return f"__order__{port}"


def is_early_port(port: str) -> bool:
    """Whether a port of a step is one that the plugin has added."""
    return port.startswith((*(f"__{delivery.value}_" for delivery in Delivery), order_port("")))


class EarlyOutput(BaseModel):
    """An output that is delivered before its job ends.

    :ivar deliveries: the ways in which the output is delivered; consumers may get it in different ways
    :ivar elements: the ways in which the elements of a list are delivered one by one; empty: only the list is delivered
    :ivar secondary: the patterns of the secondary files of each file; a file is complete when these are complete
    :ivar of: the input whose parts the program may report; the parts are the elements of the list then
    :ivar fixed_name: other things than its early readers depend on the name of the output
    :ivar fixed: other things than its early readers depend on whether the output exists
    :ivar record: the output that this one is a field of
    :ivar window: the most bytes that a reader may be behind, and the number of readers; None: the file is kept whole
    :ivar waits: whether the job of a window is paused also before its readers have begun
    :ivar when_proven: the output streams only after a proof, made during the run, that its readers can read a stream
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
    window: tuple[int, int] | None = None
    waits: bool = False
    when_proven: bool = False

    @property
    def ports(self) -> tuple[str, ...]:
        """The ports on which the output is delivered early."""
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
        """Whether elements may come after a rule has called the list complete.

        With `on_n_files` and elements delivered one by one, the number of elements is known only at the end of the job.
        """
        return bool(self.elements) and self.rule.committed.kind == "on_n_files"

    def secondary_files(self, path: str) -> tuple[str, ...]:
        """The secondary files of a file, or of the matches of a glob; at the paths where StreamFlow looks for them."""
        return tuple(_beside(path, pattern) for pattern in self.secondary)

    def watched(self, root: str, globs: tuple[str, ...]) -> WatchedOutput:
        """The output as the node runtime has to watch it.

        :param root: the output directory of the job
        :param globs: the globs of the output, relative to `root`
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
            window=None
            if self.window is None
            else WindowSpec(size=self.window[0], readers=self.window[1], waits=self.waits),
        )


def _beside(path: str, pattern: str) -> str:
    while pattern.startswith("^"):
        path, pattern = posixpath.splitext(path)[0], pattern[1:]
    return path + pattern


def directory_of(globs: Iterable[str], entry: str) -> str | None:
    """The Directory that an entry belongs to; None: no glob matches a directory above the entry.

    :param globs: the globs of the Directory, relative to the output directory of the job
    :param entry: the path of a file in it, relative to the same directory
    """
    parts = entry.split("/")
    for pattern in globs:
        depth = 0 if pattern == "." else pattern.count("/") + 1
        path = "/".join(parts[:depth]) or "."
        if depth < len(parts) and (depth == 0 or matches(pattern, path)):
            return path
    return None


def relative(path: str, directory: str) -> str:
    """A path relative to a directory above it; both as node runtimes and StreamFlow's tokens write paths.

    :raises ValueError: if the directory is not above the path
    """
    prefix = f"{directory.rstrip('/')}/"
    # A Directory may have many files, and pathlib is slow.
    return path[len(prefix) :] if path.startswith(prefix) else str(PurePosixPath(path).relative_to(directory))


def relative_or_absolute(path: str, directory: str) -> str:
    """The path relative to the directory, or as it is if the directory is not above it; without `.` and `..`."""
    path = posixpath.normpath(path)
    return relative(path, directory) if PurePosixPath(path).is_relative_to(directory) else path
