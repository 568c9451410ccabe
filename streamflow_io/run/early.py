"""What a job has delivered of an output before its end, compared with what the output is in the end. Pure."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping
from typing import Any

from streamflow.core.workflow import Token
from streamflow.workflow.token import ListToken

from .outputs import relative_or_absolute
from .tokens import StreamToken

# Each attempt has its own places. Contents are compared elsewhere, by checksum.
_NOT_COMPARED = frozenset({"path", "location", "dirname", "size", "checksum", "contents", "listing", "secondaryFiles"})


class EarlyDeliveries:
    """What was delivered of one output, over all attempts of its job."""

    def __init__(self) -> None:
        self._facts: dict[str, Mapping[str, Any]] = {}
        self._order: list[str] = []
        self._streamed = True

    def add(self, token: Token, directory: str) -> None:
        """A file, a Directory, an element of a list, or a list as a whole is delivered.

        :param directory: the output directory of the job
        """
        files = {path_of(file, directory): file.value for file in file_tokens(token)}
        for path, value in files.items():
            self._facts.update(with_secondary_files(path, value))
        self._streamed = self._streamed and isinstance(token, StreamToken)
        if isinstance(token, ListToken):
            self._order = list(files)

    def replaced(self, final: Token | None, directory: str) -> Mapping[str, str]:
        """The files that were delivered as streams, or at the gate, and are no part of the output in the end.

        :param final: the output
        :param directory: the output directory of the job that made it
        :return: their names, by path; nothing if anything was delivered otherwise, or there is no File in the end
        """
        files = [] if isinstance(final, ListToken) else [path_of(file, directory) for file in file_tokens(final)]
        if not files or not self._streamed:
            return {}
        return {path: facts["basename"] for path, facts in self._facts.items() if path not in files}

    def difference(self, final: Token | None, directory: str) -> str | None:
        """What is not as it was delivered; None if all is.

        :param final: the output
        :param directory: the output directory of the job that made it
        """
        files = {path_of(file, directory): file.value for file in file_tokens(final)}
        now = {path: value for file in files.items() for path, value in with_secondary_files(*file)}
        for path, facts in sorted(self._facts.items()):
            if path not in now:
                return f"{path} was delivered early, but {_output(list(now))} at the end"
            for name in sorted(facts.keys() - _NOT_COMPARED):
                if now[path].get(name) != facts[name]:
                    told = f"{path} was delivered early with the {name} {facts[name]}"
                    return f"{told}, but has the {name} {now[path].get(name)} at the end"
            if more := sorted(dict(with_secondary_files(path, now[path])).keys() - self._facts.keys()):
                return f"{path} was delivered early without {_some(more)}"
        if self._order and [path for path in files if path in self._order] != self._order:
            return f"{', '.join(self._order[:5])} were delivered early in this order, but are in another at the end"
        return None


def file_tokens(token: Token | None) -> Iterator[Token]:
    """All files and Directories in a token, in order."""
    if isinstance(token, ListToken):
        for element in token.value:
            yield from file_tokens(element)
    elif token is not None and isinstance(token.value, Mapping) and token.value.get("class") in ("File", "Directory"):
        yield token


def with_secondary_files(path: str, value: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """A file and its secondary files, each with its path.

    :param path: that of the file, relative to the output directory of its job
    """
    yield path, value
    for secondary in value.get("secondaryFiles") or ():
        beside = posixpath.relpath(secondary["path"], posixpath.dirname(value["path"]))
        yield posixpath.normpath(posixpath.join(posixpath.dirname(path), beside)), secondary


def path_of(token: Token, directory: str) -> str:
    """The path of a File or Directory, relative to the output directory of its job; as it is if it is elsewhere."""
    return token.source.path if isinstance(token, StreamToken) else relative_or_absolute(token.value["path"], directory)


def _output(paths: list[str]) -> str:
    return f"the output is {_some(paths)}" if paths else "the output is empty"


def _some(paths: list[str]) -> str:
    return f"{', '.join(paths[:5])}{', ...' * (len(paths) > 5)}"
