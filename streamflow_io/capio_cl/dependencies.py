"""What of `file_deps` CAPIO can wait for: names, and no globs, which it compares with nothing. Pure."""

from __future__ import annotations

from dataclasses import replace

from streamflow_io.hints.commit import ON_TERMINATION
from streamflow_io.hints.globs import is_pattern

from .configuration import Configuration


def unresolved(configuration: Configuration) -> dict[str, tuple[str, ...]]:
    """By the path of each file that waits for files whose names are not known, the globs that stand for these."""
    globs = {file.path: tuple(filter(is_pattern, file.file_deps)) for file in configuration.files}
    return {path: deps for path, deps in globs.items() if deps}


def resolved(configuration: Configuration) -> Configuration:
    """The same, where a file that would wait for a glob, and so for ever, is committed at termination."""
    never = unresolved(configuration)
    files = (
        replace(file, committed=ON_TERMINATION, file_deps=()) if file.path in never else file
        for file in configuration.files
    )
    return replace(configuration, files=tuple(files))
