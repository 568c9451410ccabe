"""What is wrong with a hint, and where it was written. Pure data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Generic, TypeVar

Loc = tuple[str | int, ...]
T_co = TypeVar("T_co", covariant=True)


class Level(str, Enum):
    """Where a hint was written, from the nearest to the farthest."""

    ANNOTATIONS = "annotations"
    TOOL = "tool"
    STEP = "step"
    WORKFLOW = "workflow"


@dataclass(frozen=True)
class HintError:
    """One mistake.

    :param line: from 1; None when it cannot be known
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
        """A single mistake; see :class:`HintError`."""
        return cls([HintError(str(file), line, field, message, allowed)])


@dataclass(frozen=True)
class Source:
    """The lines of one piece of a YAML or JSON document.

    :param file: the path of the file
    :param find: gives the :attr:`lines`, when somebody asks: most documents have no mistakes
    """

    file: str
    find: Callable[[], Mapping[Loc, int]] = field(default=dict, repr=False, compare=False)

    @cached_property
    def lines(self) -> Mapping[Loc, int]:
        """Line numbers, from 1, by the way to a value, as in `("rules", 0, "port")`; `()` is the piece."""
        return self.find()

    def line(self, *loc: str | int) -> int | None:
        """The line of a value, or of the nearest thing around it whose line is known."""
        for length in range(len(loc), -1, -1):
            if (line := self.lines.get(loc[:length])) is not None:
                return line
        return None

    def below(self, *loc: str | int) -> Source:
        """The lines of a part of this piece."""
        size = len(loc)
        lines = {key[size:]: line for key, line in self.lines.items() if key[:size] == loc}
        if () not in lines and (line := self.line(*loc)) is not None:
            lines[()] = line
        return Source(self.file, lambda: lines)


@dataclass(frozen=True)
class Located(Generic[T_co]):
    """A value that a user wrote, and where.

    :param value: the value
    :param level: the level it was written at
    :param name: the field it was written in, as in `sfio:Streaming.rules[0]`
    :param source: its lines
    """

    value: T_co
    level: Level
    name: str
    source: Source

    @property
    def file(self) -> str:
        """The file it was written in."""
        return self.source.file

    @property
    def line(self) -> int | None:
        """The line it was written on, from 1; None when unknown."""
        return self.source.line()

    def error(self, message: str, allowed: str, *loc: str | int) -> HintError:
        """A mistake in this value, or in the part of it that `loc` leads to."""
        return HintError(self.file, self.source.line(*loc), field_name(self.name, loc), message, allowed)


def field_name(name: str, loc: Loc) -> str:
    """`("rules", 0, "port")` below `sfio:Streaming` is `sfio:Streaming.rules[0].port`."""
    for key in loc:
        name += f"[{key}]" if isinstance(key, int) else f".{key}" if name else key
    return name


def listed(names: Iterable[str]) -> str:
    """Names, as what is allowed."""
    return ", ".join(sorted(set(names))) or "none"
