"""The tokens of stream edges."""

from __future__ import annotations

import os.path
from collections.abc import Callable, Iterator, Mapping, MutableMapping, MutableSequence
from copy import deepcopy
from pathlib import PurePosixPath
from typing import Any, Literal, TypeVar
from urllib.parse import quote

from msgspec import Struct, convert, to_builtins
from streamflow.core.persistence import Database, DatabaseLoadingContext
from streamflow.core.workflow import Token
from streamflow.workflow.token import ListToken, ObjectToken
from typing_extensions import Self

from streamflow_io.hints.models import FiringRule
from streamflow_io.runtime.protocol import FilePart

T = TypeVar("T", bound=Token)


class StreamSource(Struct, frozen=True):
    """The origin of a file or Directory that is read before its producer has ended.

    :ivar job: the name of the job that writes the file
    :ivar port: the output of its step
    :ivar path: relative to the output directory of the job; each attempt of a job has a directory of its own
    :ivar gate: the kind of the output, if its reader is held at the gate until the commit; None: its bytes are streamed
    :ivar listing: of a Directory at the gate: whether it can be listed when complete, or entry by entry
    """

    job: str
    port: str
    path: str
    gate: Literal["file", "directory"] | None = None
    listing: FiringRule = "update"


def file_value(path: str) -> dict[str, Any]:
    """The CWL value of a File before its commit, without its format."""
    name = PurePosixPath(path)
    root, extension = os.path.splitext(name.name)
    of_file = {"class": "File", "dirname": str(name.parent), "nameroot": root, "nameext": extension}
    return directory_value(path) | of_file


def directory_value(path: str) -> dict[str, Any]:
    """The CWL value of a Directory before its commit."""
    name = PurePosixPath(path)
    return {
        "class": "Directory",
        "path": str(name),
        "location": "file://" + quote(str(name)),
        "basename": name.name,
    }


class StreamToken(Token):  # type: ignore[misc]
    """A File or Directory that is being written: it has a path and a name, but no size, checksum or contents yet.

    A stream token is no `FileToken`. Its path must not be read before the commit, so the data manager does not know it.
    """

    __slots__ = ("source",)

    def __init__(
        self, value: Mapping[str, Any], source: StreamSource, tag: str = "0", recoverable: bool = False
    ) -> None:
        super().__init__(value, tag=tag, recoverable=False)
        self.source = source

    @property
    def recoverable(self) -> bool:
        """Always True, as StreamFlow makes each value of an input that has a default, or is optional.

        A list of tokens that are kept in the database already must not change there. The stream itself is kept as not
        recoverable, and is never available: after the run of its producer there is a file, with a token of its own.
        """
        return True

    @recoverable.setter
    def recoverable(self, recoverable: bool) -> None:
        pass

    @classmethod
    async def _load(cls, row: MutableMapping[str, Any], loading_context: DatabaseLoadingContext) -> Self:
        return cls(row["value"]["file"], StreamSource(**row["value"]["source"]), tag=row["tag"])

    async def _save_value(self, database: Database) -> dict[str, Any]:
        return {"file": self.value, "source": to_builtins(self.source)}

    def retag(self, tag: str) -> StreamToken:
        return StreamToken(self.value, self.source, tag=tag)

    def update(self, value: Mapping[str, Any]) -> StreamToken:
        return StreamToken(value, self.source, tag=self.tag)


class SaidBy(Struct, frozen=True):
    """The attempt that has reported a part.

    :ivar job: the job of the workflow
    :ivar run: the run directory of the attempt, which has a random name
    :ivar node_job: the identifier of the attempt in that directory
    :ivar number: counts the parts that the attempt has reported
    """

    job: str
    run: str
    node_job: str
    number: int


class PartToken(Token):  # type: ignore[misc]
    """A File that no job writes: a part of another file, from which its reader gets the bytes.

    The token has a name and a size. Its path is where the file would have been, or where the node runtime puts it for a
    reader. A part token is no `FileToken`: its path must not be read, so the data manager does not know it.
    """

    __slots__ = ("part", "port", "said_by")

    def __init__(self, value: Mapping[str, Any], part: FilePart, port: str, said_by: SaidBy, tag: str = "0") -> None:
        # Recoverable: a part can be read from its file even when the job that reported the part has ended.
        super().__init__(value, tag=tag, recoverable=True)
        self.part = part
        self.port = port
        self.said_by = said_by

    @classmethod
    async def _load(cls, row: MutableMapping[str, Any], loading_context: DatabaseLoadingContext) -> Self:
        saved = row["value"]
        part, said_by = convert(saved["part"], FilePart), SaidBy(**saved["said_by"])
        return cls(saved["file"], part, saved["port"], said_by, tag=row["tag"])

    async def _save_value(self, database: Database) -> dict[str, Any]:
        part, said_by = to_builtins(self.part), to_builtins(self.said_by)
        return {"file": self.value, "part": part, "port": self.port, "said_by": said_by}

    def retag(self, tag: str) -> PartToken:
        return PartToken(self.value, self.part, self.port, self.said_by, tag=tag)

    def update(self, value: Mapping[str, Any]) -> PartToken:
        return PartToken(value, self.part, self.port, self.said_by, tag=self.tag)


