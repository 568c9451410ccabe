"""The commands by which StreamFlow looks at files of a location, and makes directories and links there.

A command that is not exactly one of these, or has a path with a character that a shell may change, is not understood.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from typing import Literal, cast

from msgspec import Struct

_PATH = r"(/[A-Za-z0-9_./:@%+=,-]*)"
Kind = Literal["e", "f", "d", "L"]


class MakeDirectory(Struct, frozen=True):
    """Make a directory, perhaps with its parents."""

    path: str
    mode: int


class MakeLink(Struct, frozen=True):
    """Make a symbolic link.

    :ivar target: its text
    """

    path: str
    target: str


class FileTest(Struct, frozen=True):
    """Check whether a file exists, and has the kind of an option of `test`."""

    path: str
    kind: Kind


class Resolve(Struct, frozen=True):
    """Print the real path of a file that exists."""

    path: str


class Find(Struct, frozen=True):
    """Print the path of a file if the file exists. The exit code is 0."""

    path: str


class Size(Struct, frozen=True):
    """Print the bytes in files, and in all files below directories."""

    paths: tuple[str, ...]


class Checksum(Struct, frozen=True):
    """Print the SHA-1 checksum of a file."""

    path: str


FileCommand = MakeDirectory | MakeLink | FileTest | Resolve | Find | Size | Checksum

_FORMS: list[tuple[re.Pattern[str], Callable[[re.Match[str]], FileCommand]]] = [
    (
        re.compile(rf"mkdir -m ([0-7]{{1,4}}) (?:-p )?{_PATH}"),
        lambda found: MakeDirectory(found[2], int(found[1], 8)),
    ),
    (re.compile(rf"ln -snf {_PATH} {_PATH}"), lambda found: MakeLink(found[2], found[1])),
    (re.compile(rf"test -([efdL]) {_PATH}"), lambda found: FileTest(found[2], cast(Kind, found[1]))),
    (re.compile(rf"test -e {_PATH} && readlink -f \1"), lambda found: Resolve(found[1])),
    (re.compile(rf"""set -- {_PATH} ; test -e "\$1" && printf '%s\\n' "\$@" ; :"""), lambda found: Find(found[1])),
    (
        re.compile(
            rf"""find -L ("{_PATH}"(?: "{_PATH}")*) -type f -exec ls -ln {{}} \\\+ """
            r"""\| awk 'BEGIN \{sum=0\} \{sum\+=\$5\} END \{print sum\}'; """
        ),
        lambda found: Size(tuple(re.findall('"([^"]*)"', found[1]))),
    ),
    (re.compile(rf"test -f {_PATH} && sha1sum \1 \| awk '{{print \$1}}'"), lambda found: Checksum(found[1])),
]


def file_command(text: str) -> FileCommand | None:
    """Read a command; None: another command, or one with a path that is not plain."""
    for form, made in _FORMS:
        if (found := form.fullmatch(text)) is not None:
            command = made(found)
            return command if all(map(_is_plain, paths_of(command))) else None
    return None


def concerns_files(text: str) -> bool:
    """Whether a command may be one of these, with a path that is not plain."""
    return text.startswith(("mkdir -m ", "ln -snf ", "test -", "find -L "))


def paths_of(command: FileCommand) -> tuple[str, ...]:
    """The files that a command looks at, or makes."""
    return command.paths if isinstance(command, Size) else (command.path,)


def _is_plain(path: str) -> bool:
    return posixpath.normpath(path) == path
