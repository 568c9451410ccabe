"""What a streaming step does with each of its outputs, as data that is kept with the step."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Literal

from pydantic import BaseModel, ConfigDict

from streamflow_io.coordination.graph import OutputKind
from streamflow_io.hints.globs import matches
from streamflow_io.hints.models import StreamingRule
from streamflow_io.runtime import OutputRule, WatchedOutput

_NODE_KINDS: dict[OutputKind, Literal["file", "files", "directory"]] = {
    OutputKind.FILE: "file",
    OutputKind.FILES: "files",
    OutputKind.DIRECTORY: "directory",
}


def commit_port(port: str) -> str:
    """The name of the port on which an output is delivered at commit."""
    return f"__commit__{port}"


def stream_port(port: str) -> str:
    """The name of the port on which an output is delivered while it is written."""
    return f"__stream__{port}"


def element_port(port: str) -> str:
    """The name of the port on which the elements of a list are delivered one by one."""
    return f"__element__{port}"


class EarlyOutput(BaseModel):
    """An output that is delivered before its job ends.

    :ivar stream, commit: it is delivered while it is written, at commit
    :ivar elements: how the elements of a list are delivered one by one, if they are
    """

    model_config = ConfigDict(frozen=True)

    port: str
    kind: OutputKind
    rules: tuple[StreamingRule, ...]
    stream: bool = False
    commit: bool = False
    elements: Literal["stream", "commit"] | None = None

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

    def commits_early(self, path: str) -> bool:
        rule = self.rule_for(path)
        return rule is not None and rule.committed.kind != "on_termination"

    def watched(self, root: str, globs: tuple[str, ...]) -> WatchedOutput:
        """What the node runtime has to watch.

        :param root: the output directory of the job
        :param globs: where the output is found, relative to it
        """
        rules = sorted(self.rules, key=lambda rule: not rule.files)
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
        )


def relative(path: str, directory: str) -> str:
    """A path relative to a directory above it."""
    return str(PurePosixPath(path).relative_to(directory))
