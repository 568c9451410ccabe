"""Answers to commands about files that an earlier command has brought along.

StreamFlow looks at one file with several commands, one after the other. Each costs a round trip to the node, and on a
network file system more of them to its server. So a command is sent together with the questions that follow.
"""

from __future__ import annotations

import posixpath
import re
import time
from collections.abc import Callable

from msgspec import Struct

from .shared_files import FileCommand, Said, has_random_name

# Each command of StreamFlow that looks at an output follows the end of the job within milliseconds.
_SECONDS = 2.0
# A directory with more entries is not looked at ahead.
_MOST_FILES = 16
_BLOCKS = 128  # of 512 bytes: the checksum of a larger file is not made ahead
_OUTPUT_OBJECT = "cwl.output.json"
# Prints the real path of the directory, and of each regular file in it that has a plain name: the size, and of a small
# one the checksum.
_LOOK = (
    "test -e {path}; code=$?; {{ cd {directory} && pwd -P && set -- * && test $# -le {files} && for name; do shift; "
    "case $name in -* | *[!A-Za-z0-9_.:@%+=,-]*) ;; *) "
    'if test -f "$name" && ! test -L "$name"; then set -- "$@" "$name"; fi ;; esac; done && test $# -gt 0 && '
    'stat -c \'size %s %n\' -- "$@" && find "$@" -size -{blocks} -exec sha1sum {{}} +; }} 2> /dev/null; exit $code'
)
_MADE = "{text} && {{ cd {path} && pwd -P; :; }}"
_LINKED = "{text} && {{ test -L {path} && echo link; :; }}"
_SIZE = re.compile(r"size (\d+) (\S+)")
_SUM = re.compile(r"([0-9a-f]{40})  (\S+)")
_FOUND: Said = ("", 0)


class _KeptAnswer(Struct):
    """An answer that may be given some more times."""

    said: Said
    uses: int


class _Directory(Struct):
    """The answers about a directory, and about the files in it, until a moment of the clock."""

    until: float
    answers: dict[FileCommand, _KeptAnswer] = {}


def script_of(command: FileCommand, text: str) -> str:
    """Return the script that does what a command does, and prints what :meth:`PrefetchedAnswers.note` reads.

    :param text: the command itself
    """
    path = command.path
    if command.action == "make directory" and has_random_name(path):
        return _MADE.format(text=text, path=path)
    if command.action == "make link":
        return _LINKED.format(text=text, path=path)
    if _is_look_for_output_object(command):
        return _LOOK.format(path=path, directory=posixpath.dirname(path), files=_MOST_FILES, blocks=_BLOCKS)
    return text


class PrefetchedAnswers:
    """Answers that nodes have given ahead, for the commands that follow.

    An answer is given as often as StreamFlow asks until it goes on to the next file, and for two seconds at most. A
    command that may change the file lets the answer be forgotten.

    :param clock: returns seconds
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # By node and path, those that end first in front.
        self._directories: dict[tuple[str, str], _Directory] = {}

    def take(self, node: str, command: FileCommand) -> Said | None:
        """Return the answer to a command. None: the node has to be asked."""
        self._drop_late()
        # A look for a directory comes before anything is put into a new directory.
        for asked in (command, _in_new_directory(command)):
            if asked is not None and (said := self._taken((node, _directory_of(asked)), asked)) is not None:
                return said
        return None

    def note(self, node: str, command: FileCommand, said: Said) -> Said:
        """Keep the answers that the script of a command has printed.

        :param said: what the node has said to the script of :func:`script_of`
        :return: the answer to the command itself
        """
        printed, code = said
        if command.action == "make directory" and has_random_name(command.path) and code == 0:
            self.made(node, command.path)
            if printed.startswith("/") and "\n" not in printed:
                self._keep(node, FileCommand("resolve", command.paths), (printed, 0), 2)
            return _FOUND
        if command.action == "make link" and code == 0:
            if printed == "link":
                self._keep(node, FileCommand("test", command.paths, "L"), _FOUND)
            return _FOUND
        if _is_look_for_output_object(command):
            self._keep_all(node, posixpath.dirname(command.path), printed)
            return "", code
        return said

    def made(self, node: str, directory: str) -> None:
        """Note that a directory was made for an input: a directory of a job, and one in it, have random names."""
        if has_random_name(directory) and has_random_name(posixpath.dirname(directory)):
            self._keep(node, _inside(directory), ("", 1))

    def forget(self, node: str, text: str) -> None:
        """Forget all answers that a command may change.

        :param text: the command, with all paths at which it changes anything
        """
        for key in [key for key in self._directories if key[0] == node and key[1] in text]:
            del self._directories[key]

    def _taken(self, key: tuple[str, str], command: FileCommand) -> Said | None:
        found = self._directories.get(key)
        if found is None or (answer := found.answers.get(command)) is None:
            return None
        answer.uses -= 1
        if answer.uses == 0:
            del found.answers[command]
            if not found.answers:
                del self._directories[key]
        return answer.said

    def _keep_all(self, node: str, directory: str, printed: str) -> None:
        real, *lines = printed.split("\n")
        self._directories.pop((node, directory), None)
        if real != directory:
            return  # a link leads there, or nothing was found
        for line in lines:
            if (found := _SIZE.fullmatch(line)) is not None:
                paths = (f"{directory}/{found[2]}",)
                self._keep(node, FileCommand("find", paths), (paths[0], 0))
                self._keep(node, FileCommand("resolve", paths), (paths[0], 0), 3)
                self._keep(node, FileCommand("test", paths, "f"), _FOUND)
                self._keep(node, FileCommand("size", paths), (found[1], 0))
            elif (found := _SUM.fullmatch(line)) is not None:
                self._keep(node, FileCommand("checksum", (f"{directory}/{found[2]}",)), (found[1], 0))

    def _keep(self, node: str, command: FileCommand, said: Said, uses: int = 1) -> None:
        key = node, _directory_of(command)
        directory = self._directories.setdefault(key, _Directory(self._clock() + _SECONDS))
        directory.answers[command] = _KeptAnswer(said, uses)

    def _drop_late(self) -> None:
        now = self._clock()
        while self._directories and (key := next(iter(self._directories))) and self._directories[key].until < now:
            del self._directories[key]


def _is_look_for_output_object(command: FileCommand) -> bool:
    """Whether a command is the first that StreamFlow runs when the command of a job has ended."""
    is_test = command.action == "test" and command.option == "e"
    return is_test and posixpath.basename(command.path) == _OUTPUT_OBJECT


def _inside(directory: str) -> FileCommand:
    """Stands for a look whether there is a directory in this one, whatever its name."""
    return FileCommand("test", (f"{directory}/",), "d")


def _in_new_directory(command: FileCommand) -> FileCommand | None:
    is_look = command.action == "test" and command.option == "d"
    return _inside(posixpath.dirname(command.path)) if is_look else None


def _directory_of(command: FileCommand) -> str:
    """The directory whose name is in each command that may change the answer."""
    path = command.path.rstrip("/")
    return path if has_random_name(path) else posixpath.dirname(path)
