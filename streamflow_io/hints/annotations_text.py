"""The text of an annotations file, with comments that give the source of each hint."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

Scalar = str | int | float | bool
# Plain for every reader of YAML, also in a list on one line.
_PLAIN = re.compile(r"[A-Za-z_/](?:[A-Za-z0-9_./:-]*[A-Za-z0-9_./-])?")
_WORDS = frozenset(("true", "false", "yes", "no", "on", "off", "null", "y", "n"))


class Commented(Struct, frozen=True):
    """The fields of a rule, and the comments before it."""

    comments: Sequence[str]
    fields: Mapping[str, Scalar | Sequence[str]]


def annotations_text(
    start: Iterable[str],
    rules: Mapping[str, Sequence[Commented]],
    streamable: Mapping[str, Sequence[str]],
    io_tasks: Mapping[str, Sequence[str]] | None = None,
    end: Iterable[str] = (),
    required: Mapping[str, Sequence[str]] | None = None,
    sessions: Mapping[str, Sequence[Commented]] | None = None,
) -> str:
    """Write hints as an annotations file.

    :param start: comments at its beginning
    :param rules: rules of `sfio:Streaming`, by step path
    :param streamable: the streamable ports, as `/step/port`, each with comments
    :param io_tasks: the steps that are I/O tasks, by step path, each with comments
    :param end: comments at its end. No space follows their `#`, so that a user can uncomment lines of YAML
    :param required: the steps with `storageBW: required`, by step path, each with comments
    :param sessions: rules of `sfio:ReadSession`, by step path
    :return: YAML
    """
    io_tasks, required, sessions = io_tasks or {}, required or {}, sessions or {}
    hints = _steps(rules, sessions, io_tasks, required)
    lines = [*_comments(start), *hints, *_streamable(streamable), *_comments(end, space="")]
    if not (rules or sessions or io_tasks or required or streamable):
        lines.append("steps: {}")
    return "\n".join(lines) + "\n"


def _steps(
    rules: Mapping[str, Sequence[Commented]],
    sessions: Mapping[str, Sequence[Commented]],
    io_tasks: Mapping[str, Sequence[str]],
    required: Mapping[str, Sequence[str]],
) -> Iterator[str]:
    steps = dict.fromkeys((*rules, *sessions, *io_tasks, *required))
    if steps:
        yield "steps:"
    for step in steps:
        yield f"  {scalar(step)}:"
        yield from _rules("sfio:Streaming", rules.get(step, ()))
        yield from _rules("sfio:ReadSession", sessions.get(step, ()))
        if step in io_tasks:
            yield from _comments(io_tasks[step], 4)
            yield "    - class: sfio:IOTask"
        if step in required:
            yield from _comments(required[step], 4)
            yield "    - class: sfio:StorageBandwidth"
            yield "      storageBW: required"


def _rules(hint: str, rules: Sequence[Commented]) -> Iterator[str]:
    if rules:
        yield f"    - class: {hint}"
        yield "      rules:"
    for rule in rules:
        yield from _comments(rule.comments, 8)
        for index, (key, value) in enumerate(rule.fields.items()):
            yield f"        {'  ' if index else '- '}{key}: {_value(value)}"


def _streamable(ports: Mapping[str, Sequence[str]]) -> Iterator[str]:
    if ports:
        yield "streamable:"
    for port, comments in ports.items():
        yield from _comments(comments, 2)
        yield f"  - {scalar(port)}"


def _comments(lines: Iterable[str], indent: int = 0, space: str = " ") -> Iterator[str]:
    for line in lines:
        text = line if line.isprintable() else line.encode("unicode_escape").decode("ascii")
        yield f"{' ' * indent}#{space}{text}"


def _value(value: Scalar | Sequence[str]) -> str:
    return scalar(value) if isinstance(value, Scalar) else f"[{', '.join(map(scalar, value))}]"


def scalar(value: Scalar) -> str:
    """Return a value as YAML: in quotes, unless quotes are certainly not needed."""
    if not isinstance(value, str):
        return str(value).lower()
    if _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    return '"' + "".join(map(_quoted, value)) + '"'


def _quoted(char: str) -> str:
    if char in '"\\':
        return f"\\{char}"
    return char if char.isprintable() else f"\\U{ord(char):08x}"