class ScatterSize(Token):  # type: ignore[misc]
    """The size of a scatter whose elements were delivered in another order than that of the list.

    :ivar order: for each element of the list, in order, the last part of the tag with which it was delivered
    """

    __slots__ = ("order",)

    def __init__(self, order: list[int], tag: str = "0") -> None:
        super().__init__(len(order), tag=tag, recoverable=True)
        self.order = order

    @classmethod
    async def _load(cls, row: MutableMapping[str, Any], loading_context: DatabaseLoadingContext) -> Self:
        return cls(row["value"], tag=row["tag"])

    async def _save_value(self, database: Database) -> list[int]:
        return self.order

    def retag(self, tag: str) -> ScatterSize:
        return ScatterSize(self.order, tag=tag)

    def update(self, value: Any) -> ScatterSize:
        return ScatterSize(self.order, tag=self.tag)


def inner_tokens(token: Token) -> list[Token]:
    """The tokens in the token of a list or a record, in order; of any other token an empty list."""
    if isinstance(token, ListToken):
        return list(token.value)
    return list(token.value.values()) if isinstance(token, ObjectToken) else []


def with_inner_tokens(token: Token, change: Callable[[Token], Token]) -> Token:
    """The token of a list or a record, with each inner token changed."""
    if isinstance(token, ObjectToken):
        return token.update({name: change(inner) for name, inner in token.value.items()})
    return token.update([change(inner) for inner in token.value])


def with_own_value(token: Token) -> Token:
    """A copy of the token, with a value that can be changed in place."""
    value: Any = token.value
    if isinstance(value, MutableSequence):
        value = [with_own_value(inner) if isinstance(inner, Token) else deepcopy(inner) for inner in value]
    elif isinstance(value, Mapping):
        value = {
            k: with_own_value(inner) if isinstance(inner, Token) else deepcopy(inner) for k, inner in value.items()
        }
    own = token.update(value)
    own.persistent_id = token.persistent_id
    return own


def stream_tokens(token: Token) -> Iterator[StreamToken]:
    """All stream tokens in a token, in order."""
    return _tokens(token, StreamToken)


def with_files(token: Token, files: Mapping[int, Token]) -> Token:
    """A token, with files in place of some of its streams.

    :param files: the tokens of the files, by the identity of the stream tokens that they replace
    """
    if isinstance(token, StreamToken):
        return files.get(id(token), token)
    if next(stream_tokens(token), None) is None:
        return token
    changed = with_inner_tokens(token, lambda inner: with_files(inner, files))
    changed.persistent_id = token.persistent_id
    return changed


def part_tokens(token: Token | None) -> Iterator[PartToken]:
    """All parts in a token, in order."""
    return iter(()) if token is None else _tokens(token, PartToken)


def _tokens(token: Token, kind: type[T]) -> Iterator[T]:
    if isinstance(token, kind):
        yield token
    else:
        for inner in inner_tokens(token):
            yield from _tokens(inner, kind)


def streams_of(inputs: Mapping[str, Token]) -> list[StreamToken]:
    """All stream tokens in the inputs of a job."""
    return [token for value in inputs.values() for token in stream_tokens(value)]


def parts_of(inputs: Mapping[str, Token]) -> list[tuple[str, PartToken]]:
    """All parts in the inputs of a job, each with the name of its input."""
    return [(name, token) for name, value in inputs.items() for token in part_tokens(value)]


def file_bytes(inputs: Mapping[str, Token]) -> int:
    """The sum of the known sizes of the files in some inputs, in bytes."""
    return sum(file.value.get("size") or 0 for token in inputs.values() for file in file_tokens(token))


def file_tokens(token: Token | None) -> Iterator[Token]:
    """All files and Directories in a token, in order."""
    for inner in inner_tokens(token) if token is not None else ():
        yield from file_tokens(inner)
    if token is not None and isinstance(token.value, Mapping) and token.value.get("class") in ("File", "Directory"):
        yield token
