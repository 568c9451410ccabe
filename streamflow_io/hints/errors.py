"""Mistakes in hints, and the positions where hints were written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Generic, TypeVar

from msgspec import Struct

Loc = tuple[str | int, ...]
T_co = TypeVar("T_co", covariant=True)


class Level(str, Enum):
    """The level at which a hint was written, from the nearest to the farthest."""

    ANNOTATIONS = "annotations"
    TOOL = "tool"
    STEP = "step"
    WORKFLOW = "workflow"


class HintError(Struct, frozen=True):
    """A mistake.

    :param line: from 1. None: no line is shown
    :param field: the field, as in `sfio:Streaming.rules[0].port`
    :param allowed: what may be written instead
    """

    file: str
    line: int | None
    field: str
    message: str
    allowed: str

    def __str__(self) -> str:
        position = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{position}: {self.field}: {self.message}; allowed: {self.allowed}"


class HintErrors(ValueError):  # noqa: N818 (it is several)
    """All mistakes of a document, each once, by file and line.

    :ivar errors: the mistakes; never empty
    """

    def __init__(self, errors: Iterable[HintError]) -> None:
        self.errors: tuple[HintError, ...] = tuple(
            sorted(dict.fromkeys(errors), key=lambda e: (e.file, e.line or 0, e.field, e.message))
        )
        super().__init__("\n".join(str(error) for error in self.errors))

    @classmethod
    def one(cls, file: object, field: str, message: str, allowed: str, line: int | None = None) -> HintErrors:
        """Return an error with a single mistake; see :class:`HintError`."""
        return cls([HintError(str(file), line, field, message, allowed)])


@dataclass(frozen=True)
class Source:
    """The lines of one piece of a YAML or JSON document.

    :param file: the path of the file
    :param find: returns the :attr:`lines`. Called only when a line is needed, because most documents have no mistakes
    """

    file: str
    find: Callable[[], Mapping[Loc, int]] = field(default=dict, repr=False, compare=False)

    @cached_property
    def lines(self) -> Mapping[Loc, int]:
        """Line numbers, from 1, by the keys that lead to a value, as in `("rules", 0, "port")`; `()`: the piece."""
        return self.find()

    def line(self, *loc: str | int) -> int | None:
        """Return the line of a value, or of the nearest value around it whose line is known."""
        for length in range(len(loc), -1, -1):
            if (line := self.lines.get(loc[:length])) is not None:
                return line
        return None

    def below(self, *loc: str | int) -> Source:
        """Return the source of a part of this piece."""
        size = len(loc)
        lines = {key[size:]: line for key, line in self.lines.items() if key[:size] == loc}
        if () not in lines and (line := self.line(*loc)) is not None:
            lines[()] = line
        return Source(self.file, lambda: lines)


class Located(Struct, Generic[T_co], frozen=True):
    """A value that a user wrote, with its position.

    :param value: the value
    :param level: the level at which it was written
    :param name: the field in which it was written, as in `sfio:Streaming.rules[0]`
    :param source: the lines of the value
    """

    value: T_co
    level: Level
    name: str
    source: Source

    @property
    def file(self) -> str:
        """The file in which the value was written."""
        return self.source.file

    @property
    def line(self) -> int | None:
        """The line on which the value was written, from 1. None: unknown."""
        return self.source.line()

    def error(self, message: str, allowed: str, *loc: str | int) -> HintError:
        """Return a mistake in this value, or in the part of it at `loc`."""
        return HintError(self.file, self.source.line(*loc), field_name(self.name, loc), message, allowed)


def field_name(name: str, loc: Loc) -> str:
    """Return the name of a field: `("rules", 0, "port")` below `sfio:Streaming` is `sfio:Streaming.rules[0].port`."""
    for key in loc:
        name += f"[{key}]" if isinstance(key, int) else f".{key}" if name else key
    return name


def listed(names: Iterable[str]) -> str:
    """Return names as the text of allowed values."""
    return ", ".join(sorted(set(names))) or "none"
